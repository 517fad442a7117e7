//! Releases and acquires on a table that is far larger than the caches.
//!
//! The number of held keys is constant, and their records are in random order. Each pair releases the key that has
//! been held longest, and acquires a key that was released some time ago, so none of its data is in the caches.
//! [`crate::hash_map`] does the same to a hash map.

use crate::keys::{key, shuffled};
use crate::lane::Bench;
use waymaker_engine::limits::PREFETCH_COUNT;
use waymaker_engine::{ClaimId, ClaimIx, Limits};

const LEASE_MS: u32 = 3_600_000;

/// A shard with `held` held keys and an eighth as many known free keys.
pub struct Resident {
    bench: Bench,
    /// Ids of the holds in the order of their release; the next one is at `next`. Real requests arrive in the
    /// receive buffer in order, so the ids are also read in order.
    ids: Vec<ClaimId>,
    next: usize,
    /// Numbers of the next key to release and of the next key to acquire; all keys are used in turn.
    released: u64,
    key_count: u64,
}

impl Resident {
    /// Fills a shard.
    pub fn new(held: u32) -> Self {
        let key_count = held + (held / 8).max(1);
        let limits = Limits { idle_key_count_max: key_count, ..Limits::default() };
        let mut bench = Bench::new(limits);
        let mut ids = vec![ClaimId::default(); held as usize];
        // In random order, so that neighbouring keys are not in neighbouring records.
        for number in shuffled(key_count) {
            let id = bench.acquire(&key(u64::from(number)), LEASE_MS, 0);
            if number < held {
                ids[number as usize] = id;
            } else {
                bench.release(id);
            }
        }
        Self { bench, ids, next: 0, released: 0, key_count: u64::from(key_count) }
    }

    /// Returns the number of the key that is acquired after `released` releases.
    #[inline]
    fn acquired(&self, released: u64) -> u64 {
        (released + self.ids.len() as u64) % self.key_count
    }

    /// Runs `pair_count` pairs one by one, as a worker serves batches of one request. Returns the sum of the
    /// fences.
    pub fn singles(&mut self, pair_count: u64) -> u64 {
        for _ in 0..pair_count {
            self.bench.turn(0);
            let acquired = key(self.acquired(self.released));
            self.bench.shard.prefetch_around(self.slot(0));
            self.bench.release(self.ids[self.next]);
            let hash = self.bench.shard.hash(0, &acquired);
            self.bench.shard.prefetch_acquire(hash, 0);
            self.bench.shard.prefetch_entry(hash);
            let id = self.bench.acquire_hashed(&acquired, hash, LEASE_MS, 0);
            self.keep(id);
        }
        self.bench.sink.fences
    }

    #[inline]
    fn keep(&mut self, id: ClaimId) {
        self.ids[self.next] = id;
        self.next = if self.next + 1 < self.ids.len() { self.next + 1 } else { 0 };
        self.released += 1;
    }

    /// Runs `batch_count` batches of `pair_count` releases and acquires, each in one turn and in passes: the first
    /// passes prefetch the data of all requests. Returns the sum of the fences.
    pub fn batches(&mut self, batch_count: u64, pair_count: usize) -> u64 {
        let mut hashes = vec![0; pair_count];
        for _ in 0..batch_count {
            self.bench.turn(0);
            for part in hashes.chunks_mut(PREFETCH_COUNT / 2) {
                self.prefetch(part);
                for hash in part {
                    let acquired = key(self.acquired(self.released));
                    self.bench.release(self.ids[self.next]);
                    let id = self.bench.acquire_hashed(&acquired, *hash, LEASE_MS, 0);
                    self.keep(id);
                }
            }
        }
        self.bench.sink.fences
    }

    /// Prefetches for the requests, as a worker does.
    fn prefetch(&self, hashes: &mut [u64]) {
        let shard = &self.bench.shard;
        for (index, hash) in hashes.iter_mut().enumerate() {
            *hash = shard.hash(0, &key(self.acquired(self.released + index as u64)));
            shard.prefetch_acquire(*hash, index);
            shard.prefetch_claim(self.slot(index));
        }
        for (index, hash) in hashes.iter().enumerate() {
            shard.prefetch_entry(*hash);
            shard.prefetch_around(self.slot(index));
        }
    }

    /// Returns the record of the `index`-th claim to release.
    #[inline]
    fn slot(&self, index: usize) -> ClaimIx {
        let at = self.next + index;
        let at = if at < self.ids.len() { at } else { at - self.ids.len() };
        ClaimIx::named_by(self.ids[at].place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_same_result_as_single_pairs() {
        let (mut singles, mut batches) = (Resident::new(64), Resident::new(64));
        assert_eq!(singles.singles(96), batches.batches(12, 8));
        for resident in [&singles, &batches] {
            assert_eq!(resident.bench.shard.claim_count(), 64);
            assert_eq!(resident.bench.shard.idle_key_count(), 8);
            assert_eq!(resident.bench.sink.granted, 72 + 96);
            resident.bench.shard.verify();
        }
    }
}
