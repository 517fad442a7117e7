//! A seed is the whole run.

use waymaker_simulator::{Options, judge, run};

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in 0..60 {
        let options = Options::default();
        let (first, second) = (judge(seed, &options), run(seed, &options));
        assert_eq!(first.hash, second.hash, "seed {seed} went two ways");
        assert_eq!(first.event_count, second.event_count);
    }
}

#[test]
fn two_seeds_give_two_runs() {
    let options = Options { operation_count: Some(50), ..Options::default() };
    assert_ne!(judge(1, &options).hash, judge(2, &options).hash);
}
