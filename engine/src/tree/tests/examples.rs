//! Tests of single examples: which reads and writes conflict, which request queues behind which, and what inspections
//! and counters show.

use super::*;

/// Returns a world in which these claims were requested one after the other.
fn world(claims: &[&str]) -> World {
    let mut world = World::new();
    for claim in claims {
        world.ask(wanted(claim));
        world.check();
    }
    world
}

#[test]
fn a_second_request_waits_only_if_its_paths_conflict() {
    let cases = [
        ("W a/b/c", "W a/b/c", "waits"),
        ("W []", "W a/b/c", "waits"),
        ("W []", "W []", "waits"),
        ("W a/b", "W a/b/2", "waits"),
        ("W a/b/2", "W a/b", "waits"),
        ("W a/b/1", "W a/b/2", "held"),
        ("R a/b/1", "R a/b/2", "held"),
        ("R a/b", "R a/b", "held"),
        ("R []", "R a/b", "held"),
        ("R a", "W a/1/x", "waits"),
        ("R a/1/x", "W a", "waits"),
        ("R a, W a/b", "R a/c", "held"),
        ("R a, W a/b", "R a", "waits"),
        ("R a, W a/b", "R a/b", "waits"),
        ("R [], W c", "R []", "waits"),
        ("R a", "R a, W a", "waits"),
        ("W 2", "R 1, W 3, W []", "waits"),
        ("W 2/1, R 2", "R 2, R 2/1/1", "waits"),
        ("W \"\"", "W a", "held"),
        ("W \"\"", "W []", "waits"),
        ("W ab", "W a", "held"),
        ("W a/b", "W ab", "held"),
        ("W a-segment-longer-than-sixteen-bytes/b", "W a-segment-longer-than-sixteen-bytes/c", "held"),
        ("W a-segment-longer-than-sixteen-bytes/b", "R a-segment-longer-than-sixteen-bytes", "waits"),
        ("W a-segment-of-16-b", "W a-segment-of-16-B", "held"),
    ];
    for (first, second, expected) in cases {
        let mut world = world(&[first, second]);
        let held = world.with(Standing::Held);
        assert_eq!(held.contains(&2), expected == "held", "{first}, then {second}");
        world.remove(1);
        world.settle();
        world.check();
        assert_eq!(world.with(Standing::Held), [2], "{first} released before {second}");
    }
}

#[test]
fn a_waiter_blocks_later_overlapping_requests() {
    let mut world = world(&["W a1, W a2, W a3", "R a3, R a4, R a5", "W a5, W a6, W a7", "W a8"]);
    assert_eq!(world.with(Standing::Held), [1, 4]);
    world.remove(1);
    assert_eq!(world.settle(), [2]);
    world.remove(2);
    assert_eq!(world.settle(), [3]);
}

#[test]
fn a_read_queues_behind_a_blocked_read() {
    let mut world = world(&["R a", "W a/1, W a/2", "R []", "R a/3"]);
    assert_eq!(world.with(Standing::Held), [1]);
    // Once claim 3 has left, the read of `b` by claim 5 is clear, but waits for `a/4`. The read of claim 6 does not
    // queue behind it.
    world.ask(wanted("R b, W a/4"));
    world.ask(wanted("R b"));
    assert_eq!(world.with(Standing::Held), [1]);
    world.remove(3);
    assert_eq!(world.settle(), [4, 6]);
    world.check();
}

#[test]
fn a_release_grants_all_unblocked_waiters_in_order() {
    let reads = ["R a/b", "R a/b/1", "R a/b/2", "R a/b/2/b", "R a/b/2/b/c", "R a/b/3", "R a", "R []"];
    let mut world = World::new();
    world.ask(wanted("W a"));
    for read in reads {
        world.ask(wanted(read));
    }
    let write = world.ask(wanted("W a/b/2/b/c"));
    assert_eq!(world.with(Standing::Held), [1]);
    world.remove(1);
    assert_eq!(world.settle(), Vec::from_iter(2..=9));
    for number in 2..=9 {
        assert!(world.settle().is_empty());
        world.check();
        world.remove(number);
    }
    // All reads that block the write of `a/b/2/b/c` have ended now.
    assert_eq!(world.settle(), [write]);
}

#[test]
fn a_release_of_several_paths_grants_waiters_in_arrival_order() {
    let mut world = world(&["W a, W b", "R a", "R b", "R a", "R b/1", "R a/1"]);
    world.remove(1);
    assert_eq!(world.settle(), [2, 3, 4, 5, 6]);
}

#[test]
fn a_leaving_waiter_stops_blocking_at_once() {
    let mut world = world(&["R a", "W a"]);
    world.remove(2);
    world.ask(wanted("R a"));
    assert_eq!(world.with(Standing::Held), [1, 3]);
}

#[test]
fn a_leaving_waiter_unblocks_the_waiters_behind_it() {
    let mut world = world(&["R a", "W a, W b", "W b/1", "R a/1"]);
    world.remove(2);
    assert_eq!(world.settle(), [3, 4]);
}

#[test]
fn a_queued_read_does_not_wait_for_other_reads() {
    let mut world = world(&["R a/b", "W c", "R a, R c"]);
    world.remove(2);
    assert_eq!(world.settle(), [3]);
}

#[test]
fn a_write_does_not_wait_for_sibling_paths() {
    let mut world = world(&["R a/b", "R a"]);
    world.remove(2);
    world.ask(wanted("W a/c"));
    assert_eq!(world.with(Standing::Held), [1, 3]);
}

#[test]
fn items_covered_by_another_item_of_the_request_are_dropped() {
    let cases = [
        ("W a, W a", "W a"),
        ("R a, W a", "W a"),
        ("W a/b, W a", "W a"),
        ("W a, R a/b/c", "W a"),
        ("R a, R a/b", "R a"),
        ("R a, W a/b", "R a, W a/b"),
        ("W a/b, R a, R a/b/c, W a/b/d", "W a/b, R a"),
        ("R [], R a, W b, R b/1, W b/2", "R [], W b"),
        ("W ab, W a", "W ab, W a"),
        ("R a/b, R a/c, R a/b/1", "R a/b, R a/c"),
    ];
    for (asked, needed) in cases {
        for held in [false, true] {
            let mut tree = tree();
            let (asked, needed) = (wanted(asked), wanted(needed));
            let first = if held {
                tree.hold(ClaimIx::new(1), &items(&asked))
            } else {
                tree.wait(ClaimIx::new(1), 1, &items(&asked))
            };
            assert_eq!(tree.paths(first).collect::<Vec<_>>(), needed);
            assert_eq!(tree.first_path(first, usize::MAX), needed[0].0);
            tree.verify();
        }
    }
}

fn distinct_segment_count(tree: &mut Tree) -> u64 {
    tree.count_distinct_segments(&mut Steps::new(100)).expect("the tree has fewer nodes")
}

#[test]
fn counters_count_items_paths_and_segments() {
    // The tree counts distinct segments only once they are requested. The first request comes either before or after
    // the items.
    for asked_early in [false, true] {
        let mut tree = tree();
        let fresh = tree.counters();
        assert_eq!((fresh.pending_item_count, fresh.held_item_count), (0, 0));
        assert_eq!((fresh.path_count, fresh.segment_count), (0, 1));
        if asked_early {
            assert_eq!(distinct_segment_count(&mut tree), 1);
        }
        let holder = tree.hold(ClaimIx::new(1), &items(&wanted("R a/b, R a/b/c, W b")));
        let waiter = tree.wait(ClaimIx::new(2), 1, &items(&wanted("W a/b/d")));
        let counters = tree.counters();
        assert_eq!((counters.pending_item_count, counters.held_item_count), (1, 2));
        assert_eq!((counters.path_count, counters.segment_count), (3, 7));
        assert_eq!(distinct_segment_count(&mut tree), 4);
        tree.verify();
        remove_all(&mut tree, waiter);
        assert_eq!(distinct_segment_count(&mut tree), 3);
        remove_all(&mut tree, holder);
        assert_eq!(distinct_segment_count(&mut tree), 1);
        assert_eq!(tree.counters(), fresh);
    }
}

#[test]
fn a_holder_is_reported_as_blocker_before_a_waiter() {
    let world = world(&["W a", "W b", "W a, W c", "R c/1, W d"]);
    let blocker = |text: &str| world.tree.blocker(&items(&wanted(text))).map(ClaimIx::number);
    assert_eq!(blocker("W c/2, R b/1"), Some(2));
    assert!(blocker("W []").is_some_and(|claim| claim <= 2));
    assert_eq!(blocker("W c/1/1"), Some(3));
    assert_eq!(blocker("R d"), Some(4));
    assert_eq!(blocker("R e"), None);
    assert_eq!(world.tree.overlapping(&path("c"), false, 10).0, [3, 4].map(ClaimIx::new));
    assert_eq!(world.tree.overlapping(&path("[]"), true, 10).0.len(), 2);
}

#[test]
fn clear_claims_left_by_a_freeze_are_granted_by_the_thaw() {
    let mut world = world(&["W a"]);
    world.frozen = true;
    world.ask(wanted("R a"));
    world.ask(wanted("R b"));
    world.remove(1);
    assert!(world.settle().is_empty());
    assert_eq!(world.with(Standing::Left), [2, 3]);
    world.check();
    world.ask(wanted("W a/1"));
    world.thaw();
    world.check();
    assert_eq!(world.with(Standing::Held), [2, 3]);
}

#[test]
fn a_path_is_shown_up_to_the_last_segment_that_fits() {
    let wanted = wanted("W aaaaa/b/ccc");
    for enters in [false, true] {
        let mut tree = tree();
        let first_item = if enters {
            tree.enter_later(ClaimIx::new(1), 1, &items(&wanted), true)
        } else {
            tree.hold(ClaimIx::new(1), &items(&wanted))
        };
        for (len_max, len) in [(0, 0), (6, 0), (7, 7), (9, 7), (10, 10), (14, 10), (15, 15), (16, 15)] {
            let shown = tree.first_path(first_item, len_max);
            assert_eq!(shown, wanted[0].0[..len], "at most {len_max} bytes, enters: {enters}");
        }
    }
}
