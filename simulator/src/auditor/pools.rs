//! Permits: never more than there are, and the capacity that was named.

use super::Auditor;
use super::keys::KeyHistory;
use crate::form::{Form, Permits};
use crate::operation::{Acquire, Key};
use std::collections::BTreeMap;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, LockId, PoolDescribed, PoolOrder};

/// What was asked of the capacities of pools.
#[derive(Debug, Default)]
pub(crate) struct PoolRecords {
    /// What acquires named, and when first.
    named: BTreeMap<(Key, u64), u64>,
    /// What operators set.
    sets: Vec<CapacitySetting>,
}

#[derive(Clone, Copy, Debug)]
struct CapacitySetting {
    pool: Key,
    request: usize,
    capacity: u64,
    sent_ms: u64,
    answered_ms: Option<u64>,
}

impl PoolRecords {
    pub(super) fn note_named(&mut self, acquire: &Acquire, now_ms: u64) {
        if let Form::Permits(Permits { capacity: Some(capacity), .. }) = acquire.form {
            self.named.entry((acquire.key, capacity)).or_insert(now_ms);
        }
    }

    pub(super) fn note_set(&mut self, pool: Key, request: usize, capacity: u64, sent_ms: u64) {
        self.sets.push(CapacitySetting { pool, request, capacity, sent_ms, answered_ms: None });
    }

    /// The server has nothing any more of what operators set.
    pub(super) fn forget_sets(&mut self) {
        self.sets.iter_mut().for_each(|set| set.answered_ms = None);
    }

    /// A capacity that was set before may be set once more, and replace a later one.
    pub(super) fn note_set_anew(&mut self, request: usize) {
        if let Some(set) = self.sets.iter_mut().find(|set| set.request == request) {
            set.answered_ms = None;
        }
    }

    fn note_answered(&mut self, request: usize, now_ms: u64) {
        if let Some(set) = self.sets.iter_mut().find(|set| set.request == request) {
            set.answered_ms = Some(now_ms);
        }
    }

    /// An operator had set the capacity by then, so it stays whoever uses the pool.
    pub(super) fn is_set_before(&self, pool: Key, at_ms: u64) -> bool {
        self.sets
            .iter()
            .any(|set| set.pool == pool && set.answered_ms.is_some_and(|answered| answered < at_ms))
    }

    /// All capacities that the pool may have had at some time from the first instant to the second.
    pub(super) fn possible(&self, pool: Key, from_ms: u64, to_ms: u64) -> Vec<u64> {
        let named = self.named.iter().filter(|((other, _), sent_ms)| {
            *other == pool && **sent_ms <= to_ms && !self.is_set_before(pool, from_ms)
        });
        let is_superseded = |set: &CapacitySetting| {
            set.answered_ms.is_some_and(|answered_ms| {
                self.sets.iter().any(|later| {
                    later.pool == pool
                        && later.sent_ms > answered_ms
                        && later.answered_ms.is_some_and(|later_ms| later_ms < from_ms)
                })
            })
        };
        let sets = self.sets.iter().filter(|set| set.pool == pool && set.sent_ms <= to_ms);
        let sets = sets.filter(|set| !is_superseded(set)).map(|set| set.capacity);
        named.map(|((_, capacity), _)| *capacity).chain(sets).collect()
    }
}

impl Auditor {
    /// The capacity that a pool had before it was set.
    pub(super) fn judge_previous_capacity(&mut self, request: usize, pool: Key, previous: u64, now_ms: u64) {
        let sent_ms = self.requests[request].first_sent_ms;
        let possible = self.pools.possible(pool, sent_ms, now_ms);
        if previous > 0 && !possible.contains(&previous) {
            self.accuse("number", || {
                format!("pool {pool} had {previous} permits before, possible are {possible:?}")
            });
        }
    }

    pub(super) fn judge_capacity_set(&mut self, request: usize, now_ms: u64) {
        self.pools.note_answered(request, now_ms);
    }

    /// Judges each grant of a pool from this fence on: with all that were surely held then it had at most the capacity.
    pub(super) fn judge_permits(&mut self, pool: Key, from_fence: u64) {
        let permits_of = |form: &Form| if let Form::Permits(permits) = form { permits.permits } else { 0 };
        let newest = self.keys.get(&pool).map(KeyHistory::newest).unwrap_or_default();
        for (fence, grant) in newest.iter().filter(|(fence, _)| *fence >= from_fence) {
            let Some(stamp_ms) = grant.stamp_ms else { continue };
            let held_then: u64 = newest
                .iter()
                .filter(|(other, earlier)| other < fence && self.floor_ms(earlier.id) > stamp_ms)
                .map(|(_, earlier)| permits_of(&earlier.form))
                .sum();
            let wanted = permits_of(&grant.form);
            let decided_ms = if grant.is_prompt { stamp_ms } else { grant.asked_ms };
            let capacity = self.pools.possible(pool, decided_ms, stamp_ms).into_iter().max().unwrap_or(0);
            if held_then + wanted > capacity {
                let id = grant.id;
                return self.accuse("capacity", || {
                    format!(
                        "pool {pool}: {id} got {wanted} permits at {stamp_ms} beside {held_then}, of {capacity}"
                    )
                });
            }
        }
    }

    /// Whether an acquire of permits is refused for a reason.
    pub(super) fn is_pool_refusal_fair(
        &self,
        request: usize,
        acquire: &Acquire,
        error: &ErrorAnswer<'_>,
        now_ms: u64,
    ) -> bool {
        let Form::Permits(permits) = acquire.form else { return false };
        let sent_ms = self.requests[request].first_sent_ms;
        let ErrorDetail::Text { value, field, .. } = error.detail else { return false };
        let possible = self.pools.possible(acquire.key, sent_ms, now_ms);
        match error.code {
            ErrorCode::CapacityMismatch => {
                permits.capacity.is_some_and(|capacity| capacity != value) && possible.contains(&value)
            }
            ErrorCode::BadInput if field == b"permits" => {
                possible.iter().any(|capacity| *capacity < permits.permits)
            }
            // There is no such pool.
            ErrorCode::BadInput if field == b"capacity" => {
                permits.capacity.is_none() && !self.pools.is_set_before(acquire.key, sent_ms)
            }
            ErrorCode::BadInput => acquire.request_id.is_some() && field == b"request_id",
            _ => false,
        }
    }

    /// What a pool shows of itself.
    pub(super) fn judge_description(
        &mut self,
        request: usize,
        pool: Key,
        described: &PoolDescribed<'_>,
        now_ms: u64,
    ) {
        let asked = &self.requests[request];
        let (sent_ms, fence_before) = (asked.first_sent_ms, asked.fence_before);
        let all_shown = described.holder_count as usize == described.holders.len();
        let held: u64 = described.holders.iter().map(|holder| holder.permits).sum();
        let shown: Vec<LockId> = described.holders.iter().map(|holder| holder.id).collect();
        let keeps_order = described.order == PoolOrder::Timestamp
            || described.waiters.is_sorted_by_key(|waiter| waiter.ticket);
        let is_too_low = described.fence < fence_before;
        if all_shown && held != described.held || is_too_low || !keeps_order {
            self.accuse("view", || format!("pool {pool}, fence {fence_before} said: {described:?}"));
        }
        // Where no work is ever put off, and nobody freezes, nobody waits for permits that are there.
        // Permits that are not durable yet are taken, and not shown.
        let is_prompt = self.settings.limits.work_per_turn >= 1024
            && !self.may_be_frozen(pool, sent_ms, now_ms)
            && self.is_prompt(pool);
        if let Some(first) = described.waiters.first().filter(|_| is_prompt)
            && described.held + first.permits <= described.capacity
        {
            self.accuse("view", || format!("pool {pool}: the first waiter would fit: {described:?}"));
        }
        self.judge_described_numbers(request, pool, described, now_ms);
        self.judge_shown(&shown, sent_ms);
        self.judge_overdue(&shown, sent_ms);
        self.judge_missing(pool, (fence_before, sent_ms), &shown, all_shown, now_ms);
    }
}
