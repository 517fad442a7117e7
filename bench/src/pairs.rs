//! Acquires and releases of one key after the other, on few keys, so that all data is in the cache.

use crate::keys::key;
use crate::lane::Bench;

const LEASE_MS: u32 = 30_000;
/// Number of pairs in one turn, as in a batch of a busy connection.
const PAIRS_PER_TURN: u64 = 64;

/// Creates a shard that knows `key_count` free keys.
pub fn warm(key_count: u64) -> Bench {
    let mut bench = Bench::default();
    pairs(&mut bench, key_count, key_count);
    bench
}

/// Runs `pair_count` pairs on `key_count` keys. Returns the sum of the fences.
pub fn pairs(bench: &mut Bench, key_count: u64, pair_count: u64) -> u64 {
    let mut done = 0;
    while done < pair_count {
        bench.turn(1);
        let end = pair_count.min(done + PAIRS_PER_TURN);
        for number in done..end {
            let id = bench.acquire(&key(number % key_count), LEASE_MS, 0);
            bench.release(id);
        }
        done = end;
    }
    bench.sink.fences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_one_grant_of_the_next_fence() {
        let mut bench = warm(10);
        assert_eq!(pairs(&mut bench, 10, 20), 10 * (1 + 2 + 3));
        assert_eq!((bench.sink.granted, bench.sink.other), (30, 30));
        assert_eq!(bench.shard.claim_count(), 0);
    }
}
