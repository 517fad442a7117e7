//! The runner that ends when it loses its lock.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_proto::locket::TypeCode;

use super::runner::{BoxError, Runner};
use super::tenure::{Failure, Tenure, settings};
use super::{Error, Locket};

/// Requests a lock until it holds the lock, and is ready then. It renews the lock, and ends as soon as a renewal fails.
///
/// 1. It sends one lock request without a deadline. If the request fails, it fetches and logs the holder of the key.
/// 2. After each retry interval, counted from the last response, it locks again. The deadline of the request is the interval, within
///    which it also waits for an unreachable server. It does not log other owners again.
/// 3. At the signal it releases the lock and ends without an error. It waits for an unfinished attempt, except for the first one.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs"]
pub struct LockRunner(pub(super) Tenure);

settings!(LockRunner);

/// A renewal failed. The lock may still be held for the rest of its time to live.
#[derive(Debug, thiserror::Error)]
#[error("lost lock ({}), request-uuid {uuid}: {cause}", if .cause.is_timeout() { "request timed out" } else { "request failed" })]
pub struct LostLock {
    /// Name of the failed call, as in the log of the server.
    pub uuid: String,
    /// Reason for the failure.
    #[source]
    pub cause: Error,
}

impl LockRunner {
    /// Creates a runner for this key and this owner.
    pub fn new(locket: Locket, key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self(Tenure::new(locket, key.into(), owner.into(), TypeCode::Lock))
    }

    /// Runs until the signal. Sends to `ready` when the lock is held for the first time.
    ///
    /// # Errors
    /// [`LostLock`] if the lock was held and could not be renewed.
    pub async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), LostLock> {
        self.0.run(signal, ready, |Failure { uuid, cause }| Err(LostLock { uuid, cause })).await
    }
}

impl Runner for LockRunner {
    async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), BoxError> {
        Ok(self.run(signal, ready).await?)
    }
}
