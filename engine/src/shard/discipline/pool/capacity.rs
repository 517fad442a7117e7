//! Capacities of pools, and pools that exist because their capacity was set.

use super::checked_order;
use crate::effect::{Answer, Effects, LogState, Refusal};
use crate::handle::KeyIx;
use crate::pool::{Pool, PoolOrder, TooBig};
use crate::shard::{Caller, Shard};
use waymaker_log::Record;

impl Shard {
    /// Sets the capacity of a pool, which it creates if there is none, and keeps the pool even without claims. Holders
    /// keep their permits; waiters that ask for more than the capacity are refused. Capacity 0 removes a pool that has
    /// no claims and no work left for later turns.
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

    pub(in crate::shard) fn set_capacity_of(&mut self, entry: KeyIx, capacity: u64) {
        let pool = &mut self.pools[self.keys.entries[entry].pool()].pool;
        self.set_pool_count += u32::from(!pool.is_set());
        pool.set_capacity(capacity);
    }

    /// Removes a pool that has no claims and no work left for later turns. The removal of any other pool is refused.
    /// Otherwise a restart would restore its capacity from the log records of its holds, and these records may contain
    /// an older capacity.
    fn remove_pool(&mut self, caller: &Caller, name: &[u8], effects: &mut impl Effects) {
        let known = self.keys.find(caller.namespace, name, self.hash(caller.namespace, name));
        let Some(pool) = self.pool_at(known) else {
            return self.answer_durably(caller.ticket, Answer::CapacitySet { previous: 0 }, effects);
        };
        let (previous, space) = (pool.capacity(), self.keys.entries[known].pool());
        if pool.is_in_use() || self.pools[space].working != 0 {
            let busy = Refusal::Busy(Box::new(self.pool_contention(caller.lane, known)));
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

    /// Refuses the waiters that exceed a lowered capacity, within the budget of steps, and then grants. The refusals
    /// must come first, because such waiters would block the waiters behind them.
    pub(in crate::shard) fn go_on_with_pool(&mut self, entry: KeyIx, effects: &mut impl Effects) {
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

    /// Returns the capacity of a pool, and whether it serves its waiters in the order of timestamps.
    pub(super) fn pool_terms(&self, entry: KeyIx) -> (u64, bool) {
        let pool = &self.pools[self.keys.entries[entry].pool()].pool;
        (pool.capacity(), pool.order() == PoolOrder::Timestamp)
    }

    /// Returns the capacity of a pool, and whether the pool serves its waiters in the order of timestamps. Returns
    /// `None` if the key has no pool, or if no request has set the capacity of the pool explicitly.
    pub(in crate::shard) fn set_pool_terms(&self, entry: KeyIx) -> Option<(u64, bool)> {
        self.pool_at(entry).filter(|pool| pool.is_set()).map(|_| self.pool_terms(entry))
    }

    /// Checks that each pool in use belongs to a key record, and that `set_pool_count` is the number of pools whose
    /// capacity a request has set. For tests.
    pub(in crate::shard) fn verify_pool_counts(&self) {
        let listed_count = self.pools.handles().filter(|space| self.pools[*space].entry.is_some()).count();
        assert_eq!(listed_count, self.pools.live_count() as usize, "spaces that have a pool");
        let is_set = |entry: &KeyIx| self.pool_at(*entry).is_some_and(Pool::is_set);
        let count = self.keys.entries.handles().filter(is_set).count();
        assert_eq!(count, self.set_pool_count as usize, "pools whose capacity was set");
    }
}
