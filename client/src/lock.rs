//! The guard of a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use waymaker_protocol::{ErrorCode, LockId, Readable};

use crate::acquire::sealed::Guarding;
use crate::claim::lease_milliseconds;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::job::Command;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;
use crate::reply::Reply;
use crate::space::Shared;

/// A lock that is held, until it is released, dropped or lost.
///
/// # What it promises
///
/// - While [`Lock::is_held`] says true, no conflicting claim is granted on the server: the local deadline lies before
///   the end of the lease on the server, however slow the network was. It is measured on a clock that runs on while
///   the machine sleeps.
/// - The lease is renewed in the background, unless [`renew(false)`](crate::AcquireBuilder::renew) was asked for.
/// - If it is lost all the same, [`Lock::lost`] ends and the callback given to
///   [`on_loss`](crate::AcquireBuilder::on_loss) is called, at the local deadline at the latest and without any
///   network. Both are driven by the runtime that the client was connected in, so they are as late as that runtime is
///   busy; `is_held` reads the clock itself and is never late.
/// - Dropping it sends the release, from any thread, with or without a runtime. [`Lock::release`] also waits for the
///   answer.
///
/// # What it does not promise
///
/// A process that is forked without a new program has copies of guards and of the client, and nothing serves them there. It must
/// connect anew and must not use the copies.
///
/// A holder that is stopped by its scheduler between asking `is_held` and acting on the answer may act too late. Where
/// that matters, send [`Lock::fence`] with every write and let the place written to refuse fences older than the
/// newest it has seen.
#[must_use = "dropping the guard releases the lock"]
pub struct Lock {
    pub(crate) hold: Arc<Hold>,
    pub(crate) shared: Arc<Shared>,
    /// The drop still has to send the release.
    pub(crate) armed: bool,
    /// From the grant to the end of the guard.
    pub(crate) span: Span,
}

impl Lock {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.hold.key
    }

    /// The id of this hold. Whoever knows it may release or extend it.
    pub fn id(&self) -> LockId {
        self.hold.id()
    }

    /// Rises by one with each grant of the key.
    pub fn fence(&self) -> u64 {
        self.hold.fence
    }

    /// Shared with other readers.
    pub fn is_shared(&self) -> bool {
        self.hold.shared
    }

    /// The lease asked for was above what the server grants, and was cut.
    pub fn is_clamped(&self) -> bool {
        self.hold.clamped
    }

    /// Length of the lease in milliseconds, as the server gave it with the grant or the newest extend. It is shorter than the
    /// lease asked for if [`Lock::is_clamped`]. The length of the session's lease for a lock on that lease. `None` for a hold
    /// without a lease. [`Lock::remaining`] returns the rest of it.
    pub fn lease_ms(&self) -> Option<u32> {
        self.hold.lease_ms.get()
    }

    /// Whether the lock still counts as held, by the clock and by the events of the server.
    pub fn is_held(&self) -> bool {
        self.loss_reason().is_none()
    }

    /// Time left until the local deadline; zero once the lock is lost. Renewals raise it.
    pub fn remaining(&self) -> Duration {
        match self.hold.loss.reason() {
            Some(_) => Duration::ZERO,
            None => self.hold.deadline().since(self.shared.clock.now()),
        }
    }

    /// Why the lock is lost, if it is.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.hold.loss.reason().or_else(|| {
            (self.shared.clock.now() >= self.hold.deadline()).then_some(LossReason::LocalDeadline)
        })
    }

    /// The message of the operator who released the lock by force; empty in any other case.
    pub fn loss_message(&self) -> &str {
        self.hold.loss.message()
    }

    /// Ends when the lock is lost, with the reason. If the guard is released, dropped or forgotten first, it ends with
    /// [`LossReason::Released`]. The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let hold = Arc::clone(&self.hold);
        async move { hold.loss.wait().await }
    }

    /// Moves the end of the lease to `lease` from now on, which may also shorten it, and renews by that length from
    /// here on. Returns what the server gave, which may be less than asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost, [`Error::Refused`] if the server does not accept the length,
    /// [`Error::Uncertain`] if the answer did not come.
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        if let Some(reason) = self.hold.loss.reason() {
            return Err(Error::Lost(reason));
        }
        let (reply, answer) = Reply::channel();
        let lease_ms = lease_milliseconds(lease)?;
        self.shared.command(Command::Extend { hold: Arc::clone(&self.hold), lease_ms, reply })?;
        match answer.await.unwrap_or(Err(Error::Closed)) {
            Err(error) => Err(self.hold.loss.reason().map_or_else(|| lost_if_gone(error), Error::Lost)),
            answer => answer,
        }
    }

    /// Releases the lock and waits for the server's word. Dropping the guard does the same without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it was lost before: what was done under it was not protected to the end.
    /// [`Error::Uncertain`] if the answer did not come; the lease ends it then at the latest.
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
        self.shared.command(Command::Release { hold: Arc::clone(&self.hold), reply })?;
        let answer = answer.await.unwrap_or(Err(Error::Closed));
        match (lost, answer) {
            // The server may have kept it longer than the holder believed in it, and the release was still right.
            (Some(reason), _) => Err(Error::Lost(reason)),
            (None, Err(error)) => Err(lost_if_gone(error)),
            (None, Ok(_)) => Ok(()),
        }
    }

    /// Gives up the guard and keeps the hold: it is neither renewed nor released by this client from here on, and
    /// stays to the end of its lease or until somebody releases it by the id. A hold on the session's lease ends with
    /// the client.
    pub fn forget(mut self) -> LockId {
        self.armed = false;
        // A closed client has let go of it already.
        let _ = self.shared.command(Command::Forget { hold: Arc::clone(&self.hold) });
        self.hold.id()
    }
}

fn lost_if_gone(error: Error) -> Error {
    match error.code() {
        Some(ErrorCode::NotFound | ErrorCode::Expired) => Error::Lost(LossReason::Expired),
        Some(ErrorCode::Cancelled) => Error::Lost(LossReason::Superseded),
        _ => error,
    }
}

impl Guarding for Lock {
    fn from_locks(locks: OneOrMore<Self>) -> Self {
        locks.into_last()
    }

    fn loss(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        self.lost()
    }

    fn span(&self) -> Span {
        self.span.clone()
    }

    async fn give_back(self) -> Result<()> {
        self.release().await
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.armed {
            // Without the connection task nobody can release; the lease ends it.
            let release = Command::Release { hold: Arc::clone(&self.hold), reply: Reply::Nobody };
            let _ = self.shared.command(release);
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
