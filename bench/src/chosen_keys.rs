//! Keys that an attacker chose so that they collide.
//!
//! Two things are public: the slot of a key, which selects its shard, and the hash functions of the tables except
//! for their seeds. So a client can create keys that agree in every bit of the slot hash, or that overload a table
//! with a known seed. Neither may cost a table of the engine more than one and a half times the cost of random
//! keys.

use crate::keys::{KEY_LEN, mixed};
use crate::lane::Bench;
use waymaker_engine::Limits;

const LEASE_MS: u32 = 30_000;
/// Number of pairs in one turn, as in a batch of a busy connection.
const PAIRS_PER_TURN: usize = 64;

/// Returns one of many keys with the same CRC-32C, and therefore the same slot.
pub fn of_one_slot(number: u32) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&mixed(u64::from(number)).to_le_bytes());
    key[8..12].copy_from_slice(&number.to_le_bytes());
    // The register's own bytes bring any register to zero.
    let register = crc_register(&key[..12]);
    key[12..].copy_from_slice(&register.to_le_bytes());
    key
}

/// Returns the register of CRC-32C (Castagnoli) after these bytes.
fn crc_register(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |register, byte| {
        let mixed = register ^ u32::from(*byte);
        (0..8).fold(mixed, |register, _| (register >> 1) ^ ((register & 1) * 0x82f6_3b78))
    })
}

/// A shard that knows these keys; all of them are free.
pub struct Table {
    bench: Bench,
    keys: Vec<[u8; KEY_LEN]>,
    next: usize,
}

impl Table {
    /// Takes and releases each key once.
    pub fn new(keys: Vec<[u8; KEY_LEN]>) -> Self {
        let limits = Limits { idle_key_count_max: keys.len() as u32, ..Limits::default() };
        let pair_count = keys.len() as u64;
        let mut table = Self { bench: Bench::new(limits), keys, next: 0 };
        table.pairs(pair_count);
        table
    }

    /// Runs `pair_count` pairs of an acquire and a release, key by key. Returns the sum of the fences.
    pub fn pairs(&mut self, pair_count: u64) -> u64 {
        for number in 0..pair_count {
            if number.is_multiple_of(PAIRS_PER_TURN as u64) {
                self.bench.turn(1);
            }
            let id = self.bench.acquire(&self.keys[self.next], LEASE_MS, 0);
            self.bench.release(id);
            self.next = if self.next + 1 < self.keys.len() { self.next + 1 } else { 0 };
        }
        self.bench.sink.fences
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::key;
    use waymaker_engine::{Shard, ShardConfig, Time};
    use waymaker_protocol::slot::slot_of_key;

    const KEY_COUNT: u32 = 1 << 20;
    /// Number of entries in one group of the engine's index, and the number in use at which the index grows.
    const GROUP_LEN: usize = 12;
    const FILL_MAX: usize = 10;

    /// Returns the hashes of these keys in the tables of a shard with seeds derived from this number.
    fn hashes<'a>(seed: u64, keys: impl IntoIterator<Item = &'a [u8; KEY_LEN]>) -> Vec<u64> {
        let limits =
            Limits { claim_count_max: 16, idle_key_count_max: 16, bucket_count_max: 16, ..Limits::default() };
        let hash_seeds = [0, 1, 2, 3].map(|part| mixed(4 * seed + part));
        let start = Time::from_millis(1);
        let shard = Shard::new(&ShardConfig { number: 0, limits, hash_seeds, secret_seed: [5; 32], start });
        keys.into_iter().map(|key| shard.hash(0, key)).collect()
    }

    /// Counts the groups read and the keys compared to insert each of these hashes into a table like the engine's
    /// index, and to find it there. Stops counting if the number is far too large.
    fn steps(hashes: &[u64]) -> u64 {
        let group_count = (hashes.len() / FILL_MAX).next_power_of_two();
        let mut groups: Vec<Vec<u64>> = vec![Vec::new(); group_count];
        let mut steps = 0;
        for hash in hashes {
            let mut at = *hash as usize % group_count;
            while groups[at].len() == GROUP_LEN && steps < 100 * hashes.len() as u64 {
                at = (at + 1) % group_count;
                steps += 1;
            }
            groups[at].push(*hash);
            steps += 1;
        }
        for hash in hashes {
            let mut at = *hash as usize % group_count;
            while steps < 200 * hashes.len() as u64 {
                let same_tag = groups[at].iter().filter(|other| **other >> 57 == *hash >> 57);
                steps += 1 + same_tag.clone().take_while(|other| *other != hash).count() as u64;
                if same_tag.clone().any(|other| other == hash) {
                    break;
                }
                at = (at + 1) % group_count;
            }
        }
        steps
    }

    fn random_keys(count: usize) -> Vec<[u8; KEY_LEN]> {
        (0..count as u64).map(key).collect()
    }

    #[test]
    fn keys_of_one_slot_cost_no_more_than_random_ones() {
        let chosen: Vec<_> = (0..KEY_COUNT).map(of_one_slot).collect();
        assert!(chosen.iter().all(|key| slot_of_key(key) == slot_of_key(&chosen[0])), "they collide");
        assert!(chosen.iter().all(|key| crc_register(key) == 0), "in every bit");
        let random = random_keys(chosen.len());
        for seed in 0..4 {
            let (chosen, random) = (steps(&hashes(seed, &chosen)), steps(&hashes(seed, &random)));
            assert!(2 * chosen <= 3 * random, "seed {seed}: {chosen} steps instead of {random}");
        }
        // Tables that used the published hash would fail the check.
        let published: Vec<u64> = chosen.iter().map(|key| u64::from(slot_of_key(key))).collect();
        assert!(2 * steps(&published) > 3 * steps(&hashes(0, &random)));
    }

    #[test]
    fn keys_chosen_for_other_seeds_cost_no_more_than_random_ones() {
        const KNOWN: u64 = 99;
        let candidates = random_keys(1 << 20);
        let crowded = hashes(KNOWN, &candidates).into_iter().map(|hash| hash.is_multiple_of(64));
        let chosen: Vec<_> =
            candidates.iter().zip(crowded).filter(|(_, crowded)| *crowded).map(|(key, _)| *key).collect();
        let random = random_keys(chosen.len());
        for seed in 0..4 {
            let (chosen, random) = (steps(&hashes(seed, &chosen)), steps(&hashes(seed, &random)));
            assert!(2 * chosen <= 3 * random, "seed {seed}: {chosen} steps instead of {random}");
        }
        assert!(
            2 * steps(&hashes(KNOWN, &chosen)) > 3 * steps(&hashes(KNOWN, &random)),
            "the chosen keys overload the table they were chosen for"
        );
    }

    #[test]
    fn each_pair_is_one_grant_of_the_next_fence() {
        let mut table = Table::new((0..100).map(of_one_slot).collect());
        assert_eq!(table.pairs(200), 100 * (1 + 2 + 3));
        assert_eq!(table.bench.shard.idle_key_count(), 100);
        table.bench.shard.verify();
    }
}
