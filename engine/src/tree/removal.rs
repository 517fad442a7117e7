//! Removal of ended claims from a tree: each turn removes some of their items.

use super::node::NodeIx;
use super::waiting::Order;
use super::{Item, State, Tree};
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, ItemIx};
use crate::steps::Steps;

/// Number of nodes, visited or created, that cost one more step when an item is checked, enters, is held, or leaves.
pub(super) const NODES_PER_STEP: u32 = 8;

/// Number of items that are removed at once, even if no steps are left. So an ordinary set is gone when its release is
/// answered.
const REMOVED_AT_ONCE: u32 = if cfg!(test) { 1 } else { 32 };

/// Ended claims of which some items are still in the tree, by their first items. These items block other items until
/// they are removed.
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
    /// Removes a claim, held or waiting. [`Tree::next_verdict`] removes the remaining items of a large claim, and finds
    /// the claims that become clear.
    #[inline]
    pub(crate) fn remove(&mut self, first_item: ItemIx, steps: &mut Steps) {
        if self.items[first_item].next.is_none() {
            // Most sets have one path. The request itself removes it, so it costs the turn no steps.
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

    /// Continues removing. Returns whether all ended claims are removed.
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

    /// Returns the number of steps to enter or leave a node and all nodes above it, in addition to the step of the
    /// item.
    #[inline]
    pub(super) fn steps_at(&self, node: NodeIx) -> u32 {
        u32::from(self.trie.nodes[node].depth) / NODES_PER_STEP
    }

    /// Removes one item of a claim, the first item last. Returns whether it was the first item.
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
        // The recheck is scheduled before the item leaves its node, because a region keeps the node in the trie.
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

    /// Returns the claim of an item, or `None` if the claim ended.
    pub(super) fn claim_of(&self, item: ItemIx) -> Option<ClaimIx> {
        Some(self.items[self.items[item].first].claim).filter(|claim| claim.is_some())
    }
}
