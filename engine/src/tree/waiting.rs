//! The waiting items of a node, in order of arrival.

use crate::handle::ItemIx;
use std::collections::BTreeSet;

/// Where a waiting item stands: items of one claim have one arrival. A claim that arrives later has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) arrival: u64,
    pub(super) item: ItemIx,
}

impl Order {
    /// Before every item.
    pub(super) const FIRST: Self = Self { arrival: 0, item: ItemIx::new(0) };

    /// The first place behind this one.
    pub(super) fn next(self) -> Self {
        Self { item: ItemIx::new(self.item.number() + 1), ..self }
    }
}

/// What waits: whether it would write, and whether it has been found clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ClearRead,
    ClearWrite,
    BlockedRead,
    BlockedWrite,
}

impl Kind {
    pub(super) fn new(write: bool, clear: bool) -> Self {
        match (write, clear) {
            (false, true) => Self::ClearRead,
            (true, true) => Self::ClearWrite,
            (false, false) => Self::BlockedRead,
            (true, false) => Self::BlockedWrite,
        }
    }
}

/// Some waiting items, by kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Queues([BTreeSet<Order>; 4]);

impl Queues {
    pub(super) fn insert(&mut self, order: Order, kind: Kind) {
        self.0[kind as usize].insert(order);
    }

    pub(super) fn remove(&mut self, order: Order, kind: Kind) {
        let removed = self.0[kind as usize].remove(&order);
        debug_assert!(removed, "{order:?} is no {kind:?} here");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(BTreeSet::len).sum()
    }

    /// The first item that keeps out whoever reads, or writes, behind it. A read is kept out by writes and by reads that
    /// are themselves blocked, a write by all.
    #[inline]
    pub(super) fn first_in_the_way_of(&self, write: bool) -> Option<Order> {
        let kinds = if write { &self.0[..] } else { &self.0[Kind::ClearWrite as usize..] };
        kinds.iter().filter_map(BTreeSet::first).min().copied()
    }

    /// The first blocked item, from this place on.
    #[inline]
    pub(super) fn first_blocked(&self, write: bool, from: Order) -> Option<Order> {
        self.0[Kind::new(write, false) as usize].range(from..).next().copied()
    }

    /// The first clear item, from this place on.
    pub(super) fn first_clear(&self, from: Order) -> Option<Order> {
        let first = |kind: Kind| self.0[kind as usize].range(from..).next();
        [Kind::ClearRead, Kind::ClearWrite].into_iter().filter_map(first).min().copied()
    }

    /// The items of each kind, in order.
    pub(super) fn lines(&self) -> impl Iterator<Item = impl Iterator<Item = Order>> {
        self.0.iter().map(|orders| orders.iter().copied())
    }
}
