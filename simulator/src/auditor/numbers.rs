//! Rules about counts, ages and remaining times in responses.

use super::Auditor;
use super::holds::Hold;
use crate::key::{Key, TREE, kind_of};
use crate::operation::{Acquire, Operation};
use waymaker_protocol::{
    Contention, Inspected, LockId, NamespaceKind, PoolDescribed, PoolOrder, StatusAnswer,
};

/// Interval in which the server read a value that a response shows.
pub(super) type ReadTime = (u64, u64);

/// Times of one claim in a response: its age, and its remaining lease or wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownTimes {
    pub(super) id: LockId,
    pub(super) age_ms: u64,
    pub(super) remaining_ms: u32,
}

/// Returns whether `shown_ms` can be the time from `at` to `end`. Both are intervals.
fn is_left(shown_ms: u64, (end_from_ms, end_to_ms): ReadTime, (from_ms, to_ms): ReadTime) -> bool {
    (end_from_ms.saturating_sub(to_ms)..=end_to_ms.saturating_sub(from_ms)).contains(&shown_ms)
}

impl Auditor {
    /// Rules `count` and `number` for INSPECTED.
    pub(super) fn judge_inspected_numbers(
        &mut self,
        request: usize,
        key: Key,
        inspected: &Inspected<'_>,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        let at = (inspected.stamp_ms, inspected.stamp_ms);
        let counts = (inspected.holder_count, inspected.waiter_count);
        let listed = (inspected.holders.len(), inspected.waiters.len());
        self.judge_counts(key, counts, Some(listed), sent_ms, now_ms);
        for holder in &inspected.holders {
            let shown =
                ShownTimes { id: holder.id, age_ms: holder.held_ms, remaining_ms: holder.remaining_ms };
            self.judge_hold_shown(shown, at, sent_ms);
        }
        for waiter in &inspected.waiters {
            let shown =
                ShownTimes { id: waiter.id, age_ms: waiter.age_ms, remaining_ms: waiter.remaining_ms };
            self.judge_waiter_shown(shown, at);
        }
    }

    /// Rules `view`, `count` and `number` for POOL_DESCRIBED.
    pub(super) fn judge_described_numbers(
        &mut self,
        request: usize,
        pool: Key,
        described: &PoolDescribed<'_>,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        let at = (described.stamp_ms, described.stamp_ms);
        let counts = (described.holder_count, described.waiter_count);
        let listed = (described.holders.len(), described.waiters.len());
        self.judge_counts(pool, counts, Some(listed), sent_ms, now_ms);
        let possible = self.pools.possible(pool, sent_ms, now_ms);
        let is_asked = described.capacity == 0 || possible.contains(&described.capacity);
        let is_ordered = described.capacity == 0
            || (described.order == PoolOrder::Timestamp)
                == (self.settings.pool_order(pool) == PoolOrder::Timestamp);
        if !is_asked || !is_ordered {
            self.accuse("view", || {
                format!(
                    "pool {pool} is shown with a wrong capacity or order: {described:?}; possible capacities: {possible:?}"
                )
            });
        }
        for holder in &described.holders {
            let shown =
                ShownTimes { id: holder.id, age_ms: holder.age_ms, remaining_ms: holder.remaining_ms };
            self.judge_hold_shown(shown, at, sent_ms);
        }
        for waiter in &described.waiters {
            let shown =
                ShownTimes { id: waiter.id, age_ms: waiter.age_ms, remaining_ms: waiter.remaining_ms };
            self.judge_waiter_shown(shown, at);
        }
    }

    /// Rule `count`: checks the numbers of holders and waiters of a key. `listed` are the lengths of both
    /// lists in the same response.
    pub(super) fn judge_counts(
        &mut self,
        key: Key,
        (holder_count, waiter_count): (u32, u32),
        listed: Option<(usize, usize)>,
        sent_ms: u64,
        now_ms: u64,
    ) {
        let all_listed = listed.is_none_or(|(holders, waiters)| {
            (holders == holder_count as usize || holders == 64)
                && (waiters == waiter_count as usize || waiters == 64)
        });
        let most = self.waiters_max(key, None, sent_ms, now_ms);
        // Registrations have no acquires.
        let counts_waiters = !matches!(kind_of(key), NamespaceKind::Registry | NamespaceKind::Lazy);
        // INSPECT does not find a set of paths that is not in its tree yet.
        let finds_all = key != TREE || self.settings.limits.large_set_segment_count >= 1024;
        if counts_waiters && finds_all {
            let least = self.waiters(key, None, sent_ms, now_ms);
            self.expect_at_least(least, waiter_count.into(), now_ms, || {
                format!(
                    "key {key}: the response shows {waiter_count} waiters, but more waited from {sent_ms} to {now_ms} ms"
                )
            });
        }
        let is_possible = !counts_waiters || u64::from(waiter_count) <= most;
        if !all_listed || !is_possible {
            self.accuse("count", || {
                format!(
                    "key {key}: the response counts {holder_count} holders and {waiter_count} waiters and lists {listed:?}; at most {most} waiters are possible from {sent_ms} to {now_ms} ms"
                )
            });
        }
    }

    /// Rule `number`: checks the age and the remaining lease of a hold that a response shows.
    pub(super) fn judge_hold_shown(&mut self, shown: ShownTimes, at: ReadTime, sent_ms: u64) {
        let ShownTimes { id, age_ms, remaining_ms } = shown;
        let Some(hold) = self.holds.get(&id) else { return };
        if self.restarts.happened_since(hold.said_ms) {
            return;
        }
        let since_ms = self.granted_ms(hold);
        let is_aged = since_ms.is_none_or(|since_ms| {
            (at.0.saturating_sub(since_ms)..=at.1.saturating_sub(since_ms)).contains(&age_ms)
        });
        let end_ms = self.certain_end_ms(hold, sent_ms, at);
        let lasts = end_ms.is_none_or(|end_ms| is_left(remaining_ms.into(), (end_ms, end_ms), at));
        // Before the hold moved to this lane it was on another session.
        let is_settled = !hold.may_have_moved && hold.settled_ms < sent_ms;
        let lasts_as_session = is_settled && hold.release_after_ms.is_none();
        let session = hold.session.filter(|_| lasts_as_session).and_then(|id| self.sessions.get(&id));
        let within_session = session.is_none_or(|session| u64::from(remaining_ms) <= session.lease_ms());
        if !is_aged || !lasts || !within_session {
            let hold = format!("{hold:?}");
            self.accuse("number", || {
                format!(
                    "a response decided within {at:?} ms shows {shown:?}; the hold was granted at {since_ms:?} ms and ends at {end_ms:?} ms: {hold}"
                )
            });
        }
    }

    /// Returns when a hold began, if the auditor knows that exactly.
    fn granted_ms(&self, hold: &Hold) -> Option<u64> {
        let grant = self.keys.get(&hold.key)?.get(hold.fence)?;
        grant.stamp_ms.filter(|_| grant.is_prompt && !hold.was_repeated)
    }

    /// Returns the end of a lease that no request after `sent_ms` can have moved.
    fn certain_end_ms(&self, hold: &Hold, sent_ms: u64, at: ReadTime) -> Option<u64> {
        // A front end may abandon the lane of a stream before its connection is lost.
        let session = self.lanes[hold.lane].session;
        let may_be_lost = !self.lanes[hold.lane].losses.is_empty()
            || self.is_front(hold.lane)
            || session.is_some_and(|session| self.session_floor_ms(Some(session)) <= at.1);
        // The response may show the hold as it was on a lost lane.
        let may_have_moved = hold.may_have_moved || hold.settled_ms >= sent_ms;
        let ends_with_lane = hold.release_after_ms.is_some() && (may_be_lost || may_have_moved);
        let is_certain = hold.session.is_none()
            && hold.may_move.is_empty()
            && !hold.lease_is_open
            && !hold.was_repeated
            && !ends_with_lane
            && hold.lease_ms < u32::MAX
            && hold.late_ms == 0
            && hold.lease_stamp_ms < sent_ms;
        is_certain.then_some(hold.lease_end_ms)
    }

    /// Rule `number`: checks the age and the remaining wait of a waiter that a response shows.
    pub(super) fn judge_waiter_shown(&mut self, shown: ShownTimes, at: ReadTime) {
        let Some(request) = self.waiters.get(&shown.id).copied() else { return };
        let record = &self.requests[request];
        let (Operation::Acquire(acquire), Some((id, _, queued_ms))) = (record.operation, record.queued)
        else {
            return;
        };
        if id != shown.id || record.sent_count > 1 || acquire.request_id.is_some() {
            return;
        }
        let begun = (record.first_sent_ms, queued_ms);
        let wait_ms = u64::from(acquire.wait_ms);
        let lasts = match acquire.wait_ms {
            u32::MAX => shown.remaining_ms == u32::MAX,
            _ => is_left(shown.remaining_ms.into(), (begun.0 + wait_ms, begun.1 + wait_ms), at),
        };
        let is_aged = is_left(shown.age_ms, at, begun);
        // A waiter for permits may get another lease, but its wait stays the same.
        if !lasts || !is_aged {
            let text = format!("{record:?}");
            self.accuse("number", || {
                format!(
                    "a response decided within {at:?} ms shows a waiter with a wrong age or wait, {shown:?}: {text}"
                )
            });
        }
    }

    /// Rule `number`: checks the times, the priority, the key and the kind of lease in STATUS_ANSWER.
    pub(super) fn judge_status_numbers(&mut self, request: usize, id: LockId, status: &StatusAnswer<'_>) {
        let sent_ms = self.requests[request].first_sent_ms;
        let at = (status.stamp_ms, status.stamp_ms);
        let shown = ShownTimes { id, age_ms: status.age_ms, remaining_ms: status.remaining_ms };
        if !self.holds.contains_key(&id) {
            return self.judge_waiter_shown(shown, at);
        }
        self.judge_hold_shown(shown, at, sent_ms);
        let hold = &self.holds[&id];
        let Operation::Acquire(acquire) = self.requests[hold.request].operation else { return };
        if acquire.request_id.is_some() || self.restarts.count > 0 {
            return;
        }
        let has_waited =
            hold.waited_ms.is_none_or(|(from_ms, to_ms)| (from_ms..=to_ms).contains(&status.waited_ms));
        let is_tree = kind_of(hold.key) == NamespaceKind::Tree;
        let is_same = status.priority == acquire.priority.unwrap_or(0)
            && status.session_lease == acquire.session_lease
            && (is_tree || status.key == self.settings.name_of(hold.key));
        if !has_waited || !is_same {
            let hold = format!("{hold:?}");
            self.accuse("number", || {
                format!("the status of the hold of {acquire:?} shows other values: {status:?}: {hold}")
            });
        }
    }

    /// Rule `count`: checks the owner and the number of waiters in BUSY and TIMEOUT.
    pub(super) fn judge_contention(
        &mut self,
        request: usize,
        acquire: &Acquire,
        contention: &Contention<'_>,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        let keys = acquire.keys();
        let most = keys
            .iter()
            .map(|(key, _)| self.waiters_max(*key, Some(request), sent_ms, now_ms))
            .max()
            .unwrap_or(0);
        if let [(key, _)] = keys[..] {
            let least = self.waiters(key, Some(request), sent_ms, now_ms);
            self.expect_at_least(least, contention.waiter_count.into(), now_ms, || {
                format!("{acquire:?}, sent at {sent_ms} ms, was refused with too few waiters: {contention:?}")
            });
        }
        let is_named = contention.owner.is_empty()
            || contention.owner.starts_with(b"client-")
            || contention.owner.starts_with(b"deputy-");
        if u64::from(contention.waiter_count) > most || !is_named {
            self.accuse("count", || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, was refused with {contention:?}; at most {most} waiters are possible"
                )
            });
        }
    }

    /// Rule `count`: checks the queue position of a claim that begins to wait.
    pub(super) fn judge_position(&mut self, request: usize, acquire: &Acquire, position: u32, now_ms: u64) {
        let record = &self.requests[request];
        let (sent_ms, arrived_ms) = (record.first_sent_ms, record.arrived_ms.unwrap_or(record.sent_ms));
        let key = acquire.key;
        let most = self.waiters_max(key, Some(request), arrived_ms, now_ms);
        // Earlier waiters are ahead, unless the claim has a higher priority or its own timestamp.
        let is_first_come =
            acquire.form.timestamp_us().is_none() && acquire.request_id.is_none() && record.sent_count == 1;
        let boost_ms = self.settings.boost_ms(acquire.priority.unwrap_or(0));
        if is_first_come {
            let least = self.waiters_before(key, request, boost_ms, sent_ms, now_ms);
            self.expect_at_least(least, position.into(), now_ms, || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, has position {position}, but more waiters are ahead at {now_ms} ms"
                )
            });
        }
        if u64::from(position) > most {
            self.accuse("count", || {
                format!(
                    "{acquire:?}, sent at {sent_ms} ms, has position {position}, but at most {most} waiters are possible"
                )
            });
        }
    }
}
