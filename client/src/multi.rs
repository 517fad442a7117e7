//! Several keys at once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tracing::Span;

use crate::acquire::AcquireBuilder;
use crate::acquire::sealed::Guarding;
use crate::claim::{Wanted, WantedKey};
use crate::error::{Error, Result};
use crate::hold::Key;
use crate::lock::Lock;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;

impl AcquireBuilder<MultiLock> {
    /// One more key, alone.
    pub fn write(self, key: impl AsRef<[u8]>) -> Self {
        self.with([key], false)
    }

    /// One more key, shared with other readers.
    pub fn read(self, key: impl AsRef<[u8]>) -> Self {
        self.with([key], true)
    }

    /// More keys, each alone. A key that is named twice counts once, and alone if one of them is.
    pub(crate) fn with(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>, shared: bool) -> Self {
        if let Wanted::Keys(wanted) = &mut self.claim.wanted {
            wanted.extend(keys.into_iter().map(|key| WantedKey { key: Key::from(key.as_ref()), shared }));
        }
        self
    }
}

/// Several keys that were granted in one step, each a [`Lock`] of its own from then on.
///
/// The locks stand in the order of the bytes of their keys, one for each distinct key. Dropping this releases all that
/// were not taken out.
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct MultiLock {
    locks: Vec<Lock>,
}

impl MultiLock {
    /// The locks.
    pub fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// The lock of this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.key() == key.as_ref())
    }

    /// The locks, to be released one by one.
    pub fn into_locks(self) -> Vec<Lock> {
        self.locks
    }

    /// Whether all of them still count as held.
    pub fn is_held(&self) -> bool {
        self.locks.iter().all(Lock::is_held)
    }

    /// Why the first of them is lost that is, if one is.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.locks.iter().find_map(Lock::loss_reason)
    }

    /// Time left until the first of the local deadlines.
    pub fn remaining(&self) -> Duration {
        self.locks.iter().map(Lock::remaining).min().unwrap_or_default()
    }

    /// Ends when the first of them is lost, with the reason, or with [`LossReason::Released`] if one is released first. The future
    /// does not borrow the guard.
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

    /// Moves the end of each lease to `lease` from now on, as [`Lock::extend`] does, and returns the shortest that the
    /// server gave.
    ///
    /// # Errors
    ///
    /// As [`Lock::extend`]; those that could be extended were.
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        let given = together(self.locks.iter().map(|lock| lock.extend(lease)).collect()).await;
        given.into_iter().try_fold(Duration::MAX, |shortest, given| Ok(given?.min(shortest)))
    }

    /// Releases all of them and waits for the server's word.
    ///
    /// # Errors
    ///
    /// As [`Lock::release`]: a loss, or else the first of them. Each lock that could be released was.
    pub async fn release(self) -> Result<()> {
        let mut released = together(self.locks.into_iter().map(Lock::release).collect()).await;
        // A lock that was lost says more than a release that found no connection.
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

/// Drives all of them at once: their requests leave in one write.
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
