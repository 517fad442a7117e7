//! Acquires of permits.

use super::{checked_order, key_of};
use crate::claim::{Extra, LeaseKind, OrderKey, Properties, State};
use crate::effect::{Answer, Effects, Grant, Refusal};
use crate::handle::KeyIx;
use crate::limits::POSITION_COUNT_MAX;
use crate::measure::Measure;
use crate::pool::{Pool, PoolOrder};
use crate::shard::durability::answer_grant;
use crate::shard::quota::NewClaims;
use crate::shard::{AcquireOptions, Caller, Shard};

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
                    Refusal::Busy(Box::new(self.pool_contention(caller.lane, known)))
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
}

fn checked_capacity(capacity: u64) -> Result<(), Refusal> {
    if capacity > 0 { Ok(()) } else { Err(Refusal::bad_input("capacity", 1, "must be at least 1")) }
}
