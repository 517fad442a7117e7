//! The session of a client, as [`Client::session`](crate::Client::session) shows it. The module `session` has the state
//! that the connections share.

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::{Capabilities, Holds, Request, Response, SessionId};

use crate::error::Result;
use crate::loss::LossReason;
use crate::session::SessionState;
use crate::snapshot::HeldLock;
use crate::space::Space;

/// Session of a client, from [`Client::session`](crate::Client::session) or
/// [`Client::sessions`](crate::Client::sessions). Its id, lease, version and capabilities are those at the time of that
/// call.
///
/// All connections of the client to one worker of the server belong to one session, and every frame that the client
/// sends on any of them renews it. When it ends, all locks on its lease are lost together. The client opens another
/// session by itself as soon as it needs one.
#[derive(Clone, Debug)]
pub struct ClientSession {
    space: Arc<Space>,
    state: SessionState,
}

impl ClientSession {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        let state = space.session.state();
        Self { space, state }
    }

    /// Returns the id of the session that the client had when it returned this `ClientSession`; `None` if it had no
    /// session then.
    pub fn id(&self) -> Option<SessionId> {
        self.state.id
    }

    /// Returns how long the session survives after the last frame of the client. Without a connection and without a
    /// claim, it may end earlier.
    pub fn lease(&self) -> Duration {
        self.state.lease
    }

    /// Returns the time until the session counts as lost if it is not renewed; zero once it is lost or replaced by
    /// another session. As long as the session has a connection or a claim, the returned time is never longer than the
    /// time after which the server would end it.
    pub fn remaining(&self) -> Duration {
        let now = self.space.session.state();
        match now.loss.reason() {
            None if now.id == self.state.id => now.deadline.since(self.space.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// Returns the version of the protocol that the server chose for the newest connection of the session.
    pub fn protocol_version(&self) -> u16 {
        self.state.version
    }

    /// Returns the optional parts of the protocol that the server offers, from the newest welcome. `None` if the server
    /// speaks version 1: such a server reports no optional parts, and only a request shows whether it supports a part.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// use waymaker_client::Capabilities;
    /// let session = client.session();
    /// let is_durable = session.server_capabilities().map(|offered| offered.contains(Capabilities::SCOPE_LOCAL));
    /// # assert_eq!(is_durable, Some(false));
    /// # Ok(())
    /// # });
    /// ```
    pub fn server_capabilities(&self) -> Option<Capabilities> {
        self.state.capabilities
    }

    /// Returns why the session is lost, or `None` if it lives, or if the client was closed before the loss.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.state.loss.reason()
    }

    /// Returns a future that ends when the session is lost: when the server reports it, or when the client could not
    /// renew it in time. The future does not borrow this value, and never ends if the client is closed first.
    pub fn expired(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let loss = Arc::clone(&self.state.loss);
        async move { loss.wait().await }
    }

    /// Returns all holds that the server has for the open connections of this session, or of the session that has
    /// replaced it. The holds are of every kind and in no particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn holds(&self) -> Result<Vec<HeldLock>> {
        let mut holds = Vec::new();
        for handle in self.space.holding_handles() {
            let encode = |cursor, number, out: &mut Vec<u8>| {
                Request::Holds(Holds { cursor, count_max: 0 }).encode(number, out);
            };
            let read = |response: Response<'_>| match response {
                Response::Listed(listed) => {
                    Some((listed.next, listed.locks.iter().map(Into::into).collect()))
                }
                _ => None,
            };
            holds.extend(handle.ask_all(encode, read).await?);
        }
        Ok(holds)
    }
}
