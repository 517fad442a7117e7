//! Removal of ended claims from a tree: each turn removes some of their items.

use super::node::NodeIx;
use super::waiting::Order;
use super::{Item, State, Tree};
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, ItemIx};
use crate::steps::Steps;

/// To check, add, hold or remove an item costs one step, and one more for each group of this many nodes that it visits
/// or creates.
pub(super) const NODES_PER_STEP: u32 = 8;

/// Number of items of an ended claim that are removed within the request that ends it, even if no steps are left. So a
/// set of at most this size has left the tree when its release is answered.
const REMOVED_AT_ONCE: u32 = if cfg!(test) { 1 } else { 32 };

/// First items of the ended claims that still have items in the tree. Each item of these claims blocks other claims
/// until it is removed.
#[derive(Debug, Default)]
pub(super) struct Removal {
    leaving: Fifo<ItemIx>,
}

impl Removal {
    pub(super) fn is_done(&self) -> bool {
        self.leaving.is_empty()
    }
}

impl Tree {
    /// Removes a held or waiting claim. If it has many items (paths), only `REMOVED_AT_ONCE` of them are removed at
    /// once. Each later call of [`Tree::next_verdict`] removes some of the others. Those calls also find the waiting
    /// claims that no other claim blocks any more.
    #[inline]
    pub(crate) fn remove(&mut self, first_item: ItemIx, steps: &mut Steps) {
        if self.items[first_item].next.is_none() {
            // Most sets have one path. Its removal counts as part of the request, so it uses no step of the turn's
            // budget.
            return self.remove_item(first_item);
        }
        self.items[first_item].claim = ClaimIx::NONE;
        for _ in 0..REMOVED_AT_ONCE {
            if self.remove_one_of(first_item, steps) {
                return;
            }
        }
        self.removal.leaving.push_back(first_item);
    }

    /// Continues to remove the items of ended claims. Returns whether all of them are removed.
    pub(super) fn go_on_removing(&mut self, steps: &mut Steps) -> bool {
        while let Some(first_item) = self.removal.leaving.front().copied() {
            if !steps.take() {
                return false;
            }
            if self.remove_one_of(first_item, steps) {
                self.removal.leaving.pop_front();
            }
        }
        true
    }

    /// Returns the number of steps to update a node and all nodes above it when an item is added or removed. The item
    /// itself costs one more step.
    #[inline]
    pub(super) fn steps_at(&self, node: NodeIx) -> u32 {
        u32::from(self.trie.nodes[node].depth) / NODES_PER_STEP
    }

    /// Removes one item of an ended claim. The first item of the claim is removed last. Returns whether this call has
    /// removed it.
    #[inline(never)]
    fn remove_one_of(&mut self, first_item: ItemIx, steps: &mut Steps) -> bool {
        let number = match self.items[first_item].next {
            ItemIx::NONE => first_item,
            next => next,
        };
        self.items[first_item].next = self.items[number].next;
        steps.charge(self.steps_at(self.items[number].node));
        self.remove_item(number);
        number == first_item
    }

    #[inline(always)]
    fn remove_item(&mut self, number: ItemIx) {
        let Item { node, state, write, arrival, .. } = self.items[number];
        let held = state == State::Held;
        let from = if held {
            self.leave_held(number);
            Order::FIRST
        } else {
            self.leave_waiting(number);
            Order { arrival, item: number }
        };
        // `recheck_from` schedules a later check whether the items behind this item are still blocked. The check
        // belongs to the node, and a node with a scheduled check stays in the trie. So it is scheduled before `leave`,
        // which removes an unused node.
        if self.blocked_count > 0 {
            self.recheck_from(node, from);
        }
        let left = &self.trie.nodes[node];
        self.path_count -= u32::from(left.item_count == 1);
        self.segment_count -= u64::from(left.depth);
        self.trie.leave(node, held.then_some(write));
        self.take_offered(number);
        self.items[number].state = State::Free;
        self.items.release(number);
    }

    /// Returns the claim of an item, or `None` if the claim has ended and its items are being removed.
    pub(super) fn claim_of(&self, item: ItemIx) -> Option<ClaimIx> {
        Some(self.items[self.items[item].first].claim).filter(|claim| claim.is_some())
    }
}
