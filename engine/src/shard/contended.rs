//! Most contended keys of a shard.

use super::Shard;
use crate::entry::Occupancy;
use crate::handle::ClaimIx;
use crate::limits::COMPARED_WAITER_COUNT_MAX;

/// Keys of a shard for which, by an estimate, the most claims began to wait in the last minutes (at most three).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContendedKeys {
    /// Length in milliseconds of the time in which waits were counted.
    pub window_ms: u64,
    /// Contended keys, most waits first.
    pub keys: Vec<ContendedKey>,
}

/// Key for which claims waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContendedKey {
    /// Number of its namespace.
    pub namespace: u16,
    /// The key or the name of the pool; for a set of paths, its first path, cut to whole segments if it is longer than
    /// a key may be.
    pub key: Vec<u8>,
    /// Estimated number of claims that began to wait for the key within `window_ms`.
    pub waits: u64,
    /// Number of claims that wait for the key now, including waiters of multi-key claims. `None` for a path, but 0 if
    /// the shard has no record of the path's tree.
    pub waiter_count: Option<u32>,
    /// Longest time for which one of the first waiters of the key has waited so far, in milliseconds; `None` for a
    /// path, or if nobody waits.
    pub oldest_wait_ms: Option<u64>,
}

impl Shard {
    /// Adds the wait of this claim to the number of waits of its key, for the list of contended keys. All waits of one
    /// millisecond count for the key of the first of them.
    #[inline]
    pub(super) fn note_wait(&mut self, claim: ClaimIx) {
        if self.top_waits.note(self.now) {
            self.count_wait(claim);
        }
    }

    #[cold]
    fn count_wait(&mut self, claim: ClaimIx) {
        let key = self.shown_key(claim);
        self.top_waits.count(self.namespace_of(claim), &key, self.now);
    }

    /// Returns the keys with the most waits.
    pub fn contended_keys(&mut self) -> ContendedKeys {
        let contended = self.top_waits.contended(self.now);
        let keys = contended.keys.into_iter().map(|(namespace, key, waits)| {
            let (waiter_count, oldest_wait_ms) = self.waiters_now(namespace, &key);
            ContendedKey { namespace, key, waits, waiter_count, oldest_wait_ms }
        });
        ContendedKeys { window_ms: contended.window_ms, keys: keys.collect() }
    }

    /// Returns the number of claims that wait for a key, and the longest time in milliseconds for which one of its
    /// first waiters has waited so far. Returns `None` twice for a path, and 0 and `None` if the shard has no record of
    /// its tree.
    fn waiters_now(&self, namespace: u16, key: &[u8]) -> (Option<u32>, Option<u64>) {
        let entry = self.keys.find(namespace, key, self.hash(namespace, key));
        if entry.is_none() {
            let is_path = self.tree_of_namespace(namespace).is_some();
            return ((!is_path).then_some(0), None);
        }
        let record = &self.keys.entries[entry];
        let oldest = |waiters: &mut dyn Iterator<Item = ClaimIx>| {
            waiters.take(COMPARED_WAITER_COUNT_MAX).map(|claim| self.age_ms(&self.claims[claim])).max()
        };
        match record.occupancy() {
            Occupancy::Free | Occupancy::Held(_) => (Some(0), None),
            Occupancy::Queued(queue) => {
                let mut waiters = self.queues[queue].waiters(&self.claims, &self.details);
                (Some(self.waiter_count(entry)), oldest(&mut waiters))
            }
            Occupancy::Pool(_) => (Some(self.waiter_count(entry)), oldest(&mut self.pool_waiters(entry))),
            // A path has no key record of its own: the only record stands for the whole tree namespace. Its count would
            // include the waiters of other paths.
            Occupancy::Tree(_) => (None, None),
        }
    }
}
