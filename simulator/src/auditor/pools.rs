//! Rules about permits: the held permits never exceed the capacity, and the capacity is a requested one.

use super::Auditor;
use super::keys::KeyHistory;
use crate::form::{Form, Permits};
use crate::key::Key;
use crate::operation::Acquire;
use std::collections::BTreeMap;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, LockId, PoolDescribed, PoolOrder};

/// Requested capacities of pools.
#[derive(Debug, Default)]
pub(crate) struct PoolRecords {
    /// Capacities that acquires named, with the time of the first such acquire.
    named: BTreeMap<(Key, u64), u64>,
    /// Capacities that operators set.
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

    /// Records that the server has lost the capacities that operators set.
    pub(super) fn forget_sets(&mut self) {
        self.sets.iter_mut().for_each(|set| set.answered_ms = None);
    }

    /// Records that a capacity may be set once more, and replace a later one.
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

    /// Returns whether an operator had set the capacity by `at_ms`. Acquires do not change it then.
    pub(super) fn is_set_before(&self, pool: Key, at_ms: u64) -> bool {
        self.sets
            .iter()
            .any(|set| set.pool == pool && set.answered_ms.is_some_and(|answered| answered < at_ms))
    }

    /// Returns all capacities that the pool may have had between the two instants.
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
    /// Rule `number`: CAPACITY_SET reports a capacity that the pool may have had before.
    pub(super) fn judge_previous_capacity(&mut self, request: usize, pool: Key, previous: u64, now_ms: u64) {
        let sent_ms = self.requests[request].first_sent_ms;
        let possible = self.pools.possible(pool, sent_ms, now_ms);
        if previous > 0 && !possible.contains(&previous) {
            self.accuse("number", || {
                format!(
                    "pool {pool} is reported with a previous capacity of {previous}, but only {possible:?} are possible"
                )
            });
        }
    }

    pub(super) fn judge_capacity_set(&mut self, request: usize, now_ms: u64) {
        self.pools.note_answered(request, now_ms);
    }

    /// Rule `capacity` for each grant of a pool from this fence on: together with all permits surely held
    /// then, it is within the capacity.
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
                        "pool {pool}: {id} got {wanted} permits at {stamp_ms} ms while {held_then} were held, but the capacity is {capacity}"
                    )
                });
            }
        }
    }

    /// Returns whether the server had a reason for this error to an acquire of permits.
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
            // The pool does not exist.
            ErrorCode::BadInput if field == b"capacity" => {
                permits.capacity.is_none() && !self.pools.is_set_before(acquire.key, sent_ms)
            }
            ErrorCode::BadInput => acquire.request_id.is_some() && field == b"request_id",
            _ => false,
        }
    }

    /// Rule `view` and others for DESCRIBE_POOL: the sum of permits, the fence, the order of waiters and the
    /// holds are right.
    pub(super) fn judge_description(
        &mut self,
        request: usize,
        pool: Key,
        described: &PoolDescribed<'_>,
        now_ms: u64,
    ) {
        let record = &self.requests[request];
        let (sent_ms, fence_before) = (record.first_sent_ms, record.fence_before);
        let all_shown = described.holder_count as usize == described.holders.len();
        let held: u64 = described.holders.iter().map(|holder| holder.permits).sum();
        let shown: Vec<LockId> = described.holders.iter().map(|holder| holder.id).collect();
        let keeps_order = described.order == PoolOrder::Timestamp
            || described.waiters.is_sorted_by_key(|waiter| waiter.ticket);
        let is_too_low = described.fence < fence_before;
        if all_shown && held != described.held || is_too_low || !keeps_order {
            self.accuse("view", || {
                format!(
                    "pool {pool} is shown with a wrong sum of permits, an unordered queue, or a fence below {fence_before}, which was known before: {described:?}"
                )
            });
        }
        // If the server never postpones work and freezes nothing, no waiter waits for free permits. Permits
        // that are not durable yet are taken but not shown.
        let is_prompt = self.settings.limits.work_per_turn >= 1024
            && !self.may_be_frozen(pool, sent_ms, now_ms)
            && self.is_prompt(pool);
        if let Some(first) = described.waiters.first().filter(|_| is_prompt)
            && described.held + first.permits <= described.capacity
        {
            self.accuse("view", || {
                format!(
                    "pool {pool} has enough free permits for its first waiter, but does not grant them: {described:?}"
                )
            });
        }
        self.judge_described_numbers(request, pool, described, now_ms);
        self.judge_shown(&shown, sent_ms);
        self.judge_overdue(&shown, sent_ms);
        self.judge_missing(pool, (fence_before, sent_ms), &shown, all_shown, now_ms);
    }
}
