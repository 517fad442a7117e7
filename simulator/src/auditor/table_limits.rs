//! Rule `limit`: the server admits no claim beyond a limit, and refuses no claim below it.

use super::Auditor;
use crate::form::Form;
use crate::key::{Key, kind_of};
use crate::operation::{Acquire, Operation};
use waymaker_engine::Limits;
use waymaker_protocol::slot::slot_of_key;
use waymaker_protocol::{ErrorAnswer, ErrorDetail, NamespaceKind};
use waymaker_server::node::shard_count;

impl Auditor {
    /// Returns the shard of a key.
    pub(super) fn shard_of(&self, key: Key) -> u16 {
        let name = match kind_of(key) {
            NamespaceKind::Tree => NamespaceKind::Tree.name().as_bytes().to_vec(),
            _ => self.settings.name_of(key),
        };
        slot_of_key(&name) & (shard_count(self.settings.worker_count) - 1) as u16
    }

    /// Returns the maximum number of claims in one shard.
    fn claims_max(&self) -> u32 {
        self.share(self.settings.limits.claim_count_max)
    }

    /// Returns the share of a limit that each shard has.
    pub(super) fn share(&self, limit: u32) -> u32 {
        (limit / shard_count(self.settings.worker_count) as u32).max(1)
    }

    /// Rule `limit`: a claim waits or is granted only if no limit was surely reached before.
    pub(super) fn judge_limits(&mut self, request: usize, acquire: &Acquire, waits: bool, now_ms: u64) {
        // A request that takes over a claim needs no additional room.
        if !self.settings.is_tight || acquire.request_id.is_some() {
            return;
        }
        let sent_ms = self.requests[request].first_sent_ms;
        let Limits { waiter_count_per_key_max, linked_claim_count_per_lane_max, .. } = self.settings.limits;
        for (key, _) in acquire.keys().into_iter().filter(|_| waits) {
            let waiters = self.waiters(key, Some(request), sent_ms, now_ms);
            self.expect_at_least(waiters, u64::from(waiter_count_per_key_max) - 1, now_ms, || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, waits for key {key}, which already has the maximum of {waiter_count_per_key_max} waiters"
                )
            });
        }
        let linked_max = u64::from(linked_claim_count_per_lane_max);
        if waits || acquire.session_lease || acquire.release_after_ms.is_some() {
            let (held, waiters) = self.linked(request, acquire, sent_ms, now_ms);
            let most = linked_max.saturating_sub(1 + held);
            self.expect_at_least(waiters, most, now_ms, || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, was admitted with {held} linked holds and too many waiters on its lane; the maximum is {linked_max}"
                )
            });
            if held >= linked_max {
                self.accuse("limit", || {
                    format!(
                        "{acquire:?}, sent at {sent_ms} ms, was admitted with {held} linked holds on its lane; the maximum is {linked_max}"
                    )
                });
            }
        }
        let held = self.held_min(acquire, sent_ms, now_ms);
        if held >= u64::from(self.claims_max()) {
            self.accuse("limit", || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, was admitted although its shard already has {held} holds"
                )
            });
        }
    }

    /// Returns the number of holds in the shard of the key that are surely linked to the lane of a request, and
    /// the waiters there that have no unreported grant.
    fn linked(&self, request: usize, acquire: &Acquire, sent_ms: u64, now_ms: u64) -> (u64, Vec<usize>) {
        let lane = self.requests[request].lane;
        let shard = self.shard_of(acquire.key);
        let holds = self.holds.iter().filter(|(id, hold)| {
            hold.lane == lane
                && !hold.may_have_moved
                && (hold.session.is_some() || hold.release_after_ms.is_some())
                && hold.said_ms.max(hold.settled_ms) < sent_ms
                && self.shard_of(hold.key) == shard
                && self.surely_lives(**id, now_ms)
        });
        let waits = |other: &&usize| {
            let record = &self.requests[**other];
            let is_here = matches!(record.operation, Operation::Acquire(acquire) if self.shard_of(acquire.key) == shard);
            **other != request
                && record.lane == lane
                && is_here
                && self.seems_to_wait(**other, sent_ms, now_ms)
        };
        let waiters = self.lanes[lane].requests.values().filter(waits);
        (holds.count() as u64, waiters.copied().collect())
    }

    /// Returns the number of claims that are surely held in the shard of a key.
    fn held_min(&self, acquire: &Acquire, sent_ms: u64, now_ms: u64) -> u64 {
        let shard = self.shard_of(acquire.key);
        let holds = self.holds.iter().filter(|(id, hold)| {
            hold.said_ms < sent_ms && self.shard_of(hold.key) == shard && self.surely_lives(**id, now_ms)
        });
        holds.count() as u64
    }

    /// Returns whether an acquire may have reached the limit for which it was refused.
    pub(super) fn may_be_overloaded(
        &self,
        request: usize,
        acquire: &Acquire,
        error: &ErrorAnswer<'_>,
        now_ms: u64,
    ) -> bool {
        let ErrorDetail::Text { value, field, .. } = error.detail else { return false };
        let sent_ms = self.requests[request].first_sent_ms;
        let Limits { waiter_count_per_key_max, linked_claim_count_per_lane_max, .. } = self.settings.limits;
        match field {
            b"waiters per key" => {
                let may_be_full =
                    |(key, _): &(Key, bool)| self.waiters_max(*key, Some(request), sent_ms, now_ms) >= value;
                value == u64::from(waiter_count_per_key_max) && acquire.keys().iter().any(may_be_full)
            }
            b"claims per connection" => {
                let hanging_count =
                    if matches!(acquire.form, Form::Keys(_)) { acquire.keys().len() as u64 } else { 1 };
                value == u64::from(linked_claim_count_per_lane_max)
                    && self.linked_max(request, sent_ms) + hanging_count > value
            }
            b"claims per shard" => {
                value == u64::from(self.claims_max())
                    && self.claims_possible(sent_ms, now_ms) + acquire.keys().len() as u64 > value
            }
            _ => false,
        }
    }

    /// Returns the maximum number of claims that may be linked to the lane of a request.
    fn linked_max(&self, request: usize, sent_ms: u64) -> u64 {
        let lane = self.requests[request].lane;
        let client = self.lanes[lane].client;
        let holds = self.holds.values().filter(|hold| {
            (hold.lane == lane || hold.may_have_moved && hold.client == client)
                && !self.surely_over_before(hold, sent_ms)
        });
        let may_hang = |other: &&usize| {
            let record = &self.requests[**other];
            matches!(record.operation, Operation::Acquire(_))
                && (!record.is_answered
                    || record.sent_count > 1
                    || record.answered_ms.is_some_and(|at_ms| self.latest_ms(at_ms) >= sent_ms))
        };
        let count = |other: &usize| match self.requests[*other].operation {
            Operation::Acquire(acquire) => acquire.keys().len() as u64,
            _ => 0,
        };
        let open: u64 = self.lanes[lane].requests.values().filter(may_hang).map(count).sum();
        holds.count() as u64 + open
    }

    /// Returns the maximum number of claims that may exist between the two instants.
    fn claims_possible(&self, sent_ms: u64, now_ms: u64) -> u64 {
        let holds = self.holds.values().filter(|hold| !self.surely_over_before(hold, sent_ms)).count() as u64;
        let waiters: u64 = self.crowds.keys().map(|key| self.waiters_max(*key, None, sent_ms, now_ms)).sum();
        // Grants to lost lanes are unknown.
        let unheard = self
            .requests
            .iter()
            .filter(|record| matches!(record.operation, Operation::Acquire(_)) && !record.is_answered);
        holds + waiters + unheard.map(|record| u64::from(record.sent_count)).sum::<u64>() * 5
    }
}
