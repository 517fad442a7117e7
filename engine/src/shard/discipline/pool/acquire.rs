//! Acquires of permits.

use super::{checked_order, key_of};
use crate::claim::{Extra, LeaseKind, OrderKey, Properties};
use crate::effect::{Contention, Effects, Refusal};
use crate::handle::{ClaimIx, KeyIx};
use crate::limits::POSITION_COUNT_MAX;
use crate::pool::{Pool, PoolOrder};
use crate::shard::admission::Admission;
use crate::shard::{AcquireTerms, Caller, Shard};

/// Request for permits of one pool.
#[derive(Clone, Copy, Debug)]
pub struct AcquirePermits<'a> {
    /// Name of the pool, 1 to 1024 bytes.
    pub name: &'a [u8],
    /// Capacity of the pool, at least one. `None` accepts any capacity of an existing pool; a new pool needs a
    /// capacity.
    pub capacity: Option<u64>,
    /// Number of requested permits, at least one.
    pub permits: u64,
    /// Order in which the pool serves its waiters. For an existing pool, it must be the order of the pool.
    pub order: PoolOrder,
    /// Timestamp from the client in microseconds, by which its claim is queued. Unused if the pool serves in order of
    /// arrival.
    pub timestamp_us: u64,
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

impl Admission for AcquirePermits<'_> {
    fn key(&self) -> &[u8] {
        self.name
    }

    fn terms(&self) -> &AcquireTerms<'_> {
        &self.terms
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn properties(&self, clamped: bool) -> Properties {
        let lease = LeaseKind::of_session(self.terms.session_lease);
        Properties::new(lease, clamped, self.terms.scope())
    }

    fn check(&self, shard: &Shard, known: KeyIx) -> Result<(), Refusal> {
        shard.check_pool(known, self)
    }

    fn check_repeated(&self, shard: &Shard, claim: ClaimIx) -> Result<(), Refusal> {
        if shard.permits_of(claim) == self.permits {
            return Ok(());
        }
        let message = "the request id belongs to a claim for another number of permits";
        Err(Refusal::bad_input("request_id", 0, message))
    }

    fn order(&self, shard: &Shard) -> OrderKey {
        let rank = i64::try_from(self.timestamp_us).unwrap_or(i64::MAX);
        OrderKey { rank, arrival: shard.arrivals }
    }

    fn is_clear(&self, shard: &Shard, known: KeyIx, order: OrderKey) -> bool {
        shard.pool_at(known).is_none_or(|pool| {
            // An acquire that may not wait gets no queue position, so even an early timestamp must not move it before a
            // waiter.
            let overtakes = self.terms.wait_ms == 0 && pool.waiter_count() > 0;
            !overtakes && pool.fits_newcomer(key_of(pool, order), self.permits)
        })
    }

    fn contention(&self, shard: &Shard, caller: &Caller, known: KeyIx) -> Contention {
        shard.pool_contention(caller.lane, known)
    }

    fn entry(&self, shard: &mut Shard, namespace: u16, hash: u64, known: KeyIx) -> KeyIx {
        // An existing pool keeps its capacity.
        shard.pool_entry(namespace, self.name, hash, known, self.capacity.unwrap_or(0), self.order)
    }

    fn note(&self, shard: &mut Shard, claim: ClaimIx) {
        shard.detail_mut(claim).extra = Extra::Permits(self.permits);
    }

    fn join(&self, shard: &mut Shard, claim: ClaimIx) {
        let space = shard.keys.entries[shard.claims[claim].entry].pool();
        shard.hold_permits(space, claim, self.permits);
    }

    fn note_joined(&self, _: &mut Shard, _: ClaimIx, _: bool, _: &mut impl Effects) {}

    fn enqueue(&self, shard: &mut Shard, claim: ClaimIx) -> usize {
        let space = shard.keys.entries[shard.claims[claim].entry].pool();
        let key = shard.pool_key_of(claim);
        let position = shard.pools[space].pool.position_of(key, POSITION_COUNT_MAX);
        shard.pools[space].pool.wait(key, claim, self.permits);
        let namespace = shard.namespace_of(claim);
        shard.counters_of(namespace).waiting += 1;
        shard.count_waiter(claim);
        position
    }
}

impl Shard {
    /// Serves an acquire of permits. The claim is granted or refused, or the answer comes later: the claim waits, or
    /// its fence is not durable yet.
    pub fn acquire_permits(
        &mut self,
        caller: &Caller,
        acquire: &AcquirePermits<'_>,
        effects: &mut impl Effects,
    ) {
        let decided = if acquire.terms.options().priority == 0 {
            let hash = self.hash(caller.namespace, acquire.name);
            let known = self.keys.find(caller.namespace, acquire.name, hash);
            self.admit(caller, acquire, hash, known, effects)
        } else {
            Err(Refusal::bad_input("priority", 0, "must be 0: the order of a pool is fixed"))
        };
        self.answer_decided(caller, decided, effects);
    }

    /// Refuses a request whose capacity or order differs from that of its pool. Refuses 0 permits, and more permits
    /// than the capacity. Also refuses a capacity of 0, and a request without a capacity for a new pool.
    fn check_pool(&self, known: KeyIx, acquire: &AcquirePermits<'_>) -> Result<(), Refusal> {
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
        Pool::new(capacity, acquire.order).check(acquire.permits)
    }
}

fn checked_capacity(capacity: u64) -> Result<(), Refusal> {
    if capacity > 0 { Ok(()) } else { Err(Refusal::bad_input("capacity", 1, "must be at least 1")) }
}
