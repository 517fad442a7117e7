//! Checks each grant against its request, and records the state of the new hold.

use super::Auditor;
use super::duties::Duty;
use super::holds::{Hold, Tampering};
use super::keys::{GrantRecord, QueueInterval};
use crate::form::Form;
use crate::operation::{Acquire, Operation};
use waymaker_engine::Scope;
use waymaker_protocol::Granted;

impl Auditor {
    /// Returns whether any client requested a lease of the hold as long as its remaining time. A client that
    /// finds the id in a list can extend the hold before its owner gets the grant.
    fn may_be_extended(&self, granted: &Granted) -> bool {
        self.requests.iter().any(|record| {
            matches!(record.operation, Operation::Extend { id, lease_ms, .. }
                if id == granted.id && self.settings.given_lease_ms(lease_ms) >= granted.remaining_ms)
        })
    }

    /// Returns whether another acquire with the same request id asks for a lease. The claim of the other
    /// acquire may be granted.
    fn may_find_a_lease(&self, request: usize, acquire: &Acquire) -> bool {
        let has_lease = |other: usize| matches!(self.requests[other].operation, Operation::Acquire(other) if !other.is_endless());
        acquire.request_id.is_some() && self.same_requests(request, acquire).any(has_lease)
    }

    /// Checks one grant: it matches the request, and the server was allowed to make it.
    pub(super) fn judge_grant(&mut self, request: usize, acquire: &Acquire, granted: &Granted, now_ms: u64) {
        let Granted { id, fence, stamp_ms, remaining_ms, .. } = *granted;
        self.note_word(id, stamp_ms, remaining_ms);
        let record = &self.requests[request];
        let (lane, queued) = (record.lane, record.queued);
        let fence_before = self.fence_before(request, acquire, granted);
        let is_one_of_several = matches!(acquire.form, Form::Keys(_));
        let asked_once = record.sent_count == 1;
        let client = self.lanes[lane].client;
        let has_request_id = acquire.request_id.is_some();
        if self.is_session_closed_before(lane, stamp_ms) {
            self.accuse("farewell", || {
                format!("{id} was granted at {stamp_ms} ms on lane {lane}, after the FAREWELL of its session")
            });
        }
        if acquire.is_endless() && remaining_ms != u32::MAX && !self.may_find_a_lease(request, acquire) {
            self.accuse("answers", || {
                format!("{acquire:?} asks for a hold without a lease, but got a lease: {granted:?}")
            });
        }
        if self.requests[request].is_cancelled {
            self.accuse("cancelled", || format!("{id} was granted after its cancellation was acknowledged"));
        }
        if asked_once && !is_one_of_several && queued.is_some_and(|(queued, ..)| queued != id) {
            self.accuse("answers", || {
                format!("{acquire:?} was granted as {id}, but QUEUED named another id")
            });
        }
        // A set of paths may wait until it is in its tree, even if the paths are free.
        let may_enter_later = matches!(acquire.form, Form::Paths(_));
        let is_new_try = acquire.wait_ms == 0 && acquire.request_id.is_none() && !may_enter_later;
        if granted.session_lease != acquire.session_lease || is_new_try && granted.waited {
            self.accuse("answers", || {
                format!(
                    "{acquire:?} got {granted:?}: `session_lease` must match, and a request without a wait cannot have waited"
                )
            });
        }
        self.requests[request].is_granted = true;
        self.requests[request].granted_ms = Some(stamp_ms);
        self.judge_first_answer(request, acquire.key, Some(id), granted.stamp_ms);
        self.judge_order_of_events(request, id);
        if granted.repeated && self.holds.contains_key(&id) {
            return self.judge_repeated_grant(request, acquire, granted, now_ms);
        }
        if granted.repeated && !self.has_same_request_id(request, acquire) {
            self.accuse("request-id", || {
                format!(
                    "client {client} got a repeated grant, but never sent this request id before: {acquire:?}"
                )
            });
        }
        if !granted.repeated && fence <= fence_before {
            let newest = self.holds.values().filter(|hold| hold.key == acquire.key && hold.fence >= fence);
            let newest = format!("{:?}", newest.collect::<Vec<_>>());
            let number = self.requests[request].number;
            self.accuse("fence-order", || {
                format!(
                    "lane {lane}, request {number}: {id} must have a fence above the known fence {fence_before}, but got {fence}; holds with higher fences: {newest}: {acquire:?}"
                )
            });
        }
        let is_front = self.is_front(lane);
        let is_told =
            asked_once && !is_front && acquire.notify_queued && !has_request_id && acquire.wait_ms > 0;
        if is_told && granted.waited && queued.is_none() {
            self.accuse("event", || {
                format!("{acquire:?} waited, but got no QUEUED event before its grant: {granted:?}")
            });
        }
        if let Some(hold) = self.holds.get(&id) {
            let other = hold.fence;
            let is_said_again = hold.request == request && self.restarts.count > 0;
            if (hold.was_repeated || is_said_again) && other == fence && hold.client == client {
                return;
            }
            let (before, number) = (hold.request, self.requests[request].number);
            let before = (self.requests[before].lane, self.requests[before].number);
            return self.accuse("answers", || {
                format!(
                    "{id} was granted to (lane, request) {before:?} with fence {other}, and again to {:?} with fence {fence}",
                    (lane, number)
                )
            });
        }
        let is_clamped = !acquire.session_lease
            && !acquire.is_endless()
            && acquire.lease_ms > self.settings.limits.lease_max_ms;
        if acquire.request_id.is_none() && !granted.repeated && granted.clamped != is_clamped {
            self.accuse("limit", || {
                format!(
                    "{acquire:?} got {granted:?}: `clamped` must tell whether the requested lease exceeds the maximum"
                )
            });
        }
        // An acquire that takes over a waiter gets the options of that waiter.
        let inherits = has_request_id
            && (granted.repeated
                || (granted.waited || self.restarts.happened_since(self.requests[request].first_sent_ms))
                    && self.has_same_request_id(request, acquire));
        let lease_ms =
            if acquire.is_endless() { u32::MAX } else { self.settings.given_lease_ms(acquire.lease_ms) };
        // The lease of a durable claim begins when the claim becomes durable, slightly before or after the
        // stamp of the worker that sends the response.
        let end_ms = stamp_ms.saturating_add(remaining_ms.into());
        let from_ms = end_ms.saturating_sub(lease_ms.into());
        // The lease may even have ended by then.
        let is_over = remaining_ms == 0 && self.settings.durability.is_some();
        let is_restored = self.restarts.happened_since(self.requests[request].first_sent_ms);
        let is_late = from_ms <= now_ms && (is_over || self.restarts.has_synced_at(from_ms))
            || is_restored && (remaining_ms < lease_ms || self.may_be_extended(granted));
        if !inherits && !acquire.session_lease && remaining_ms != lease_ms && !is_late {
            let number = self.requests[request].number;
            self.accuse("answers", || {
                format!(
                    "lane {lane}, request {number}: the grant must have a lease of {lease_ms} ms, but is {granted:?}: {acquire:?}"
                )
            });
        }
        if has_request_id && !granted.repeated {
            self.judge_new_with_request_id(client, acquire, granted);
        }
        self.note_granting(request, acquire, granted);
        self.judge_counted(request, acquire, granted);
        self.note_hold(request, acquire, granted, inherits, now_ms);
        self.grant_count += 1;
        self.judge_neighbours(id);
        if !granted.repeated {
            // A hold that a restart carried over may have begun before the freeze.
            if self.is_prompt_claim(request) && !self.is_from_before(request, stamp_ms) {
                self.judge_freeze_at(acquire.key, id, stamp_ms);
            }
            self.judge_granted_in_time(request, stamp_ms);
            if !is_restored {
                self.judge_granted_after_losses(id, stamp_ms);
            }
        }
        if !granted.repeated && asked_once {
            self.judge_limits(request, acquire, false, now_ms);
        }
        self.judge_late_grant(request, acquire, granted, now_ms);
        if !granted.repeated && asked_once {
            self.owe_grant_to_watchers(acquire.key, fence, stamp_ms, now_ms);
        }
        if !acquire.session_lease && !acquire.is_endless() {
            self.owe(self.to_us(stamp_ms + u64::from(remaining_ms)), Duty::Expiry(id));
        }
    }

    /// Returns the newest fence that was known when the claim was first requested. A claim that was taken
    /// over while it was reserved has the fence of its first request.
    fn fence_before(&self, request: usize, acquire: &Acquire, granted: &Granted) -> u64 {
        let before = |request: usize| {
            let before = self.requests[request].fences_before.iter().find(|(key, _)| *key == acquire.key);
            before.map_or(0, |(_, fence)| *fence)
        };
        self.taken_over(request, acquire, granted).map(before).fold(before(request), u64::min)
    }

    /// Returns earlier requests whose claim this grant may be.
    pub(super) fn taken_over(
        &self,
        request: usize,
        acquire: &Acquire,
        granted: &Granted,
    ) -> impl Iterator<Item = usize> {
        let may_take_over = acquire.request_id.is_some() && granted.waited;
        let others = self.same_requests(request, acquire);
        others.filter(move |other| may_take_over && !self.requests[*other].is_granted)
    }

    /// Adds the grant to the history of its key, which checks the order of fences.
    fn note_granting(&mut self, request: usize, acquire: &Acquire, granted: &Granted) {
        let record = &self.requests[request];
        let boost_ms = self.settings.boost_ms(acquire.priority.unwrap_or(0));
        // A request that takes over a reserved claim gets a grant that was decided for an earlier request.
        let taken_over = self.taken_over(request, acquire, granted);
        let asked_ms =
            taken_over.map(|other| self.requests[other].first_sent_ms).fold(record.first_sent_ms, u64::min);
        let sent_ms =
            (record.sent_count == 1 && acquire.request_id.is_none()).then_some(record.first_sent_ms);
        // The ticket belongs to the first of several keys. A durable claim was decided some time before its
        // stamp, so only its fence shows the order.
        let is_prompt = self.is_prompt_claim(request);
        let is_first = matches!(record.operation, Operation::Acquire(record) if record.key == acquire.key);
        // An acquire that takes over a waiter gets the position of that waiter.
        let own = record.queued.filter(|(queued, ..)| *queued == granted.id && acquire.request_id.is_none());
        let waited = own.map(|(_, ticket, queued_ms)| QueueInterval {
            ticket: is_first.then_some(ticket),
            boost_ms,
            sent_ms: record.first_sent_ms,
            queued_ms,
        });
        let is_known = acquire.request_id.is_none() && !granted.repeated;
        let grant = GrantRecord {
            id: granted.id,
            shared: acquire.shared,
            form: acquire.form,
            // A response that was kept across a restart has a stamp of the earlier server.
            stamp_ms: (!granted.repeated && !self.is_from_before(request, granted.stamp_ms))
                .then_some(granted.stamp_ms),
            is_prompt,
            scope: if is_known { acquire.scope } else { Scope::Ephemeral },
            asked_ms,
            server: self.restarts.count,
            sent_ms,
            is_try: acquire.wait_ms == 0,
            boost_ms,
            waited,
        };
        if let Err((rule, text)) = self.key(acquire.key).add(granted.fence, grant) {
            self.accuse(rule, || format!("key {}: {text}", acquire.key));
        }
    }

    /// Returns the longest lease that any request for this claim asked for. By the stamp of a turn that began
    /// before the lease, more than that can remain. But a restart that begins the lease again gives no more
    /// than this.
    fn longest_asked_ms(&self, request: usize, acquire: &Acquire) -> u32 {
        let given_ms = |acquire: &Acquire| match acquire.is_endless() || acquire.session_lease {
            true => u32::MAX,
            false => self.settings.given_lease_ms(acquire.lease_ms),
        };
        let others = self.same_requests(request, acquire).filter(|_| acquire.request_id.is_some());
        let asked_ms = others.filter_map(|other| match &self.requests[other].operation {
            Operation::Acquire(other) => Some(given_ms(other)),
            _ => None,
        });
        asked_ms.fold(given_ms(acquire), u32::max)
    }

    /// Returns the bounds of the time that a claim waited before its grant, if known.
    fn waited_ms(&self, request: usize, acquire: &Acquire, granted: &Granted) -> Option<(u64, u64)> {
        let record = &self.requests[request];
        let is_prompt = acquire.keys().iter().all(|(key, _)| self.is_prompt(*key));
        if !is_prompt || acquire.request_id.is_some() || record.sent_count > 1 || granted.repeated {
            return None;
        }
        if !granted.waited {
            return Some((0, 0));
        }
        let queued_ms = record.queued.map_or(granted.stamp_ms, |(.., queued_ms)| queued_ms);
        let since = |from_ms: u64| granted.stamp_ms.saturating_sub(from_ms);
        Some((since(queued_ms), since(record.first_sent_ms)))
    }

    /// Records the new hold. If `inherits` is set, the hold has the options of another acquire.
    fn note_hold(
        &mut self,
        request: usize,
        acquire: &Acquire,
        granted: &Granted,
        inherits: bool,
        now_ms: u64,
    ) {
        let Granted { id, fence, stamp_ms, remaining_ms, .. } = *granted;
        let lane = self.requests[request].lane;
        let tampering = self.tampered.remove(&id);
        let is_tampered = tampering.is_some();
        let asked_ms = self.settings.given_lease_ms(acquire.lease_ms);
        let Tampering { may_end_ms, may_move, leases } =
            tampering.unwrap_or(Tampering { may_end_ms: u64::MAX, ..Tampering::default() });
        let mut hold = Hold {
            key: acquire.key,
            shared: acquire.shared,
            form: acquire.form,
            fence,
            client: self.lanes[lane].client,
            request_id: acquire.request_id,
            label: acquire.label,
            lane,
            has_no_options: acquire.is_plain() && !granted.waited && !granted.repeated,
            session: if acquire.session_lease { self.lanes[lane].session } else { None },
            // The option may have any value.
            release_after_ms: if inherits { Some(0) } else { acquire.release_after_ms },
            lease_stamp_ms: stamp_ms,
            lease_end_ms: stamp_ms + u64::from(remaining_ms),
            lease_is_open: false,
            since_ms: self.requests[request].first_sent_ms,
            may_end_ms,
            longest_ms: may_move
                .iter()
                .map(|(.., given_ms)| *given_ms)
                .fold(remaining_ms.max(asked_ms), u32::max),
            may_move,
            lease_ms: remaining_ms.min(self.longest_asked_ms(request, acquire)),
            late_ms: 0,
            request,
            said_ms: now_ms,
            waited_ms: self.waited_ms(request, acquire, granted),
            others_may_end: is_tampered || self.may_be_shared(request, acquire),
            was_repeated: granted.repeated,
            may_have_moved: inherits || self.may_be_found_again(request, acquire),
            is_inherited: inherits,
            settled_ms: 0,
            over_ms: self.ended_unheard.contains_key(&id).then_some(now_ms),
            released_by: None,
            // The senders of those requests are not known any more.
            release_count: if is_tampered { 2 } else { 0 },
        };
        for (stamp_ms, remaining_ms) in leases {
            hold.note_lease(stamp_ms, remaining_ms);
        }
        if acquire.session_lease {
            self.note_session_lives(lane, stamp_ms + u64::from(remaining_ms));
        }
        self.holds.insert(id, hold);
        self.note_guarded(id, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, rule, says_granted};
    use crate::form::{PathItem, PathSet};
    use crate::key::TREE;

    /// Returns the rule that is broken if the server grants a set of paths with a lease, although the request
    /// has none. An earlier acquire has the same request id and a lease of `lease_ms_before`.
    fn rule_for_lease_of_endless(lease_ms_before: u32) -> Option<&'static str> {
        let mut auditor = auditor();
        let start_ms = auditor.settings.start_ms;
        let form = Form::Paths(PathSet::new(&[PathItem::default()]));
        let acquire = Acquire { key: TREE, form, ..ACQUIRE };
        asks(&mut auditor, 0, Acquire { lease_ms: lease_ms_before, ..acquire }, start_ms + 1);
        asks(&mut auditor, 1, Acquire { lease_ms: u32::MAX, ..acquire }, start_ms + 2);
        says_granted(&mut auditor, 1, Granted { repeated: true, ..granted(1, start_ms + 3) });
        rule(&auditor)
    }

    #[test]
    fn a_claim_without_a_lease_has_one_only_if_its_request_id_finds_one() {
        assert_eq!(rule_for_lease_of_endless(700), None);
        assert_eq!(rule_for_lease_of_endless(u32::MAX), Some("answers"));
    }
}
