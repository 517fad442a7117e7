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

/// A lock that is held, until it is unlocked, dropped or lost.
///
/// The contract renews nothing by itself: it is held for `max_lease_period`, or until where [`Held::extend`] moved that. It is lost
/// at the local deadline at the latest, which lies before the end of the lease on the server, whatever the network does.
///
/// Dropping it unlocks it from a task of the runtime that it was acquired in; [`Held::unlock`] also waits for the answer.
///
/// The contract unlocks by id alone. With a `request_id`, another client that asks while the unlock is on its way finds the lock, and the
/// unlock then ends it for that client too. Wait for [`Held::unlock`] before another client asks with the same `request_id`. Clones of one
/// [`Waymaker`](super::Waymaker) wait for each other's unlocks.
#[must_use = "dropping the guard unlocks the lock"]
pub struct Held {
    claim: Claim,
    fence_token: u64,
    deadline: Arc<LocalDeadline>,
    loss: watch::Receiver<Option<Loss>>,
    /// Follows the events.
    watcher: Watcher,
}

/// Why a lock is held no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The server ended the lease, or does not know the lock any more.
    Expired,
    /// The local deadline passed. The server may or may not still consider the lock held.
    LocalDeadline,
    /// Somebody who knew the id unlocked it.
    Unlocked,
    /// Another stream with the same `request_id` replaced this stream and owns the lock now.
    Superseded,
    /// The guard is gone, or the runtime in which the lock was acquired.
    Unwatched,
}

impl Held {
    pub(super) async fn acquire(mut events: LockEvents) -> Result<Self, Error> {
        // Whoever drops this future gives up what it has come to.
        let mut place: Option<Claim> = None;
        let last = loop {
            match events.next().await {
                Some(Ok(LockEvent::Waiting { id, .. })) => {
                    let waiting = events.claim(id);
                    // An older place was lost with its connection.
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
        // A place that the server says is over needs no unlocking; of one that was lost with its connection nobody knows.
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

    /// The key.
    pub fn key(&self) -> &str {
        self.claim.key()
    }

    /// Whoever knows it may unlock the lock or extend its lease.
    pub fn id(&self) -> &str {
        self.claim.id()
    }

    /// Rises with each grant of the key. Whatever is written under the lock must refuse one older than the newest it has
    /// seen.
    pub fn fence_token(&self) -> u64 {
        self.fence_token
    }

    /// Whether the lock still counts as held, by the clock and by the events of the server.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Time left until the local deadline; zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.deadline.get().since(BootClock.now())
    }

    /// Ends when the lock is lost, with the reason. The future does not borrow the guard.
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
    /// [`Error::NotFound`] if the lock is lost, [`Error::BadInput`] for a lease of zero, [`Error::Transport`] if the answer
    /// did not come.
    pub async fn extend(&self, lease_timeout: Duration) -> Result<Lease, Error> {
        self.deadline.extend(self.claim.client(), self.key(), self.id(), lease_timeout).await
    }

    /// Unlocks it and waits for the answer, for at most ten seconds if the server cannot be reached. Dropping the future unlocks it in the
    /// background.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the lock was lost before: what was done under it was not protected to the end.
    /// [`Error::Superseded`] if another stream with the same `request_id` has the lock, which stays.
    pub async fn unlock(self) -> Result<(), Error> {
        let Self { claim, watcher, .. } = self;
        // The server ends the stream of a lock that is unlocked, which is no loss now.
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

/// A task that ends with its owner.
struct Watcher(AbortHandle);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}
