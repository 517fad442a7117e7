//! Parts of the client that `waymaker-dialects` needs. Other crates must not use them: they may change in any version.

use std::sync::Arc;

use crate::client::Client;
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::request::claim::FenceScope;

pub use crate::connection::backoff::Backoff;
pub use crate::connection::server_protocol::Protocol;
pub use crate::deadline::{Anchor, LeaseReport, deadline, margin};

/// Returns the clock of this client.
pub fn clock(client: &Client) -> Arc<dyn Clock> {
    Arc::clone(&client.space().clock)
}

/// Creates a timer on the clock of this client, in the runtime of its connections.
///
/// # Errors
///
/// [`Error::Unavailable`](crate::Error::Unavailable) if the system has no timer left.
pub fn timer(client: &Client) -> Result<Box<dyn Timer>> {
    client.space().timer()
}

/// Spawns a task in the runtime of the connections of this client.
pub fn spawn(client: &Client, task: impl Future<Output = ()> + Send + 'static) {
    client.space().spawn(task);
}

/// Returns the number of a fence scope in the protocols of Waymaker.
pub fn scope_number(scope: FenceScope) -> u8 {
    scope.number()
}
