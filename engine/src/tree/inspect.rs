//! Inspection of a tree: blockers, holders and waiters of paths.

use super::node::{Node, NodeIx, Overlapping, Place, class};
use super::waiting::{Order, Queues};
use super::{Item, State, Tree, TreeItem};
use crate::handle::{ClaimIx, ItemIx};
use crate::limits::{OVERLAP_NODE_COUNT_MAX, OVERLAP_SCAN_COUNT_MAX};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::ControlFlow;

impl Tree {
    /// Returns a claim that blocks a new request: a conflicting holder, or otherwise the earliest waiter that blocks
    /// it. Returns `None` if nothing blocks the request, or if the path that was found to block it belongs to an ended
    /// claim.
    pub(crate) fn blocker(&self, items: &[TreeItem]) -> Option<ClaimIx> {
        let places = items.iter().map(|item| (self.trie.locate(item.path), item.write));
        self.blocker_of_places(places, u64::MAX)
    }

    /// Returns the claim that blocks the first blocked path of a waiting claim: a conflicting holder, or otherwise the
    /// earliest waiter that blocks it. Returns `None` if no path is blocked, or if no path of the claim is in the tree
    /// yet. Also returns `None` if the path that was found to block it belongs to an ended claim.
    pub(crate) fn blocker_of(&self, first_item: ItemIx) -> Option<ClaimIx> {
        if matches!(self.items[first_item].state, State::Outside | State::Held) {
            return None;
        }
        let blocked = self.items_of(first_item).find(|item| self.items[*item].state == State::Blocked)?;
        let Item { node, write, arrival, .. } = self.items[blocked];
        let place = (Place { node, exact: true }, write);
        let claim = self.claim_of(blocked);
        // While a large set changes from held to waiting because of a freeze, some of its own paths are still marked as
        // held. The claim does not block itself.
        self.blocker_of_places(std::iter::once(place), arrival).filter(|blocker| Some(*blocker) != claim)
    }

    fn blocker_of_places(
        &self,
        places: impl Iterator<Item = (Place, bool)> + Clone,
        arrival: u64,
    ) -> Option<ClaimIx> {
        let holder = places.clone().find_map(|(place, write)| self.holder_against(place, write));
        let waiter = || {
            let first = places.filter_map(|(place, write)| self.waiter_against(place, write)).min();
            first.filter(|first| first.arrival < arrival).map(|first| first.item)
        };
        holder.or_else(waiter).and_then(|item| self.claim_of(item))
    }

    /// Returns a held item that conflicts with an item at this place.
    fn holder_against(&self, place: Place, write: bool) -> Option<ItemIx> {
        let at = self.trie.overlapping(place).find(|at| at.conflicts(write))?;
        Some(if at.with_below { self.holder_below(at.node, write) } else { at.node.held })
    }

    /// Returns an item (a path that a claim holds) at this node or below it that conflicts with the request. There must
    /// be one.
    fn holder_below(&self, node: &Node, write: bool) -> ItemIx {
        let mut node = node;
        while !node.conflicts_here(write) {
            let [writes, reads, _] = node.children;
            node = &self.trie.nodes[if writes.is_none() { reads } else { writes }];
        }
        node.held
    }

    /// Returns the earliest waiting item (path of a waiting claim) that blocks a new item at this place.
    fn waiter_against(&self, place: Place, write: bool) -> Option<Order> {
        let queues = self.trie.overlapping(place).flat_map(Overlapping::queues);
        queues.filter_map(|queues| queues.first_in_the_way_of(write)).min()
    }

    pub(super) fn items_of(&self, first_item: ItemIx) -> impl Iterator<Item = ItemIx> + Clone {
        std::iter::successors(Some(first_item), |item| self.items[*item].next.some())
    }

    /// Returns the first path of a claim that no other path of the claim covers, cut to as many whole segments as fit
    /// into `len_max` bytes.
    pub(crate) fn first_path(&self, first_item: ItemIx, len_max: usize) -> Vec<u8> {
        // An item of a set that is still being added to the tree may have no node. Its path is in `entering`.
        let entering = self.first_entering_path(first_item);
        entering.map_or_else(
            || self.trie.path_within(self.items[first_item].node, len_max),
            |path| path[..whole_segments_len(path, len_max)].to_vec(),
        )
    }

    /// Returns the paths of a claim, and whether the claim writes each of them. Omits redundant paths, which another
    /// path of the claim covers.
    pub(crate) fn paths(&self, first_item: ItemIx) -> impl Iterator<Item = (Vec<u8>, bool)> {
        let entering = self.entering_paths(first_item);
        // If a set is still being added to the tree, not all of its paths have nodes.
        let standing = entering.is_none().then(|| {
            self.items_of(first_item).map(|item| {
                let item = &self.items[item];
                (self.trie.path(item.node), item.write)
            })
        });
        entering.into_iter().flatten().chain(standing.into_iter().flatten())
    }

    /// Returns the number of held items (if `held`), or of waiting items, whose paths overlap `path`. An item is one
    /// path of one claim.
    pub(crate) fn overlapping_count(&self, path: &[u8], held: bool) -> usize {
        let count = |at: Overlapping| -> usize {
            let [reads, writes] = at.node.held_below;
            match (held, at.with_below) {
                (false, _) => at.queues().map(Queues::len).sum(),
                (true, true) => (reads + writes) as usize,
                // `item_count` is the number of held and waiting items at the node. The result is the number of held
                // items, so the waiting ones are subtracted.
                (true, false) => at.node.item_count as usize - at.queues().map(Queues::len).sum::<usize>(),
            }
        };
        self.trie.overlapping(self.trie.locate(path)).map(count).sum()
    }

    /// Returns the holders, or the waiters, of paths that overlap a path, each claim once. Considers only `limit`
    /// overlapping items (paths of claims), and for holders only `OVERLAP_NODE_COUNT_MAX` nodes at and below the path.
    /// Waiters are in queue order. Also returns whether the result is complete.
    pub(crate) fn overlapping(&self, path: &[u8], held: bool, limit: usize) -> (Vec<ClaimIx>, bool) {
        let place = self.trie.locate(path);
        let (items, is_complete) =
            if held { self.overlapping_held(place, limit) } else { self.overlapping_waiting(place, limit) };
        let mut seen = BTreeSet::new();
        let claims = items.into_iter().filter_map(|item| self.claim_of(item));
        (claims.filter(|claim| seen.insert(*claim)).collect(), is_complete)
    }

    /// Whether a claim for which `is_wanted` returns true holds a path that overlaps `path`. Returns `None` if none of
    /// the checked holders is wanted, and too many held paths overlap `path` to check all of them.
    pub(crate) fn is_any_holder(&self, path: &[u8], is_wanted: impl Fn(ClaimIx) -> bool) -> Option<bool> {
        let mut is_found = false;
        let is_complete = self.visit_held(self.trie.locate(path), OVERLAP_SCAN_COUNT_MAX, |item| {
            is_found = self.claim_of(item).is_some_and(&is_wanted);
            if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if is_found || is_complete { Some(is_found) } else { None }
    }

    fn overlapping_held(&self, place: Place, limit: usize) -> (Vec<ItemIx>, bool) {
        let mut found = Vec::new();
        let is_complete = self.visit_held(place, limit, |item| {
            found.push(item);
            ControlFlow::Continue(())
        });
        (found, is_complete)
    }

    /// Visits the held items (paths that claims hold) that overlap a path, starting with the paths that are prefixes of
    /// it. Stops early if `visit` breaks, after `limit` items, or after `OVERLAP_NODE_COUNT_MAX` nodes at and below the
    /// path. Returns whether all held items that overlap the path were visited. If not, the caller does not know all of
    /// them.
    fn visit_held(
        &self,
        place: Place,
        limit: usize,
        mut visit: impl FnMut(ItemIx) -> ControlFlow<()>,
    ) -> bool {
        let mut left = limit;
        let mut visit_node = |node: &Node| {
            self.held_at(node.held).try_for_each(|item| {
                left = left.checked_sub(1).map_or(ControlFlow::Break(()), ControlFlow::Continue)?;
                visit(item)
            })
        };
        let above = usize::from(place.exact);
        for (_, node) in self.trie.spine(place.node).skip(above) {
            if visit_node(node).is_break() {
                return false;
            }
        }
        if !place.exact {
            return true;
        }
        let mut number = place.node;
        for _ in 0..OVERLAP_NODE_COUNT_MAX {
            let node = &self.trie.nodes[number];
            if visit_node(node).is_break() {
                return false;
            }
            // The lists `writes` and `reads` contain only nodes with a held item at or below them, so every way down
            // leads to an item.
            let [writes, reads, _] = node.children;
            let child = if reads.is_none() { writes } else { reads };
            match if child.is_none() { self.next_holding(number, place.node) } else { Some(child) } {
                Some(next) => number = next,
                None => return true,
            }
        }
        false
    }

    /// Returns the next node of a walk below `root`, once this node and all nodes below it were visited. The walk
    /// visits only nodes with a held item at or below them. Returns `None` at its end.
    fn next_holding(&self, number: NodeIx, root: NodeIx) -> Option<NodeIx> {
        let mut number = number;
        while number != root {
            let node = &self.trie.nodes[number];
            if node.next.is_some() {
                return Some(node.next);
            }
            let [writes, ..] = self.trie.nodes[node.parent].children;
            if node.class() == class::READS && writes.is_some() {
                return Some(writes);
            }
            number = node.parent;
        }
        None
    }

    fn held_at(&self, first: ItemIx) -> impl Iterator<Item = ItemIx> {
        std::iter::successors(first.some(), |item| self.items[*item].held_next.some())
    }

    /// Returns the earliest waiting items (paths of waiting claims) that overlap a path, at most `limit`, in order of
    /// arrival. Also returns whether these are all.
    fn overlapping_waiting(&self, place: Place, limit: usize) -> (Vec<ItemIx>, bool) {
        let queues = self.trie.overlapping(place).flat_map(Overlapping::queues);
        let mut lines: Vec<_> = queues.flat_map(Queues::lines).collect();
        let mut heads: BinaryHeap<Reverse<(Order, usize)>> = BinaryHeap::new();
        for (number, line) in lines.iter_mut().enumerate() {
            heads.extend(line.next().map(|order| Reverse((order, number))));
        }
        let mut items = Vec::new();
        while items.len() < limit
            && let Some(Reverse((order, number))) = heads.pop()
        {
            items.push(order.item);
            heads.extend(lines[number].next().map(|order| Reverse((order, number))));
        }
        (items, heads.is_empty())
    }
}

/// Returns the length in bytes of the leading segments of a path that fit into `len_max` bytes.
fn whole_segments_len(path: &[u8], len_max: usize) -> usize {
    let mut end = 0;
    while let Some(len) = path.get(end..end + 2) {
        let next = end + 2 + usize::from(u16::from_le_bytes([len[0], len[1]]));
        if next > len_max {
            break;
        }
        end = next;
    }
    end
}
