//! Many leases that end in the same tick, in turns that each do a bounded part of it.

use crate::keys::key;
use crate::lane::Bench;
use std::time::{Duration, Instant};
use waymaker_engine::{Limits, Time};

const LEASE_MS: u32 = 10_000;

/// A shard in which so many leases end together.
pub fn filled(count: u32) -> Bench {
    let mut bench = Bench::new(Limits { idle_key_count_max: count, ..Limits::default() });
    for number in 0..u64::from(count) {
        bench.acquire(&key(number), LEASE_MS, 0);
    }
    bench
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
        if bench.shard.next_deadline() == Time::NEVER {
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
    fn all_leases_end_in_bounded_turns() {
        let mut bench = filled(5000);
        let outcome = run(&mut bench);
        assert_eq!(outcome.ended, 5000);
        assert!(outcome.turns >= 5000 / u64::from(WORK_PER_TURN));
        assert_eq!(bench.shard.claim_count(), 0);
    }
}
