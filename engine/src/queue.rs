//! The holders and waiters of a contended key.

use crate::claim::{Claim, Detail, OrderKey, flag};
use crate::list::ClaimList;
use crate::planted;
use crate::slab::{NONE, Slab};
use std::collections::BTreeMap;

/// A key has a queue only while one claim alone does not tell its state: several holders, or any waiter.
///
/// Waiters stand in the order of their order keys. As long as they arrive in that order they form a plain list; the
/// first one whose priority puts it before another turns the list into a map, until the queue is empty again.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) holders: ClaimList,
    waiters: ClaimList,
    ordered: Option<BTreeMap<OrderKey, u32>>,
    /// A work item stands ready to go on with the grants of this key.
    pub(crate) granting: bool,
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

    /// The waiters in order.
    pub(crate) fn waiters(&self, claims: &Slab<Claim>) -> Vec<u32> {
        if let Some(ordered) = &self.ordered {
            return ordered.values().copied().collect();
        }
        let step = |index: &u32| Some(claims[*index].next).filter(|next| *next != NONE);
        std::iter::successors(Some(self.waiters.first).filter(|first| *first != NONE), step).collect()
    }
}
