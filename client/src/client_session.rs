//! What a client can be told about its session.

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::{Capabilities, Holds, Request, Response, SessionId};

use crate::error::Result;
use crate::loss::LossReason;
use crate::shared_session::SessionState;
use crate::snapshot::HeldLock;
use crate::space::Space;

/// The session of a client as it is now, from [`Client::session`](crate::Client::session).
///
/// All connections of the client belong to it, and every frame on any of them keeps it. When it ends, all locks on its
/// lease are lost together; the client then opens another one by itself as soon as it needs it.
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

    /// The id; `None` if the client had no session when it was asked.
    pub fn id(&self) -> Option<SessionId> {
        self.state.id
    }

    /// How long the session outlives its last frame.
    pub fn lease(&self) -> Duration {
        self.state.lease
    }

    /// What is left until it must be taken for lost, unless it is kept; zero once it is lost. Never more than the server
    /// gives it.
    pub fn remaining(&self) -> Duration {
        let now = self.space.session.state();
        match now.loss.reason() {
            None if now.id == self.state.id => now.deadline.since(self.space.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// Version of the protocol that the server chose for the newest connection of the client.
    pub fn protocol_version(&self) -> u16 {
        self.state.version
    }

    /// Optional parts of the protocol that the server offers, as it told the newest connection of the client. `None` if the
    /// server speaks version 1: then nothing is known, and asking finds out.
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

    /// Why it is lost, if it is.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.state.loss.reason()
    }

    /// Ends when the session is lost: when the server says so, or when it could not be kept in time. The future does not
    /// borrow this, and never ends if the client is closed first.
    pub fn expired(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let loss = Arc::clone(&self.state.loss);
        async move { loss.wait().await }
    }

    /// All holds that the server knows of the connections of this client, of whatever kind, in no particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn holds(&self) -> Result<Vec<HeldLock>> {
        let mut holds = Vec::new();
        for link in self.space.holding_links() {
            let encode = |cursor, number, out: &mut Vec<u8>| {
                Request::Holds(Holds { cursor, count_max: 0 }).encode(number, out);
            };
            let read = |response: Response<'_>| match response {
                Response::Listed(listed) => {
                    Some((listed.next, listed.locks.iter().map(Into::into).collect()))
                }
                _ => None,
            };
            holds.extend(link.ask_all(encode, read).await?);
        }
        Ok(holds)
    }
}
