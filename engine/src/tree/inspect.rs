//! What people ask of a tree: who is in the way, and what is held or awaited where.

use super::node::{Node, Overlapping, Place, class};
use super::waiting::{Order, Queues};
use super::{Item, State, Tree, TreeItem};
use crate::slab::NONE;
use std::collections::BTreeSet;

impl Tree {
    /// A claim that keeps out a request which comes now: a holder that conflicts, else the first waiter in the way. None also
    /// if only items of a claim that is over do.
    pub(crate) fn blocker(&self, items: &[TreeItem]) -> Option<u32> {
        let places = items.iter().map(|item| (self.trie.locate(item.path), item.write));
        self.blocker_of_places(places, u64::MAX)
    }

    /// The claim that blocks the first blocked item of a waiting claim: a holder that conflicts, else the first waiter in the way. Returns nothing if the claim has not entered.
    pub(crate) fn blocker_of(&self, first_item: u32) -> Option<u32> {
        if matches!(self.items[first_item].state, State::Outside | State::Held) {
            return None;
        }
        let blocked = self.items_of(first_item).find(|item| self.items[*item].state == State::Blocked)?;
        let Item { node, write, arrival, .. } = self.items[blocked];
        let place = (Place { node, exact: true }, write);
        let claim = self.claim_of(blocked);
        // Some items of a set that enters may be held until it has to wait after all.
        self.blocker_of_places(std::iter::once(place), arrival).filter(|blocker| Some(*blocker) != claim)
    }

    fn blocker_of_places(
        &self,
        places: impl Iterator<Item = (Place, bool)> + Clone,
        arrival: u64,
    ) -> Option<u32> {
        let holder = places.clone().find_map(|(place, write)| self.holder_against(place, write));
        let waiter = || {
            let first = places.filter_map(|(place, write)| self.waiter_against(place, write)).min();
            first.filter(|first| first.arrival < arrival).map(|first| first.item)
        };
        holder.or_else(waiter).and_then(|item| self.claim_of(item))
    }

    /// An item that is held and conflicts.
    fn holder_against(&self, place: Place, write: bool) -> Option<u32> {
        let at = self.trie.overlapping(place).find(|at| at.conflicts(write))?;
        Some(if at.with_below { self.holder_below(at.node, write) } else { at.node.held })
    }

    /// An item held at a node or below it that conflicts; there is one.
    fn holder_below(&self, node: &Node, write: bool) -> u32 {
        let mut node = node;
        while !node.conflicts_here(write) {
            let [writes, reads, _] = node.children;
            node = &self.trie.nodes[if writes == NONE { reads } else { writes }];
        }
        node.held
    }

    /// The first waiting item that is in the way.
    fn waiter_against(&self, place: Place, write: bool) -> Option<Order> {
        let queues = self.trie.overlapping(place).flat_map(Overlapping::queues);
        queues.filter_map(|queues| queues.first_in_the_way_of(write)).min()
    }

    pub(super) fn items_of(&self, first_item: u32) -> impl Iterator<Item = u32> + Clone {
        std::iter::successors(Some(first_item), |item| {
            Some(self.items[*item].next).filter(|next| *next != NONE)
        })
    }

    /// The path key of the first item of a claim.
    pub(crate) fn first_path(&self, first_item: u32) -> Vec<u8> {
        // An item that has not entered has no node.
        let entering = self.first_entering_path(first_item);
        entering.map_or_else(|| self.trie.path(self.items[first_item].node), <[u8]>::to_vec)
    }

    /// The items of a claim, without redundant ones: path key, and whether it writes.
    pub(crate) fn paths(&self, first_item: u32) -> impl Iterator<Item = (Vec<u8>, bool)> {
        self.items_of(first_item).map(|item| {
            let item = &self.items[item];
            (self.trie.path(item.node), item.write)
        })
    }

    /// How many items that are held, or that wait, overlap a path.
    pub(crate) fn overlapping_count(&self, path: &[u8], held: bool) -> usize {
        let count = |at: Overlapping| -> usize {
            let [reads, writes] = at.node.held_below;
            match (held, at.with_below) {
                (false, _) => at.queues().map(Queues::len).sum(),
                (true, true) => (reads + writes) as usize,
                // All items that do not wait.
                (true, false) => at.node.item_count as usize - at.queues().map(Queues::len).sum::<usize>(),
            }
        };
        self.trie.overlapping(self.trie.locate(path)).map(count).sum()
    }

    /// Claims that hold, or wait for, something that overlaps a path, each once: those of the first `limit` items. Waiters
    /// come in their order.
    pub(crate) fn overlapping(&self, path: &[u8], held: bool, limit: usize) -> Vec<u32> {
        let place = self.trie.locate(path);
        let items =
            if held { self.overlapping_held(place, limit) } else { self.overlapping_waiting(place, limit) };
        let mut seen = BTreeSet::new();
        let claims = items.into_iter().filter_map(|item| self.claim_of(item));
        claims.filter(|claim| seen.insert(*claim)).collect()
    }

    fn overlapping_held(&self, place: Place, limit: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let above = usize::from(place.exact);
        for (_, node) in self.trie.spine(place.node).skip(above) {
            found.extend(self.held_at(node.held).take(limit - found.len()));
        }
        let mut nodes = Vec::from_iter(place.exact.then_some(place.node));
        // Something is held at or below each of these nodes, so no step is in vain.
        while let Some(number) = nodes.pop() {
            let node = &self.trie.nodes[number];
            found.extend(self.held_at(node.held).take(limit - found.len()));
            if found.len() == limit {
                break;
            }
            for class in [class::READS, class::WRITES] {
                let first = Some(node.children[class]).filter(|first| *first != NONE);
                let next = |number: &u32| Some(self.trie.nodes[*number].next).filter(|next| *next != NONE);
                nodes.extend(std::iter::successors(first, next).take(limit));
            }
        }
        found
    }

    fn held_at(&self, first: u32) -> impl Iterator<Item = u32> {
        let next = |item: &u32| Some(self.items[*item].held_next).filter(|next| *next != NONE);
        std::iter::successors(Some(first).filter(|first| *first != NONE), next)
    }

    fn overlapping_waiting(&self, place: Place, limit: usize) -> Vec<u32> {
        let queues = self.trie.overlapping(place).flat_map(Overlapping::queues);
        let mut orders: Vec<Order> = queues.flat_map(|queues| queues.first_of_each(limit)).collect();
        orders.sort_unstable();
        orders.truncate(limit);
        orders.into_iter().map(|order| order.item).collect()
    }
}
