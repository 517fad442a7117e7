//! Permits of named pools.

mod acquire;
mod capacity;
mod list;
mod status;

pub use acquire::AcquirePermits;

use super::Discipline;
use super::flat::Flat;
use crate::access::{Access, Rights};
use crate::claim::{Detail, OrderKey};
use crate::effect::{Contention, Effects, KeyStatus, Refusal, Verified};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx, LaneIx, PoolIx};
use crate::ids::Fence;
use crate::limits::POSITION_COUNT_MAX;
use crate::list::ClaimList;
use crate::measure::FreedAt;
use crate::pool::{Pool, PoolKey, PoolOrder};
use crate::shard::Shard;
use waymaker_log::Item;

/// Pool with the holders of its permits.
#[derive(Debug)]
pub(in crate::shard) struct PoolSpace {
    /// Key record of the pool; `NONE` if this `PoolSpace` is not in use.
    pub(in crate::shard) entry: KeyIx,
    pool: Pool,
    holders: ClaimList,
    /// Number of reserved holders, whose fences are not durable yet. Responses do not show them.
    reserved_count: u32,
    /// Sum of the permits of reserved holders.
    reserved_permits: u64,
    /// Number of the work item that will continue in a later turn to grant permits, or to refuse waiters after the
    /// capacity was lowered; 0 if there is no such item.
    pub(in crate::shard) working: u64,
    /// Time at which a hold of permits last ended, until the grants that this allows are finished; otherwise `NEVER`.
    pub(in crate::shard) freed_at: FreedAt,
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

/// Discipline of pools.
pub(in crate::shard) struct Permits;

impl Discipline for Permits {
    fn end_hold(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let permits = shard.permits_of(claim);
        let freed_at = FreedAt::at(shard.cause);
        let space = &mut shard.pools[shard.keys.entries[entry].pool()];
        space.pool.end_hold(permits);
        space.freed_at = freed_at;
        space.holders.remove(&mut shard.claims, claim);
        shard.free_claim(claim);
        shard.grant_permits(entry, effects);
    }

    fn end_wait(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        shard.leave_pool(claim);
        shard.free_claim(claim);
        shard.grant_permits(entry, effects);
    }

    fn thaw(shard: &mut Shard, entry: KeyIx, effects: &mut impl Effects) {
        shard.grant_permits(entry, effects);
    }

    fn count_reserved(shard: &mut Shard, claim: ClaimIx, is_reserved: bool) {
        let permits = shard.permits_of(claim);
        let space = &mut shard.pools[shard.keys.entries[shard.claims[claim].entry].pool()];
        if is_reserved {
            space.reserved_count += 1;
            space.reserved_permits += permits;
        } else {
            space.reserved_count -= 1;
            space.reserved_permits -= permits;
        }
    }

    fn waiter_count(shard: &Shard, entry: KeyIx) -> u32 {
        shard.pools[shard.keys.entries[entry].pool()].pool.waiter_count() as u32
    }

    fn position_of(shard: &Shard, claim: ClaimIx) -> usize {
        let space = shard.keys.entries[shard.claims[claim].entry].pool();
        shard.pools[space].pool.position_of(shard.pool_key_of(claim), POSITION_COUNT_MAX)
    }

    fn blocker_of(shard: &Shard, claim: ClaimIx) -> ClaimIx {
        let entry = shard.claims[claim].entry;
        let in_front = shard.in_front_of_pool(entry);
        if in_front != claim {
            return in_front;
        }
        shard.pools[shard.keys.entries[entry].pool()].holders.first
    }

    fn shown_key(shard: &Shard, claim: ClaimIx) -> Vec<u8> {
        Flat::shown_key(shard, claim)
    }

    fn has_prefix(shard: &Shard, claim: ClaimIx, prefix: &[u8], looked: &mut u32) -> bool {
        Flat::has_prefix(shard, claim, prefix, looked)
    }

    fn is_covered(shard: &Shard, claim: ClaimIx, access: &Access, right: Rights) -> bool {
        Flat::is_covered(shard, claim, access, right)
    }

    /// Returns the fence only, because the state of a pool has a response of its own.
    fn status(shard: &Shard, _: LaneIx, entry: KeyIx, _: &[u8]) -> KeyStatus {
        KeyStatus { fence: shard.keys.entries[entry].fence, ..KeyStatus::default() }
    }

    fn verified(shard: &Shard, entry: KeyIx, _: &[u8], fence: Fence) -> Result<Verified, Refusal> {
        let newest_holder = shard.pools[shard.keys.entries[entry].pool()].holders.last;
        Ok(shard.verified_of_newest(entry, fence, newest_holder))
    }

    fn with_item(shard: &Shard, claim: ClaimIx, detail: &Detail, put: impl FnOnce(Item<'_>)) {
        let entry = shard.claims[claim].entry;
        let (capacity, by_timestamp) = shard.pool_terms(entry);
        let permits = detail.permits().unwrap_or(0);
        put(Item::Permits { permits, capacity, by_timestamp, name: shard.keys.key(entry) });
    }

    fn verify(shard: &Shard, entry: KeyIx, placed: &mut [u32]) {
        let PoolSpace {
            entry: own_entry,
            pool,
            holders,
            reserved_count,
            reserved_permits,
            working,
            freed_at: _,
        } = &shard.pools[shard.keys.entries[entry].pool()];
        assert_eq!(*own_entry, entry, "entry of pool {entry}");
        let step = |claim: &ClaimIx| Some(shard.claims[*claim].position.next()).filter(|next| next.is_some());
        let first = Some(holders.first).filter(|first| first.is_some());
        let claims: Vec<ClaimIx> = std::iter::successors(first, step).collect();
        assert_eq!(claims.len() as u32, holders.count, "holders of pool {entry}");
        let held: u64 = claims.iter().map(|claim| shard.permits_of(*claim)).sum();
        assert_eq!(held, pool.held(), "permits held of pool {entry}");
        let reserved = claims.iter().filter(|claim| shard.claims[**claim].is_reserved());
        let permits = reserved.clone().map(|claim| shard.permits_of(*claim)).sum::<u64>();
        let counted = (reserved.count() as u32, permits);
        assert_eq!(counted, (*reserved_count, *reserved_permits), "reserved holders of pool {entry}");
        for claim in &claims {
            placed[claim.at()] += 1;
            shard.verify_holder(entry, *claim);
        }
        for waiter in pool.waiters() {
            placed[waiter.claim.at()] += 1;
            shard.verify_waiter(waiter.claim);
            assert_eq!(shard.permits_of(waiter.claim), waiter.permits, "permits of waiter {}", waiter.claim);
            assert_eq!(shard.pool_key_of(waiter.claim), waiter.key, "place of waiter {}", waiter.claim);
        }
        let pending =
            shard.is_work_pending(entry, *working) || shard.is_thawing() || shard.is_entry_frozen(entry);
        assert!(pending || pool.first_that_fits().is_none(), "the first waiter of pool {entry} fits");
        assert!(pending || !pool.is_unused(), "pool {entry} is unused and no work removes it");
    }
}

impl Shard {
    /// Returns the order in which a pool serves its waiters, if the pool exists.
    pub fn order_of_pool(&self, namespace: u16, name: &[u8]) -> Option<PoolOrder> {
        let known = self.keys.find(namespace, name, self.hash(namespace, name));
        self.pool_at(known).map(Pool::order)
    }

    /// Removes a pool if it has no claims and no work that is left for later turns, and no request set its capacity
    /// explicitly.
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

    /// Returns the pool of a key record, or `None` if the record has no pool or `entry` is `NONE`.
    pub(in crate::shard) fn pool_at(&self, entry: KeyIx) -> Option<&Pool> {
        let entry = self.keys.entries.get(entry).filter(|entry| entry.has(entry::flag::POOL))?;
        Some(&self.pools[entry.pool()].pool)
    }

    /// Returns the key record of a pool. Creates the pool if it is new.
    pub(in crate::shard) fn pool_entry(
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

    pub(in crate::shard) fn hold_permits(&mut self, space: PoolIx, claim: ClaimIx, permits: u64) {
        self.pools[space].pool.hold(permits);
        self.pools[space].holders.push_back(&mut self.claims, claim);
    }

    fn permits_of(&self, claim: ClaimIx) -> u64 {
        self.details[self.claims[claim].detail].permits().unwrap_or(0)
    }

    fn pool_key_of(&self, claim: ClaimIx) -> PoolKey {
        let pool = &self.pools[self.keys.entries[self.claims[claim].entry].pool()].pool;
        key_of(pool, self.details[self.claims[claim].detail].order)
    }

    fn leave_pool(&mut self, claim: ClaimIx) {
        let (space, key) = (self.keys.entries[self.claims[claim].entry].pool(), self.pool_key_of(claim));
        self.stop_waiting(claim);
        self.pools[space].pool.remove_waiter(key);
    }

    /// Grants the first waiters of the pool that fit, within the budget of steps, unless the pool is frozen. Removes a
    /// waiter that may not be granted any more, for example because its connection was lost. Removes the pool if it has
    /// no claims and no request set its capacity explicitly.
    fn grant_permits(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].pool();
        if !self.is_entry_frozen(entry) {
            while let Some(first) = self.pools[space].pool.first_that_fits() {
                if !self.steps.take() {
                    return self.work.push_grant(entry, &mut self.pools[space].working);
                }
                // `may_begin` must run before the claim leaves the waiters. If it refuses the claim with `Timeout`, the
                // refusal contains the number of other waiters: all waiters minus this one.
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

    /// Returns the claims that wait for permits, in the order in which they are served.
    pub(in crate::shard) fn pool_waiters(&self, entry: KeyIx) -> impl Iterator<Item = ClaimIx> {
        self.pools[self.keys.entries[entry].pool()].pool.waiters().map(|waiter| waiter.claim)
    }

    /// Returns the data about the claim that an acquire of permits reports as its blocker, as far as the lane may know
    /// them.
    fn pool_contention(&self, lane: LaneIx, entry: KeyIx) -> Contention {
        self.contention_with(lane, entry, self.in_front_of_pool(entry))
    }

    /// Returns the claim that blocks a claim for permits: the first waiter, otherwise the first holder. `NONE` if the
    /// pool has no claims.
    fn in_front_of_pool(&self, entry: KeyIx) -> ClaimIx {
        let space = &self.pools[self.keys.entries[entry].pool()];
        space.pool.waiters().next().map_or(space.holders.first, |waiter| waiter.claim)
    }
}

fn key_of(pool: &Pool, order: OrderKey) -> PoolKey {
    pool.key(u64::try_from(order.rank).unwrap_or(0), order.arrival)
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
