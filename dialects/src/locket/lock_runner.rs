//! The runner that holds a lock, or ends.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_proto::locket::TypeCode;

use super::runner::{BoxError, Runner};
use super::tenure::{Failure, Tenure, settings};
use super::{Error, Locket};

/// Asks for a lock until it has it, and is ready then; renews it, and ends as soon as that fails.
///
/// 1. It locks once, however long that takes. If that fails it fetches who has the key, and writes it down.
/// 2. Every retry interval, counted from the last answer, it locks again, with the interval as deadline, waiting for a
///    server that cannot be reached. Other owners are not written down again.
/// 3. At the signal it releases the lock and ends without an error. An attempt that is under way is waited for, but for
///    the first.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs"]
pub struct LockRunner(pub(super) Tenure);

settings!(LockRunner);

/// A renewal failed. The lock may be held still, for the rest of its time to live.
#[derive(Debug, thiserror::Error)]
#[error("lost lock ({}), request-uuid {uuid}: {cause}", if .cause.is_timeout() { "request timed out" } else { "request failed" })]
pub struct LostLock {
    /// The name of the call that failed, as the server wrote it down.
    pub uuid: String,
    /// Why it failed.
    #[source]
    pub cause: Error,
}

impl LockRunner {
    /// For this key, as this owner.
    pub fn new(locket: Locket, key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self(Tenure::new(locket, key.into(), owner.into(), TypeCode::Lock))
    }

    /// Runs until the signal. `ready` is told when the lock is held first.
    ///
    /// # Errors
    /// If the lock was held and could not be renewed.
    pub async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), LostLock> {
        self.0.run(signal, ready, |Failure { uuid, cause }| Err(LostLock { uuid, cause })).await
    }
}

impl Runner for LockRunner {
    async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), BoxError> {
        Ok(self.run(signal, ready).await?)
    }
}
