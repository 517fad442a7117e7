//! Many leases that end in the same tick, or few of very large sets, in turns that each do a bounded part of it.

use crate::keys::key;
use crate::lane::Bench;
use std::time::{Duration, Instant};
use waymaker_engine::limits::ITEM_COUNT_MAX;
use waymaker_engine::{AcquireOptions, AcquireSet, Limits, TreeItem};

const LEASE_MS: u32 = 10_000;

/// A shard in which so many leases end together.
pub fn filled(count: u32) -> Bench {
    let mut bench = Bench::new(Limits { idle_key_count_max: count, ..Limits::default() });
    for number in 0..u64::from(count) {
        bench.acquire(&key(number), LEASE_MS, 0);
    }
    bench
}

/// A shard in which `count` of the largest sets end together: each of 1,024 paths of 64 segments. Another `count` wait behind them.
pub fn filled_with_sets(count: u16) -> Bench {
    let mut bench = Bench::default();
    for number in (0..count).chain(0..count) {
        let paths: Vec<Vec<u8>> = (0..ITEM_COUNT_MAX as u16).map(|item| long_path(number, item)).collect();
        let items: Vec<_> = paths.iter().map(|path| TreeItem { path, write: true }).collect();
        let acquire = AcquireSet {
            items: &items,
            lease_ms: LEASE_MS,
            wait_ms: u32::MAX,
            session_lease: false,
            notify_queued: false,
            options: AcquireOptions::default(),
        };
        let caller = bench.next_caller();
        bench.shard.acquire_set(&caller, &acquire, &mut bench.sink);
    }
    bench
}

/// A path of 64 segments that shares no prefix with others.
fn long_path(set: u16, item: u16) -> Vec<u8> {
    let mut path = vec![4, 0];
    path.extend_from_slice(&set.to_le_bytes());
    path.extend_from_slice(&item.to_le_bytes());
    path.resize(path.len() + 63 * 2, 0);
    path
}

/// What the end of all of them took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Leases that ended.
    pub ended: u64,
    /// Turns that it took.
    pub turns: u64,
    /// All turns together.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
}

/// Lets the tick come, and turns follow each other until nothing is left.
pub fn run(bench: &mut Bench) -> Outcome {
    let mut outcome = Outcome::default();
    let before = bench.sink.other;
    let mut later_ms = u64::from(LEASE_MS);
    loop {
        let start = Instant::now();
        bench.turn(later_ms);
        let took = start.elapsed();
        later_ms = 0;
        outcome.turns += 1;
        outcome.total += took;
        outcome.longest = outcome.longest.max(took);
        if bench.shard.next_deadline() > bench.shard.now() {
            outcome.ended = bench.sink.other - before;
            return outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::limits::WORK_PER_TURN;

    #[test]
    fn large_sets_end_in_many_turns() {
        let mut bench = filled_with_sets(2);
        assert_eq!(bench.sink.granted, 2);
        let outcome = run(&mut bench);
        assert!(outcome.turns > 100, "{outcome:?}");
        assert_eq!((bench.sink.granted, bench.shard.claim_count()), (4, 2), "the waiters hold the paths");
    }

    #[test]
    fn all_leases_end_in_bounded_turns() {
        let mut bench = filled(5000);
        let outcome = run(&mut bench);
        assert_eq!(outcome.ended, 5000);
        assert!(outcome.turns >= 5000 / u64::from(WORK_PER_TURN));
        assert_eq!(bench.shard.claim_count(), 0);
    }
}
