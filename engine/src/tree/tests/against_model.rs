//! Tests with random sequences of steps, and with all short ones: after each step, the state of the tree must agree
//! with the lock rule applied to all claims from scratch (`Model`).

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Ask(Vec<Wanted>),
    /// Requests a set whose items are added to the tree over several turns. The flag says whether the claim may wait.
    AskLater(Vec<Wanted>, bool),
    /// Removes the n-th live claim, held, waiting or entering; does nothing if there are fewer.
    Remove(usize),
    /// Continues the unfinished work of the tree with this number of steps.
    Examine(u32),
    Settle,
    /// Finds one claim that no other claim blocks, and leaves it waiting, as the server does in a frozen namespace (one
    /// whose grants are suspended). The next `Thaw` step grants the claim.
    Leave,
    Freeze,
    Thaw,
}

fn wanted_items() -> impl Strategy<Value = Vec<Wanted>> {
    let segment = prop::sample::select(vec!["a", "b", "a-segment-longer-than-sixteen-bytes"]);
    let path_text = prop::collection::vec(segment, 0..=3)
        .prop_map(|segments| if segments.is_empty() { path("[]") } else { path(&segments.join("/")) });
    prop::collection::vec((path_text, prop::bool::weighted(0.4)), 1..=3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => wanted_items().prop_map(Step::Ask),
        4 => (wanted_items(), any::<bool>()).prop_map(|(wanted, may_wait)| Step::AskLater(wanted, may_wait)),
        6 => (0..12_usize).prop_map(Step::Remove),
        6 => (1..=3_u32).prop_map(Step::Examine),
        1 => Just(Step::Settle),
        2 => Just(Step::Leave),
        1 => Just(Step::Freeze),
        2 => Just(Step::Thaw),
    ]
}

const LIVE_MAX: usize = 12;

fn run(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        match step {
            Step::Ask(wanted) if world.claims.len() < LIVE_MAX => {
                world.ask(wanted.clone());
            }
            Step::AskLater(wanted, may_wait) if world.claims.len() < LIVE_MAX => {
                world.ask_later(wanted.clone(), *may_wait);
            }
            Step::Ask(_) | Step::AskLater(..) => {}
            Step::Remove(index) => {
                if let Some(number) = world.claims.keys().nth(*index).copied() {
                    world.remove(number);
                }
            }
            Step::Examine(budget) => {
                world.step(*budget);
            }
            Step::Settle => {
                world.settle();
            }
            Step::Leave => world.leave_one(),
            Step::Freeze => world.frozen = true,
            Step::Thaw => world.thaw(),
        }
        world.check();
    }
    world.thaw();
    world.settle();
    world.check();
    for number in world.claims.keys().copied().collect::<Vec<_>>() {
        world.remove(number);
        world.check();
    }
    world.settle();
    world.check();
    assert_eq!(world.tree.trie.nodes.live_count(), 1, "only the root is left");
    assert_eq!(world.tree.counters(), tree().counters());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_follow_the_rule(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }

    #[test]
    fn a_request_keeps_only_items_not_covered_by_others(wanted in prop::collection::vec(wanted_items(), 1..4)) {
        let wanted = wanted.concat();
        let kept = super::super::needed(&items(&wanted));
        let covers = |above: &Wanted, below: &Wanted| below.0.starts_with(&above.0) && (above.1 || !below.1);
        for (index, item) in wanted.iter().enumerate() {
            let covered = wanted.iter().enumerate().any(|(other_index, other)| {
                // Of equal items, the first one stays.
                other_index != index && covers(other, item) && (!covers(item, other) || other_index < index)
            });
            prop_assert_eq!(kept.contains(&index), !covered);
        }
    }
}

/// Runs every sequence of `steps` steps. A step requests one of `sets`, or removes a live claim. After a removal or
/// another such step, a step can also do one unit of the tree's unfinished work, such as checking whether a waiting
/// path is still blocked.
fn every_sequence(sets: &[&str], steps: usize) {
    let sets: Vec<Vec<Wanted>> = sets.iter().map(|set| wanted(set)).collect();
    let mut sequence = Vec::new();
    let mut count = 0_u64;
    extend(&sets, steps, 0, &mut sequence, &mut count);
    assert!(count > 1000);
}

fn extend(sets: &[Vec<Wanted>], steps: usize, live: usize, sequence: &mut Vec<Step>, count: &mut u64) {
    if steps == 0 {
        *count += 1;
        run(sequence);
        return;
    }
    for set in sets {
        sequence.push(Step::Ask(set.clone()));
        extend(sets, steps - 1, live + 1, sequence, count);
        sequence.pop();
    }
    for index in 0..live {
        sequence.push(Step::Remove(index));
        extend(sets, steps - 1, live - 1, sequence, count);
        sequence.pop();
    }
    if matches!(sequence.last(), Some(Step::Remove(_) | Step::Examine(_))) {
        sequence.push(Step::Examine(1));
        extend(sets, steps - 1, live, sequence, count);
        sequence.pop();
    }
}

#[test]
fn every_short_sequence_follows_the_rule() {
    every_sequence(&["R []", "W []", "R a", "W a", "R a/b", "W a/b", "W b", "R a, W a/b", "R b, W a/b"], 4);
    every_sequence(&["R []", "W a", "R a", "R a/b, W b"], 6);
}
