//! State machine of one connection, as the client sees it: requests, and the effect of each response. No I/O.

use super::error::{CloseReason, LocktopusError, Result};
use super::message::{Action, Answer, State};

/// State of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    phase: Phase,
    /// Number of requested locks, which identifies the current one.
    number: u64,
    /// Id of the last lock, once the server has sent it.
    lock_id: Option<String>,
    /// Reason for the end of the connection; nothing changes afterwards.
    end: Option<CloseReason>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Ready,
    /// The server has not reported yet whether the lock waits.
    Requested,
    Enqueued,
    Acquired,
    /// The release is sent. Messages about the lock in the meantime have crossed with it.
    Releasing,
}

/// Progress of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Requested,
    Enqueued,
    Acquired,
    Releasing,
    Released,
    /// The connection ended first.
    Over(CloseReason),
}

impl Progress {
    /// Returns whether the lock is held, or an error once it has ended.
    pub(super) fn outcome(self) -> Result<bool> {
        match self {
            Self::Requested | Self::Enqueued => Ok(false),
            Self::Acquired => Ok(true),
            Self::Releasing | Self::Released => Err(LocktopusError::ReleasedBeforeAcquired),
            Self::Over(reason) => Err(LocktopusError::Closed(reason)),
        }
    }
}

impl Session {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn lock_id(&self) -> Option<&str> {
        self.lock_id.as_deref()
    }

    pub(super) fn end(&self) -> Option<&CloseReason> {
        self.end.as_ref()
    }

    pub(super) fn is_acquired(&self) -> bool {
        self.phase == Phase::Acquired && self.end.is_none()
    }

    pub(super) fn is_releasing(&self) -> bool {
        self.phase == Phase::Releasing && self.end.is_none()
    }

    /// Returns the number of the lock that a task may wait for.
    pub(super) fn current(&self) -> Result<u64> {
        self.check_open()?;
        match (self.phase, self.number) {
            (Phase::Ready, 0) => Err(LocktopusError::NotLocked),
            (Phase::Ready | Phase::Releasing, _) => Err(LocktopusError::ReleasedBeforeAcquired),
            (Phase::Requested | Phase::Enqueued | Phase::Acquired, number) => Ok(number),
        }
    }

    /// Begins another lock. Returns true if the request must be sent, and false if a pending release must end first.
    pub(super) fn ask_lock(&mut self) -> Result<bool> {
        self.check_open()?;
        match self.phase {
            Phase::Ready => {
                self.phase = Phase::Requested;
                self.number += 1;
                self.lock_id = None;
                Ok(true)
            }
            Phase::Releasing => Ok(false),
            Phase::Requested | Phase::Enqueued | Phase::Acquired => Err(LocktopusError::Locked),
        }
    }

    /// Begins a release. Returns true if the request must be sent, and false if it is already sent.
    pub(super) fn ask_release(&mut self) -> Result<bool> {
        self.check_open()?;
        match self.phase {
            Phase::Ready => Err(LocktopusError::NotLocked),
            Phase::Releasing => Ok(false),
            Phase::Requested | Phase::Enqueued | Phase::Acquired => {
                self.phase = Phase::Releasing;
                Ok(true)
            }
        }
    }

    /// Handles a response of the server.
    ///
    /// # Errors
    ///
    /// Returns the response if it belongs to no request.
    pub(super) fn handle(&mut self, answer: Answer) -> std::result::Result<(), Answer> {
        let is_about_ours = self.lock_id.as_ref().is_none_or(|id| *id == answer.id);
        let phase = match (self.phase, answer.action, answer.state) {
            _ if !is_about_ours => return Err(answer),
            (Phase::Requested, Action::Lock, State::Enqueued) => Phase::Enqueued,
            (Phase::Requested | Phase::Enqueued, Action::Lock, State::Acquired) => Phase::Acquired,
            (Phase::Releasing, Action::Lock, State::Enqueued | State::Acquired) => Phase::Releasing,
            (Phase::Releasing, Action::Release, State::Ready) => Phase::Ready,
            _ => return Err(answer),
        };
        self.phase = phase;
        self.lock_id = Some(answer.id);
        Ok(())
    }

    /// Returns the progress of the lock with this number.
    pub(super) fn progress(&self, number: u64) -> Progress {
        if self.number != number || self.phase == Phase::Ready {
            return Progress::Released;
        }
        match (&self.end, self.phase) {
            (Some(reason), _) => Progress::Over(reason.clone()),
            (None, Phase::Requested) => Progress::Requested,
            (None, Phase::Enqueued) => Progress::Enqueued,
            (None, Phase::Acquired) => Progress::Acquired,
            (None, Phase::Releasing) => Progress::Releasing,
            (None, Phase::Ready) => Progress::Released,
        }
    }

    /// Records the end of the connection. Returns true for the first reason; later reasons are ignored.
    pub(super) fn end_with(&mut self, reason: CloseReason) -> bool {
        let is_news = self.end.is_none();
        self.end.get_or_insert(reason);
        is_news
    }

    fn check_open(&self) -> Result<()> {
        self.end.clone().map_or(Ok(()), |reason| Err(LocktopusError::Closed(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, action: Action, state: State) -> Answer {
        Answer { id: id.to_owned(), action, state }
    }

    fn enqueued() -> Session {
        let mut session = Session::default();
        assert_eq!(session.ask_lock(), Ok(true));
        session.handle(answer("7", Action::Lock, State::Enqueued)).unwrap();
        session
    }

    #[test]
    fn an_acquired_message_that_crosses_a_release_is_ignored() {
        let mut session = enqueued();
        assert_eq!(session.ask_release(), Ok(true));
        session.handle(answer("7", Action::Lock, State::Acquired)).unwrap();
        assert_eq!(session.progress(1), Progress::Releasing);
        session.handle(answer("7", Action::Release, State::Ready)).unwrap();
        assert_eq!(session.progress(1), Progress::Released);
        assert!(!session.is_acquired());
    }

    #[test]
    fn a_release_may_be_sent_before_the_lock_is_answered() {
        let mut session = Session::default();
        assert_eq!((session.ask_lock(), session.ask_release()), (Ok(true), Ok(true)));
        assert_eq!(session.ask_lock(), Ok(false));
        for state in [State::Enqueued, State::Acquired] {
            session.handle(answer("7", Action::Lock, state)).unwrap();
        }
        session.handle(answer("7", Action::Release, State::Ready)).unwrap();
        assert_eq!(session.ask_lock(), Ok(true));
    }

    #[test]
    fn unrequested_messages_are_errors() {
        for (action, state) in [
            (Action::Lock, State::Ready),
            (Action::Lock, State::Enqueued),
            (Action::Release, State::Acquired),
            (Action::Release, State::Ready),
        ] {
            assert!(enqueued().handle(answer("7", action, state)).is_err(), "{action:?} {state:?}");
            assert!(Session::default().handle(answer("7", action, state)).is_err(), "{action:?} {state:?}");
        }
        assert!(enqueued().handle(answer("8", Action::Lock, State::Acquired)).is_err());
    }

    #[test]
    fn a_lock_is_lost_with_its_connection_for_the_first_reason() {
        let mut session = enqueued();
        session.handle(answer("7", Action::Lock, State::Acquired)).unwrap();
        assert!(session.is_acquired());
        assert!(session.end_with(CloseReason::ByClient));
        assert!(!session.end_with(CloseReason::Lost(String::new())));
        assert!(!session.is_acquired());
        let closed = LocktopusError::Closed(CloseReason::ByClient);
        assert_eq!(session.progress(1).outcome(), Err(closed.clone()));
        assert_eq!(session.ask_release(), Err(closed.clone()));
        assert_eq!(session.current(), Err(closed));
    }
}
