//! Rechecks of the items that a removal may have made clear.

use super::entering::{Enters, Progress, Verdict};
use super::node::{NodeIx, Overlapping, Place, ROOT};
use super::waiting::Order;
use super::{Item, State, Tree};
use crate::handle::{ClaimIx, ItemIx, handle};
use crate::slab::Slab;
use crate::steps::Steps;
use std::collections::BTreeSet;

handle! {
    /// Handle of a region: a part of the trie whose waiting items are checked again.
    pub(super) RegionIx
}

/// Region of items to recheck: all items that overlap `node` and wait at `cursor` or behind it.
#[derive(Debug, Default)]
struct Region {
    node: NodeIx,
    cursor: Option<Order>,
}

/// Items that must be rechecked.
///
/// A blocked item is **justified** by a held item that conflicts with it. A waiting item of an earlier claim also
/// justifies it, if it overlaps it and either conflicts with it or is marked as blocked. The invariant: each item that
/// is marked as blocked is justified, or a region has yet to reach it. Three events remove a justification: a held item
/// is removed, a waiting item is removed, or a blocked read becomes clear. Each adds a region at the node of the item.
/// Its cursor begins at the queue position of a waiting item, or at the front of the queue for a held item. (The grant
/// of an item that is marked as clear removes no justification, because the held item blocks the same items as the
/// waiting one did.) So no item is missed, and once no region is left, all marks are correct.
///
/// A region ends early if an item at its node or above it justifies all following items. That keeps a hand-over short,
/// regardless of the number of waiters for the same path.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    regions: Slab<RegionIx, Region>,
    /// Cursor and handle of each region. The region with the earliest cursor is processed first, so claims become clear
    /// in their order.
    agenda: BTreeSet<(Order, RegionIx)>,
    /// Last item that was found clear of the claim that [`Tree::next_verdict`] returned, until the caller grants or
    /// removes the claim, or calls again. It stays marked as blocked until then: most such claims are granted at once,
    /// so a change of its mark just before would be wasted.
    pub(super) offered: Option<ItemIx>,
}

impl Recheck {
    pub(super) fn is_done(&self) -> bool {
        self.agenda.is_empty() && self.offered.is_none()
    }
}

impl Tree {
    /// Continues with all work of this tree: grants, removals, rechecks and, depending on `enters`, entering sets. Each
    /// item takes at least one step.
    ///
    /// Returns the next claim about which the caller must decide, each claim once. The caller carries out the verdict
    /// and calls again. Returns `None` if all work is done or no step is left.
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

    /// Rechecks the items that a removal may have made clear, in order of arrival. Returns a waiting claim whose items
    /// are all clear.
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
                // Another region has an earlier item, and claims must become clear in order of arrival.
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

    /// Returns the first claim from this arrival on with an item that is marked as clear, and its arrival. The claim
    /// waits, or was granted since.
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

    /// Marks a waiting item as clear.
    fn turn_clear(&mut self, number: ItemIx) {
        self.leave_waiting(number);
        self.enter_waiting(number, true);
        self.recheck_behind(number);
    }

    /// Rechecks the items that a waiting item blocked only because it was blocked, now that it is clear or held.
    pub(super) fn recheck_behind(&mut self, number: ItemIx) {
        let Item { node, write, arrival, .. } = self.items[number];
        // A write blocks all overlapping items behind it, marked as clear or not.
        if !write {
            self.recheck_from(node, Order { arrival, item: number }.next());
        }
    }

    /// Returns the first item of the claim that [`Tree::next_verdict`] returned, if the caller has not acted yet.
    pub(super) fn offered_claim(&self) -> Option<ItemIx> {
        self.recheck.offered.map(|item| self.items[item].first)
    }

    /// Notes that the caller acts on an item. Returns whether it was the offered item, which is then no longer offered.
    pub(super) fn take_offered(&mut self, item: ItemIx) -> bool {
        self.recheck.offered.take_if(|offered| *offered == item).is_some()
    }

    /// Whether [`Tree::next_verdict`] has no work.
    pub(crate) fn is_settled(&self) -> bool {
        self.entering.is_done() && self.granting.is_done() && self.removal.is_done() && self.recheck.is_done()
    }

    /// Schedules a recheck of all items that overlap this node and wait at this position or behind it.
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

    /// Returns the cursor of the region of a node.
    pub(super) fn region_cursor(&self, node: NodeIx) -> Option<Order> {
        let region = self.trie.nodes[node].region;
        if region.is_none() { None } else { self.recheck.regions[region].cursor }
    }

    /// Whether the region of an ancestor has yet to reach this position. Such a region contains all items that overlap
    /// this node.
    fn is_covered(&self, node: NodeIx, from: Order) -> bool {
        self.trie
            .spine(node)
            .skip(1)
            .any(|(ancestor, _)| self.region_cursor(ancestor).is_some_and(|cursor| cursor <= from))
    }

    /// Returns the first blocked item from this position on that overlaps a node and that no item at the node or above
    /// it justifies.
    fn next_due(&self, node: NodeIx, from: Order) -> Option<Order> {
        let (mut read, mut write) = (Earliest::default(), Earliest::default());
        // Items that arrived after these are justified.
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

    /// Whether a region that overlaps this node has yet to reach this position. For checks.
    pub(super) fn has_before_it(&self, node: NodeIx, order: Order) -> bool {
        let covers = |(cursor, region): &(Order, RegionIx)| {
            let other = self.recheck.regions[*region].node;
            let above = |low: NodeIx, high: NodeIx| self.trie.spine(low).any(|(number, _)| number == high);
            *cursor <= order && (above(node, other) || above(other, node))
        };
        self.recheck.agenda.iter().any(covers)
    }

    /// Returns the node, the cursor and the handle of each region. For checks.
    pub(super) fn regions(&self) -> impl Iterator<Item = (NodeIx, Option<Order>, RegionIx)> {
        self.recheck.agenda.iter().map(|(_, region)| {
            let Region { node, cursor } = self.recheck.regions[*region];
            (node, cursor, *region)
        })
    }

    /// Returns the number of regions in use. For checks.
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
