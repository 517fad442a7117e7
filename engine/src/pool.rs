//! Rules of one pool of permits: which claim is granted, and when.

use crate::effect::Refusal;
use crate::handle::ClaimIx;
use std::collections::BTreeMap;

/// Order in which a pool serves its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolOrder {
    /// Order of arrival.
    #[default]
    Arrival,
    /// Order of the timestamps in the acquires, then of arrival. A claim that arrives late with an early timestamp goes
    /// to the front.
    Timestamp,
}

/// Queue position of a claim in a pool. It is fixed at arrival, and unique in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    /// Timestamp in the acquire, in microseconds; 0 if the pool serves its waiters in order of arrival.
    timestamp_us: u64,
    arrival: u64,
}

/// Claim that waits for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolWaiter {
    pub(crate) key: PoolKey,
    pub(crate) claim: ClaimIx,
    pub(crate) permits: u64,
}

/// Pool of permits: its capacity, the number of held permits, and its waiters.
///
/// The rule: a claim is granted once its permits, the held permits, and the permits of all waiters before it fit into
/// the capacity together. So no claim overtakes a waiter before it: a small claim behind a big one waits, although its
/// permits would fit. In the order of arrival, this is equivalent to: a claim is granted once its permits fit together
/// with the permits of all live claims that arrived before it.
///
/// The pool only decides and counts; the shard keeps the list of holders. While `first_that_fits` returns a waiter, the
/// shard removes that waiter with `remove_waiter`. If the shard then grants the claim, it counts the permits with
/// `hold`.
///
/// Held permits exceed the capacity only after the capacity was lowered. The pool then grants nothing until enough
/// holds have ended or the capacity is raised.
#[derive(Debug)]
pub(crate) struct Pool {
    capacity: u64,
    /// Whether a request set the capacity explicitly, instead of the first claim of the pool. If so, the pool stays
    /// when its last claim ends.
    is_set: bool,
    order: PoolOrder,
    held: u64,
    waiting: BTreeMap<PoolKey, (ClaimIx, u64)>,
    /// Queue position from which the search for waiters that exceed a lowered capacity continues; `None` if no search
    /// is in progress.
    uncompared: Option<PoolKey>,
}

/// Result of one step of the search for waiters that exceed a lowered capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooBig {
    /// This waiter asks for more permits than the capacity.
    Found(PoolWaiter),
    /// No waiter of this step exceeds the capacity, but others are left to compare.
    Later,
    /// No waiter exceeds the capacity.
    None,
}

/// Number of waiters that one step of the search for waiters above a lowered capacity compares. A step is the unit in
/// which a turn limits its work. So many comparisons are about as much work as the refusal of one such waiter.
const COMPARED_PER_STEP: usize = 16;

impl Pool {
    /// Returns a pool without claims. Its capacity counts as chosen by its first claim, not as set by a request of its
    /// own. The shard removes such a pool when its last claim ends.
    pub(crate) fn new(capacity: u64, order: PoolOrder) -> Self {
        Self { capacity, is_set: false, order, held: 0, waiting: BTreeMap::new(), uncompared: None }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether a request set the capacity explicitly, so that the pool stays when its last claim ends.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set
    }

    pub(crate) fn order(&self) -> PoolOrder {
        self.order
    }

    /// Returns the number of held permits.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the pool can be removed: it has no holders and no waiters, and no request set its capacity explicitly.
    pub(crate) fn is_unused(&self) -> bool {
        !self.is_set && !self.is_in_use()
    }

    /// Whether permits are held or waited for.
    pub(crate) fn is_in_use(&self) -> bool {
        self.held > 0 || !self.waiting.is_empty()
    }

    /// Refuses a number of permits that can never be granted.
    pub(crate) fn check(&self, permits: u64) -> Result<(), Refusal> {
        if permits == 0 {
            return Err(Refusal::bad_input("permits", 0, "must be at least 1"));
        }
        if permits > self.capacity {
            return Err(Refusal::bad_input(
                "permits",
                self.capacity,
                "must not exceed the capacity of the pool",
            ));
        }
        Ok(())
    }

    /// Returns the queue position of a claim with this timestamp, and with this number in the order of arrival. The
    /// timestamp has no effect if the pool serves in order of arrival.
    pub(crate) fn key(&self, timestamp_us: u64, arrival: u64) -> PoolKey {
        let timestamp_us = match self.order {
            PoolOrder::Arrival => 0,
            PoolOrder::Timestamp => timestamp_us,
        };
        PoolKey { timestamp_us, arrival }
    }

    /// Whether a claim that just arrived is granted at once: no waiter is before it, and its permits fit.
    pub(crate) fn fits_newcomer(&self, key: PoolKey, permits: u64) -> bool {
        let is_first = self.waiting.first_key_value().is_none_or(|(first, _)| key < *first);
        is_first && self.fits(permits)
    }

    /// Adds a waiter.
    pub(crate) fn wait(&mut self, key: PoolKey, claim: ClaimIx, permits: u64) {
        let before = self.waiting.insert(key, (claim, permits));
        debug_assert!(before.is_none(), "two claims have one key");
    }

    /// Returns the first waiter if it can be granted now. Waiters behind it must not overtake it.
    pub(crate) fn first_that_fits(&self) -> Option<PoolWaiter> {
        self.waiters().next().filter(|first| self.fits(first.permits))
    }

    /// Removes the waiter at this position: just before its grant, or because it was refused or left. Returns `None` if
    /// no waiter has the position.
    pub(crate) fn remove_waiter(&mut self, key: PoolKey) -> Option<PoolWaiter> {
        let (claim, permits) = self.waiting.remove(&key)?;
        Some(PoolWaiter { key, claim, permits })
    }

    /// Counts permits as held. The caller has checked that they fit into the capacity, or restores a hold from before a
    /// restart.
    pub(crate) fn hold(&mut self, permits: u64) {
        // The sum cannot overflow: each grant fits into the capacity, and `can_hold_more` checks each restored hold.
        self.held += permits;
    }

    /// Whether the sum of the held permits and these permits fits into a `u64`.
    pub(crate) fn can_hold_more(&self, permits: u64) -> bool {
        self.held.checked_add(permits).is_some()
    }

    /// Subtracts the permits of an ended hold.
    pub(crate) fn end_hold(&mut self, permits: u64) {
        self.held -= permits;
    }

    /// Sets the capacity, and keeps the pool even without claims. Holders keep their permits, and more waiters may fit.
    /// The caller must remove the waiters that `next_too_big` finds. They can never be granted, so they would block the
    /// waiters behind them forever.
    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        if capacity < self.capacity {
            self.uncompared = self.waiting.first_key_value().map(|(first, _)| *first);
        }
        self.capacity = capacity;
        self.is_set = true;
    }

    /// Marks the capacity as not set, so that the pool can be removed once it has no claims. The capacity itself stays
    /// the same.
    pub(crate) fn unset(&mut self) {
        self.is_set = false;
    }

    /// Continues the search, in queue order, for waiters that the pool can never serve after its capacity was lowered.
    /// The caller must remove a waiter that was found; otherwise the next call finds it again.
    pub(crate) fn next_too_big(&mut self) -> TooBig {
        let Some(from) = self.uncompared else { return TooBig::None };
        let mut rest = self.waiting.range(from..);
        for (key, (claim, permits)) in rest.by_ref().take(COMPARED_PER_STEP) {
            if *permits > self.capacity {
                self.uncompared = Some(*key);
                return TooBig::Found(PoolWaiter { key: *key, claim: *claim, permits: *permits });
            }
        }
        self.uncompared = rest.next().map(|(key, _)| *key);
        if self.uncompared.is_some() { TooBig::Later } else { TooBig::None }
    }

    /// Returns the waiters in order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = PoolWaiter> {
        self.waiting.iter().map(|(key, (claim, permits))| PoolWaiter {
            key: *key,
            claim: *claim,
            permits: *permits,
        })
    }

    /// Returns the number of waiters before a position, counted up to `position_max`.
    pub(crate) fn position_of(&self, key: PoolKey, position_max: usize) -> usize {
        self.waiting.range(..key).take(position_max).count()
    }

    fn fits(&self, permits: u64) -> bool {
        self.held.checked_add(permits).is_some_and(|sum| sum <= self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PoolOrder::{Arrival, Timestamp};
    use proptest::prelude::*;

    /// Pool with its holders, driven as a shard does. The number of a claim is also its timestamp. `events` has `+3`
    /// for the grant of claim 3, `-3` for the end of its hold, and `x3` for the end of its wait.
    struct Driven {
        pool: Pool,
        arrivals: u64,
        holders: Vec<(u32, u64)>,
        events: Vec<String>,
    }

    impl Driven {
        fn new(capacity: u64, order: PoolOrder) -> Self {
            Self { pool: Pool::new(capacity, order), arrivals: 0, holders: Vec::new(), events: Vec::new() }
        }

        fn hold(&mut self, claim: u32, permits: u64) {
            self.pool.hold(permits);
            self.holders.push((claim, permits));
            self.events.push(format!("+{claim}"));
        }

        fn insert(&mut self, claim: u32, permits: u64) {
            self.arrivals += 1;
            let key = self.pool.key(u64::from(claim), self.arrivals);
            if self.pool.fits_newcomer(key, permits) {
                self.hold(claim, permits);
            } else {
                self.pool.wait(key, ClaimIx::new(claim), permits);
            }
        }

        fn grant(&mut self) {
            while let Some(first) = self.pool.first_that_fits() {
                assert_eq!(self.pool.remove_waiter(first.key), Some(first));
                self.hold(first.claim.number(), first.permits);
            }
        }

        fn remove(&mut self, claim: u32) {
            if let Some(place) = self.holders.iter().position(|(holder, _)| *holder == claim) {
                let (_, permits) = self.holders.remove(place);
                self.pool.end_hold(permits);
                self.events.push(format!("-{claim}"));
            }
            let waiter = self.pool.waiters().find(|waiter| waiter.claim.number() == claim);
            if let Some(waiter) = waiter {
                self.leave(waiter);
            }
            self.grant();
        }

        fn leave(&mut self, waiter: PoolWaiter) {
            assert_eq!(self.pool.remove_waiter(waiter.key), Some(waiter));
            self.events.push(format!("x{}", waiter.claim));
        }

        fn resize(&mut self, capacity: u64) {
            self.pool.set_capacity(capacity);
            loop {
                match self.pool.next_too_big() {
                    TooBig::Found(waiter) => self.leave(waiter),
                    TooBig::Later => {}
                    TooBig::None => break,
                }
            }
            self.grant();
        }

        fn said(&mut self) -> String {
            std::mem::take(&mut self.events).join(" ")
        }

        fn waiting(&self) -> Vec<u32> {
            self.pool.waiters().map(|waiter| waiter.claim.number()).collect()
        }
    }

    /// Returns a pool of ten permits after these claims arrived one after the other, the resulting events, and the
    /// waiters. Each claim is given by its number and its permits.
    fn pool_of_ten(claims: &[(u32, u64)]) -> (Driven, String, Vec<u32>) {
        let mut driven = Driven::new(10, Arrival);
        for (claim, permits) in claims {
            driven.insert(*claim, *permits);
        }
        let (said, waiting) = (driven.said(), driven.waiting());
        (driven, said, waiting)
    }

    #[test]
    fn claims_that_fit_together_are_granted_at_once() {
        let (driven, said, _) = pool_of_ten(&[(1, 3), (2, 4)]);
        assert_eq!((said.as_str(), driven.pool.held()), ("+1 +2", 7));
    }

    #[test]
    fn a_small_claim_does_not_overtake_a_waiting_claim() {
        let (_, said, waiting) = pool_of_ten(&[(1, 3), (2, 5), (3, 4), (4, 4), (5, 2)]);
        assert_eq!((said.as_str(), waiting), ("+1 +2", vec![3, 4, 5]));
        let (_, said, waiting) = pool_of_ten(&[(1, 3), (2, 5), (3, 4), (4, 1)]);
        assert_eq!((said.as_str(), waiting), ("+1 +2", vec![3, 4]));
    }

    /// Returns a pool of ten permits with these holders and waiters, even if the waiters would fit. Each of them is
    /// given by its number and its permits.
    fn pool_in_state(holders: &[(u32, u64)], waiters: &[(u32, u64)]) -> Driven {
        let mut driven = Driven::new(10, Arrival);
        for (claim, permits) in holders {
            driven.hold(*claim, *permits);
        }
        for (claim, permits) in waiters {
            driven.pool.wait(driven.pool.key(0, u64::from(*claim)), ClaimIx::new(*claim), *permits);
        }
        driven.said();
        driven
    }

    #[test]
    fn a_release_grants_as_many_waiters_from_the_head_as_fit() {
        let mut driven = pool_in_state(&[(1, 3), (2, 4)], &[(3, 3), (4, 2)]);
        driven.remove(1);
        assert_eq!((driven.said().as_str(), driven.pool.held()), ("-1 +3 +4", 9));
        let mut driven = pool_in_state(&[(1, 3), (2, 4)], &[(3, 3), (4, 2), (8, 8)]);
        driven.remove(2);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("-2 +3 +4", vec![8]));
    }

    #[test]
    fn a_release_that_frees_too_few_permits_grants_nothing() {
        let (mut driven, ..) = pool_of_ten(&[(1, 3), (2, 4), (8, 8)]);
        driven.remove(2);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("-2", vec![8]));
    }

    #[test]
    fn a_leaving_waiter_unblocks_the_waiters_behind_it() {
        let (mut driven, ..) = pool_of_ten(&[(1, 3), (2, 5), (3, 4), (4, 2), (8, 8)]);
        driven.remove(3);
        assert_eq!((driven.said().as_str(), driven.pool.held()), ("x3 +4", 10));
        let (mut driven, ..) = pool_of_ten(&[(1, 3), (2, 5), (3, 4), (4, 3), (8, 8)]);
        driven.remove(3);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("x3", vec![4, 8]));
    }

    #[test]
    fn removing_an_unknown_claim_has_no_effect() {
        let (mut driven, ..) = pool_of_ten(&[(1, 8), (2, 4)]);
        driven.remove(7);
        assert_eq!(driven.pool.remove_waiter(driven.pool.key(0, 7)), None);
        assert_eq!((driven.said().as_str(), driven.pool.held(), driven.waiting()), ("", 8, vec![2]));
    }

    #[test]
    fn a_pool_of_five_permits_grants_in_order() {
        let mut driven = Driven::new(5, Arrival);
        for (claim, permits) in [(1, 3), (2, 3), (3, 2), (4, 1)] {
            driven.insert(claim, permits);
        }
        assert_eq!(driven.said(), "+1");
        driven.remove(1);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("-1 +2 +3", vec![4]));
    }

    #[test]
    fn a_long_sequence_of_claims_and_releases_grants_in_order() {
        let mut driven = Driven::new(10, Arrival);
        for (claim, permits) in [(1, 5), (2, 4), (3, 3), (4, 2)] {
            driven.insert(claim, permits);
        }
        driven.remove(2);
        driven.insert(5, 6);
        driven.remove(1);
        driven.insert(6, 1);
        driven.remove(4);
        assert_eq!(driven.said(), "+1 +2 -2 +3 +4 -1 -4 +5 +6");
    }

    #[test]
    fn an_earlier_timestamp_queues_first_and_preempts_no_holder() {
        let mut driven = Driven::new(10, Timestamp);
        driven.insert(20, 6);
        driven.insert(30, 5);
        driven.insert(10, 5);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("+20", vec![10, 30]));
        driven.insert(5, 4);
        assert_eq!((driven.said().as_str(), driven.pool.held()), ("+5", 10), "it stands first, and fits");
        driven.insert(25, 1);
        assert_eq!(driven.waiting(), [10, 25, 30]);
        driven.remove(20);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("-20 +10 +25", vec![30]));
    }

    #[test]
    fn equal_timestamps_are_served_in_arrival_order() {
        let mut pool = Pool::new(1, Timestamp);
        assert!(pool.key(7, 1) < pool.key(7, 2) && pool.key(6, 3) < pool.key(7, 1));
        pool.hold(1);
        for (arrival, claim) in [(1, 11), (2, 12), (3, 13)] {
            let key = pool.key(7, arrival);
            assert!(!pool.fits_newcomer(key, 1));
            pool.wait(key, ClaimIx::new(claim), 1);
        }
        pool.end_hold(1);
        assert_eq!(pool.first_that_fits().map(|first| first.claim.number()), Some(11));
        assert!(!pool.fits_newcomer(pool.key(7, 4), 1), "those who wait stand before it");
    }

    #[test]
    fn arrival_order_ignores_timestamps() {
        let pool = Pool::new(1, Arrival);
        assert!(pool.key(9, 1) < pool.key(8, 2));
    }

    #[test]
    fn timestamp_order_is_independent_of_arrival_order() {
        for order in [[1, 2], [2, 1]] {
            let mut driven = Driven::new(10, Timestamp);
            for claim in order {
                driven.insert(claim, 6);
            }
            driven.remove(1);
            assert_eq!(driven.holders, [(2, 6)]);
            assert_eq!(driven.waiting(), []);
        }
    }

    #[test]
    fn positions_are_counted_up_to_a_limit() {
        let (driven, ..) = pool_of_ten(&[(1, 10), (2, 1), (3, 1), (4, 1)]);
        let positions = |max| -> Vec<usize> {
            driven.pool.waiters().map(|waiter| driven.pool.position_of(waiter.key, max)).collect()
        };
        assert_eq!(positions(100), [0, 1, 2]);
        assert_eq!(positions(1), [0, 1, 1]);
    }

    #[test]
    fn a_larger_capacity_grants_at_once() {
        let (mut driven, ..) = pool_of_ten(&[(1, 8), (2, 4), (3, 4), (4, 4)]);
        driven.resize(16);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("+2 +3", vec![4]));
    }

    #[test]
    fn a_smaller_capacity_keeps_holders_and_fails_waiters_that_never_fit() {
        let (mut driven, ..) = pool_of_ten(&[(1, 4), (2, 6), (3, 6), (4, 3), (5, 5)]);
        driven.said();
        driven.resize(3);
        assert_eq!((driven.said().as_str(), driven.pool.held()), ("x3 x5", 10));
        driven.remove(2);
        assert_eq!(driven.said(), "-2");
        driven.remove(1);
        assert_eq!(driven.said(), "-1 +4");
    }

    #[test]
    fn a_claim_that_can_never_fit_is_refused() {
        let refused = |capacity, permits| match Pool::new(capacity, Arrival).check(permits) {
            Err(Refusal::BadInput { field: "permits", limit, .. }) => Some(limit),
            Err(other) => panic!("{other:?}"),
            Ok(()) => None,
        };
        assert_eq!([refused(10, 0), refused(10, 11), refused(10, u64::MAX)], [Some(0), Some(10), Some(10)]);
        assert_eq!([refused(10, 1), refused(10, 10), refused(u64::MAX, u64::MAX)], [None; 3]);
        assert_eq!(refused(0, 1), Some(0));
    }

    #[test]
    fn permit_sums_beyond_u64_do_not_fit() {
        let mut driven = Driven::new(u64::MAX, Arrival);
        driven.insert(1, u64::MAX);
        driven.insert(2, u64::MAX);
        driven.insert(3, 1);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("+1", vec![2, 3]));
        driven.remove(1);
        assert_eq!((driven.said().as_str(), driven.waiting()), ("-1 +2", vec![3]));
    }

    #[test]
    fn a_pool_is_kept_while_used_or_configured() {
        let mut driven = Driven::new(1, Arrival);
        assert!(driven.pool.is_unused());
        driven.insert(1, 1);
        driven.insert(2, 1);
        driven.remove(1);
        assert!(!driven.pool.is_unused());
        driven.remove(2);
        assert!(driven.pool.is_unused());
        driven.pool.set_capacity(1);
        assert!(!driven.pool.is_unused());
    }

    /// Step of a property test.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Arrival of a claim for this many permits, with this timestamp.
        Insert(u64, u32),
        /// The n-th live claim ends, held or waiting. Numbers beyond the last claim begin again at the first.
        Remove(usize),
        Resize(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let permits = prop_oneof![8 => 1..6_u64, 1 => 1..=20_u64];
        let step = prop_oneof![
            5 => (permits, 0..50_u32).prop_map(|(permits, time)| Step::Insert(permits, time)),
            4 => (0..100_usize).prop_map(Step::Remove),
            1 => (0..=20_u64).prop_map(Step::Resize),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// Claim of the naive model.
    #[derive(Clone, Copy, Debug)]
    struct Naive {
        order: (u32, usize),
        permits: u128,
        held: bool,
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In the order of arrival, a claim is granted once its permits fit together with the permits of all live
        /// claims before it.
        #[test]
        fn arrival_order_grants_match_the_closed_form(capacity in 1..=20_u64, steps in steps()) {
            follow(Arrival, capacity, &steps, |live, number| {
                live[..=number].iter().map(|claim| claim.permits).sum()
            })?;
        }

        /// In any order, a claim is granted once its permits, the held ones, and the ones of all waiters before it fit.
        #[test]
        fn timestamp_order_grants_match_the_closed_form(capacity in 1..=20_u64, steps in steps()) {
            follow(Timestamp, capacity, &steps, |live, number| {
                let counts = |(other, claim): &(usize, &Naive)| claim.held || *other <= number;
                live.iter().enumerate().filter(counts).map(|(_, claim)| claim.permits).sum()
            })?;
        }
    }

    /// After each step, compares a pool with a sorted list of all live claims. The list grants a claim as soon as the
    /// permits that `needed` returns for it fit into the capacity.
    fn follow(
        order: PoolOrder,
        mut capacity: u64,
        steps: &[Step],
        needed: impl Fn(&[Naive], usize) -> u128,
    ) -> Result<(), TestCaseError> {
        let mut pool = Pool::new(capacity, order);
        let mut live: Vec<Naive> = Vec::new();
        let mut keys = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Insert(permits, time) => {
                    let refused = pool.check(permits).is_err();
                    prop_assert_eq!(refused, permits > capacity);
                    if refused {
                        continue;
                    }
                    let time = if order == Arrival { 0 } else { time };
                    live.push(Naive { order: (time, number), permits: u128::from(permits), held: false });
                    let key = pool.key(u64::from(time), number as u64);
                    keys.insert(number, key);
                    if pool.fits_newcomer(key, permits) {
                        pool.hold(permits);
                    } else {
                        pool.wait(key, ClaimIx::new(number as u32), permits);
                    }
                }
                Step::Remove(_) if live.is_empty() => continue,
                Step::Remove(place) => {
                    let left = live.remove(place % live.len());
                    if left.held {
                        pool.end_hold(left.permits as u64);
                    } else {
                        prop_assert!(pool.remove_waiter(keys[&left.order.1]).is_some());
                    }
                }
                Step::Resize(new) => {
                    capacity = new;
                    live.retain(|claim| claim.held || claim.permits <= u128::from(capacity));
                    pool.set_capacity(capacity);
                    loop {
                        match pool.next_too_big() {
                            TooBig::Found(waiter) => drop(pool.remove_waiter(waiter.key)),
                            TooBig::Later => {}
                            TooBig::None => break,
                        }
                    }
                }
            }
            // If this step added a claim that fits, the arm for `Step::Insert` above has already called `pool.hold` for
            // it. Any other step may have freed permits, so the pool grants waiters from the front here.
            if !matches!(step, Step::Insert(..)) {
                while let Some(first) = pool.first_that_fits() {
                    pool.remove_waiter(first.key);
                    pool.hold(first.permits);
                }
            }
            live.sort_by_key(|claim| claim.order);
            for number in 0..live.len() {
                live[number].held |= needed(&live, number) <= u128::from(capacity);
            }
            let held: u128 = live.iter().filter(|claim| claim.held).map(|claim| claim.permits).sum();
            let waiting = live.iter().filter(|claim| !claim.held).map(|claim| claim.order.1 as u32);
            prop_assert_eq!(u128::from(pool.held()), held);
            prop_assert_eq!(
                pool.waiters().map(|waiter| waiter.claim.number()).collect::<Vec<_>>(),
                waiting.collect::<Vec<_>>()
            );
            prop_assert_eq!(
                pool.is_unused(),
                live.is_empty() && !steps[..=number].iter().any(|step| matches!(step, Step::Resize(_)))
            );
        }
        Ok(())
    }
}
