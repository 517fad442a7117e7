//! Tests that a seed determines the whole run. `seeds` checks that each seed replays. This module checks that
//! keeping the trace changes nothing, and that seeds differ.

use waymaker_simulator::{Options, judge, run};

#[test]
fn a_run_is_the_same_with_and_without_its_trace() {
    for seed in 0..10 {
        let options = Options { operation_count: Some(50), ..Options::default() };
        let printed = run(seed, &Options { prints: true, ..options });
        assert_eq!(judge(seed, &options).hash, printed.hash, "seed {seed} gave two different runs");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let options = Options { operation_count: Some(50), ..Options::default() };
    assert_ne!(judge(1, &options).hash, judge(2, &options).hash);
}
