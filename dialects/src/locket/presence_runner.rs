//! The runner that keeps a presence after failures.

use std::convert::Infallible;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_proto::locket::TypeCode;

use super::Locket;
use super::runner::{BoxError, Runner};
use super::tenure::{Tenure, settings};

/// Keeps a presence like a [`LockRunner`](super::LockRunner). If a renewal fails, it tries again and stays ready.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs"]
pub struct PresenceRunner(Tenure);

settings!(PresenceRunner);

impl PresenceRunner {
    /// Creates a runner for this key and this owner.
    pub fn new(locket: Locket, key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self(Tenure::new(locket, key.into(), owner.into(), TypeCode::Presence))
    }

    /// Runs until the signal. Sends to `ready` when the presence is registered for the first time.
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
