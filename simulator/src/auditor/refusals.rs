//! Rules about refusals: the server refuses no request without a reason.

use super::{Auditor, RequestRecord};
use crate::form::Form;
use crate::key::TREE;
use crate::operation::{Acquire, Listing, Operation, RegistrationListing};
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, LockId, SessionRequest};
use waymaker_server::limits::{
    BATCH_COST_MAX, EVERYWHERE_IN_FLIGHT_MAX, LANES_PER_SESSION_MAX, LEFT_COST_MAX,
};

/// Number of unanswered requests of a lane from which the server may refuse the next long one. No request
/// costs more than a whole batch.
pub(super) const LEFT_COUNT_MIN: usize = LEFT_COST_MAX as usize / BATCH_COST_MAX;

impl Auditor {
    /// Rules `answers` and `cancelled`, and others by error code: the server had a reason for this error.
    pub(super) fn judge_refusal(&mut self, request: usize, error: &ErrorAnswer<'_>, now_ms: u64) {
        if error.code == ErrorCode::Unknown {
            return self.judge_unknown(request);
        }
        self.requests[request].refused_ms = Some(now_ms);
        self.requests[request].is_timed_out = error.code == ErrorCode::Timeout;
        let record = &self.requests[request];
        let (lane, operation, sent_ms) = (record.lane, record.operation, record.first_sent_ms);
        let is_tight = self.settings.is_tight;
        // The server keeps no responses of a session that has ended. A check below decides if it may have ended.
        if let Operation::Acquire(acquire) = operation
            && error.code != ErrorCode::SessionGone
        {
            for (key, _) in acquire.keys() {
                self.judge_first_answer(request, key, None, now_ms);
            }
        }
        if let (Operation::Acquire(acquire), ErrorDetail::Contention(contention)) = (operation, &error.detail)
        {
            self.judge_contention(request, &acquire, contention, now_ms);
            if error.code == ErrorCode::Timeout {
                self.note_timeout(acquire.key, now_ms);
            }
        }
        let record = &self.requests[request];
        let is_fair = match (operation, error.code) {
            (Operation::Hello { session, .. }, ErrorCode::SessionGone) => {
                return self.judge_session_gone(request, session, now_ms);
            }
            (Operation::Hello { session: SessionRequest::Join { id }, .. }, ErrorCode::Overloaded) => {
                self.lane_count(id) >= LANES_PER_SESSION_MAX
            }
            // The client replaced the connection, and the HELLO of a later one was served first.
            (Operation::Hello { .. }, ErrorCode::Cancelled) => {
                let own = (u32::MAX - record.number) as usize;
                self.lanes[lane].connections.last().is_some_and(|last| *last > own)
            }
            (_, ErrorCode::SessionGone) => self.may_be_gone(lane, now_ms),
            (_, ErrorCode::Shutdown) if !matches!(operation, Operation::Register(_)) => {
                self.may_be_shut_out(&operation)
            }
            (Operation::Acquire(acquire), ErrorCode::Busy) => {
                if acquire.wait_ms == 0 && !self.may_be_busy(request, &acquire, now_ms) {
                    self.accuse("busy", || {
                        format!(
                            "lane {lane}: {acquire:?} was refused as busy, but no conflicting claim is possible: {error:?}"
                        )
                    });
                }
                self.requests[request].is_try
            }
            (Operation::Acquire(acquire), ErrorCode::Timeout) => {
                let waits = acquire.wait_ms > 0 && acquire.wait_ms < u32::MAX;
                // A client that sends the request again measures the rest of its wait with its own clock.
                let drift_ms = if record.sent_count > 1 { acquire.wait_ms / 1_000 + 2 } else { 0 };
                let over_ms = sent_ms + u64::from(acquire.wait_ms.saturating_sub(drift_ms));
                // An acquire that takes over a waiter has the deadline of that waiter.
                if waits && now_ms < over_ms && acquire.request_id.is_none() {
                    self.accuse("early-timeout", || {
                        format!(
                            "{acquire:?}, sent at {sent_ms} ms, timed out at {now_ms} ms, before its wait ended"
                        )
                    });
                }
                self.judge_waited_in_time(request, &acquire);
                waits || acquire.request_id.is_some()
            }
            (Operation::Acquire(_) | Operation::Register(_), ErrorCode::NoSpace) => {
                self.may_be_durable(&operation) && self.may_lack_room(sent_ms)
            }
            // A stream of a front end may get this error much later.
            (Operation::Acquire(_), ErrorCode::Recovering) => self.may_recover(sent_ms),
            (Operation::Acquire(_), ErrorCode::Cancelled) => record.may_be_cancelled,
            (Operation::Acquire(acquire), ErrorCode::Overloaded)
                if is_tight && self.may_be_overloaded(request, &acquire, error, now_ms) =>
            {
                true
            }
            (Operation::Take(withdrawal), ErrorCode::Overloaded) => {
                self.note_nothing_taken(request, &withdrawal, now_ms);
                self.may_lack_a_bucket(&withdrawal, error, sent_ms, now_ms)
            }
            (_, ErrorCode::Overloaded)
                if asks_all_shards(&operation) && self.asks_all_shards_often(request) =>
            {
                true
            }
            (_, ErrorCode::Overloaded) if may_be_long(&operation) => self.may_have_left_much(request),
            (Operation::Acquire(acquire), ErrorCode::QuorumUnavailable) => {
                self.may_be_uncounted(&acquire, now_ms)
            }
            (Operation::Acquire(acquire), ErrorCode::Frozen) => {
                self.requests[request].is_try
                    && acquire.keys().iter().any(|(key, _)| self.may_be_frozen(*key, sent_ms, now_ms))
            }
            (
                Operation::Acquire(acquire @ Acquire { form: Form::Permits(_), .. }),
                ErrorCode::CapacityMismatch | ErrorCode::BadInput,
            ) => self.is_pool_refusal_fair(request, &acquire, error, now_ms),
            (Operation::Acquire(acquire), ErrorCode::BadInput) => {
                self.may_name_another_claim(request, &acquire, error)
            }
            (Operation::Register(_) | Operation::Unregister { .. }, _) => {
                self.is_registration_refusal_fair(request, &operation, error, now_ms)
            }
            (
                Operation::Release { id, .. }
                | Operation::ForceRelease { id }
                | Operation::Extend { id, .. }
                | Operation::Status { id },
                ErrorCode::NotFound,
            ) => {
                // An earlier server may have executed the request, without a trace in this one.
                let is_repeated = record.sent_count > 1 && self.restarts.happened_since(sent_ms);
                if is_repeated {
                    return;
                }
                if let Operation::Extend { .. } = operation {
                    self.forget_move(request, id);
                }
                return self.judge_not_found(request, id, now_ms);
            }
            (Operation::Extend { id, .. }, ErrorCode::BadInput) => {
                self.forget_move(request, id);
                self.holds.get(&id).is_none_or(|hold| hold.session.is_some() || hold.key == TREE)
            }
            // Another lane has the claim.
            (
                Operation::Release { id, own: true, .. } | Operation::Extend { id, own: true, .. },
                ErrorCode::Cancelled,
            ) => {
                self.forget_move(request, id);
                self.holds.get(&id).is_none_or(|hold| hold.lane != lane || hold.may_have_moved)
            }
            // The cursor is from an earlier server, whose positions differ.
            (
                Operation::List(Listing { cursor, .. })
                | Operation::ListPools(Listing { cursor, .. })
                | Operation::ListEntries(RegistrationListing { cursor, .. })
                | Operation::Holds { cursor }
                | Operation::Namespaces { cursor, .. },
                ErrorCode::BadInput,
            ) => cursor > 0 && self.restarts.count > 0,
            (Operation::Extend { id, .. }, ErrorCode::NotHeld) => !self.holds.contains_key(&id),
            _ => false,
        };
        if is_fair {
            return;
        }
        let rule = if error.code == ErrorCode::Cancelled { "cancelled" } else { "answers" };
        self.accuse(rule, || {
            format!("lane {lane}: {operation:?} was refused without a known reason: {error:?}")
        });
    }

    /// Rule `answers`: the server reports an unknown outcome only after its log failed. The outcome shows
    /// after the next start, as for a request without a response.
    fn judge_unknown(&mut self, request: usize) {
        self.requests[request].is_answered = false;
        if !self.may_be_unknown() {
            let operation = self.requests[request].operation;
            self.accuse("answers", || {
                format!("the server reports an unknown outcome for {operation:?}, but its log has not failed")
            });
        }
    }

    /// Returns whether the request may need a durable record.
    fn may_be_durable(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Acquire(acquire) => {
                acquire.keys().iter().any(|(key, _)| self.keys.get(key).is_some_and(|key| key.is_local_asked))
            }
            _ => true,
        }
    }

    /// Returns whether the unanswered requests of the lane may cost as much as the limit for requests that
    /// wait for shards.
    fn may_have_left_much(&self, request: usize) -> bool {
        self.unanswered_beside(request, |_| true) >= LEFT_COUNT_MIN
    }

    /// Returns whether the lane may have the maximum number of broadcasts to all shards in flight.
    fn asks_all_shards_often(&self, request: usize) -> bool {
        self.unanswered_beside(request, asks_all_shards) >= EVERYWHERE_IN_FLIGHT_MAX as usize
    }

    /// Returns how many other requests of the same lane have no response yet.
    fn unanswered_beside(&self, request: usize, is_counted: impl Fn(&Operation) -> bool) -> usize {
        let RequestRecord { lane, sent_ms, .. } = self.requests[request];
        let is_front = self.is_front(lane);
        // The streams of a front end deliver their responses in any order.
        let is_open = |other: &RequestRecord| {
            !other.is_answered
                || is_front && other.answered_ms.is_some_and(|answered_ms| answered_ms >= sent_ms)
        };
        let waits =
            |other: &RequestRecord| other.lane == lane && is_open(other) && is_counted(&other.operation);
        let unanswered = self.requests.iter().filter(|other| waits(other)).count();
        // The request itself is among them, or has just been answered.
        unanswered - usize::from(waits(&self.requests[request]))
    }

    /// Rules `answers` and `lost-session`: HELLO is refused as gone only if its session may have ended.
    fn judge_session_gone(&mut self, request: usize, session: SessionRequest, now_ms: u64) {
        use SessionRequest::{Join, Resume};
        let (Resume { id, .. } | Join { id }) = session else {
            return self.accuse("answers", || {
                format!("{session:?} was refused as gone, but names no session to resume or join")
            });
        };
        let (arrived_ms, floor_ms) = (self.requests[request].arrived_ms, self.session_floor_ms(Some(id)));
        let was_there = arrived_ms.is_some_and(|arrived_ms| arrived_ms < floor_ms);
        // A GOODBYE on one connection does not wait for unread bytes of another one.
        if was_there && self.goodbye_ms(id) > now_ms {
            self.accuse("lost-session", || {
                format!(
                    "HELLO for session {id} arrived at {arrived_ms:?} ms and was refused as gone, but the session lasts to {floor_ms} ms"
                )
            });
        }
        self.note_session_over(id, now_ms);
    }

    /// Rule `lost-lease`: NOT_FOUND is allowed only if the claim may have been over when the request arrived.
    fn judge_not_found(&mut self, request: usize, id: LockId, now_ms: u64) {
        let record = &self.requests[request];
        let (operation, arrived_ms) = (record.operation, record.arrived_ms);
        if matches!(operation, Operation::Release { forged: true, .. }) {
            return;
        }
        let Some(hold) = self.holds.get(&id) else { return };
        // The server serves requests of different connections in any order, so a release counts from the time
        // at which it was sent. A release does not explain its own failure.
        let ends =
            matches!(operation, Operation::Release { own: false, .. } | Operation::ForceRelease { .. });
        let is_own_word = ends && hold.release_count == 1;
        let word_ms = if is_own_word { self.outer_floor_ms(hold) } else { self.word_floor_ms(hold) };
        if word_ms <= now_ms {
            return;
        }
        let floor_ms = self.lease_floor_ms(id);
        let is_over = self.holds.get(&id).is_some_and(|hold| hold.over_ms.is_some());
        if let Some(arrived_ms) = arrived_ms.filter(|arrived_ms| *arrived_ms < floor_ms && !is_over) {
            let hold = format!("{:?}", self.holds.get(&id));
            self.accuse("lost-lease", || {
                format!(
                    "{operation:?} arrived at {arrived_ms} ms and got NOT_FOUND, but {id} lasts to {floor_ms} ms: {hold}"
                )
            });
        }
    }
}

/// Returns whether a request is broadcast to all shards.
fn asks_all_shards(operation: &Operation) -> bool {
    matches!(operation, Operation::Freeze { .. } | Operation::Namespaces { .. })
}

/// Returns whether the server may count a request as long.
fn may_be_long(operation: &Operation) -> bool {
    match operation {
        Operation::Acquire(acquire) => acquire.keys().len() > 1,
        Operation::Inspect { .. }
        | Operation::Describe { .. }
        | Operation::Verify { .. }
        | Operation::Status { .. }
        | Operation::LookUp { .. }
        | Operation::List(_)
        | Operation::ListPools(_)
        | Operation::ListEntries(_)
        | Operation::Holds { .. }
        | Operation::Namespaces { .. } => true,
        _ => false,
    }
}
