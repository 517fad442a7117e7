//! Grants of waiting claims: each turn marks some of their items as held.

use super::{State, Tree};
use crate::fifo::Fifo;
use crate::handle::ItemIx;
use crate::steps::Steps;

/// Number of items that a grant holds at once, even if no steps are left. An ordinary set has no more items.
const HELD_AT_ONCE: u32 = if cfg!(test) { 1 } else { 32 };

/// Granted claim with items that are not marked as held yet.
#[derive(Clone, Copy, Debug)]
struct Granted {
    first_item: ItemIx,
    /// Arrival of the claim, which identifies it: a later claim may have the same first item.
    arrival: u64,
    next_item: ItemIx,
}

/// Granted claims that are too large to be held at once: some of their items are still waiting and clear (blocked by no
/// other claim). Such items block the same claims as held items do, because a later claim that conflicts queues behind
/// both.
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
    /// Grants a waiting claim whose items are all clear. [`Tree::next_verdict`] continues with the items of a large
    /// claim.
    pub(crate) fn grant(&mut self, first_item: ItemIx, steps: &mut Steps) {
        debug_assert!(self.is_claim_clear(first_item), "a claim that is granted must be clear");
        if self.items[first_item].state == State::Held {
            // The claim is a large set whose items were held as they entered.
            return;
        }
        if let Some(offered) =
            self.recheck.offered.take_if(|offered| self.items[*offered].first == first_item)
        {
            // The offered item is still marked as blocked. If it is a read, later reads wait behind it only because of
            // that mark, so they are rechecked.
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

    /// Whether a granted claim may have items that are still marked as waiting.
    pub(crate) fn is_granting(&self) -> bool {
        !self.granting.is_done()
    }

    /// Continues with granted claims. Returns whether all their items are held.
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

    /// Whether the granted claim with this first item and arrival still exists. The record of the item may belong to a
    /// later claim by now, but no other claim that waited has the same arrival.
    fn waits_in_part(&self, first_item: ItemIx, arrival: u64) -> bool {
        let first = &self.items[first_item];
        first.state != State::Free && first.claim.is_some() && first.arrival == arrival
    }

    /// Holds an item of a granted claim, unless it is held already. Returns the next item of the claim.
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

    /// Whether some items of this claim are held and others are not. For checks.
    pub(super) fn is_held_in_part(&self, first_item: ItemIx) -> bool {
        let is_of = |granted: &Granted| {
            granted.first_item == first_item && self.waits_in_part(first_item, granted.arrival)
        };
        self.granting.claims.iter().any(is_of)
    }
}
