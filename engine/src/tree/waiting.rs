//! Waiting items of a node, in order of arrival.

use crate::handle::ItemIx;
use std::collections::BTreeSet;

/// Queue position of a waiting item. All items of a claim have the same arrival, and a later claim has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) arrival: u64,
    pub(super) item: ItemIx,
}

impl Order {
    /// Lowest position; no item has a lower one.
    pub(super) const FIRST: Self = Self { arrival: 0, item: ItemIx::new(0) };

    /// Returns the first position behind this one.
    pub(super) fn next(self) -> Self {
        Self { item: ItemIx::new(self.item.number() + 1), ..self }
    }
}

/// Kind of a waiting item (one path of a waiting claim). The item reads or writes its path, and the tree has marked it
/// as clear (no other claim blocks it) or as blocked.
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

/// Waiting items by kind.
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

    /// Returns the first waiting item that blocks a later write if `write`, otherwise a later read. A read is blocked
    /// by writes and by blocked reads, a write by all items.
    #[inline]
    pub(super) fn first_in_the_way_of(&self, write: bool) -> Option<Order> {
        let kinds = if write { &self.0[..] } else { &self.0[Kind::ClearWrite as usize..] };
        kinds.iter().filter_map(BTreeSet::first).min().copied()
    }

    /// Returns the first blocked write if `write`, otherwise the first blocked read, whose queue position is `from` or
    /// a later one.
    #[inline]
    pub(super) fn first_blocked(&self, write: bool, from: Order) -> Option<Order> {
        self.0[Kind::new(write, false) as usize].range(from..).next().copied()
    }

    /// Returns the first item that is marked as clear (no other claim blocks it) and whose queue position is `from` or
    /// a later one.
    pub(super) fn first_clear(&self, from: Order) -> Option<Order> {
        let first = |kind: Kind| self.0[kind as usize].range(from..).next();
        [Kind::ClearRead, Kind::ClearWrite].into_iter().filter_map(first).min().copied()
    }

    /// Returns one iterator for each [`Kind`] of waiting item: clear reads, clear writes, blocked reads and blocked
    /// writes. Each iterator gives the positions of its items in queue order.
    pub(super) fn lines(&self) -> impl Iterator<Item = impl Iterator<Item = Order>> {
        self.0.iter().map(|orders| orders.iter().copied())
    }
}
