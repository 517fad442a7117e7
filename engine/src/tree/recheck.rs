//! Rechecks after removals. When an item (one path of a claim) leaves the tree, items that waited behind it may no
//! longer be blocked. The tree then checks these items again, in queue order, and marks each item that no other claim
//! blocks as clear.

use super::entering::{Enters, Progress, Verdict};
use super::node::{NodeIx, Overlapping, Place, ROOT};
use super::waiting::Order;
use super::{Item, State, Tree};
use crate::handle::{ClaimIx, ItemIx, handle};
use crate::slab::Slab;
use crate::steps::Steps;
use std::collections::BTreeSet;

handle! {
    /// Handle of a region: one pending check of the waiting items that are marked as blocked and overlap a node of the
    /// trie.
    pub(super) RegionIx
}

/// Pending check whether items that wait and are marked as blocked are still blocked. [`Tree::next_verdict`] checks the
/// items at, above and below `node`, in queue order, from the queue position `cursor` on.
#[derive(Debug, Default)]
struct Region {
    node: NodeIx,
    cursor: Option<Order>,
}

/// Items that must be rechecked.
///
/// A **region** is a pending check of the waiting items that overlap one node of the trie. [`Tree::next_verdict`]
/// checks them in queue order, from a cursor on. An item that no other claim blocks any more is marked as clear. When
/// no item is left to check, the region is removed. A blocked item is **justified** by a held item that conflicts with
/// it. A waiting item of an earlier claim also justifies it, if it overlaps it and either conflicts with it or is
/// marked as blocked. The invariant: each item that is marked as blocked is justified, is in `offered`, or a region has
/// yet to reach it. Three events remove a justification: a held item is removed, a waiting item is removed, or a
/// blocked read becomes clear. Each event adds a region at the node of the item, unless another region covers it or no
/// item there may have become clear. The cursor of the region begins at the first such item from the queue position of
/// a waiting item on, or from the front of the queue for a held item. (The grant of an item that is marked as clear
/// removes no justification, because the held item blocks the same items as the waiting one did.) So no item is missed,
/// and once no region is left, all marks are correct.
///
/// A region (a pending check of the waiting items that overlap a node, in queue order) ends early in two cases. The
/// region of a node above covers the rest. Or an item that is held or waits at its node, or above it, blocks all items
/// of the region that come later in the queue. For example, the next writer of a path is granted after the holder has
/// released it. That writer blocks all waiters behind it, so few items are checked, regardless of the number of
/// waiters.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    regions: Slab<RegionIx, Region>,
    /// Regions (pending checks whether waiting items are still blocked), each with the queue position from which on it
    /// continues. The region with the earliest position continues first. So claims that are no longer blocked are found
    /// in their order of arrival.
    agenda: BTreeSet<(Order, RegionIx)>,
    /// Item whose recheck showed that no other claim blocks its claim any more, so that [`Tree::next_verdict`] returned
    /// the claim. It stays set until the caller grants or removes the claim, or calls `next_verdict` again. Until then
    /// the item stays marked as blocked: the grant of a claim usually follows at once, and would make a change of the
    /// mark useless.
    pub(super) offered: Option<ItemIx>,
}

impl Recheck {
    pub(super) fn is_done(&self) -> bool {
        self.agenda.is_empty() && self.offered.is_none()
    }
}

impl Tree {
    /// Continues all unfinished work of this tree: marks the paths of granted claims as held, and removes the paths of
    /// ended claims. After removals, checks again whether waiting paths are still blocked. Depending on `enters`, adds
    /// the paths of new sets that are large, or that arrived while such a set was being added. Each path that is
    /// processed takes at least one of the `steps`.
    ///
    /// Returns the next claim about which the caller must decide: grant it, leave it waiting, or remove it. The
    /// function returns each claim only once. The caller carries out the decision and calls again. Returns `None` if
    /// all work is done or no step is left.
    pub(crate) fn next_verdict(&mut self, enters: Enters, steps: &mut Steps) -> Option<Verdict> {
        if let Some(item) = self.recheck.offered.take() {
            self.turn_clear(item);
        }
        if !self.go_on_granting(steps) || !self.go_on_removing(steps) {
            return None;
        }
        if let Some(claim) = self.next_clear(steps) {
            return Some(Verdict::Clear(claim));
        }
        if !self.recheck.is_done() || enters == Enters::Later {
            return None;
        }
        match self.go_on_entering(enters == Enters::AndHolds, steps) {
            Progress::Decided(verdict) => Some(verdict),
            Progress::Done | Progress::Paused => None,
        }
    }

    /// Checks again whether items (paths of waiting claims) behind a removed item are still blocked, in order of
    /// arrival. Marks an item as clear if no other claim blocks it. Returns a waiting claim once no other claim blocks
    /// any of its items. Returns `None` if no item or no step is left; the next call continues at the same place.
    fn next_clear(&mut self, steps: &mut Steps) -> Option<ClaimIx> {
        while steps.left() > 0 {
            let (cursor, region) = self.recheck.agenda.pop_first()?;
            steps.take();
            let node = self.recheck.regions[region].node;
            steps.charge(self.steps_at(node));
            let Some(due) = self.next_due(node, cursor).filter(|due| !self.is_covered(node, *due)) else {
                self.end_region(region);
                continue;
            };
            if self.recheck.agenda.first().is_some_and(|(earliest, _)| *earliest < due) {
                // `due` is the next item of this region (a pending check of waiting items). Another region has to check
                // an earlier item first, because claims that are no longer blocked must be found in order of arrival.
                // So this region continues later.
                self.set_cursor(region, due);
                continue;
            }
            self.set_cursor(region, due.next());
            if !self.is_item_clear(due.item) {
                continue;
            }
            let first = self.items[due.item].first;
            if self.items[first].blocked_count == 1
                && let Some(claim) = self.claim_of(due.item)
            {
                self.recheck.offered = Some(due.item);
                return Some(claim);
            }
            self.turn_clear(due.item);
        }
        None
    }

    /// Returns the first claim, with arrival number `from` or a later one, that has an item marked as clear; also
    /// returns its arrival number. An item is clear if no other claim blocks it. The claim waits, its items are still
    /// being added to the tree, or it was granted and its items are still being marked as held.
    pub(crate) fn first_clear(&self, from: u64) -> Option<(u64, ClaimIx)> {
        let mut from = Order { arrival: from, item: ItemIx::new(0) };
        loop {
            let everywhere = self.trie.overlapping(Place { node: ROOT, exact: true });
            let queues = everywhere.flat_map(Overlapping::queues);
            let first = queues.filter_map(|queues| queues.first_clear(from)).min()?;
            if let Some(claim) = self.claim_of(first.item) {
                return Some((first.arrival, claim));
            }
            from = first.next();
        }
    }

    /// Marks a waiting item as clear, and schedules a check of the items behind it if it is a read.
    fn turn_clear(&mut self, number: ItemIx) {
        self.leave_waiting(number);
        self.enter_waiting(number, true);
        self.recheck_behind(number);
    }

    /// Schedules a check whether the items behind a read are still blocked. That read was marked as blocked until now,
    /// and now is clear (blocked by no other claim) or held. A blocked read also blocks later reads, and a clear or
    /// held one does not.
    pub(super) fn recheck_behind(&mut self, number: ItemIx) {
        let Item { node, write, arrival, .. } = self.items[number];
        // A write blocks all overlapping items behind it, whether it is marked as clear or as blocked. So nothing
        // behind it can have changed.
        if !write {
            self.recheck_from(node, Order { arrival, item: number }.next());
        }
    }

    /// Returns the first item of the claim that a recheck in [`Tree::next_verdict`] found to be clear. Returns `None`
    /// once the caller has granted or removed the claim, or has called `next_verdict` again.
    pub(super) fn offered_claim(&self) -> Option<ItemIx> {
        self.recheck.offered.map(|item| self.items[item].first)
    }

    /// Clears `offered` if it is this item, because the item is removed. (`offered` is the item that
    /// [`Tree::next_verdict`] found to be no longer blocked when it last returned a waiting claim.) Returns whether
    /// `offered` was this item.
    pub(super) fn take_offered(&mut self, item: ItemIx) -> bool {
        self.recheck.offered.take_if(|offered| *offered == item).is_some()
    }

    /// Whether [`Tree::next_verdict`] has no work.
    pub(crate) fn is_settled(&self) -> bool {
        self.entering.is_done() && self.granting.is_done() && self.removal.is_done() && self.recheck.is_done()
    }

    /// Schedules a check whether items that wait and are marked as blocked are still blocked. The check covers all
    /// items that overlap this node and whose queue position is `from` or a later one. [`Tree::next_verdict`] makes the
    /// check, and marks the items that no other claim blocks as clear. Does nothing if a pending check covers these
    /// items, or if none of them may have become clear.
    pub(super) fn recheck_from(&mut self, node: NodeIx, from: Order) {
        if self.is_covered(node, from) || self.region_cursor(node).is_some_and(|cursor| cursor <= from) {
            return;
        }
        let Some(due) = self.next_due(node, from) else { return };
        let mut region = self.trie.nodes[node].region;
        if region.is_none() {
            region = self.recheck.regions.allocate();
            self.recheck.regions[region].node = node;
            self.trie.nodes[node].region = region;
        } else if let Some(cursor) = self.recheck.regions[region].cursor {
            self.recheck.agenda.remove(&(cursor, region));
        }
        self.set_cursor(region, due);
    }

    fn set_cursor(&mut self, region: RegionIx, cursor: Order) {
        self.recheck.regions[region].cursor = Some(cursor);
        self.recheck.agenda.insert((cursor, region));
    }

    fn end_region(&mut self, region: RegionIx) {
        let node = self.recheck.regions[region].node;
        self.recheck.regions[region].cursor = None;
        self.recheck.regions.release(region);
        self.trie.nodes[node].region = RegionIx::NONE;
        self.trie.prune(node);
    }

    /// Returns the queue position from which on the region of this node continues, or `None` if it has no region. (A
    /// region is a pending check, in queue order, whether the waiting items that overlap a node are still blocked.)
    pub(super) fn region_cursor(&self, node: NodeIx) -> Option<Order> {
        let region = self.trie.nodes[node].region;
        if region.is_none() { None } else { self.recheck.regions[region].cursor }
    }

    /// Whether the region of an ancestor of this node has yet to check the queue positions from `from` on. (A region is
    /// a pending check, in queue order, whether the waiting items that overlap a node are still blocked.) Such a region
    /// also checks all items that overlap this node, so the node needs no region of its own.
    fn is_covered(&self, node: NodeIx, from: Order) -> bool {
        self.trie
            .spine(node)
            .skip(1)
            .any(|(ancestor, _)| self.region_cursor(ancestor).is_some_and(|cursor| cursor <= from))
    }

    /// Returns the first blocked item, from this queue position on, that overlaps a node and may have become clear.
    /// Skips items that must stay blocked because of an item that is held or waits earlier at the node or above it.
    fn next_due(&self, node: NodeIx, from: Order) -> Option<Order> {
        let (mut read, mut write) = (Earliest::default(), Earliest::default());
        // Items that arrived after these stay blocked.
        let (mut read_horizon, mut write_horizon) = (Earliest::default(), Earliest::default());
        let mut reads_held = false;
        for at in self.trie.overlapping(Place { node, exact: true }) {
            if at.node.holds_write {
                return None;
            }
            reads_held |= at.node.held.is_some();
            if let Some(queues) = &at.node.waiting_here {
                read_horizon.take(queues.first_in_the_way_of(false));
                write_horizon.take(queues.first_in_the_way_of(true));
            }
            for queues in at.queues() {
                read.take(queues.first_blocked(false, from));
                write.take(queues.first_blocked(true, from));
            }
        }
        let read = read.0.filter(|read| read_horizon.0.is_none_or(|end| read.arrival <= end.arrival));
        let write = write
            .0
            .filter(|write| !reads_held && write_horizon.0.is_none_or(|end| write.arrival <= end.arrival));
        let mut due = Earliest(read);
        due.take(write);
        debug_assert!(due.0.is_none_or(|due| self.items[due.item].state == State::Blocked));
        due.0
    }

    /// Whether a region at this node, above it or below it has yet to reach this queue position. (A region is a pending
    /// check, in queue order, whether the waiting items that overlap a node are still blocked.) Used only by
    /// [`Tree::verify`].
    pub(super) fn has_before_it(&self, node: NodeIx, order: Order) -> bool {
        let covers = |(cursor, region): &(Order, RegionIx)| {
            let other = self.recheck.regions[*region].node;
            let above = |low: NodeIx, high: NodeIx| self.trie.spine(low).any(|(number, _)| number == high);
            *cursor <= order && (above(node, other) || above(other, node))
        };
        self.recheck.agenda.iter().any(covers)
    }

    /// Returns each region: its node, the queue position from which on it continues, and its handle. (A region is a
    /// pending check, in queue order, whether the waiting items that overlap a node are still blocked.) Used only by
    /// [`Tree::verify`].
    pub(super) fn regions(&self) -> impl Iterator<Item = (NodeIx, Option<Order>, RegionIx)> {
        self.recheck.agenda.iter().map(|(_, region)| {
            let Region { node, cursor } = self.recheck.regions[*region];
            (node, cursor, *region)
        })
    }

    /// Returns the number of regions: nodes for which a check is pending whether the waiting items that overlap them
    /// are still blocked. Used only by [`Tree::verify`].
    pub(super) fn region_count(&self) -> u32 {
        self.recheck.regions.live_count()
    }
}

/// Earliest of several positions.
#[derive(Default)]
struct Earliest(Option<Order>);

impl Earliest {
    fn take(&mut self, other: Option<Order>) {
        self.0 = match (self.0, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}
