//! The guard of a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use waymaker_protocol::{LockId, Readable};

use crate::error::{Error, Result};
use crate::handle::{Command, Handle};
use crate::hold::Hold;
use crate::lane::lost_by;
use crate::loss::LossReason;
use crate::request::check::lease_milliseconds;
use crate::request::reply::Reply;

/// Guard of a lock. The lock is held until this guard is released, dropped or lost.
///
/// # Guarantees
///
/// - While [`Lock::is_held`] returns true, the server grants no conflicting claim, except as said under
///   [limits](#limits). The local deadline lies before the end of the lease on the server, however slow the network
///   was. It uses a clock that keeps running while the machine sleeps.
/// - The lease is renewed in the background, unless the lock has a lease of its own and was acquired with
///   [`renew(false)`](crate::AcquireBuilder::renew).
/// - If the lock is lost, [`Lock::lost`] ends and the callback of [`on_loss`](crate::AcquireBuilder::on_loss) is
///   called. Both happen at the local deadline at the latest, without any network. They run in the runtime in which
///   the client connected, so a busy runtime delays them. `is_held` reads the clock itself and is never late.
/// - Dropping the guard sends the release if the guard still owns the hold, from any thread, with or without a runtime.
///   [`Lock::release`] also waits for the response.
///
/// # Limits
///
/// Another client or an operator may release the lock or shorten its lease by its id, and an acquire with the same
/// [request id](crate::AcquireBuilder::request_id) may take it over. The guard then counts as held until the
/// notification of the server arrives. A crash of the server ends locks of
/// [`FenceScope::Ephemeral`](crate::FenceScope::Ephemeral) before their leases expire. The local deadline ignores a
/// [`release_after`](crate::AcquireBuilder::release_after) below one second, so the guard may count as held after the
/// server has released it.
///
/// A process that is forked without a new program has copies of the guards and of the client, but no task serves the
/// copies. The process must connect anew and must not use them.
///
/// The scheduler may stop a holder between its call of `is_held` and the action that depends on the result. The
/// action is then too late. If that matters, send [`Lock::fence`] with every write. The resource must refuse fences
/// older than the newest fence that it has seen.
#[must_use = "dropping the guard releases the lock"]
pub struct Lock {
    pub(crate) hold: Arc<Hold>,
    handle: Arc<Handle>,
    /// Whether dropping the guard sends the release.
    pub(crate) armed: bool,
    /// Span from the grant to the end of the guard.
    span: Span,
}

impl Lock {
    /// Returns the guard of a granted hold, with a span from the grant to the end of the guard.
    pub(crate) fn new(hold: Arc<Hold>, handle: Arc<Handle>, span: Span) -> Self {
        Self { hold, handle, armed: true, span }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the key of the lock, or the name of the pool, or the path key of the first path.
    pub fn key(&self) -> &[u8] {
        &self.hold.key
    }

    /// Returns the id of this hold. Any client that knows the id may release or extend the hold, unless the access
    /// rules of the server forbid it.
    pub fn id(&self) -> LockId {
        self.hold.id()
    }

    /// Returns the fence of the lock, a number that rises with each grant of the key. [`FenceScope`](crate::FenceScope)
    /// says which failures of the server its order survives.
    pub fn fence(&self) -> u64 {
        self.hold.fence
    }

    /// Returns whether the lock is shared with other readers. For a set of paths, this is the mode of the first path.
    pub fn is_shared(&self) -> bool {
        self.hold.shared
    }

    /// Returns whether the server shortened the lease that the acquire requested to its maximum.
    pub fn is_clamped(&self) -> bool {
        self.hold.clamped
    }

    /// Returns the length of the lease in milliseconds, as the server reported it with the grant or the newest extend.
    ///
    /// For a lock on the session's lease, this is the length of that lease. `None` for a hold without a lease.
    /// [`Lock::remaining`] returns the remaining time.
    pub fn lease_ms(&self) -> Option<u32> {
        self.hold.lease_ms.get()
    }

    /// Returns whether the lock still counts as held, by the clock and by the events of the server.
    pub fn is_held(&self) -> bool {
        self.loss_reason().is_none()
    }

    /// Returns the time until the local deadline; zero once the lock is lost. Renewals raise it.
    pub fn remaining(&self) -> Duration {
        match self.hold.loss.reason() {
            Some(_) => Duration::ZERO,
            None => self.hold.deadline().since(self.handle.clock.now()),
        }
    }

    /// Returns why the lock is lost, or `None` while it is held.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.hold.loss.reason().or_else(|| {
            (self.handle.clock.now() >= self.hold.deadline()).then_some(LossReason::LocalDeadline)
        })
    }

    /// Returns the message of the operator who released the lock by force; empty in any other case.
    pub fn loss_message(&self) -> &str {
        self.hold.loss.message()
    }

    /// Returns a future that ends with the reason when the lock is lost. If the guard is released, dropped or
    /// forgotten first, it ends with [`LossReason::Released`]. The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let hold = Arc::clone(&self.hold);
        async move { hold.loss.wait().await }
    }

    /// Moves the end of the lease to `lease` from now; this may also shorten the lease. Later renewals use the same
    /// length. Returns the lease that the server granted, which may be shorter than the requested lease.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost, [`Error::Refused`] if `lease` is below the server's minimum or the lock has
    /// no lease of its own, [`Error::Uncertain`] if no response arrived, [`Error::Unavailable`] and [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future after its first poll does not withdraw the request, so the lease may still move. Until the
    /// server responds, the local deadline is the earlier of those of the old and the requested lease.
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        if let Some(reason) = self.hold.loss.reason() {
            return Err(Error::Lost(reason));
        }
        let (reply, answer) = Reply::channel();
        let lease_ms = lease_milliseconds(lease)?;
        self.handle.command(Command::Extend { hold: Arc::clone(&self.hold), lease_ms, reply })?;
        match answer.await.unwrap_or(Err(Error::Closed)) {
            Err(error) => Err(self.hold.loss.reason().map_or_else(|| lost_if_gone(error), Error::Lost)),
            answer => answer,
        }
    }

    /// Releases the lock and waits for the response of the server. Dropping the guard does the same without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before: the last work under it was unprotected. [`Error::Uncertain`] if no
    /// response arrived, or if the server restarted or the session ended meanwhile and the server then knows no such
    /// hold: this release or a loss has ended it. [`Error::Unavailable`] if there was no connection in time; the client
    /// still sends the release if it connects again. [`Error::Refused`] if the server refuses the release, and
    /// [`Error::Closed`]. After any error, the client does not renew the hold any more. So the hold ends with its lease
    /// at the latest, with the session if it is on the session's lease, or after the loss of the connection if it has
    /// no lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still releases the lock.
    pub async fn release(mut self) -> Result<()> {
        let lost = self.loss_reason();
        self.armed = false;
        if let Some(
            reason @ (LossReason::Expired
            | LossReason::Revoked(_)
            | LossReason::SessionExpired
            | LossReason::ClientClosed
            | LossReason::Superseded),
        ) = lost
        {
            return Err(Error::Lost(reason));
        }
        let (reply, answer) = Reply::channel();
        // Release even a lock that was lost at its local deadline, because the server may keep its hold for longer.
        self.handle.command(Command::Release { hold: Arc::clone(&self.hold), reply })?;
        let answer = answer.await.unwrap_or(Err(Error::Closed));
        match (lost, answer) {
            (Some(reason), _) => Err(Error::Lost(reason)),
            (None, Err(error)) => Err(lost_if_gone(error)),
            (None, Ok(_)) => Ok(()),
        }
    }

    /// Drops the guard and keeps the hold, and returns the id of the hold. From now on, this client neither renews nor
    /// releases the hold itself. The hold stays until its lease expires or a client releases it by its id. A hold on
    /// the session's lease stays as long as the session, which the client still renews.
    pub fn forget(mut self) -> LockId {
        self.armed = false;
        // If the connection task has ended, nothing releases the hold anyway, so ignore the error.
        let _ = self.handle.command(Command::Forget { hold: Arc::clone(&self.hold) });
        self.hold.id()
    }
}

/// Converts a refusal that means that the hold has ended or was taken up into the loss of the lock.
fn lost_if_gone(error: Error) -> Error {
    error.code().and_then(lost_by).map_or(error, Error::Lost)
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.armed {
            // Without the connection task the release cannot be sent; the hold then ends with its lease or its session.
            let release = Command::Release { hold: Arc::clone(&self.hold), reply: Reply::Nobody };
            let _ = self.handle.command(release);
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lock")
            .field("key", &format_args!("\"{}\"", Readable(&self.hold.key)))
            .field("id", &self.hold.id())
            .field("fence", &self.hold.fence)
            .field("remaining", &self.remaining())
            .field("loss_reason", &self.loss_reason())
            .finish()
    }
}
