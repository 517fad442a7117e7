//! A seed is the whole run: `seeds` sees that each replays, this one that text changes nothing and that seeds differ.

use waymaker_simulator::{Options, judge, run};

#[test]
fn a_run_goes_the_same_way_with_and_without_text() {
    for seed in 0..10 {
        let options = Options { operation_count: Some(50), ..Options::default() };
        let printed = run(seed, &Options { prints: true, ..options });
        assert_eq!(judge(seed, &options).hash, printed.hash, "seed {seed} went two ways");
    }
}

#[test]
fn two_seeds_give_two_runs() {
    let options = Options { operation_count: Some(50), ..Options::default() };
    assert_ne!(judge(1, &options).hash, judge(2, &options).hash);
}
