//! Responses with the state of a pool.

use super::PoolSpace;
use crate::access::Rights;
use crate::effect::{Answer, Effects, PermitHolder, PoolStatus};
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::ClaimId;
use crate::limits::INSPECT_HOLDER_COUNT_MAX;
use crate::pool::PoolOrder;
use crate::shard::{Caller, Shard};

impl Shard {
    /// Answers with the state of a pool.
    pub fn describe_pool(&self, caller: &Caller, name: &[u8], effects: &mut impl Effects) {
        let entry = self.keys.find(caller.namespace, name, self.hash(caller.namespace, name));
        let unknown = || PoolStatus { fence: self.keys.floor(), ..PoolStatus::default() };
        let status = if entry.is_none() { unknown() } else { self.pool_status(caller.lane, entry) };
        effects.answer(caller.ticket, Answer::PoolDescribed(Box::new(status)));
    }

    fn pool_status(&self, lane: LaneIx, entry: KeyIx) -> PoolStatus {
        let record = &self.keys.entries[entry];
        if self.pool_at(entry).is_none() {
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
}
