//! The holders and waiters of a contended key.

use crate::claim::{Claim, Detail, OrderKey, flag};
use crate::list::ClaimList;
use crate::planted;
use crate::slab::{NONE, Slab};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A key has a queue only while one claim alone does not tell its state: several holders, or any waiter.
///
/// Waiters stand in the order of their order keys. Those that arrive in that order form a list. One whose priority puts it
/// before the last of the list stands in a map beside it, and whoever walks over the waiters takes the earlier of both. So
/// nobody who comes costs more because many wait.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) holders: ClaimList,
    listed: ClaimList,
    preferred: BTreeMap<OrderKey, u32>,
    /// The waiter in front, or `NONE`.
    front: u32,
    /// Waiters that are not shared.
    exclusive_count: u32,
    /// Waiters that are one key of a claim over several.
    stub_count: u32,
    /// The number of the work item that stands ready to go on with the grants of this key; 0 without one.
    pub(crate) granting: u64,
    /// The version of the frozen prefixes for which its waiters were looked at again.
    pub(crate) thawed: u64,
    /// Somebody wants to know who holds the key; the queue stays for that.
    pub(crate) watched: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            holders: ClaimList::default(),
            listed: ClaimList::default(),
            preferred: BTreeMap::new(),
            front: NONE,
            exclusive_count: 0,
            stub_count: 0,
            granting: 0,
            thawed: 0,
            watched: false,
        }
    }
}

/// Where somebody who walks over the waiters has come to. Whoever was passed may leave meanwhile, nobody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// The next one of the list, or `NONE`.
    listed: u32,
    /// The next one of the map.
    preferred: Option<(OrderKey, u32)>,
}

impl Queue {
    pub(crate) fn waiter_count(&self) -> u32 {
        self.listed.count + self.preferred.len() as u32
    }

    /// The waiter in front, or `NONE`.
    #[inline]
    pub(crate) fn first_waiter(&self) -> u32 {
        self.front
    }

    /// The waiter at the end; for a planted defect.
    pub(crate) fn last_waiter(&self, claims: &Slab<Claim>, details: &Slab<Detail>) -> u32 {
        self.waiters(claims, details).last().unwrap_or(NONE)
    }

    /// A walk that begins in front.
    #[inline]
    pub(crate) fn walk(&self) -> Walk {
        let preferred = self.preferred.first_key_value().map(|(order, waiter)| (*order, *waiter));
        Walk { listed: self.listed.first, preferred }
    }

    /// The next waiter of a walk, or `NONE`.
    #[inline]
    pub(crate) fn next_of(&self, walk: &mut Walk, claims: &Slab<Claim>, details: &Slab<Detail>) -> u32 {
        if let Some((order, waiter)) = walk.preferred
            && (walk.listed == NONE || order < details[claims[walk.listed].detail].order)
        {
            let behind = self.preferred.range((Bound::Excluded(order), Bound::Unbounded)).next();
            walk.preferred = behind.map(|(order, waiter)| (*order, *waiter));
            return waiter;
        }
        let waiter = walk.listed;
        if waiter != NONE {
            walk.listed = claims[waiter].next;
        }
        waiter
    }

    /// The waiters in order.
    pub(crate) fn waiters(&self, claims: &Slab<Claim>, details: &Slab<Detail>) -> impl Iterator<Item = u32> {
        let mut walk = self.walk();
        std::iter::from_fn(move || {
            Some(self.next_of(&mut walk, claims, details)).filter(|waiter| *waiter != NONE)
        })
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
        let mut before = self.waiters(claims, details).take_while(|waiter| *waiter != index);
        self.exclusive_count == 0 || before.all(|waiter| claims[waiter].has(flag::SHARED))
    }

    /// Whether everyone who stands before a newcomer with this place is a reader that is clear.
    pub(crate) fn only_clear_readers_before(
        &self,
        claims: &Slab<Claim>,
        details: &Slab<Detail>,
        order: OrderKey,
    ) -> bool {
        let stands_before = |waiter: &u32| details[claims[*waiter].detail].order < order;
        let is_shared_stub = |waiter: u32| claims[waiter].has(flag::STUB) && claims[waiter].has(flag::SHARED);
        let mut before = self.waiters(claims, details).take_while(stands_before);
        self.is_readable_behind_waiters() || before.all(is_shared_stub)
    }

    /// Adds a waiter. Says how many stand before it, counted up to `position_max` where they have to be counted.
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
        if self.listed.last != NONE && order < order_of(claims, self.listed.last) {
            self.preferred.insert(order, index);
            self.find_front(claims, details);
            return self.position_of(claims, details, index, position_max);
        }
        self.listed.push_back(claims, index);
        self.find_front(claims, details);
        let listed_before = self.listed.count as usize - 1;
        listed_before + self.preferred.range(..order).take(position_max).count()
    }

    /// How many stand before a waiter, counted up to `position_max`.
    pub(crate) fn position_of(
        &self,
        claims: &Slab<Claim>,
        details: &Slab<Detail>,
        index: u32,
        position_max: usize,
    ) -> usize {
        let before = self.waiters(claims, details).take_while(|waiter| *waiter != index);
        before.take(position_max).count()
    }

    fn find_front(&mut self, claims: &Slab<Claim>, details: &Slab<Detail>) {
        self.front = match self.preferred.first_key_value() {
            None => self.listed.first,
            Some(_) => self.next_of(&mut self.walk(), claims, details),
        };
    }

    /// Takes a waiter out, wherever it stands.
    pub(crate) fn remove_waiter(&mut self, claims: &mut Slab<Claim>, details: &Slab<Detail>, index: u32) {
        self.exclusive_count -= u32::from(!claims[index].has(flag::SHARED));
        self.stub_count -= u32::from(claims[index].has(flag::STUB));
        // One of the list has a neighbour, or is alone in it.
        let is_listed =
            claims[index].next != NONE || claims[index].previous != NONE || self.listed.first == index;
        if is_listed {
            self.listed.remove(claims, index);
        } else {
            let removed = self.preferred.remove(&details[claims[index].detail].order);
            debug_assert_eq!(removed, Some(index));
        }
        if self.front == index {
            self.find_front(claims, details);
        }
    }

    /// Checks what is counted. For tests.
    pub(crate) fn verify(&self, claims: &Slab<Claim>, details: &Slab<Detail>) {
        let waiters: Vec<u32> = self.waiters(claims, details).collect();
        let count = |flag: u16| waiters.iter().filter(|claim| claims[**claim].has(flag)).count() as u32;
        assert_eq!(self.waiter_count(), waiters.len() as u32, "waiters");
        assert_eq!(self.front, waiters.first().copied().unwrap_or(NONE), "the waiter in front");
        assert_eq!(self.exclusive_count, waiters.len() as u32 - count(flag::SHARED), "waiting writers");
        assert_eq!(self.stub_count, count(flag::STUB), "stubs");
        let order = |waiter: u32| details[claims[waiter].detail].order;
        assert!(waiters.is_sorted_by_key(|waiter| order(*waiter)), "waiters stand in their order");
    }
}
