//! Grants of waiting sets of paths. A claim is granted at once, even if its set has many items (an item is one path of
//! a set). The grant then marks only the first items as held, and later turns mark the others. Until then, the others
//! block the same claims as held items do.

use super::{State, Tree};
use crate::fifo::Fifo;
use crate::handle::ItemIx;
use crate::steps::Steps;

/// Number of items (paths of a set) that a grant marks as held at once, even if no steps are left. Most sets have no
/// more paths.
const HELD_AT_ONCE: u32 = if cfg!(test) { 1 } else { 32 };

/// Granted set of paths with items (paths) that are not marked as held yet.
#[derive(Clone, Copy, Debug)]
struct Granted {
    first_item: ItemIx,
    /// Arrival number of the claim. It identifies the claim, because a later claim may have the same first item.
    arrival: u64,
    next_item: ItemIx,
}

/// Granted claims with so many paths that they are marked as held over several turns. The paths that are not marked as
/// held yet are still marked as waiting and clear (blocked by no other claim). They block the same claims as held paths
/// do, because a later claim that conflicts queues behind both.
#[derive(Debug, Default)]
pub(super) struct Granting {
    claims: Fifo<Granted>,
}

impl Granting {
    pub(super) fn is_done(&self) -> bool {
        self.claims.is_empty()
    }
}

impl Tree {
    /// Grants a waiting claim, none of whose paths is blocked. If the claim has very many paths, later calls of
    /// [`Tree::next_verdict`] mark the rest of them as held.
    pub(crate) fn grant(&mut self, first_item: ItemIx, steps: &mut Steps) {
        debug_assert!(self.is_claim_clear(first_item), "a claim that is granted must be clear");
        if self.items[first_item].state == State::Held {
            // The claim is a large set whose paths were marked as held when they were added to the tree.
            return;
        }
        if let Some(offered) =
            self.recheck.offered.take_if(|offered| self.items[*offered].first == first_item)
        {
            // `offered` is a path of this claim. The recheck of this path found that nothing blocks the claim any more,
            // but the path is still marked as blocked. Reads behind a blocked read must wait. So if the path is a read,
            // `recheck_behind` schedules a recheck of the reads behind it.
            self.hold_waiting(offered, steps);
            self.recheck_behind(offered);
        }
        let mut item = first_item;
        for _ in 0..HELD_AT_ONCE {
            item = self.hold_one(item, steps);
            if item.is_none() {
                return;
            }
        }
        let arrival = self.items[first_item].arrival;
        self.granting.claims.push_back(Granted { first_item, arrival, next_item: item });
    }

    /// Whether a granted claim may have paths that are still marked as waiting.
    pub(crate) fn is_granting(&self) -> bool {
        !self.granting.is_done()
    }

    /// Continues to mark the paths of granted claims as held. Returns whether all of them are.
    pub(super) fn go_on_granting(&mut self, steps: &mut Steps) -> bool {
        while let Some(Granted { first_item, arrival, mut next_item }) = self.granting.claims.front().copied()
        {
            while next_item.is_some() && self.waits_in_part(first_item, arrival) {
                if !steps.take() {
                    return false;
                }
                next_item = self.hold_one(next_item, steps);
                if let Some(granted) = self.granting.claims.front_mut() {
                    granted.next_item = next_item;
                }
            }
            self.granting.claims.pop_front();
        }
        true
    }

    /// Whether the granted claim with this first item and arrival number still exists. By now, the record of the item
    /// may belong to a later claim, but no other claim that waited has the same arrival number.
    fn waits_in_part(&self, first_item: ItemIx, arrival: u64) -> bool {
        let first = &self.items[first_item];
        first.state != State::Free && first.claim.is_some() && first.arrival == arrival
    }

    /// Marks an item (one path) of a granted claim as held, unless it is marked already. Returns the next item of the
    /// claim.
    fn hold_one(&mut self, item: ItemIx, steps: &mut Steps) -> ItemIx {
        if self.items[item].state == State::Clear {
            self.hold_waiting(item, steps);
        }
        self.items[item].next
    }

    fn hold_waiting(&mut self, item: ItemIx, steps: &mut Steps) {
        self.leave_waiting(item);
        self.enter_held(item);
        let (node, write) = (self.items[item].node, self.items[item].write);
        self.trie.count_held(node, write, true);
        steps.charge(self.steps_at(node));
    }

    /// Whether this claim was granted and only some of its paths are marked as held. For checks.
    pub(super) fn is_held_in_part(&self, first_item: ItemIx) -> bool {
        let is_of = |granted: &Granted| {
            granted.first_item == first_item && self.waits_in_part(first_item, granted.arrival)
        };
        self.granting.claims.iter().any(is_of)
    }
}
