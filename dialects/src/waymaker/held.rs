//! The guard of a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use waymaker_client::{BootClock, Clock};
use waymaker_proto::waymaker::Lease;

use super::claim::Claim;
use super::local_deadline::LocalDeadline;
use super::{Error, LockEvent, LockEvents};

/// A lock that is held until it is unlocked, dropped or lost.
///
/// The contract has no renewal: the lock is held for `max_lease_period`, or until the end that [`Held::extend`] set. It counts
/// as lost at the local deadline at the latest. The local deadline lies before the end of the lease on the server, for any
/// network delay.
///
/// Dropping the guard unlocks the lock from a task of the runtime in which it was acquired; [`Held::unlock`] also waits for the
/// response.
///
/// The contract unlocks by id alone. With a `request_id`, another client that acquires the lock during an unlock gets the lock
/// with the same id, and the unlock then ends it for that client too. Wait for [`Held::unlock`] before another client uses the
/// same `request_id`. Clones of one [`Waymaker`](super::Waymaker) wait for unlocks of each other.
#[must_use = "dropping the guard unlocks the lock"]
pub struct Held {
    claim: Claim,
    fence_token: u64,
    deadline: Arc<LocalDeadline>,
    loss: watch::Receiver<Option<Loss>>,
    /// Task that reads the events.
    watcher: Watcher,
}

/// Reason why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease expired on the server, or the server no longer knows the lock.
    Expired,
    /// The local deadline passed. The server may or may not still consider the lock held.
    LocalDeadline,
    /// A client that knew the id unlocked the lock.
    Unlocked,
    /// Another stream with the same `request_id` replaced this stream and owns the lock now.
    Superseded,
    /// The guard or the runtime in which the lock was acquired was dropped.
    Unwatched,
}

impl Held {
    pub(super) async fn acquire(mut events: LockEvents) -> Result<Self, Error> {
        // A caller that drops this future gives up the queue position.
        let mut place: Option<Claim> = None;
        let last = loop {
            match events.next().await {
                Some(Ok(LockEvent::Waiting { id, .. })) => {
                    let waiting = events.claim(id);
                    // An older queue position was lost with its connection.
                    if let Some(lost) = place.replace(waiting) {
                        lost.forget();
                    }
                }
                Some(Ok(LockEvent::Acquired { id, fence_token, .. })) => {
                    if let Some(place) = place {
                        place.forget();
                    }
                    let claim = Claim::new(events.client(), events.key(), id);
                    events.disown();
                    return Ok(Self::watched(claim, fence_token, events));
                }
                Some(Ok(LockEvent::Heartbeat { .. })) => {}
                Some(Ok(LockEvent::Failed { error, .. })) | Some(Err(error)) => break error,
                Some(Ok(LockEvent::Expired { message, .. })) => break Error::NotFound(message),
                None => {
                    break Error::Cancelled(
                        "the lock was unlocked before the client received the grant".to_owned(),
                    );
                }
            }
        };
        // A position that the server has ended needs no unlock. A position that was lost with its connection may still exist.
        if let (Some(place), false) = (place, matches!(last, Error::Transport(_))) {
            place.forget();
        }
        Err(last)
    }

    fn watched(claim: Claim, fence_token: u64, mut events: LockEvents) -> Self {
        let deadline = Arc::clone(events.deadline());
        let (tell, loss) = watch::channel(None);
        let superseded = claim.superseded();
        let watching = tokio::spawn(async move {
            let loss = loop {
                match events.next().await {
                    Some(Ok(LockEvent::Expired { local: true, .. })) => break Loss::LocalDeadline,
                    Some(Ok(LockEvent::Expired { .. })) => break Loss::Expired,
                    Some(Ok(_)) => {}
                    Some(Err(Error::Superseded)) => {
                        superseded.store(true, Ordering::Release);
                        break Loss::Superseded;
                    }
                    Some(Err(_)) => break Loss::Expired,
                    None => break Loss::Unlocked,
                }
            };
            tell.send_replace(Some(loss));
        });
        Self { claim, fence_token, deadline, loss, watcher: Watcher(watching.abort_handle()) }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        self.claim.key()
    }

    /// Returns the id of the lock. A client that knows it can unlock the lock or extend its lease.
    pub fn id(&self) -> &str {
        self.claim.id()
    }

    /// Returns the fence token, which rises with each grant of the key. A system to which the holder writes must refuse a token
    /// that is older than the newest it has seen.
    pub fn fence_token(&self) -> u64 {
        self.fence_token
    }

    /// Returns whether the lock still counts as held, by the clock and by the events of the server.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the time until the local deadline; zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.deadline.get().since(BootClock.now())
    }

    /// Returns a future that ends when the lock is lost, with the reason. The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let mut loss = self.loss.clone();
        async move {
            let told = loss.wait_for(Option::is_some).await.ok().and_then(|loss| *loss);
            told.unwrap_or(Loss::Unwatched)
        }
    }

    /// Moves the end of the lease to `lease_timeout` from now on, which may also shorten it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the lock is lost, [`Error::BadInput`] for a lease of zero, and [`Error::Transport`] if the
    /// response did not arrive.
    pub async fn extend(&self, lease_timeout: Duration) -> Result<Lease, Error> {
        self.deadline.extend(self.claim.client(), self.key(), self.id(), lease_timeout).await
    }

    /// Unlocks the lock and waits for the response, for at most ten seconds if the server cannot be reached. If the future is
    /// dropped, the lock is unlocked in the background.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the lock was lost before: the last work under it was not protected. [`Error::Superseded`] if
    /// another stream with the same `request_id` has the lock, which stays.
    pub async fn unlock(self) -> Result<(), Error> {
        let Self { claim, watcher, .. } = self;
        // The server ends the stream of an unlocked lock, which is not a loss.
        drop(watcher);
        claim.unlock().await
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Held")
            .field("key", &self.key())
            .field("id", &self.id())
            .field("fence_token", &self.fence_token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Expired => "the lease expired, or the server no longer knows the lock",
            Self::LocalDeadline => "the local deadline passed",
            Self::Unlocked => "another client that knows its id unlocked it",
            Self::Superseded => "another stream with the same request_id replaced it",
            Self::Unwatched => "the guard or the runtime was dropped",
        })
    }
}

/// A task that is aborted when its owner is dropped.
struct Watcher(AbortHandle);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}
