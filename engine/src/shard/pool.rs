//! Permits of named pools.

use super::durable::answer_grant;
use super::quota::NewClaims;
use super::{AcquireOptions, Caller, Shard};
use crate::access::Rights;
use crate::claim::{Extra, LeaseKind, OrderKey, Properties, State};
use crate::effect::{Answer, Effects, Grant, LogState, PermitHolder, PoolStatus, Refusal};
use crate::entry::{self, Kind};
use crate::handle::{ClaimIx, KeyIx, LaneIx, PoolIx};
use crate::ids::ClaimId;
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, POSITION_COUNT_MAX};
use crate::list::ClaimList;
use crate::measure::{FreedAt, Measure};
use crate::pool::{Pool, PoolKey, PoolOrder, TooBig};
use waymaker_log::Record;

/// Request for permits of one pool.
#[derive(Clone, Copy, Debug)]
pub struct AcquirePermits<'a> {
    /// Name of the pool, 1 to 1024 bytes.
    pub name: &'a [u8],
    /// Capacity of the pool, at least one; `None` accepts any existing capacity.
    pub capacity: Option<u64>,
    /// Number of requested permits, at least one.
    pub permits: u64,
    /// Order in which the pool serves its waiters.
    pub order: PoolOrder,
    /// Time from the client in microseconds, if the order is by timestamp.
    pub timestamp_us: u64,
    /// Length of the lease in milliseconds; 0 for the default.
    pub lease_ms: u32,
    /// Maximum wait in milliseconds; 0 for a try, `u32::MAX` for no limit.
    pub wait_ms: u32,
    /// Whether the hold lasts as long as the session of its lane.
    pub session_lease: bool,
    /// Whether to send `Queued` if the claim waits.
    pub notify_queued: bool,
    /// Rarely used options. Pools have no priority.
    pub options: AcquireOptions<'a>,
}

/// Pool with the holders of its permits.
#[derive(Debug)]
pub(super) struct PoolSpace {
    /// Key record of the pool; `NONE` in a space without a pool.
    pub(super) entry: KeyIx,
    pool: Pool,
    holders: ClaimList,
    /// Number of reserved holders, which no response shows, and the sum of their permits.
    reserved_count: u32,
    reserved_permits: u64,
    /// Number of the work item that will continue the grants, or the refusals after the capacity was lowered; 0 without
    /// one.
    pub(super) working: u64,
    /// Time at which permits were last released, until the resulting grants are finished.
    pub(super) freed_at: FreedAt,
}

impl Default for PoolSpace {
    fn default() -> Self {
        Self {
            entry: KeyIx::NONE,
            pool: Pool::new(0, PoolOrder::Arrival),
            holders: ClaimList::default(),
            reserved_count: 0,
            reserved_permits: 0,
            working: 0,
            freed_at: FreedAt::NEVER,
        }
    }
}

impl Shard {
    /// Serves an acquire of permits. The claim is granted, refused, or waits and gets its answer later.
    pub fn acquire_permits(
        &mut self,
        caller: &Caller,
        acquire: &AcquirePermits<'_>,
        effects: &mut impl Effects,
    ) {
        match self.decide_permits(caller, acquire, effects) {
            Ok(Some(grant)) => answer_grant(caller.ticket, grant, effects),
            Ok(None) => {}
            Err(refusal) => effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        }
    }

    /// Returns the order in which a pool serves its waiters, if the pool exists.
    pub fn order_of_pool(&self, namespace: u16, name: &[u8]) -> Option<PoolOrder> {
        let known = self.keys.find(namespace, name, self.hash(namespace, name));
        self.pool_at(known).map(Pool::order)
    }

    /// Answers with the state of a pool.
    pub fn describe_pool(&self, caller: &Caller, name: &[u8], effects: &mut impl Effects) {
        let entry = self.keys.find(caller.namespace, name, self.hash(caller.namespace, name));
        let unknown = || PoolStatus { fence: self.keys.floor(), ..PoolStatus::default() };
        let status = if entry.is_none() { unknown() } else { self.pool_status(caller.lane, entry) };
        effects.answer(caller.ticket, Answer::PoolDescribed(Box::new(status)));
    }

    /// Sets the capacity of a pool, and keeps the pool even without claims. Holders keep their permits; waiters that
    /// ask for more than the capacity are refused. Capacity 0 removes a pool that has no claims.
    pub fn set_capacity(
        &mut self,
        caller: &Caller,
        name: &[u8],
        capacity: u64,
        order: PoolOrder,
        effects: &mut impl Effects,
    ) {
        if capacity == 0 {
            return self.remove_pool(caller, name, effects);
        }
        let answer = match self.try_set_capacity(caller, name, capacity, order) {
            Ok((entry, previous)) => {
                if self.log_state != LogState::Absent {
                    let by_timestamp = order == PoolOrder::Timestamp;
                    let namespace = caller.namespace;
                    self.record(&Record::PoolSet { namespace, capacity, by_timestamp, name }, effects);
                }
                self.answer_durably(caller.ticket, Answer::CapacitySet { previous }, effects);
                return self.go_on_with_pool(entry, effects);
            }
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    fn try_set_capacity(
        &mut self,
        caller: &Caller,
        name: &[u8],
        capacity: u64,
        order: PoolOrder,
    ) -> Result<(KeyIx, u64), Refusal> {
        let hash = self.hash(caller.namespace, name);
        let known = self.keys.find(caller.namespace, name, hash);
        let limit = self.limits.set_pool_count_max;
        if !self.pool_at(known).is_some_and(Pool::is_set) {
            if let Some(value) = self.full_memory {
                return Err(Refusal::Overloaded { limit: "bytes of memory", value });
            }
            if self.set_pool_count >= limit {
                let value = u64::from(limit);
                return Err(Refusal::Overloaded { limit: "pools per shard with a set capacity", value });
            }
        }
        let previous = self.pool_at(known).map_or(0, Pool::capacity);
        if let Some(pool) = self.pool_at(known) {
            checked_order(pool, order)?;
        }
        let entry = self.pool_entry(caller.namespace, name, hash, known, capacity, order);
        self.set_capacity_of(entry, capacity);
        Ok((entry, previous))
    }

    pub(super) fn set_capacity_of(&mut self, entry: KeyIx, capacity: u64) {
        let pool = &mut self.pools[self.keys.entries[entry].pool()].pool;
        self.set_pool_count += u32::from(!pool.is_set());
        pool.set_capacity(capacity);
    }

    /// Removes a pool that has no claims. A pool in use is refused. The log has only capacities of pools and of holds,
    /// so a restart could not restore the last capacity of a pool in use.
    fn remove_pool(&mut self, caller: &Caller, name: &[u8], effects: &mut impl Effects) {
        let known = self.keys.find(caller.namespace, name, self.hash(caller.namespace, name));
        let Some(pool) = self.pool_at(known) else {
            return self.answer_durably(caller.ticket, Answer::CapacitySet { previous: 0 }, effects);
        };
        let (previous, space) = (pool.capacity(), self.keys.entries[known].pool());
        if pool.is_in_use() || self.pools[space].working != 0 {
            let busy = Refusal::Busy(Box::new(self.contention(caller.lane, known, false)));
            return effects.answer(caller.ticket, Answer::Refused(busy));
        }
        self.pools[space].pool.unset();
        self.set_pool_count -= 1;
        self.forget_unused_pool(known);
        if self.log_state != LogState::Absent {
            let namespace = caller.namespace;
            self.record(&Record::PoolSet { namespace, capacity: 0, by_timestamp: false, name }, effects);
        }
        self.answer_durably(caller.ticket, Answer::CapacitySet { previous }, effects);
    }

    /// Removes a pool without claims and without a set capacity.
    fn forget_unused_pool(&mut self, entry: KeyIx) {
        let space = self.keys.entries[entry].pool();
        if self.pools[space].pool.is_unused() && self.pools[space].working == 0 {
            self.keys.entries[entry].end_pool();
            self.keys.become_idle(entry);
            // Listings visit all spaces, including released ones.
            self.pools[space].entry = KeyIx::NONE;
            self.pools.release(space);
        }
    }

    /// Checks the number of pools, and the number of pools with a set capacity. For tests.
    pub(super) fn verify_pool_counts(&self) {
        let listed_count = self.pools.handles().filter(|space| self.pools[*space].entry.is_some()).count();
        assert_eq!(listed_count, self.pools.live_count() as usize, "spaces that have a pool");
        let is_set = |entry: &KeyIx| self.pool_at(*entry).is_some_and(Pool::is_set);
        let count = self.keys.entries.handles().filter(is_set).count();
        assert_eq!(count, self.set_pool_count as usize, "pools whose capacity was set");
    }

    /// Returns the capacity of a pool, and whether it serves its waiters in the order of timestamps.
    pub(super) fn pool_terms(&self, entry: KeyIx) -> (u64, bool) {
        let pool = &self.pools[self.keys.entries[entry].pool()].pool;
        (pool.capacity(), pool.order() == PoolOrder::Timestamp)
    }

    /// Returns the terms of a pool with a set capacity, or `None` for other pools.
    pub(super) fn set_pool_terms(&self, entry: KeyIx) -> Option<(u64, bool)> {
        let pool = &self.pools[self.keys.entries[entry].pool()].pool;
        pool.is_set().then(|| self.pool_terms(entry))
    }

    fn decide_permits(
        &mut self,
        caller: &Caller,
        acquire: &AcquirePermits<'_>,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        let AcquirePermits { permits, options, .. } = acquire;
        if options.priority != 0 {
            return Err(Refusal::bad_input("priority", 0, "must be 0: the order of a pool is fixed"));
        }
        let (lease_ms, clamped) =
            self.checked_terms(acquire.lease_ms, acquire.session_lease, options.scope)?;
        let hash = self.hash(caller.namespace, acquire.name);
        let known = self.keys.find(caller.namespace, acquire.name, hash);
        if let Some(request_id) = options.request_id {
            let owner = options.owner.unwrap_or(&self.lanes.lanes[caller.lane].owner);
            if let Some(claim) = self.find_request_id(caller.lane, known, owner, request_id, None) {
                if self.permits_of(claim) != *permits {
                    let message = "the request id belongs to a claim for another number of permits";
                    return Err(Refusal::bad_input("request_id", 0, message));
                }
                let asked = (false, acquire.session_lease, acquire.notify_queued);
                return self.acquire_again(caller, asked, claim, effects);
            }
        }
        let capacity = self.checked_pool(known, acquire)?;
        self.may_grant()?;
        self.has_room(caller.lane, || NewClaims::of_key(acquire.name).and(options.len()))?;
        self.may_count(known, options.scope)?;
        let order = OrderKey {
            rank: i64::try_from(acquire.timestamp_us).unwrap_or(i64::MAX),
            arrival: self.arrivals,
        };
        let fits = self.pool_at(known).is_none_or(|pool| {
            // A try has no queue position, so it must not overtake any waiter.
            let overtakes = acquire.wait_ms == 0 && pool.waiter_count() > 0;
            !overtakes && pool.fits_newcomer(key_of(pool, order), *permits)
        });
        let frozen = self.meets_freeze(caller, acquire.name);
        let waits = !fits || frozen;
        let mut depth = 0;
        if waits {
            if acquire.wait_ms == 0 {
                return Err(if fits {
                    Refusal::Frozen
                } else {
                    Refusal::Busy(Box::new(self.contention(caller.lane, known, false)))
                });
            }
            depth = self.has_room_for_waiter(caller.lane, known)?;
        }
        let links = acquire.session_lease
            || options.release_after_ms.is_some()
            || self.is_reserved_first(known, options.scope);
        if links || waits {
            self.has_room_on_lane(caller.lane, 1)?;
        }
        let entry = self.pool_entry(caller.namespace, acquire.name, hash, known, capacity, acquire.order);
        let space = self.keys.entries[entry].pool();
        let lease = LeaseKind::of_session(acquire.session_lease);
        let properties = Properties::new(lease, clamped, options.scope);
        let claim = self.new_claim(caller.lane, entry, State::Waiting, properties);
        self.note_options(claim, caller.ticket.number, lease_ms, options, order, links || waits);
        self.detail_mut(claim).extra = Extra::Permits(*permits);
        if !waits {
            self.hold_permits(space, claim, *permits);
            return Ok(self.begin(claim, lease_ms, acquire.wait_ms, effects));
        }
        let key = key_of(&self.pools[space].pool, order);
        let position = self.pools[space].pool.position_of(key, POSITION_COUNT_MAX);
        self.pools[space].pool.wait(key, claim, *permits);
        self.counters_of(caller.namespace).waiting += 1;
        self.count_waiter(claim);
        self.wait_until(claim, acquire.wait_ms);
        effects.waits(caller.ticket);
        effects.measure(Measure::Queued { depth });
        self.note_wait(claim);
        if acquire.notify_queued {
            self.queued_event(claim, position, effects);
        }
        Ok(None)
    }

    /// Returns the capacity of the requested pool. Refuses a request that contradicts it.
    fn checked_pool(&self, known: KeyIx, acquire: &AcquirePermits<'_>) -> Result<u64, Refusal> {
        if let Some(capacity) = acquire.capacity {
            checked_capacity(capacity)?;
        }
        let capacity = match (self.pool_at(known), acquire.capacity) {
            (Some(pool), asked) => {
                if asked.is_some_and(|asked| asked != pool.capacity()) {
                    return Err(Refusal::CapacityMismatch { capacity: pool.capacity() });
                }
                checked_order(pool, acquire.order)?;
                pool.capacity()
            }
            (None, Some(capacity)) => capacity,
            (None, None) => {
                let message = "the pool does not exist yet, so the request must set a capacity";
                return Err(Refusal::bad_input("capacity", 0, message));
            }
        };
        Pool::new(capacity, acquire.order).check(acquire.permits)?;
        Ok(capacity)
    }

    pub(super) fn pool_at(&self, entry: KeyIx) -> Option<&Pool> {
        let entry = self.keys.entries.get(entry).filter(|entry| entry.has(entry::flag::POOL))?;
        Some(&self.pools[entry.pool()].pool)
    }

    /// Returns the key record of a pool. Creates the pool if it is new.
    pub(super) fn pool_entry(
        &mut self,
        namespace: u16,
        name: &[u8],
        hash: u64,
        known: KeyIx,
        capacity: u64,
        order: PoolOrder,
    ) -> KeyIx {
        let entry = if known.is_none() { self.insert_key(namespace, name, hash) } else { known };
        if self.keys.entries[entry].is_free() {
            let space = self.pools.allocate();
            self.pools[space] = PoolSpace { entry, pool: Pool::new(capacity, order), ..PoolSpace::default() };
            self.keys.entries[entry].set_pool(space);
            self.keys.leave_idle();
        }
        entry
    }

    pub(super) fn hold_permits(&mut self, space: PoolIx, claim: ClaimIx, permits: u64) {
        self.pools[space].pool.hold(permits);
        self.pools[space].holders.push_back(&mut self.claims, claim);
    }

    /// Updates the count of reserved holders of a pool.
    pub(super) fn count_reserved_permits(&mut self, claim: ClaimIx, is_reserved: bool) {
        let permits = self.permits_of(claim);
        let space = &mut self.pools[self.keys.entries[self.claims[claim].entry].pool()];
        if is_reserved {
            space.reserved_count += 1;
            space.reserved_permits += permits;
        } else {
            space.reserved_count -= 1;
            space.reserved_permits -= permits;
        }
    }

    fn permits_of(&self, claim: ClaimIx) -> u64 {
        self.details[self.claims[claim].detail].permits().unwrap_or(0)
    }

    fn pool_key_of(&self, claim: ClaimIx) -> PoolKey {
        let pool = &self.pools[self.keys.entries[self.claims[claim].entry].pool()].pool;
        key_of(pool, self.details[self.claims[claim].detail].order)
    }

    /// Ends a hold of permits, and grants the waiters that fit now.
    pub(super) fn end_permits(&mut self, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let (space, permits) = (self.keys.entries[entry].pool(), self.permits_of(claim));
        self.pools[space].pool.end_hold(permits);
        self.pools[space].freed_at = FreedAt::at(self.cause);
        self.pools[space].holders.remove(&mut self.claims, claim);
        self.free_claim(claim);
        self.grant_permits(entry, effects);
    }

    /// Ends a wait for permits, and grants the waiters that it blocked.
    pub(super) fn end_permits_wait(&mut self, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        self.leave_pool(claim);
        self.free_claim(claim);
        self.grant_permits(entry, effects);
    }

    fn leave_pool(&mut self, claim: ClaimIx) {
        let (space, key) = (self.keys.entries[self.claims[claim].entry].pool(), self.pool_key_of(claim));
        self.stop_waiting(claim);
        self.pools[space].pool.remove_waiter(key);
    }

    /// Grants the first waiters of the pool that fit, within the budget of steps. Removes the pool if it has neither
    /// claims nor a set capacity.
    pub(super) fn grant_permits(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].pool();
        if !self.is_entry_frozen(entry) {
            while let Some(first) = self.pools[space].pool.first_that_fits() {
                if !self.steps.take() {
                    return self.work.push_grant(entry, &mut self.pools[space].working);
                }
                let may_begin = self.may_begin(first.claim, effects);
                self.leave_pool(first.claim);
                if may_begin {
                    self.hold_permits(space, first.claim, first.permits);
                    self.begin_hold(first.claim, self.pools[space].freed_at, effects);
                } else {
                    self.free_claim(first.claim);
                }
            }
        }
        self.pools[space].freed_at = FreedAt::NEVER;
        self.forget_unused_pool(entry);
    }

    /// Refuses the waiters that exceed a lowered capacity, within the budget of steps, and then grants. The refusals
    /// must come first, because such waiters would block the waiters behind them.
    pub(super) fn go_on_with_pool(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].pool();
        let capacity = self.pools[space].pool.capacity();
        loop {
            let too_big = self.pools[space].pool.next_too_big();
            if too_big == TooBig::None {
                break;
            }
            if !self.steps.take() {
                return self.work.push_grant(entry, &mut self.pools[space].working);
            }
            if let TooBig::Found(waiter) = too_big {
                let message = "the pool has fewer permits than the claim asks for";
                let refusal = Refusal::bad_input("permits", capacity, message);
                effects.answer_waiter(self.ticket(waiter.claim), Answer::Refused(refusal));
                self.leave_pool(waiter.claim);
                self.free_claim(waiter.claim);
            }
        }
        self.grant_permits(entry, effects);
    }

    /// Returns the claims that wait for permits, in the order in which they are served.
    pub(super) fn pool_waiters(&self, entry: KeyIx) -> impl Iterator<Item = ClaimIx> {
        self.pools[self.keys.entries[entry].pool()].pool.waiters().map(|waiter| waiter.claim)
    }

    /// Returns the number of claims that wait for permits of a pool.
    pub(super) fn pool_waiter_count(&self, entry: KeyIx) -> u32 {
        self.pools[self.keys.entries[entry].pool()].pool.waiter_count() as u32
    }

    /// Returns the claim that blocks a claim for permits: the first waiter, otherwise the first holder.
    pub(super) fn in_front_of_pool(&self, entry: KeyIx) -> ClaimIx {
        let space = &self.pools[self.keys.entries[entry].pool()];
        space.pool.waiters().next().map_or(space.holders.first, |waiter| waiter.claim)
    }

    /// Whether the newest grant of a pool has this fence and is still held.
    pub(super) fn is_permit_fence_held(&self, space: PoolIx, fence: u64) -> bool {
        let last = self.pools[space].holders.last;
        last.is_some() && self.claims[last].fence == fence && self.claims[last].is_held()
    }

    /// Returns the first holder of a pool, or `NONE`.
    pub(super) fn first_permit_holder(&self, space: PoolIx) -> ClaimIx {
        self.pools[space].holders.first
    }

    /// Returns the number of waiters before a claim that waits for permits.
    pub(super) fn position_in_pool(&self, claim: ClaimIx) -> usize {
        let space = self.keys.entries[self.claims[claim].entry].pool();
        self.pools[space].pool.position_of(self.pool_key_of(claim), POSITION_COUNT_MAX)
    }

    fn pool_status(&self, lane: LaneIx, entry: KeyIx) -> PoolStatus {
        let record = &self.keys.entries[entry];
        if record.kind() != Kind::Pool {
            return PoolStatus { fence: record.fence, ..PoolStatus::default() };
        }
        let numbers = self.pool_numbers(entry);
        let PoolSpace { pool, holders, .. } = &self.pools[record.pool()];
        let shown = self.shown_holders(holders.first, numbers.holder_count);
        PoolStatus {
            holders: shown.map(|claim| self.permit_holder(lane, claim)).collect(),
            waiters: pool
                .waiters()
                .take(INSPECT_HOLDER_COUNT_MAX)
                .map(|waiter| self.permit_holder(lane, waiter.claim))
                .collect(),
            ..numbers
        }
    }

    /// Returns the state of a pool without the lists of holders and waiters.
    pub(super) fn pool_numbers(&self, entry: KeyIx) -> PoolStatus {
        let record = &self.keys.entries[entry];
        let PoolSpace { pool, holders, reserved_count, reserved_permits, .. } = &self.pools[record.pool()];
        PoolStatus {
            capacity: pool.capacity(),
            held: pool.held() - reserved_permits,
            fence: record.fence,
            by_timestamp: pool.order() == PoolOrder::Timestamp,
            is_set: pool.is_set(),
            holder_count: holders.count - reserved_count,
            waiter_count: pool.waiter_count() as u32,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }

    fn permit_holder(&self, lane: LaneIx, index: ClaimIx) -> PermitHolder {
        let claim = &self.claims[index];
        let detail = &self.details[claim.detail];
        let is_known = self.may(lane, index, Rights::INSPECT);
        PermitHolder {
            id: if is_known { self.id(index) } else { ClaimId::default() },
            permits: self.permits_of(index),
            fence: claim.fence,
            ticket: detail.order.arrival,
            age_ms: self.age_ms(claim),
            remaining_ms: self.shown_remaining_ms(index),
            owner: self.owner_if(is_known, index),
        }
    }

    pub(super) fn verify_pool(&self, entry: KeyIx) {
        let PoolSpace {
            entry: own_entry,
            pool,
            holders,
            reserved_count,
            reserved_permits,
            working,
            freed_at: _,
        } = &self.pools[self.keys.entries[entry].pool()];
        assert_eq!(*own_entry, entry, "entry of pool {entry}");
        let step = |claim: &ClaimIx| Some(self.claims[*claim].position.next()).filter(|next| next.is_some());
        let first = Some(holders.first).filter(|first| first.is_some());
        let claims: Vec<ClaimIx> = std::iter::successors(first, step).collect();
        assert_eq!(claims.len() as u32, holders.count, "holders of pool {entry}");
        let held: u64 = claims.iter().map(|claim| self.permits_of(*claim)).sum();
        assert_eq!(held, pool.held(), "permits held of pool {entry}");
        let reserved = claims.iter().filter(|claim| self.claims[**claim].is_reserved());
        let permits = reserved.clone().map(|claim| self.permits_of(*claim)).sum::<u64>();
        let counted = (reserved.count() as u32, permits);
        assert_eq!(counted, (*reserved_count, *reserved_permits), "reserved holders of pool {entry}");
        for waiter in pool.waiters() {
            self.verify_waiter(waiter.claim);
            assert_eq!(self.permits_of(waiter.claim), waiter.permits, "permits of waiter {}", waiter.claim);
            assert_eq!(self.pool_key_of(waiter.claim), waiter.key, "place of waiter {}", waiter.claim);
        }
        let pending =
            self.is_work_pending(entry, *working) || self.is_thawing() || self.is_entry_frozen(entry);
        assert!(pending || pool.first_that_fits().is_none(), "the first waiter of pool {entry} fits");
        assert!(pending || !pool.is_unused(), "pool {entry} is unused and no work removes it");
    }
}

fn key_of(pool: &Pool, order: OrderKey) -> PoolKey {
    pool.key(u64::try_from(order.rank).unwrap_or(0), order.arrival)
}

fn checked_capacity(capacity: u64) -> Result<(), Refusal> {
    if capacity > 0 { Ok(()) } else { Err(Refusal::bad_input("capacity", 1, "must be at least 1")) }
}

fn checked_order(pool: &Pool, order: PoolOrder) -> Result<(), Refusal> {
    if pool.order() == order {
        return Ok(());
    }
    let message = match pool.order() {
        PoolOrder::Arrival => "the pool grants permits in order of arrival",
        PoolOrder::Timestamp => "the pool grants permits in order of timestamps",
    };
    Err(Refusal::bad_input("order", 0, message))
}
