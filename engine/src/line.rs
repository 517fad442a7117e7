//! Waiters of one kind, in queue order.

use crate::claim::{Claim, Detail, OrderKey, Position};
use crate::handle::{ClaimIx, DetailIx};
use crate::list::ClaimList;
use crate::slab::Slab;
use std::collections::BTreeMap;
use std::iter;

/// Line of waiters, ordered by their order keys: by the time of arrival, less a boost for priority. A waiter that
/// belongs behind all listed waiters goes to the end of a list. A waiter whose priority puts it before the end of the
/// list goes into a map beside it. The first waiter of the line is the first of the list or the first of the map. So
/// the cost of adding a waiter hardly depends on the length of the line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    listed: ClaimList,
    preferred: BTreeMap<OrderKey, ClaimIx>,
}

impl Line {
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.listed.count + self.preferred.len() as u32
    }

    /// Returns the first waiter, or `NONE`.
    #[inline]
    pub(crate) fn first(&self, claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>) -> ClaimIx {
        let preferred = self.preferred.first_key_value().map(|(order, waiter)| (*order, *waiter));
        earlier(claims, details, self.listed.first, preferred)
    }

    /// Returns the first waiter of the list, or `NONE`.
    pub(crate) fn first_listed(&self) -> ClaimIx {
        self.listed.first
    }

    /// Returns the first waiter of the line at the position `from` or behind it, or `NONE`. `listed` must be the first
    /// such waiter in the list `self.listed`. This function compares it with the map `self.preferred`, which has the
    /// waiters whose priority puts them before the end of the list. The caller remembers `listed`, because a search for
    /// it would visit the list from its start.
    #[inline]
    pub(crate) fn first_from(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        from: OrderKey,
        listed: ClaimIx,
    ) -> ClaimIx {
        let preferred = self.preferred.range(from..).next().map(|(order, waiter)| (*order, *waiter));
        earlier(claims, details, listed, preferred)
    }

    /// Whether all waiters are behind this position.
    pub(crate) fn begins_behind(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        let first = self.first(claims, details);
        first.is_none() || order_of(claims, details, first) > order
    }

    /// Whether no waiter is behind this position.
    pub(crate) fn ends_by(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        order: OrderKey,
    ) -> bool {
        let is_by = |waiter: ClaimIx| waiter.is_none() || order_of(claims, details, waiter) <= order;
        is_by(self.listed.last) && self.preferred.last_key_value().is_none_or(|(last, _)| *last <= order)
    }

    /// Adds a waiter. Returns true if the waiter was added at the end of the list. Returns false if its priority puts
    /// it before that end, so that it was added to the map `preferred`. A caller that remembers a waiter of the list,
    /// for [`Line::first_from`], needs to know that.
    #[inline]
    pub(crate) fn add(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        index: ClaimIx,
        order: OrderKey,
    ) -> bool {
        let is_listed = self.listed.last.is_none() || order > order_of(claims, details, self.listed.last);
        if is_listed {
            self.listed.push_back(claims, index);
        } else {
            self.preferred.insert(order, index);
        }
        is_listed
    }

    /// Removes a waiter at any position.
    #[inline]
    pub(crate) fn remove(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        index: ClaimIx,
    ) {
        // A waiter in the list has a neighbour in its `position`, or is the only one in the list. A waiter in the map
        // `preferred` has an empty `position`.
        let position = claims[index].position;
        if position != Position::NOWHERE || self.listed.first == index {
            self.listed.remove(claims, index);
        } else {
            let removed = self.preferred.remove(&order_of(claims, details, index));
            debug_assert_eq!(removed, Some(index));
        }
    }

    /// Returns the waiters in order, with their order keys.
    pub(crate) fn walk(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
    ) -> impl Iterator<Item = (OrderKey, ClaimIx)> {
        let mut listed = self.listed.first;
        let mut preferred = self.preferred.iter().map(|(order, waiter)| (*order, *waiter)).peekable();
        iter::from_fn(move || {
            let next = earlier(claims, details, listed, preferred.peek().copied());
            if next.is_none() {
                return None;
            }
            if next != listed {
                return preferred.next();
            }
            listed = claims[next].position.next();
            Some((order_of(claims, details, next), next))
        })
    }

    /// Checks that `listed` is the first waiter of the list `self.listed` at the position `from` or behind it. For
    /// tests.
    pub(crate) fn verify_from(
        &self,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        from: OrderKey,
        listed: ClaimIx,
    ) {
        let first = self.listed.first.some();
        let mut all = iter::successors(first, |waiter| claims[*waiter].position.next().some());
        let expected = all.find(|waiter| order_of(claims, details, *waiter) >= from);
        assert_eq!(
            listed,
            expected.unwrap_or(ClaimIx::NONE),
            "the first waiter of the list from {from:?} on"
        );
    }
}

#[inline]
fn earlier(
    claims: &Slab<ClaimIx, Claim>,
    details: &Slab<DetailIx, Detail>,
    listed: ClaimIx,
    preferred: Option<(OrderKey, ClaimIx)>,
) -> ClaimIx {
    match preferred {
        Some((order, waiter)) if listed.is_none() || order < order_of(claims, details, listed) => waiter,
        _ => listed,
    }
}

#[inline]
fn order_of(claims: &Slab<ClaimIx, Claim>, details: &Slab<DetailIx, Detail>, waiter: ClaimIx) -> OrderKey {
    details[claims[waiter].detail].order
}
