//! Tests that the work of one turn does not depend on the number of waiters, and of claims that are added, granted or
//! removed over several turns.

use super::*;

/// Requests a set of paths. The claim is held if no other claim blocks it, and waits otherwise.
fn ask(tree: &mut Tree, claims: &mut Vec<ItemIx>, text: &str) {
    let wanted = wanted(text);
    let items = items(&wanted);
    let (number, claim) = (claims.len() as u64, ClaimIx::new(claims.len() as u32));
    let first_item =
        if tree.is_clear(&items) { tree.hold(claim, &items) } else { tree.wait(claim, number, &items) };
    claims.push(first_item);
}

/// Continues the unfinished work of the tree, such as checks whether waiting claims are still blocked, with a budget of
/// steps. Grants each claim that no other claim blocks any more. Returns the number of granted claims.
fn examine(tree: &mut Tree, claims: &[ItemIx], budget: u32) -> u32 {
    let (mut granted, mut left) = (0, Steps::new(budget));
    while let Some(verdict) = tree.next_verdict(Enters::AndHolds, &mut left) {
        let Verdict::Clear(claim) = verdict else { panic!("no set enters") };
        tree.grant(claims[claim.at()], &mut Steps::new(0));
        granted += 1;
    }
    granted
}

#[test]
fn a_release_before_many_readers_is_processed_in_slices() {
    const READERS: u32 = 100_000;
    const BUDGET: u32 = 1000;
    let (mut tree, mut claims) = (tree(), Vec::new());
    ask(&mut tree, &mut claims, "W a/b");
    for reader in 0..READERS {
        ask(&mut tree, &mut claims, ["R a/b", "R a/b/c", "R a", "R []"][reader as usize % 4]);
    }
    remove_all(&mut tree, claims[0]);
    let mut slices = 0;
    while !tree.is_settled() {
        let granted = examine(&mut tree, &claims, BUDGET);
        slices += 1;
        assert!(granted <= BUDGET);
    }
    assert_eq!(tree.counters().held_item_count, READERS);
    // Each waiting reader takes one step, in which the tree finds that nothing blocks it any more. The few steps that
    // end these checks need at most one more slice of `BUDGET` steps.
    assert!(slices <= READERS / BUDGET + 1, "{slices} slices");
}

#[test]
fn a_hand_over_takes_two_steps_for_any_number_of_waiters() {
    let (mut tree, mut claims) = (tree(), Vec::new());
    for _ in 0..1000 {
        ask(&mut tree, &mut claims, "W a/b/c/d");
    }
    for front in 0..999 {
        remove_all(&mut tree, claims[front]);
        assert_eq!(examine(&mut tree, &claims, 2), 1);
        assert!(tree.is_settled());
    }
}

#[test]
fn a_leaving_reader_examines_no_writer_while_other_readers_remain() {
    let (mut tree, mut claims) = (tree(), Vec::new());
    for _ in 0..100 {
        ask(&mut tree, &mut claims, "R []");
    }
    for number in 0..1000 {
        ask(&mut tree, &mut claims, &format!("W a/{number}"));
    }
    for reader in &claims[..99] {
        remove_all(&mut tree, *reader);
        assert!(tree.is_settled());
    }
    remove_all(&mut tree, claims[99]);
    assert_eq!(examine(&mut tree, &claims, 1001), 1000);
    assert!(tree.is_settled());
}

#[test]
fn releasing_a_large_claim_examines_each_waiter_once() {
    let (mut tree, mut claims) = (tree(), Vec::new());
    let many = Vec::from_iter((0..1000).map(|number| format!("W a/{number}")));
    ask(&mut tree, &mut claims, &many.join(", "));
    for number in 0..1000 {
        ask(&mut tree, &mut claims, "R a");
        ask(&mut tree, &mut claims, &format!("R a/{number}"));
    }
    remove_all(&mut tree, claims[0]);
    assert_eq!(examine(&mut tree, &claims, 2000 + 1000 + 10), 2000);
    assert!(tree.is_settled());
}

#[test]
fn nodes_of_unused_paths_are_removed() {
    let (mut tree, mut claims) = (tree(), Vec::new());
    let fresh = tree.counters();
    for round in 0..100 {
        ask(
            &mut tree,
            &mut claims,
            &format!("W a/{round}/c, R b/a-segment-longer-than-sixteen-bytes-{round}"),
        );
        ask(&mut tree, &mut claims, &format!("W a/{round}"));
    }
    for first_item in claims.iter().step_by(2) {
        remove_all(&mut tree, *first_item);
    }
    assert_eq!(examine(&mut tree, &claims, u32::MAX), 100);
    for first_item in claims.iter().skip(1).step_by(2) {
        remove_all(&mut tree, *first_item);
    }
    tree.verify();
    assert_eq!(tree.counters(), fresh);
    assert_eq!(tree.trie.nodes.live_count(), 1, "only the root is left");
}

/// An ended claim's records in the tree are reused by a later claim, while the tree still lists the unfinished grant of
/// the ended claim. That grant must not hold items of the later claim.
#[test]
fn a_claim_that_ends_during_its_grant_holds_no_foreign_items() {
    let (mut tree, mut claims) = (tree(), Vec::new());
    ask(&mut tree, &mut claims, "W b");
    ask(&mut tree, &mut claims, "W b, W c, W d");
    remove_all(&mut tree, claims[0]);
    let clear = tree.next_verdict(Enters::AndHolds, &mut Steps::new(10));
    assert_eq!(clear, Some(Verdict::Clear(ClaimIx::new(1))));
    tree.grant(claims[1], &mut Steps::new(0));
    assert!(tree.is_granting(), "one item is held");
    tree.remove(claims[1], &mut Steps::new(0));
    ask(&mut tree, &mut claims, "W x, W b");
    tree.verify();
    while !tree.is_settled() {
        let verdict = tree.next_verdict(Enters::AndHolds, &mut Steps::new(1));
        tree.verify();
        if verdict == Some(Verdict::Clear(ClaimIx::new(2))) {
            tree.grant(claims[2], &mut Steps::new(0));
        }
    }
    assert_eq!(tree.counters().held_item_count, 2);
}

#[test]
fn a_set_that_enters_only_to_wait_holds_nothing() {
    let mut tree = tree();
    let first_item = tree.enter_later(ClaimIx::new(1), 1, &items(&wanted("W a, W b, W c")), true);
    while tree.is_entering() {
        let verdict = tree.next_verdict(Enters::AndWaits, &mut Steps::new(1));
        assert!(verdict.is_none_or(|verdict| verdict == Verdict::Clear(ClaimIx::new(1))));
        assert_eq!(tree.counters().held_item_count, 0);
    }
    assert!(tree.is_claim_clear(first_item));
    tree.verify();
}

/// A set whose paths are added to the tree over several turns costs one step to check each path and one to add it, and
/// an eighth of a step for each node that is visited or created.
#[test]
fn entering_a_set_costs_steps_per_node_of_its_paths() {
    let mut tree = tree();
    // The paths share only the root. Each of them has 32 segments.
    let text = |number: u32| format!("W {number}{}", "/s".repeat(31));
    let wanted = wanted(&(0..10).map(text).collect::<Vec<_>>().join(", "));
    let first_item = tree.enter_later(ClaimIx::new(1), 1, &items(&wanted), true);
    let mut steps = Steps::new(1000);
    assert_eq!(tree.next_verdict(Enters::AndHolds, &mut steps), Some(Verdict::Clear(ClaimIx::new(1))));
    // The rule: one step for each path, and one for each eight nodes that are visited or created. First each path takes
    // one step for the check whether another claim blocks it, and one step begins to hold the paths. Afterwards each
    // path takes one step, four to create its 32 nodes, and four to count the path as held in these nodes. The last
    // step finds that all paths are held.
    assert_eq!(1000 - steps.left(), 10 + 1 + 10 * (1 + 4 + 4) + 1);
    tree.grant(first_item, &mut steps);
    tree.verify();
}
