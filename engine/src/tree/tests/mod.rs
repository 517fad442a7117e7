//! Tests of trees: examples of the lock rules, comparisons with a naive model, and the work of one turn.

mod against_model;
mod examples;
mod slices;

use super::{Enters, Tree, TreeItem, Verdict};
use crate::handle::{ClaimIx, ItemIx};
use crate::steps::Steps;
use ahash::RandomState;
use std::collections::{BTreeMap, BTreeSet};

/// Path key, and whether the item writes.
type Wanted = (Vec<u8>, bool);

fn tree() -> Tree {
    Tree::new(RandomState::with_seeds(1, 2, 3, 4))
}

/// Returns the key of a path like `a/b`. `[]` is the empty path, `""` one empty segment.
fn path(text: &str) -> Vec<u8> {
    let mut key = Vec::new();
    if text != "[]" {
        for segment in text.replace('"', "").split('/') {
            key.extend_from_slice(&(segment.len() as u16).to_le_bytes());
            key.extend_from_slice(segment.as_bytes());
        }
    }
    key
}

/// Returns the items of a text like `R a, W a/b`, in which `R` reads a path and `W` writes it.
fn wanted(text: &str) -> Vec<Wanted> {
    let item = |item: &str| match item.split_once(' ') {
        Some((mode, text)) => (path(text), mode == "W"),
        None => panic!("{item} is no item"),
    };
    text.split(", ").map(item).collect()
}

fn items(wanted: &[Wanted]) -> Vec<TreeItem<'_>> {
    wanted.iter().map(|(path, write)| TreeItem { path, write: *write }).collect()
}

fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Held,
    Waiting,
    /// Waits although no other claim blocks it. The tree has reported that, but the test left the claim waiting, as the
    /// server does in a frozen namespace. `World::thaw` grants it.
    Left,
    /// The items of the claim are still being added to the tree, over several turns.
    Enters,
}

#[derive(Debug)]
struct Claim {
    first_item: ItemIx,
    wanted: Vec<Wanted>,
    standing: Standing,
}

/// Removes a claim with all of its items at once.
fn remove_all(tree: &mut Tree, first_item: ItemIx) {
    tree.remove(first_item, &mut Steps::new(0));
    assert!(tree.go_on_removing(&mut Steps::new(1_000_000)));
}

/// Tree, and what its caller knows of each claim. Tests compare them with the lock rule applied from scratch (`Model`).
struct World {
    tree: Tree,
    /// Claims by number. The numbers are in order of arrival.
    claims: BTreeMap<u32, Claim>,
    newest: u32,
    /// Whether clear claims are left waiting.
    frozen: bool,
}

impl World {
    fn new() -> Self {
        Self { tree: tree(), claims: BTreeMap::new(), newest: 0, frozen: false }
    }

    /// Requests the paths in `wanted` as a new claim, and returns its number. The claim is held or waits. If the tree
    /// is still adding an earlier claim's paths over several turns, it adds this claim in the same way.
    fn ask(&mut self, wanted: Vec<Wanted>) -> u32 {
        if self.newest > 1 {
            // The tree counts distinct path segments, here in at most two nodes at each request. So some nodes are
            // created and removed before the count reaches them, and others after it.
            self.tree.count_distinct_segments(&mut Steps::new(2));
        }
        if self.tree.is_entering() {
            self.ask_later(wanted, true);
            return self.newest;
        }
        let items = items(&wanted);
        let clear = self.tree.is_clear(&items);
        let model = self.model();
        let expected = model.is_clear(&wanted);
        assert!(expected || !clear, "{wanted:?} is not clear");
        assert!(clear || !expected || !self.tree.is_settled(), "{wanted:?} is clear");
        let blocker = self.tree.blocker(&items);
        assert!(blocker.is_none() || !clear, "{blocker:?} is in the way of {wanted:?}");
        assert!(blocker.is_some() || clear || !self.tree.is_settled(), "nobody is in the way of {wanted:?}");
        if let Some(blocker) = blocker {
            self.assert_overlap(blocker.number(), &wanted);
        }
        self.newest += 1;
        let (first_item, standing) = if clear && !self.frozen {
            (self.tree.try_hold(ClaimIx::new(self.newest), &items).unwrap(), Standing::Held)
        } else {
            assert!(clear || self.tree.try_hold(ClaimIx::new(self.newest), &items).is_none());
            let first_item = self.tree.wait(ClaimIx::new(self.newest), u64::from(self.newest), &items);
            assert_eq!(self.tree.is_claim_clear(first_item), clear);
            (first_item, if clear { Standing::Left } else { Standing::Waiting })
        };
        self.claims.insert(self.newest, Claim { first_item, wanted, standing });
        self.newest
    }

    /// Requests the paths in `wanted` as a new claim, whose items are added to the tree over several turns.
    fn ask_later(&mut self, wanted: Vec<Wanted>, may_wait: bool) {
        self.newest += 1;
        let arrival = u64::from(self.newest);
        let first_item = self.tree.enter_later(ClaimIx::new(self.newest), arrival, &items(&wanted), may_wait);
        self.claims.insert(self.newest, Claim { first_item, wanted, standing: Standing::Enters });
    }

    fn assert_overlap(&self, claim: u32, wanted: &[Wanted]) {
        let overlaps =
            |(path, _): &Wanted| self.claims[&claim].wanted.iter().any(|(other, _)| overlap(path, other));
        assert!(wanted.iter().any(overlaps), "{claim} is in nobody's way");
    }

    fn remove(&mut self, claim: u32) {
        match self.claims.remove(&claim) {
            Some(Claim { first_item, standing: Standing::Held, .. }) => {
                self.tree.remove(first_item, &mut Steps::new(0));
            }
            Some(Claim { first_item, .. }) => self.tree.remove_waiting(first_item, &mut Steps::new(0)),
            None => {}
        }
    }

    /// Continues the unfinished work of the tree for `budget` steps: removals, additions, and checks whether waiting
    /// claims are still blocked. Unless `frozen`, grants the claims that no other claim blocks any more. Returns the
    /// granted claims.
    fn step(&mut self, budget: u32) -> Vec<u32> {
        let mut steps = Steps::new(budget);
        let mut granted = Vec::new();
        while let Some(number) = self.next_clear(!self.frozen, &mut steps) {
            let claim = self.claims.get_mut(&number).unwrap();
            assert_eq!(self.tree.blocker_of(claim.first_item), None);
            if !self.frozen {
                self.tree.grant(claim.first_item, &mut Steps::new(0));
                claim.standing = Standing::Held;
                granted.push(number);
            }
        }
        self.note_entered();
        granted
    }

    /// Continues the work of the tree until it finds a claim that no other claim blocks, and returns that claim without
    /// granting it. Returns `None` when no step or work is left. Removes refused claims: they were requested without
    /// waiting, but another claim blocks them or `may_hold` is false.
    fn next_clear(&mut self, may_hold: bool, steps: &mut Steps) -> Option<u32> {
        let enters = if may_hold { Enters::AndHolds } else { Enters::AndWaits };
        loop {
            match self.tree.next_verdict(enters, steps)? {
                Verdict::Clear(claim) => {
                    let number = claim.number();
                    let claim = self.claims.get_mut(&number).unwrap();
                    let is_decided = matches!(claim.standing, Standing::Held | Standing::Left);
                    assert!(!is_decided, "claim {number} was found before");
                    claim.standing = Standing::Left;
                    return Some(number);
                }
                Verdict::Refused(claim, blocker) => {
                    let number = claim.number();
                    assert_eq!(self.claims[&number].standing, Standing::Enters);
                    assert!(!may_hold || !self.model().clear.contains(&number), "{number} is clear");
                    assert!(blocker.is_none() || may_hold);
                    if let Some(blocker) = blocker {
                        self.assert_overlap(blocker.number(), &self.claims[&number].wanted);
                    }
                    self.remove(number);
                }
            }
        }
    }

    /// Marks the claims whose items are now all in the tree, and which other claims block, as `Standing::Waiting`.
    fn note_entered(&mut self) {
        for claim in self.claims.values_mut() {
            let entered = self.tree.entering_item_count(claim.first_item).is_none();
            if entered && claim.standing == Standing::Enters {
                claim.standing = Standing::Waiting;
            }
        }
    }

    /// Finds one claim that no other claim blocks, and leaves it waiting instead of granting it.
    fn leave_one(&mut self) {
        self.next_clear(false, &mut Steps::new(100));
        self.note_entered();
    }

    fn settle(&mut self) -> Vec<u32> {
        let granted = self.step(u32::MAX);
        assert!(self.tree.is_settled());
        granted
    }

    fn thaw(&mut self) {
        self.frozen = false;
        for claim in self.claims.values_mut().filter(|claim| claim.standing == Standing::Left) {
            assert!(self.tree.is_claim_clear(claim.first_item));
            self.tree.grant(claim.first_item, &mut Steps::new(0));
            claim.standing = Standing::Held;
        }
    }

    fn with(&self, standing: Standing) -> Vec<u32> {
        let has = |claim: &Claim| claim.standing == standing;
        self.claims.iter().filter(|(_, claim)| has(claim)).map(|(number, _)| *number).collect()
    }

    fn model(&self) -> Model<'_> {
        let mut model = Model::default();
        for (number, claim) in &self.claims {
            model.add(*number, &claim.wanted);
        }
        model
    }

    /// Compares the tree, and all its answers, with the lock rule applied to all claims from scratch (`Model`).
    fn check(&self) {
        self.tree.verify();
        let model = self.model();
        for (number, claim) in &self.claims {
            let found = matches!(claim.standing, Standing::Held | Standing::Left);
            let clear = model.clear.contains(number);
            assert!(clear || !found, "claim {number} is not clear");
            assert!(found || !clear || !self.tree.is_settled(), "claim {number} is forgotten");
            assert_eq!(self.tree.is_claim_clear(claim.first_item), found, "claim {number}");
            let first = super::needed(&items(&claim.wanted))[0];
            assert_eq!(
                self.tree.first_path(claim.first_item, usize::MAX),
                claim.wanted[first].0,
                "claim {number}"
            );
            if claim.standing == Standing::Waiting && self.tree.is_settled() {
                let blocker = self.tree.blocker_of(claim.first_item);
                self.assert_overlap(blocker.expect("somebody is in the way").number(), &claim.wanted);
            }
        }
        for asked in ["[]", "a", "a/b", "b/a/a"].map(path) {
            self.check_overlapping(&asked);
        }
    }

    fn check_overlapping(&self, asked: &[u8]) {
        if self.tree.is_entering() {
            return;
        }
        for held in [false, true] {
            let mut expected = Vec::new();
            let mut count = 0;
            for (number, claim) in &self.claims {
                if (claim.standing == Standing::Held) == held {
                    let paths = self.tree.paths(claim.first_item);
                    let overlapping = paths.filter(|(path, _)| overlap(path, asked)).count();
                    expected.extend((overlapping > 0).then_some(ClaimIx::new(*number)));
                    count += overlapping;
                }
            }
            let mut found = self.tree.overlapping(asked, held, 1000).0;
            if self.tree.is_granting() {
                // While a large claim is being granted, some of its items are held and others still wait. So it is both
                // in the list of holders and in the list of waiters, and the test searches both.
                found.extend(self.tree.overlapping(asked, !held, 1000).0);
                assert!(expected.iter().all(|claim| found.contains(claim)));
                continue;
            }
            assert!(held || found.is_sorted(), "waiters come in their order");
            if self.tree.removal.is_done() {
                // The tree still counts the items of an ended claim until they are removed, but `expected` and `count`
                // contain only live claims. So they are compared only when no removal is unfinished.
                let first = self.tree.overlapping(asked, held, 1).0;
                assert_eq!(first.len(), expected.len().min(1));
                assert!(first.iter().all(|first| held && found.contains(first) || found[0] == *first));
                assert_eq!(self.tree.overlapping_count(asked, held), count);
            }
            found.sort_unstable();
            assert_eq!(found, expected, "claims that overlap {asked:?}");
        }
    }
}

/// Lock rule, applied to all claims in their order of arrival. A write is blocked by every overlapping item of an
/// earlier claim. A read is blocked by overlapping items of earlier claims that are writes, or that are blocked
/// themselves. All other items are clear.
#[derive(Default)]
struct Model<'a> {
    /// Items of all claims added so far: the path of each item, whether it writes, and whether it is clear (no earlier
    /// claim blocks it).
    items: Vec<(&'a [u8], bool, bool)>,
    clear: BTreeSet<u32>,
}

impl<'a> Model<'a> {
    fn is_item_clear(&self, path: &[u8], write: bool) -> bool {
        self.items.iter().all(|(other, other_write, other_clear)| {
            !overlap(path, other) || !write && !other_write && *other_clear
        })
    }

    fn is_clear(&self, wanted: &[Wanted]) -> bool {
        wanted.iter().all(|(path, write)| self.is_item_clear(path, *write))
    }

    fn add(&mut self, number: u32, wanted: &'a [Wanted]) {
        let items: Vec<_> = wanted
            .iter()
            .map(|(path, write)| (path.as_slice(), *write, self.is_item_clear(path, *write)))
            .collect();
        if items.iter().all(|(.., clear)| *clear) {
            self.clear.insert(number);
        }
        self.items.extend(items);
    }
}
