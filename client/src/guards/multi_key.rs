//! Multi-key claims.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tracing::Span;

use super::acquire::AcquireBuilder;
use super::guard::sealed::Guarding;
use super::lock::Lock;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;
use crate::request::claim::{Wanted, WantedKey};

impl AcquireBuilder<MultiLock> {
    /// Adds one key to the claim, locked exclusively.
    pub fn write(self, key: impl AsRef<[u8]>) -> Self {
        self.with([key], false)
    }

    /// Adds one key to the claim, shared with other readers.
    pub fn read(self, key: impl AsRef<[u8]>) -> Self {
        self.with([key], true)
    }

    /// Sets the priority. Default: 0. The claim is served as if it had arrived 10 s earlier for each unit of the
    /// priority, at most 60 s.
    pub fn priority(mut self, priority: u32) -> Self {
        self.claim.priority = Some(priority);
        self
    }

    /// Adds keys, all exclusive or all shared. A key that is named several times counts once, and exclusively if any of
    /// them is exclusive.
    pub(crate) fn with(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>, shared: bool) -> Self {
        if let Wanted::Keys(wanted) = &mut self.claim.wanted {
            wanted.extend(keys.into_iter().map(|key| WantedKey { key: Key::from(key.as_ref()), shared }));
        }
        self
    }
}

/// Several keys that were granted in one step. Each is a [`Lock`] of its own from then on.
///
/// The locks are ordered by the bytes of their keys, one for each distinct key. Dropping this guard releases all of
/// them.
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct MultiLock {
    locks: Vec<Lock>,
}

impl MultiLock {
    /// Returns the locks, in the order of their keys.
    pub fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// Returns the lock of this key, if it is one of the keys.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.key() == key.as_ref())
    }

    /// Returns the locks, to use and release them one by one.
    pub fn into_locks(self) -> Vec<Lock> {
        self.locks
    }

    /// Returns whether all locks still count as held.
    pub fn is_held(&self) -> bool {
        self.locks.iter().all(Lock::is_held)
    }

    /// Returns why a lock is lost, or `None` while all are held. If several are lost, returns the reason of the first
    /// in the order of the keys.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.locks.iter().find_map(Lock::loss_reason)
    }

    /// Returns the time until the earliest local deadline of the locks; zero once one of them is lost.
    pub fn remaining(&self) -> Duration {
        self.locks.iter().map(Lock::remaining).min().unwrap_or_default()
    }

    /// Returns a future that ends with the reason as soon as any of the locks is lost. If any of them is released,
    /// dropped or forgotten before that, the future ends with [`LossReason::Released`]. The future does not borrow the
    /// guard.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let mut losses: Vec<_> = self.locks.iter().map(|lock| Box::pin(lock.lost())).collect();
        poll_fn(move |context| {
            let ready = losses.iter_mut().find_map(|loss| match loss.as_mut().poll(context) {
                Poll::Ready(reason) => Some(reason),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Moves the end of each lease to `lease` from now, as [`Lock::extend`] does. Returns the shortest lease that the
    /// server granted.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::extend`]. If the extend of one lock fails, the others are still extended.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::extend`].
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        let given = together(self.locks.iter().map(|lock| lock.extend(lease)).collect()).await;
        given.into_iter().try_fold(Duration::MAX, |shortest, given| Ok(given?.min(shortest)))
    }

    /// Releases all locks and waits for the responses of the server.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::release`]: [`Error::Lost`] if any lock was lost, or else the first error. If the release
    /// of one lock fails, the others are still released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still releases all locks.
    pub async fn release(self) -> Result<()> {
        let mut released = together(self.locks.into_iter().map(Lock::release).collect()).await;
        // Report a lost lock first: it matters more to the caller than a release that found no connection.
        match released.iter().position(|released| matches!(released, Err(Error::Lost(_)))) {
            Some(place) => released.swap_remove(place),
            None => released.into_iter().collect(),
        }
    }
}

impl Guarding for MultiLock {
    fn from_locks(locks: OneOrMore<Lock>) -> Self {
        Self { locks: locks.into_vec() }
    }

    fn loss(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        self.lost()
    }

    fn span(&self) -> Span {
        self.locks.first().map_or_else(Span::none, Guarding::span)
    }

    async fn give_back(self) -> Result<()> {
        self.release().await
    }
}

/// Polls all futures concurrently, so that their requests can be sent in one write.
async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut values: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut all = pin!(poll_fn(|context| {
        let mut ready = true;
        for (future, value) in futures.iter_mut().zip(&mut values) {
            if value.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *value = Some(output),
                    Poll::Pending => ready = false,
                }
            }
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }));
    all.as_mut().await;
    values.into_iter().flatten().collect()
}
