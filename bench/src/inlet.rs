//! Pairs through an inlet, as a front end uses it: a request becomes a frame, the worker of the thread serves the
//! frame, and the response becomes a reply. The protocol, socket and runtime of the front end are not included.

use crate::keys::{key, shuffled};
use crate::node::{time_after, with_one_worker};
use waymaker_server::driver::BenchInlet;

const KEY_COUNT: u32 = 1_000;
const LEASE_MS: u32 = 30_000;

/// Acquires and releases of 1,000 keys in random order, through one inlet.
pub struct Pairs {
    inlet: BenchInlet,
    keys: Vec<u32>,
    pair_count: u64,
    fences: u64,
}

impl Pairs {
    /// Creates an inlet of a worker that knows all keys.
    pub fn new() -> Self {
        let (_, worker) = with_one_worker(None);
        let inlet = BenchInlet::open(worker, time_after(0));
        let mut pairs = Self { inlet, keys: shuffled(KEY_COUNT), pair_count: 0, fences: 0 };
        pairs.pairs(u64::from(KEY_COUNT));
        pairs
    }

    /// Serves `count` pairs. Returns the sum of all fences so far.
    ///
    /// # Panics
    /// If a request is refused.
    pub fn pairs(&mut self, count: u64) -> u64 {
        for _ in 0..count {
            let key = key(u64::from(self.keys[(self.pair_count % u64::from(KEY_COUNT)) as usize]));
            let now = time_after(self.pair_count);
            self.pair_count += 1;
            let granted = self.inlet.acquire(&key, LEASE_MS, now).expect("the key is free");
            self.fences = self.fences.wrapping_add(granted.fence);
            assert!(self.inlet.release(granted.id, now), "the hold is there");
        }
        self.fences
    }
}

impl Default for Pairs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_grants_the_next_fence_of_its_key() {
        let mut pairs = Pairs::new();
        assert_eq!(pairs.pairs(2_000), 1_000 * (1 + 2 + 3));
    }

    #[test]
    fn a_released_key_is_free() {
        let mut pairs = Pairs::new();
        let now = time_after(pairs.pair_count);
        let granted = pairs.inlet.acquire(b"key", LEASE_MS, now).expect("the key is free");
        assert_eq!(pairs.inlet.acquire(b"key", LEASE_MS, now), None, "the key is held");
        assert!(pairs.inlet.release(granted.id, now));
        assert!(!pairs.inlet.release(granted.id, now));
        let next = pairs.inlet.acquire(b"key", LEASE_MS, now);
        assert_eq!(next.map(|granted| granted.fence), Some(granted.fence + 1));
    }
}
