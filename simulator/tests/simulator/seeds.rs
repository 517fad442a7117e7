//! No promise is broken in many runs, and each goes the same way again.

use waymaker_simulator::{Options, judge, run};

/// Seeds that are run twice, to see that they go the same way.
const REPLAYED_COUNT: u64 = 500;

/// `SIM_SEEDS` says how many seeds; 500 without it.
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
            assert_eq!(again.hash, outcome.hash, "seed {seed} went two ways");
            assert_eq!(again.event_count, outcome.event_count, "seed {seed} went two ways");
        }
        grant_count += outcome.grant_count;
    }
    assert!(grant_count >= 20 * seed_count(), "only {grant_count} grants: the clients do too little");
}
