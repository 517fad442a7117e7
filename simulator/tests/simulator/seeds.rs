//! Test that many seeds break no promise and that each replays exactly.

use waymaker_simulator::{Options, judge, run};

/// Number of seeds that are run twice to check that they replay.
const REPLAYED_COUNT: u64 = 500;

/// Returns the number of seeds to run: the value of `SIM_SEEDS`, or 500.
pub(crate) fn seed_count() -> u64 {
    match std::env::var("SIM_SEEDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SIM_SEEDS={text} is not a number")),
        Err(_) => 500,
    }
}

#[test]
fn no_promise_is_broken_and_each_seed_replays() {
    let mut grant_count = 0;
    for seed in 0..seed_count() {
        let outcome = run(seed, &Options::default());
        assert!(outcome.failure.is_none(), "{outcome}");
        if seed < REPLAYED_COUNT {
            let again = judge(seed, &Options::default());
            assert_eq!(again.hash, outcome.hash, "seed {seed} gave two different runs");
            assert_eq!(again.event_count, outcome.event_count, "seed {seed} gave two different runs");
        }
        grant_count += outcome.grant_count;
    }
    assert!(grant_count >= 20 * seed_count(), "only {grant_count} grants, fewer than 20 per seed");
}
