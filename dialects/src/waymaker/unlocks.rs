//! Unlocks without a response.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Number of unlocks of each key that a client has begun and that have no answer yet.
///
/// The contract unlocks by id, and a lock that is found by its `request_id` keeps its id. An attempt during an unlock of its
/// key could find a lock that ends right after, so it waits here first.
#[derive(Clone, Debug, Default)]
pub(super) struct Unlocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<HashMap<String, usize>>,
    ended: Notify,
}

/// An unlock that has begun. It counts as ended when this value is dropped.
#[derive(Debug)]
pub(super) struct Unlocking {
    unlocks: Unlocks,
    key: String,
}

impl Unlocks {
    /// Notes that an unlock of the key has begun.
    pub(super) fn begin(&self, key: &str) -> Unlocking {
        *self.counts().entry(key.to_owned()).or_default() += 1;
        Unlocking { unlocks: self.clone(), key: key.to_owned() }
    }

    /// Waits until no unlock of the key is on its way.
    pub(super) async fn wait(&self, key: &str) {
        loop {
            let ended = self.0.ended.notified();
            if !self.counts().contains_key(key) {
                return;
            }
            ended.await;
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unlocking {
    fn drop(&mut self) {
        let mut counts = self.unlocks.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
                self.unlocks.0.ended.notify_waiters();
            }
        }
    }
}
