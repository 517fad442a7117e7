//! Loss of a lock: reasons and callbacks.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use waymaker_protocol::RevokeReason;

/// Reason for which a guard no longer holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The server ended the lease, or does not know the lock any more.
    Expired,
    /// The server revoked the lock, or a client released it by its id; the value says which.
    Revoked(RevokeReason),
    /// The session ended, and with it the locks on its lease. Locks with a [request
    /// id](crate::AcquireBuilder::request_id) are lost too: another client may have taken them over, and the server
    /// reports that only to a live session.
    SessionExpired,
    /// The local deadline passed, because the lock was not renewed in time. The server may still consider the lock
    /// held, or another client may hold it by now.
    LocalDeadline,
    /// The client was closed, or its runtime has shut down, so the lease is no longer renewed.
    ClientClosed,
    /// A newer acquire with the same request id took over the hold, in this client or in another one. The newer guard
    /// holds the lock; releasing or dropping the older guard changes nothing.
    Superseded,
    /// The guard released the lock, forgot it, or was dropped. This is no loss:
    /// [`on_loss`](crate::AcquireBuilder::on_loss) is not called.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Expired => "its lease expired, or the server no longer knows it",
            Self::Revoked(RevokeReason::ReleasedElsewhere) => "another client that knows its id released it",
            Self::Revoked(RevokeReason::ConnectionLost) => {
                "the connection was lost for longer than its grace period"
            }
            Self::Revoked(RevokeReason::Forced) => "an operator released it",
            Self::Revoked(RevokeReason::Other(number)) => {
                return write!(formatter, "the server revoked it (reason {number})");
            }
            Self::SessionExpired => "the session expired",
            Self::LocalDeadline => "it could not be renewed in time",
            Self::ClientClosed => "the client was closed",
            Self::Superseded => "a newer acquire with the same request id took over the lock",
            Self::Released => "its guard released it",
        })
    }
}

/// Callback that runs once when a lock is lost. The task that calls or drops it serves all locks of a connection, so a
/// panic of the callback must not end that task.
pub(crate) struct LossCallback(Option<Box<dyn FnOnce(LossReason) + Send>>);

impl LossCallback {
    pub(crate) fn new(call: impl FnOnce(LossReason) + Send + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    pub(crate) fn call(mut self, reason: LossReason) {
        if let Some(call) = self.0.take() {
            contain(|| call(reason));
        }
    }
}

impl Drop for LossCallback {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            contain(|| drop(call));
        }
    }
}

/// Runs a function, and logs its panic instead of passing it on.
fn contain(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        tracing::error!("a callback for the loss of a lock panicked");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // Dropping the value of the first panic caused this second panic. Forget the second value, since dropping
            // it could panic again.
            std::mem::forget(panic);
        }
    }
}

/// Loss of a lock: set once, awaited by any number of tasks.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    /// Reason and message of the loss. Boxed, since few locks are lost.
    told: OnceLock<Box<(LossReason, Box<str>)>>,
    /// Whether the guard released or forgot the hold. Nearly every guard sets this flag, and setting it is cheaper than
    /// storing a boxed reason in `told`.
    released: AtomicBool,
    changed: Notify,
}

impl Loss {
    pub(crate) fn reason(&self) -> Option<LossReason> {
        match self.told.get() {
            Some(told) => Some(told.0),
            None => self.released.load(Ordering::Acquire).then_some(LossReason::Released),
        }
    }

    /// Returns the operator's message about the loss; empty if there is none.
    pub(crate) fn message(&self) -> &str {
        self.told.get().map_or("", |told| &told.1)
    }

    /// Records a loss and returns whether it is the first reason. Only the task that also calls [`Loss::release`] may
    /// call this. The check for an earlier reason and the record are two steps, so calls on two threads could make a
    /// lock both released and lost.
    pub(crate) fn set(&self, reason: LossReason, message: &str) -> bool {
        let first = self.reason().is_none() && self.told.set(Box::new((reason, message.into()))).is_ok();
        self.changed.notify_waiters();
        first
    }

    /// Records [`LossReason::Released`], unless the lock was lost before.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) async fn wait(&self) -> LossReason {
        loop {
            // Create the `Notified` future before the check of the reason: it also receives a notification that arrives
            // before it is polled. So no loss between the check and the wait is missed.
            let changed = self.changed.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn every_call_of_wait_returns_the_first_reason() {
        let loss = Arc::new(Loss::default());
        let waiter = tokio::spawn({
            let loss = Arc::clone(&loss);
            async move { loss.wait().await }
        });
        tokio::task::yield_now().await;
        assert!(loss.set(LossReason::Expired, "maintenance"));
        assert!(!loss.set(LossReason::LocalDeadline, ""));
        assert_eq!(waiter.await.unwrap(), LossReason::Expired);
        assert_eq!(loss.wait().await, LossReason::Expired);
        assert_eq!(loss.message(), "maintenance");
        loss.release();
        assert_eq!(loss.reason(), Some(LossReason::Expired));
    }

    #[tokio::test]
    async fn a_release_before_any_loss_becomes_the_reason() {
        let loss = Arc::new(Loss::default());
        let waiter = tokio::spawn({
            let loss = Arc::clone(&loss);
            async move { loss.wait().await }
        });
        tokio::task::yield_now().await;
        loss.release();
        assert!(!loss.set(LossReason::Expired, "maintenance"));
        assert_eq!(waiter.await.unwrap(), LossReason::Released);
        assert_eq!((loss.reason(), loss.message()), (Some(LossReason::Released), ""));
    }
}
