//! The holders and waiters of a contended key.

use crate::claim::{Claim, Detail, OrderKey, flag};
use crate::list::ClaimList;
use crate::planted;
use crate::slab::{NONE, Slab};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A key has a queue only while one claim alone does not tell its state: several holders, or any waiter.
///
/// Waiters stand in the order of their order keys. As long as they arrive in that order they form a plain list; the
/// first one whose priority puts it before another turns the list into a map, until the queue is empty again.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) holders: ClaimList,
    waiters: ClaimList,
    ordered: Option<BTreeMap<OrderKey, u32>>,
    /// Waiters that are not shared.
    exclusive_count: u32,
    /// Waiters that are one key of a claim over several.
    stub_count: u32,
    /// A work item stands ready to go on with the grants of this key.
    pub(crate) granting: bool,
    /// The version of the frozen prefixes for which its waiters were looked at again.
    pub(crate) thawed: u64,
    /// Somebody wants to know who holds the key; the queue stays for that.
    pub(crate) watched: bool,
}

impl Queue {
    pub(crate) fn waiter_count(&self) -> u32 {
        match &self.ordered {
            Some(ordered) => ordered.len() as u32,
            None => self.waiters.count,
        }
    }

    /// The waiter in front, or `NONE`.
    pub(crate) fn first_waiter(&self) -> u32 {
        match &self.ordered {
            Some(ordered) => ordered.first_key_value().map_or(NONE, |(_, index)| *index),
            None => self.waiters.first,
        }
    }

    /// The waiter at the end; for a planted defect.
    pub(crate) fn last_waiter(&self, claims: &Slab<Claim>) -> u32 {
        self.waiters(claims).last().copied().unwrap_or(NONE)
    }

    /// Whether a claim of this mode conflicts with no holder.
    pub(crate) fn is_open_to(&self, shared: bool, claims: &Slab<Claim>) -> bool {
        if planted!(WriterJoinsReaders) && self.holders.count > 1 {
            return true;
        }
        // Holders are one exclusive claim or any number of shared ones, so the first tells for all.
        self.holders.count == 0 || shared && claims[self.holders.first].has(flag::SHARED)
    }

    /// Whether a reader that arrives now has only readers before it that are clear: they wait for other keys of theirs.
    pub(crate) fn is_readable_behind_waiters(&self) -> bool {
        self.exclusive_count == 0 && self.stub_count == self.waiter_count()
    }

    /// Whether a waiter may be clear although it is not the first.
    pub(crate) fn has_stubs(&self) -> bool {
        self.stub_count > 0
    }

    /// Whether a writer waits.
    pub(crate) fn has_writers(&self) -> bool {
        self.exclusive_count > 0
    }

    /// Whether no writer stands before this waiter.
    pub(crate) fn only_readers_before(
        &self,
        claims: &Slab<Claim>,
        details: &Slab<Detail>,
        index: u32,
    ) -> bool {
        if self.exclusive_count == 0 {
            return true;
        }
        let mut waiter = self.first_waiter();
        while waiter != index && waiter != NONE {
            if !claims[waiter].has(flag::SHARED) {
                return false;
            }
            waiter = self.next_waiter(claims, details, waiter);
        }
        true
    }

    /// Whether everyone who stands before a newcomer with this place is a reader that is clear.
    pub(crate) fn only_clear_readers_before(
        &self,
        claims: &Slab<Claim>,
        details: &Slab<Detail>,
        order: OrderKey,
    ) -> bool {
        let stands_before = |waiter: u32| details[claims[waiter].detail].order < order;
        if self.is_readable_behind_waiters() {
            return true;
        }
        let mut waiter = self.first_waiter();
        while waiter != NONE && stands_before(waiter) {
            if !(claims[waiter].has(flag::STUB) && claims[waiter].has(flag::SHARED)) {
                return false;
            }
            waiter = self.next_waiter(claims, details, waiter);
        }
        true
    }

    /// The waiter behind this one, or `NONE`.
    #[inline]
    pub(crate) fn next_waiter(&self, claims: &Slab<Claim>, details: &Slab<Detail>, index: u32) -> u32 {
        match &self.ordered {
            None => claims[index].next,
            Some(ordered) => {
                let after = (Bound::Excluded(details[claims[index].detail].order), Bound::Unbounded);
                ordered.range(after).next().map_or(NONE, |(_, index)| *index)
            }
        }
    }

    /// Adds a waiter. Says how many stand before it, counted up to `position_max` where a map has to be counted.
    pub(crate) fn add_waiter(
        &mut self,
        claims: &mut Slab<Claim>,
        details: &Slab<Detail>,
        index: u32,
        position_max: usize,
    ) -> usize {
        let order_of = |claims: &Slab<Claim>, index: u32| details[claims[index].detail].order;
        let order = order_of(claims, index);
        self.exclusive_count += u32::from(!claims[index].has(flag::SHARED));
        self.stub_count += u32::from(claims[index].has(flag::STUB));
        if self.ordered.is_none() {
            if self.waiters.last == NONE || order_of(claims, self.waiters.last) < order {
                let position = self.waiters.count as usize;
                self.waiters.push_back(claims, index);
                return position;
            }
            let mut ordered = BTreeMap::new();
            while self.waiters.first != NONE {
                let first = self.waiters.first;
                self.waiters.remove(claims, first);
                ordered.insert(order_of(claims, first), first);
            }
            self.ordered = Some(ordered);
        }
        let Some(ordered) = &mut self.ordered else { return 0 };
        let position = ordered.range(..order).take(position_max).count();
        ordered.insert(order, index);
        position
    }

    /// How many stand before a waiter, counted up to `position_max`.
    pub(crate) fn position_of(
        &self,
        claims: &Slab<Claim>,
        details: &Slab<Detail>,
        index: u32,
        position_max: usize,
    ) -> usize {
        if let Some(ordered) = &self.ordered {
            return ordered.range(..details[claims[index].detail].order).take(position_max).count();
        }
        let step = |index: &u32| Some(claims[*index].previous).filter(|previous| *previous != NONE);
        std::iter::successors(step(&index), step).take(position_max).count()
    }

    /// Takes a waiter out, wherever it stands.
    pub(crate) fn remove_waiter(&mut self, claims: &mut Slab<Claim>, details: &Slab<Detail>, index: u32) {
        self.exclusive_count -= u32::from(!claims[index].has(flag::SHARED));
        self.stub_count -= u32::from(claims[index].has(flag::STUB));
        match &mut self.ordered {
            None => self.waiters.remove(claims, index),
            Some(ordered) => {
                let removed = ordered.remove(&details[claims[index].detail].order);
                debug_assert_eq!(removed, Some(index));
                if ordered.is_empty() {
                    self.ordered = None;
                }
            }
        }
    }

    /// Checks what is counted. For tests.
    pub(crate) fn verify(&self, claims: &Slab<Claim>, details: &Slab<Detail>) {
        let waiters = self.waiters(claims);
        let count = |flag: u16| waiters.iter().filter(|claim| claims[**claim].has(flag)).count() as u32;
        assert_eq!(self.exclusive_count, waiters.len() as u32 - count(flag::SHARED), "waiting writers");
        assert_eq!(self.stub_count, count(flag::STUB), "stubs");
        for pair in waiters.windows(2) {
            assert_eq!(self.next_waiter(claims, details, pair[0]), pair[1], "the waiter behind {}", pair[0]);
        }
    }

    /// The waiters in order.
    pub(crate) fn waiters(&self, claims: &Slab<Claim>) -> Vec<u32> {
        if let Some(ordered) = &self.ordered {
            return ordered.values().copied().collect();
        }
        let step = |index: &u32| Some(claims[*index].next).filter(|next| *next != NONE);
        std::iter::successors(Some(self.waiters.first).filter(|first| *first != NONE), step).collect()
    }
}
