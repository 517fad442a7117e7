//! The runner that keeps a presence, whatever happens.

use std::convert::Infallible;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_proto::locket::TypeCode;

use super::Locket;
use super::runner::{BoxError, Runner};
use super::tenure::{Tenure, settings};

/// Keeps a presence: as a [`LockRunner`](super::LockRunner), but if a renewal fails it goes on asking, and stays ready.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs"]
pub struct PresenceRunner(Tenure);

settings!(PresenceRunner);

impl PresenceRunner {
    /// For this key, as this owner.
    pub fn new(locket: Locket, key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self(Tenure::new(locket, key.into(), owner.into(), TypeCode::Presence))
    }

    /// Runs until the signal. `ready` is told when it is present first.
    pub async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) {
        let Ok(()) = self.0.run(signal, ready, |_| Ok::<_, Infallible>(())).await;
    }
}

impl Runner for PresenceRunner {
    async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), BoxError> {
        self.run(signal, ready).await;
        Ok(())
    }
}
