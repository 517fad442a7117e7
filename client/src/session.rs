//! The session that all connections of a client share. This module has the operations of the connections: they open,
//! join, keep and leave the session. Users of the client see the session as a [`ClientSession`](crate::ClientSession).
//!
//! The first connection that finds no session opens one; the others join it. A connection that reconnects resumes its
//! lane of the session. A connection that learns of the session's end informs the others. The last connection to
//! leave ends the session.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use waymaker_protocol::{Capabilities, SessionId, SessionRequest};

use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::loss::{Loss, LossReason};

/// The session that all connections of a client share.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    lease: Duration,
    /// Latest local deadline that any connection has computed. If no connection renews the session until then, the
    /// client counts it as lost.
    deadline: BootTime,
    loss: Arc<Loss>,
    /// Callbacks that inform the connections of the end of the session.
    members: Vec<Member>,
    /// Number of connections that have entered and not left.
    member_count: usize,
    /// Whether the client was closed, so that no connection may enter any more.
    closed: bool,
    /// Version of the protocol in the newest welcome; 0 before the first.
    version: u16,
    /// Capabilities in the newest welcome.
    capabilities: Option<Capabilities>,
    /// Number that selects the address of the server for all connections: the index of the address is its remainder by
    /// the number of addresses. It rises by 1 when the client moves to the next address.
    endpoint: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// One connection is opening the session.
    Opening,
    Open(SessionId),
}

/// Current state of the session.
#[derive(Clone, Debug)]
pub(crate) struct SessionState {
    /// Id of the session; `None` while there is none.
    pub(crate) id: Option<SessionId>,
    pub(crate) lease: Duration,
    pub(crate) deadline: BootTime,
    pub(crate) loss: Arc<Loss>,
    /// Version of the protocol in the newest welcome; 0 before the first.
    pub(crate) version: u16,
    /// Capabilities in the newest welcome.
    pub(crate) capabilities: Option<Capabilities>,
}

/// Callback that informs a connection of the session's end. It returns false if the connection has ended.
///
/// The callback must not keep the connection alive. Otherwise the connection would never notice that the client has
/// dropped all handles to it.
pub(crate) struct Member(Box<dyn Fn(SessionId) -> bool + Send>);

impl Member {
    pub(crate) fn new(tell_gone: impl Fn(SessionId) -> bool + Send + 'static) -> Self {
        Self(Box::new(tell_gone))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Member").finish_non_exhaustive()
    }
}

impl Session {
    /// Adds a connection, which must later call `leave`. Fails with [`Error::Closed`] if the client was closed.
    pub(crate) fn enter(&self, member: Member) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::Closed);
        }
        state.members.push(member);
        state.member_count += 1;
        Ok(())
    }

    /// Removes a connection. Returns `true` for the last connection, which should send the goodbye (the request that
    /// ends the session) if it can.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.member_count -= 1;
        state.member_count == 0
    }

    /// Rejects new connections from now on.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// Returns the session that the HELLO of a connection must request: a new session, to join the present session, or
    /// to resume `lane` if it belongs to the present session. A caller that gets a new session to request must later
    /// call `opened` or `not_opened`. Until then, other connections get `None`.
    pub(crate) fn request(&self, lane: Option<(SessionId, u16)>, lease_ms: u32) -> Option<SessionRequest> {
        let mut state = self.lock();
        match (state.stage, lane) {
            (Stage::Open(id), Some((own, lane))) if own == id => Some(SessionRequest::Resume { id, lane }),
            (Stage::Open(id), _) => Some(SessionRequest::Join { id }),
            (Stage::Opening, _) => None,
            (Stage::None, _) => {
                state.stage = Stage::Opening;
                Some(SessionRequest::New { lease_ms })
            }
        }
    }

    /// Returns the endpoint to try, as a number that only rises. Modulo the count of endpoints, it is an index of the
    /// list of endpoints.
    pub(crate) fn endpoint(&self) -> usize {
        self.lock().endpoint
    }

    /// Notes that no server serves the client at this endpoint. The first connection to report it moves all connections
    /// to the next endpoint.
    pub(crate) fn leave_endpoint(&self, endpoint: usize) {
        let mut state = self.lock();
        if state.endpoint == endpoint {
            state.endpoint += 1;
        }
    }

    /// Records that the server has welcomed a connection to this session, so that other connections of the client can
    /// join the session. For a new session, also resets the local deadline and the loss. `lease` is the time that the
    /// session survives without a frame.
    pub(crate) fn opened(&self, id: SessionId, lease: Duration) {
        let mut state = self.lock();
        if state.stage != Stage::Open(id) {
            state.stage = Stage::Open(id);
            state.deadline = BootTime::default();
            state.loss = Arc::default();
        }
        state.lease = lease;
    }

    /// Notes version and capabilities of the newest welcome.
    pub(crate) fn served_by(&self, version: u16, capabilities: Option<Capabilities>) {
        let mut state = self.lock();
        (state.version, state.capabilities) = (version, capabilities);
    }

    /// Records that the connection that was opening the session has failed. Any connection of the client may then
    /// request a new session.
    pub(crate) fn not_opened(&self) {
        let mut state = self.lock();
        if state.stage == Stage::Opening {
            state.stage = Stage::None;
        }
    }

    /// Notes that the server has ended this session, and informs all connections. Has no effect if another session is
    /// open.
    pub(crate) fn gone(&self, id: SessionId) {
        let mut state = self.lock();
        if state.stage != Stage::Open(id) {
            return;
        }
        state.stage = Stage::None;
        state.loss.set(LossReason::SessionExpired, "");
        // A callback returns false if its connection has ended; remove it.
        state.members.retain(|member| member.0(id));
    }

    /// Notes that a connection has computed `deadline` as the local deadline of this session. An earlier deadline than
    /// the known one changes nothing.
    pub(crate) fn kept(&self, id: SessionId, deadline: BootTime) {
        let mut state = self.lock();
        if state.stage == Stage::Open(id) {
            state.deadline = state.deadline.max(deadline);
            if state.loss.reason().is_some() {
                // `look` has declared the session lost at its local deadline, but a later response proves that the
                // session lives. Clear the loss.
                state.loss = Arc::default();
            }
        }
    }

    /// Returns the latest local deadline of the session that any connection knows.
    pub(crate) fn deadline(&self) -> BootTime {
        self.lock().deadline
    }

    /// Declares the session lost if its deadline has passed, and then returns [`BootTime::NEVER`]. Otherwise returns
    /// the deadline, at which the caller must look again.
    pub(crate) fn look(&self, now: BootTime) -> BootTime {
        let state = self.lock();
        if now < state.deadline {
            return state.deadline;
        }
        state.loss.set(LossReason::LocalDeadline, "");
        BootTime::NEVER
    }

    pub(crate) fn state(&self) -> SessionState {
        let state = self.lock();
        let id = match state.stage {
            Stage::Open(id) => Some(id),
            _ => None,
        };
        SessionState {
            id,
            lease: state.lease,
            deadline: state.deadline,
            loss: Arc::clone(&state.loss),
            version: state.version,
            capabilities: state.capabilities,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock, so the state stays consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const FIRST: SessionId = SessionId { place: 1, secret: 1 };
    const SECOND: SessionId = SessionId { place: 2, secret: 2 };
    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn one_connection_opens_the_session_and_the_others_join_or_resume() {
        let session = Session::default();
        assert_eq!(session.request(None, 5), Some(SessionRequest::New { lease_ms: 5 }));
        assert_eq!(session.request(None, 5), None);
        session.not_opened();
        assert_eq!(session.request(None, 5), Some(SessionRequest::New { lease_ms: 5 }));
        session.opened(FIRST, LEASE);
        assert_eq!(session.request(None, 5), Some(SessionRequest::Join { id: FIRST }));
        let resume = SessionRequest::Resume { id: FIRST, lane: 3 };
        assert_eq!(session.request(Some((FIRST, 3)), 5), Some(resume));
        assert_eq!(session.request(Some((SECOND, 3)), 5), Some(SessionRequest::Join { id: FIRST }));
    }

    #[test]
    fn only_the_end_of_the_current_session_is_reported() {
        let session = Session::default();
        let (sender, told) = mpsc::channel();
        session.enter(Member::new(move |id| sender.send(id).is_ok())).unwrap();
        session.opened(FIRST, LEASE);
        let loss = session.state().loss;
        session.gone(FIRST);
        assert_eq!(loss.reason(), Some(LossReason::SessionExpired));
        assert_eq!(told.try_recv(), Ok(FIRST));
        session.opened(SECOND, LEASE);
        session.gone(FIRST);
        assert_eq!(session.state().id, Some(SECOND));
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn a_session_lasts_as_long_as_any_connection_keeps_it() {
        let session = Session::default();
        let at = |seconds: u64| BootTime::from_nanos(seconds * 1_000_000_000);
        session.opened(FIRST, LEASE);
        session.kept(FIRST, at(20));
        session.kept(FIRST, at(15));
        assert_eq!(session.look(at(15)), at(20));
        assert_eq!(session.state().loss.reason(), None);
        assert_eq!(session.look(at(20)), BootTime::NEVER);
        assert_eq!(session.state().loss.reason(), Some(LossReason::LocalDeadline));
        session.kept(FIRST, at(30));
        assert_eq!(session.state().loss.reason(), None);
    }

    #[test]
    fn the_last_connection_sends_goodbye_and_a_closed_client_admits_none() {
        let session = Session::default();
        for _ in 0..2 {
            session.enter(Member::new(|_| true)).unwrap();
        }
        assert!(!session.leave());
        session.close();
        assert!(session.enter(Member::new(|_| true)).is_err());
        assert!(session.leave());
    }
}
