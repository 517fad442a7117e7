//! Examining again what a removal may have made clear.

use super::entering::{Enters, Progress, Verdict};
use super::node::{NodeIx, Overlapping, Place, ROOT};
use super::waiting::Order;
use super::{Item, State, Tree};
use crate::handle::{ClaimIx, ItemIx, handle};
use crate::slab::Slab;
use crate::steps::Steps;
use std::collections::BTreeSet;

handle! {
    /// A part of the trie whose waiting items are examined again.
    pub(super) RegionIx
}

/// Everything that overlaps one node and waits at `cursor` or behind it has to be examined.
#[derive(Debug, Default)]
struct Region {
    node: NodeIx,
    cursor: Option<Order>,
}

/// What is still to be examined.
///
/// A blocked item is **justified** if something held conflicts with it, or a waiting item of an earlier claim overlaps it
/// that conflicts with it or is written down as blocked. Always: each item written down as blocked is justified, or some
/// region has it before it. Three things take a justification away, and each adds a region, of its node, from its place in
/// the order: the removal of a held item, the removal of a waiting one, and a blocked read that turns clear. (A grant takes
/// none away: whom the waiting item kept out, the held one does.) So nobody is forgotten, and once no region is left all
/// marks are right.
///
/// A region ends early where something at its node or above it justifies all that follows. That keeps a hand-over short,
/// however many wait for the same path.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    regions: Slab<RegionIx, Region>,
    /// The cursor of each region, and its number. The earliest is worked on first, so claims become clear in their order.
    agenda: BTreeSet<(Order, RegionIx)>,
    /// The last item of the claim that [`Tree::next_verdict`] gave: clear, but written down as blocked until it is known what
    /// the caller does. Most are granted at once, and then leave their queues without having changed them.
    pub(super) offered: Option<ItemIx>,
}

impl Recheck {
    pub(super) fn is_done(&self) -> bool {
        self.agenda.is_empty() && self.offered.is_none()
    }
}

impl Tree {
    /// Goes on with all work of this tree: it holds, removes, examines and, if `enters` says so, enters items. Each item takes a step.
    ///
    /// Returns the next claim to decide about, each claim once. The caller carries out the verdict and calls again. Returns nothing
    /// when all work is done, or when no step is left.
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

    /// Examines the items that a removal may have made clear, in order of arrival. Returns a waiting claim of which all items are clear.
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

    /// The first claim, from this arrival on, of which an item is written down as clear; and its arrival. It waits, or was granted since.
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

    /// Writes down that a waiting item is clear.
    fn turn_clear(&mut self, number: ItemIx) {
        self.leave_waiting(number);
        self.enter_waiting(number, true);
        self.recheck_behind(number);
    }

    /// Whatever a waiting item kept out for being blocked is to be examined, now that it is clear or held.
    pub(super) fn recheck_behind(&mut self, number: ItemIx) {
        let Item { node, write, arrival, .. } = self.items[number];
        // Behind a write everybody stays blocked.
        if !write {
            self.recheck_from(node, Order { arrival, item: number }.next());
        }
    }

    /// The first item of the claim that [`Tree::next_verdict`] gave, with which nothing was done yet.
    pub(super) fn offered_claim(&self) -> Option<ItemIx> {
        self.recheck.offered.map(|item| self.items[item].first)
    }

    /// Something is done with an item. Says whether it is the one that was offered; then from here on none is.
    pub(super) fn take_offered(&mut self, item: ItemIx) -> bool {
        self.recheck.offered.take_if(|offered| *offered == item).is_some()
    }

    /// Returns true if [`Tree::next_verdict`] has no work.
    pub(crate) fn is_settled(&self) -> bool {
        self.entering.is_done() && self.granting.is_done() && self.removal.is_done() && self.recheck.is_done()
    }

    /// Whatever overlaps this node and waits at this place or behind it is to be examined.
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

    /// How far the region of a node has come.
    pub(super) fn region_cursor(&self, node: NodeIx) -> Option<Order> {
        let region = self.trie.nodes[node].region;
        if region.is_none() { None } else { self.recheck.regions[region].cursor }
    }

    /// Whether the region of an ancestor, to which all belongs that overlaps this node, has what follows before it.
    fn is_covered(&self, node: NodeIx, from: Order) -> bool {
        self.trie
            .spine(node)
            .skip(1)
            .any(|(ancestor, _)| self.region_cursor(ancestor).is_some_and(|cursor| cursor <= from))
    }

    /// The first blocked item that overlaps a node, from this place on, that nothing at the node or above it justifies.
    fn next_due(&self, node: NodeIx, from: Order) -> Option<Order> {
        let (mut read, mut write) = (Earliest::default(), Earliest::default());
        // Whoever came later than these is justified.
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

    /// Whether a region has this place before it and overlaps this node. For checks.
    pub(super) fn has_before_it(&self, node: NodeIx, order: Order) -> bool {
        let covers = |(cursor, region): &(Order, RegionIx)| {
            let other = self.recheck.regions[*region].node;
            let above = |low: NodeIx, high: NodeIx| self.trie.spine(low).any(|(number, _)| number == high);
            *cursor <= order && (above(node, other) || above(other, node))
        };
        self.recheck.agenda.iter().any(covers)
    }

    /// The node, the cursor and the number of each region. For checks.
    pub(super) fn regions(&self) -> impl Iterator<Item = (NodeIx, Option<Order>, RegionIx)> {
        self.recheck.agenda.iter().map(|(_, region)| {
            let Region { node, cursor } = self.recheck.regions[*region];
            (node, cursor, *region)
        })
    }

    /// How many regions are in use. For checks.
    pub(super) fn region_count(&self) -> u32 {
        self.recheck.regions.live_count()
    }
}

/// The earliest of several.
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
