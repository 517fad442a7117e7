//! No promise is broken in many runs.

use waymaker_simulator::{Options, run};

/// `SIM_SEEDS` says how many seeds; 500 without it.
fn seed_count() -> u64 {
    match std::env::var("SIM_SEEDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SIM_SEEDS={text} is not a number")),
        Err(_) => 500,
    }
}

#[test]
fn no_promise_is_broken() {
    let mut grant_count = 0;
    for seed in 0..seed_count() {
        let outcome = run(seed, &Options::default());
        assert!(outcome.failure.is_none(), "{outcome}");
        grant_count += outcome.grant_count;
    }
    assert!(grant_count >= 20 * seed_count(), "only {grant_count} grants: the clients do too little");
}
