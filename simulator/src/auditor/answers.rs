//! Each answer against what was asked.

use super::Auditor;
use super::holds::Hold;
use super::keys::{Granting, Waited};
use crate::form::Form;
use crate::mix::TREE;
use crate::operation::{Acquire, FORCED, Key, Operation};
use waymaker_protocol::{
    ErrorAnswer, ErrorCode, ErrorDetail, Event, Extended, Granted, Inspected, Listed, LockId, LockState,
    Response, RevokeReason, SessionRequest, StatusAnswer,
};

/// How long after its lease a hold may still be shown, where nobody stalls the workers for long.
const OVERDUE_MS: u64 = 1_000;
/// How the server says that a waiter left its queue with its connection.
const LOST_WHILE_WAITING: &[u8] = b"its connection was lost while it waited";

impl Auditor {
    /// One frame for a connection.
    pub(super) fn hear(
        &mut self,
        connection: usize,
        number: u32,
        response: &Response<'_>,
        frame: &[u8],
        now_ms: u64,
    ) {
        let lane = self.connections[connection].lane;
        if let Response::Event(event) = response {
            if let Event::KeyHeld { .. } | Event::KeyFreed { .. } | Event::Overrun = event {
                return self.hear_watch(connection, number, event, now_ms);
            }
            return self.hear_event(lane, number, event, now_ms);
        }
        if number == 0 {
            // It is about the connection, which the server closes.
            return;
        }
        let Some(request) = self.lanes[lane].asked.get(&number).copied() else {
            return self.accuse("answers", || format!("lane {lane}: nobody asked {number}: {response:?}"));
        };
        if !self.connections[connection].answered.insert(number) {
            return self
                .accuse("answers", || format!("lane {lane}: {number} is answered twice: {response:?}"));
        }
        if !self.is_first(request, response, frame) {
            return;
        }
        self.requests[request].is_answered = true;
        self.connections[connection].is_welcome |= matches!(response, Response::Welcome(_));
        self.judge_stamp(request, response, now_ms);
        self.judge(connection, request, response, now_ms);
    }

    /// Whether this answer is heard for the first time. A repetition must be equal.
    fn is_first(&mut self, request: usize, response: &Response<'_>, frame: &[u8]) -> bool {
        let asked = &mut self.requests[request];
        if !asked.operation.has_effect() || self.lanes[asked.lane].session.is_none() {
            return true;
        }
        match &asked.kept {
            Some(kept) if kept == frame => false,
            Some(_) if !is_kept(response) => true,
            Some(_) => {
                let (lane, number) = (asked.lane, asked.number);
                self.accuse("repeat", || {
                    format!("lane {lane}: {number} is answered again, otherwise than before: {response:?}")
                });
                false
            }
            None => {
                if is_kept(response) {
                    asked.kept = Some(frame.to_vec());
                }
                true
            }
        }
    }

    /// What was decided was decided after it was asked and before it was said.
    fn judge_stamp(&mut self, request: usize, response: &Response<'_>, now_ms: u64) {
        let stamp_ms = match response {
            Response::Welcome(answer) => answer.stamp_ms,
            Response::KeptAlive(answer) => answer.stamp_ms,
            Response::Granted(answer) => answer.stamp_ms,
            Response::GrantedKeys(answer) => answer.stamp_ms,
            Response::Extended(answer) => answer.stamp_ms,
            Response::Status(answer) => answer.stamp_ms,
            Response::Inspected(answer) => answer.stamp_ms,
            _ => return,
        };
        let sent_ms = self.requests[request].first_sent_ms;
        if stamp_ms < sent_ms || stamp_ms > now_ms {
            self.accuse("stamp", || format!("asked at {sent_ms}, said at {now_ms}: {response:?}"));
        }
    }

    fn judge(&mut self, connection: usize, request: usize, response: &Response<'_>, now_ms: u64) {
        let (lane, operation) = (self.requests[request].lane, self.requests[request].operation);
        match (operation, response) {
            (_, Response::Error(error)) => self.judge_refusal(request, error, now_ms),
            (
                Operation::Acquire(acquire @ Acquire { form: Form::Keys(keys), .. }),
                Response::GrantedKeys(granted),
            ) => {
                self.judge_grant_of_keys(request, &acquire, &keys, granted);
            }
            (Operation::Acquire(acquire), Response::Granted(granted))
                if !matches!(acquire.form, Form::Keys(_)) =>
            {
                self.judge_grant(request, &acquire, granted);
            }
            (Operation::Release { id, forged }, Response::Released(released)) => {
                self.judge_release(request, id, forged, released.was_waiting, now_ms);
            }
            (Operation::Extend { id, lease_ms }, Response::Extended(extended)) => {
                self.judge_extension(request, id, lease_ms, extended);
            }
            (Operation::Cancel { acquire, .. }, Response::Cancelled(cancelled)) => {
                if cancelled.was_waiting {
                    self.judge_cancellation(lane, acquire);
                }
            }
            (Operation::Status { id }, Response::Status(status)) => self.judge_status(request, id, status),
            (Operation::Inspect { .. }, Response::Inspected(inspected)) => {
                self.judge_inspection(request, inspected, now_ms);
            }
            (Operation::List { .. }, Response::Listed(listed)) => self.judge_list(request, listed),
            (Operation::Holds { .. }, Response::Listed(listed)) => self.judge_holds(request, listed, now_ms),
            (Operation::Verify { key, fence }, Response::Verified(verified)) => {
                self.judge_verified(request, key, fence, verified, now_ms);
            }
            (Operation::Watch { .. }, Response::Watching(watching)) => {
                self.judge_watching(connection, request, watching);
            }
            (Operation::Unwatch { watch, key }, Response::Unwatched(unwatched)) => {
                self.judge_unwatched(connection, watch, key, unwatched.was_watching);
            }
            (Operation::ForceRelease { id }, Response::ForceReleased(released)) => {
                self.judge_force_release(request, id, released, now_ms);
            }
            (Operation::Freeze { kind, prefix, thaw }, Response::Frozen(_)) => {
                self.judge_frozen(request, kind, prefix, thaw, now_ms);
            }
            (Operation::Describe { pool }, Response::PoolDescribed(described)) => {
                self.judge_description(request, pool, described, now_ms);
            }
            (Operation::SetCapacity { .. }, Response::CapacitySet(_)) => {
                self.judge_capacity_set(request, now_ms);
            }
            (Operation::Take(taking), Response::Throttled(throttled)) => {
                self.judge_taking(request, &taking, throttled, now_ms);
            }
            (Operation::Register(registering), Response::Registered(registered)) => {
                self.judge_registered(request, &registering, registered, now_ms);
            }
            (Operation::Unregister { key }, Response::Unregistered(unregistered)) => {
                self.judge_unregistered(request, key, unregistered.was_expired, now_ms);
            }
            (Operation::LookUp { key }, Response::LookedUp(looked_up)) => {
                self.judge_look_up(request, key, looked_up, now_ms);
            }
            (Operation::KeepAlive, Response::KeptAlive(kept)) => {
                self.note_session_lives(lane, kept.stamp_ms + u64::from(kept.remaining_ms));
            }
            (Operation::Goodbye, Response::Farewell(_)) => {}
            (Operation::Hello { .. }, Response::Welcome(welcome)) => {
                self.note_welcome(connection, welcome, now_ms);
            }
            _ => self.accuse("answers", || format!("{operation:?} is answered with {response:?}")),
        }
    }

    pub(super) fn judge_grant(&mut self, request: usize, acquire: &Acquire, granted: &Granted) {
        let Granted { id, fence, stamp_ms, remaining_ms, .. } = *granted;
        let asked = &self.requests[request];
        let (lane, queued) = (asked.lane, asked.queued);
        let before = asked.fences_before.iter().find(|(key, _)| *key == acquire.key);
        let fence_before = before.map_or(0, |(_, fence)| *fence);
        let is_one_of_several = matches!(acquire.form, Form::Keys(_));
        let (asked_once, first_sent_ms) = (asked.sent_count == 1, asked.first_sent_ms);
        let client = self.lanes[lane].client;
        if asked.is_cancelled {
            self.accuse("cancelled", || format!("{id} was granted after its cancellation was acknowledged"));
        }
        if asked_once && !is_one_of_several && queued.is_some_and(|(queued, ..)| queued != id) {
            self.accuse("answers", || format!("{acquire:?} waited under another id than {id}"));
        }
        let is_new_try = acquire.wait_ms == 0 && acquire.request_id.is_none();
        if granted.session_lease != acquire.session_lease || is_new_try && granted.waited {
            self.accuse("answers", || format!("{acquire:?} got {granted:?}"));
        }
        self.requests[request].is_granted = true;
        if granted.repeated && self.holds.contains_key(&id) {
            return self.judge_repeated_grant(request, acquire, granted);
        }
        if granted.repeated && !self.has_same_request_id(request, acquire) {
            self.accuse("request-id", || format!("{acquire:?} of client {client} was never asked before"));
        }
        if !granted.repeated && fence <= fence_before {
            self.accuse("fence-order", || format!("{id} got fence {fence}, {fence_before} was said before"));
        }
        if let Some(hold) = self.holds.get(&id) {
            let other = hold.fence;
            if hold.was_repeated && other == fence && hold.client == client {
                return;
            }
            return self.accuse("answers", || format!("{id} is granted with fences {other} and {fence}"));
        }
        // One that took over a waiter got what that one had asked for.
        let has_request_id = acquire.request_id.is_some();
        let inherits = has_request_id
            && (granted.repeated || granted.waited && self.has_same_request_id(request, acquire));
        let lease_ms =
            if acquire.is_endless() { u32::MAX } else { self.settings.given_lease_ms(acquire.lease_ms) };
        if !inherits && !acquire.session_lease && remaining_ms != lease_ms {
            self.accuse("answers", || format!("a lease of {lease_ms} ms was due: {granted:?}"));
        }
        if let Some(request_id) = acquire.request_id.filter(|_| !granted.repeated) {
            self.judge_new_with_request_id(client, acquire, request_id, granted);
        }
        let boost_ms = self.settings.boost_ms(acquire.priority.unwrap_or(0));
        let sent_ms = (asked_once && !has_request_id).then_some(self.requests[request].first_sent_ms);
        // It is that of the first of several keys.
        let is_first =
            matches!(self.requests[request].operation, Operation::Acquire(asked) if asked.key == acquire.key);
        let waited = queued.map(|(_, ticket, queued_ms)| Waited {
            ticket: is_first.then_some(ticket),
            boost_ms,
            sent_ms: self.requests[request].first_sent_ms,
            queued_ms,
        });
        // Who takes over a waiter takes its place, not its own.
        let is_own = queued.is_some_and(|(queued, ..)| queued == id) && acquire.request_id.is_none();
        let waited = waited.filter(|_| is_own);
        let grant = Granting {
            id,
            shared: acquire.shared,
            form: acquire.form,
            stamp_ms: (!granted.repeated).then_some(stamp_ms),
            sent_ms,
            boost_ms,
            waited,
        };
        if let Err((rule, text)) = self.key(acquire.key).add(fence, grant) {
            self.accuse(rule, || format!("key {}: {text}", acquire.key));
        }
        self.grant_count += 1;
        let tampered_ms = self.tampered.remove(&id);
        let hold = Hold {
            key: acquire.key,
            shared: acquire.shared,
            form: acquire.form,
            fence,
            client,
            request_id: acquire.request_id,
            lane,
            session: if acquire.session_lease { self.lanes[lane].session } else { None },
            // It may have any.
            release_after_ms: if inherits { Some(0) } else { acquire.release_after_ms },
            lease_stamp_ms: stamp_ms,
            lease_end_ms: stamp_ms + u64::from(remaining_ms),
            lease_is_open: false,
            since_ms: first_sent_ms,
            may_end_ms: tampered_ms.unwrap_or(u64::MAX),
            may_move: Vec::new(),
            others_may_end: tampered_ms.is_some(),
            was_repeated: granted.repeated,
            may_have_moved: inherits,
            over_ms: None,
            released_by: None,
            // Whose words those were is not known any more.
            release_count: if tampered_ms.is_some() { 2 } else { 0 },
        };
        if acquire.session_lease {
            self.note_session_lives(lane, stamp_ms + u64::from(remaining_ms));
        }
        self.holds.insert(id, hold);
        self.judge_neighbours(id);
        if !granted.repeated {
            self.judge_freeze_at(acquire.key, id, stamp_ms);
        }
    }

    fn judge_repeated_grant(&mut self, request: usize, acquire: &Acquire, granted: &Granted) {
        let lane = self.requests[request].lane;
        let client = self.lanes[lane].client;
        let first_sent_ms = self.requests[request].first_sent_ms;
        let Some(hold) = self.holds.get_mut(&granted.id) else { return };
        let same = hold.key == acquire.key
            && hold.form.is_same_request(&acquire.form)
            && hold.client == client
            && hold.request_id == acquire.request_id
            && hold.shared == acquire.shared
            && hold.fence == granted.fence;
        let is_over = hold.over_ms.is_some_and(|over_ms| over_ms < first_sent_ms);
        if hold.lane != lane {
            hold.lane = lane;
            hold.since_ms = first_sent_ms;
        }
        let known_end_ms = hold.lease_end_ms;
        let lease_is_known = hold.session.is_none()
            && hold.may_move.is_empty()
            && hold.release_after_ms.is_none()
            && !hold.lease_is_open
            && granted.stamp_ms > hold.lease_stamp_ms
            && granted.remaining_ms > 0;
        let end_ms = granted.stamp_ms + u64::from(granted.remaining_ms);
        if !same {
            self.accuse("request-id", || format!("{acquire:?} of client {client} found {granted:?}"));
        } else if is_over {
            self.accuse("old-id", || format!("{} was over and is granted again", granted.id));
        } else if lease_is_known && end_ms > known_end_ms {
            self.accuse("request-id", || format!("its lease ended at {known_end_ms}: {granted:?}"));
        }
    }

    /// A new claim with a request id: the old one with that id must be over.
    fn judge_new_with_request_id(
        &mut self,
        client: usize,
        acquire: &Acquire,
        request_id: u8,
        granted: &Granted,
    ) {
        let Granted { id, fence, stamp_ms, .. } = *granted;
        let same = |hold: &Hold| {
            hold.key == acquire.key
                && hold.form.is_same_request(&acquire.form)
                && hold.client == client
                && hold.request_id == Some(request_id)
                && hold.fence < fence
        };
        let older: Vec<LockId> =
            self.holds.iter().filter(|(_, hold)| same(hold)).map(|(older, _)| *older).collect();
        for older in older {
            let floor_ms = self.floor_ms(older);
            if floor_ms > stamp_ms && self.holds.get(&older).is_some_and(|hold| hold.over_ms.is_none()) {
                self.accuse("request-id", || {
                    format!(
                        "{id} is a new claim at {stamp_ms}, {older} of the same request lives to {floor_ms}"
                    )
                });
            }
        }
    }

    fn judge_release(&mut self, request: usize, id: LockId, forged: bool, was_waiting: bool, now_ms: u64) {
        if forged {
            return self.accuse("old-id", || format!("the forged id {id} was released"));
        }
        let first_sent_ms = self.requests[request].first_sent_ms;
        if was_waiting {
            if let Some(acquire) = self.waiters.get(&id).copied() {
                self.note_cancelled(acquire);
            }
            return;
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let over_before = hold.over_ms.is_some_and(|over_ms| over_ms < first_sent_ms);
        let twice = hold.released_by.replace(request).is_some_and(|other| other != request);
        if over_before || twice {
            self.accuse("old-id", || format!("{id} was over before it was released"));
        }
        self.note_over(id, now_ms);
    }

    fn judge_extension(&mut self, request: usize, id: LockId, lease_ms: u32, extended: &Extended) {
        self.forget_move(request, id);
        let first_sent_ms = self.requests[request].first_sent_ms;
        let given_ms = self.settings.given_lease_ms(lease_ms);
        let Extended { remaining_ms, stamp_ms, .. } = *extended;
        if remaining_ms != given_ms {
            self.accuse("answers", || format!("a lease of {given_ms} ms was due: {extended:?}"));
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.session.is_some() {
            return self.accuse("answers", || format!("{id} has no lease of its own: {extended:?}"));
        }
        let over_before = hold.over_ms.is_some_and(|over_ms| over_ms < first_sent_ms);
        hold.note_lease(stamp_ms, remaining_ms);
        if over_before {
            self.accuse("old-id", || format!("{id} was over before it was extended"));
        }
        self.judge_neighbours(id);
    }

    fn judge_cancellation(&mut self, lane: usize, number: u32) {
        if let Some(acquire) = self.lanes[lane].asked.get(&number).copied() {
            self.note_cancelled(acquire);
        }
    }

    fn note_cancelled(&mut self, acquire: usize) {
        let asked = &mut self.requests[acquire];
        asked.is_cancelled = true;
        // Its own answer comes after this one.
        if asked.is_granted {
            let (lane, number) = (asked.lane, asked.number);
            self.accuse("cancelled", || {
                format!("lane {lane}: {number} is acknowledged to have waited when it was granted")
            });
        }
    }

    fn judge_status(&mut self, request: usize, id: LockId, status: &StatusAnswer<'_>) {
        let first_sent_ms = self.requests[request].first_sent_ms;
        let Some(hold) = self.holds.get(&id) else { return };
        let is_over = hold.over_ms.is_some_and(|over_ms| over_ms < first_sent_ms);
        let same =
            status.state == LockState::Held && status.fence == hold.fence && status.shared == hold.shared;
        if is_over {
            self.accuse("old-id", || format!("{id} was over: {status:?}"));
        } else if !same {
            self.accuse("view", || format!("{id} is held otherwise than it was granted: {status:?}"));
        }
    }

    fn judge_inspection(&mut self, request: usize, inspected: &Inspected<'_>, now_ms: u64) {
        let asked = &self.requests[request];
        let (sent_ms, fence_before) = (asked.first_sent_ms, asked.fence_before);
        let Operation::Inspect { key } = asked.operation else { return };
        let exclusive = inspected.holders.iter().any(|holder| !holder.shared);
        let conflict = exclusive && inspected.holder_count > 1 && key != TREE;
        if conflict || inspected.fence < fence_before && !self.settings.is_forgetful {
            return self.accuse("view", || {
                format!("key {key}: fence {fence_before} was said before: {inspected:?}")
            });
        }
        let shown: Vec<LockId> = inspected.holders.iter().map(|holder| holder.id).collect();
        self.judge_shown(&shown, sent_ms);
        self.judge_overdue(&shown, inspected.stamp_ms);
        let all_shown = inspected.holder_count as usize == shown.len();
        self.judge_missing(key, fence_before, &shown, all_shown, now_ms);
    }

    /// What was granted before it was asked, and lives for sure when it was answered, is shown.
    pub(super) fn judge_missing(
        &mut self,
        key: Key,
        fence_before: u64,
        shown: &[LockId],
        all_shown: bool,
        now_ms: u64,
    ) {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        for id in ids {
            let hold = &self.holds[&id];
            let listed = hold.key != key || shown.contains(&id) || !all_shown;
            if !listed && hold.fence <= fence_before && hold.over_ms.is_none() && self.floor_ms(id) > now_ms {
                self.accuse("view", || format!("key {key}: {id} is held, shown are {shown:?}"));
            }
        }
    }

    /// Where workers always get to run soon, nothing is held for long after its lease.
    fn judge_overdue(&mut self, shown: &[LockId], stamp_ms: u64) {
        if self.settings.stall_percent > 0 {
            return;
        }
        for id in shown {
            let Some(hold) = self.holds.get(id) else { continue };
            let is_certain = hold.session.is_none()
                && hold.may_move.is_empty()
                && !hold.lease_is_open
                && !hold.may_have_moved
                && !hold.was_repeated;
            let end_ms = hold.lease_end_ms;
            if is_certain && stamp_ms > end_ms + OVERDUE_MS {
                self.accuse("overdue", || {
                    format!("{id} is still held at {stamp_ms}, its lease ended at {end_ms}")
                });
            }
        }
    }

    fn judge_list(&mut self, request: usize, listed: &Listed<'_>) {
        let sent_ms = self.requests[request].first_sent_ms;
        let shown: Vec<LockId> = listed.locks.iter().map(|lock| lock.id).collect();
        self.judge_shown(&shown, sent_ms);
    }

    /// What is shown as held was not known to be over when the question was asked.
    pub(super) fn judge_shown(&mut self, shown: &[LockId], sent_ms: u64) {
        for id in shown {
            let over_ms = self.holds.get(id).and_then(|hold| hold.over_ms);
            if over_ms.is_some_and(|over_ms| over_ms < sent_ms) {
                self.accuse("view", || format!("{id} is shown as held, it was over at {over_ms:?}"));
            }
        }
    }

    fn judge_refusal(&mut self, request: usize, error: &ErrorAnswer<'_>, now_ms: u64) {
        let asked = &self.requests[request];
        let (lane, operation, sent_ms) = (asked.lane, asked.operation, asked.first_sent_ms);
        let is_tight = self.settings.is_tight;
        let is_fair = match (operation, error.code) {
            (Operation::Hello { session, .. }, ErrorCode::SessionGone) => {
                return self.judge_session_gone(session, now_ms);
            }
            (_, ErrorCode::SessionGone) => self.may_be_gone(lane, now_ms),
            (Operation::Acquire(acquire), ErrorCode::Busy) => acquire.wait_ms == 0,
            (Operation::Acquire(acquire), ErrorCode::Timeout) => {
                let waits = acquire.wait_ms > 0 && acquire.wait_ms < u32::MAX;
                let over_ms = sent_ms + u64::from(acquire.wait_ms);
                // One that took over a waiter has that one's deadline.
                if waits && now_ms < over_ms && acquire.request_id.is_none() {
                    self.accuse("early-timeout", || format!("{acquire:?} of {sent_ms} ended at {now_ms}"));
                }
                waits || acquire.request_id.is_some()
            }
            (Operation::Acquire(_), ErrorCode::Cancelled) => {
                asked.may_be_cancelled
                    || is_lost_while_waiting(error) && self.lanes[lane].connections.len() > 1
            }
            (Operation::Acquire(_), ErrorCode::Overloaded) => is_tight,
            (Operation::Acquire(acquire), ErrorCode::Frozen) => {
                acquire.wait_ms == 0 && self.may_be_frozen(acquire.key)
            }
            (
                Operation::Acquire(acquire @ Acquire { form: Form::Permits(_), .. }),
                ErrorCode::CapacityMismatch | ErrorCode::BadInput,
            ) => self.is_pool_refusal_fair(request, &acquire, error, now_ms),
            (Operation::Acquire(acquire), ErrorCode::BadInput) => acquire.request_id.is_some(),
            (Operation::Register(_) | Operation::Unregister { .. }, _) => {
                self.is_entry_refusal_fair(request, &operation, error, now_ms)
            }
            (
                Operation::Release { id, .. }
                | Operation::ForceRelease { id }
                | Operation::Extend { id, .. }
                | Operation::Status { id },
                ErrorCode::NotFound,
            ) => {
                if let Operation::Extend { .. } = operation {
                    self.forget_move(request, id);
                }
                return self.judge_not_found(request, id, now_ms);
            }
            (Operation::Extend { id, .. }, ErrorCode::BadInput) => {
                self.forget_move(request, id);
                self.holds.get(&id).is_none_or(|hold| hold.session.is_some() || hold.key == TREE)
            }
            (Operation::Extend { id, .. }, ErrorCode::NotHeld) => !self.holds.contains_key(&id),
            _ => false,
        };
        if is_fair {
            return;
        }
        let rule = if error.code == ErrorCode::Cancelled { "cancelled" } else { "answers" };
        self.accuse(rule, || format!("lane {lane}: {operation:?} is refused: {error:?}"));
    }

    fn judge_session_gone(&mut self, session: SessionRequest, now_ms: u64) {
        use SessionRequest::{Join, Resume};
        let (Resume { id, .. } | Join { id }) = session else {
            return self.accuse("answers", || format!("{session:?} is refused as gone"));
        };
        // A greeting that waits at a door is none of the session's frames yet, so its arrival does not count.
        self.note_session_over(id, now_ms);
    }

    /// A claim is not there any more. That is fair if it may have been over when the request arrived.
    fn judge_not_found(&mut self, request: usize, id: LockId, now_ms: u64) {
        let asked = &self.requests[request];
        let (operation, arrived_ms) = (asked.operation, asked.arrived_ms);
        if matches!(operation, Operation::Release { forged: true, .. }) {
            return;
        }
        let Some(hold) = self.holds.get(&id) else { return };
        // Requests on several connections are served in any order, so somebody's word counts from when it was given. That of
        // a release is its own.
        let ends = matches!(operation, Operation::Release { .. } | Operation::ForceRelease { .. });
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
                format!("{operation:?} arrived at {arrived_ms} and finds nothing, {id} lives to {floor_ms}: {hold}")
            });
        }
    }

    fn hear_event(&mut self, lane: usize, number: u32, event: &Event, now_ms: u64) {
        match *event {
            Event::Queued { id, ticket, .. } => {
                let Some(request) = self.lanes[lane].asked.get(&number).copied() else {
                    return self
                        .accuse("answers", || format!("lane {lane}: nobody asked {number}: {event:?}"));
                };
                let asked = &mut self.requests[request];
                let notify = matches!(asked.operation, Operation::Acquire(acquire) if acquire.notify_queued);
                if !notify || asked.is_answered {
                    self.accuse("answers", || format!("lane {lane}: {number} did not ask for {event:?}"));
                } else {
                    asked.queued = Some((id, ticket, now_ms));
                    self.waiters.insert(id, request);
                }
            }
            Event::Expired { id } => {
                let floor_ms = self.floor_ms(id);
                if now_ms < floor_ms {
                    self.accuse("lost-lease", || format!("{id} expired at {now_ms}, it lives to {floor_ms}"));
                }
                self.note_over(id, now_ms);
            }
            Event::Revoked { id, reason, message } => {
                let floor_ms = self.floor_ms(id);
                let Some(hold) = self.holds.get(&id) else { return };
                let is_fair = match reason {
                    RevokeReason::ConnectionLost => hold.release_after_ms.is_some() && now_ms >= floor_ms,
                    RevokeReason::ReleasedElsewhere => hold.may_end_ms <= now_ms,
                    RevokeReason::Forced => self.is_forced(id) && message == FORCED,
                    RevokeReason::Other(_) => false,
                };
                if !is_fair {
                    self.accuse("lost-lease", || format!("{event:?} at {now_ms}, it lives to {floor_ms}"));
                }
                self.note_over(id, now_ms);
            }
            Event::LeaseMoved { id, remaining_ms, stamp_ms } => {
                if let Some(hold) = self.holds.get_mut(&id) {
                    hold.note_lease(stamp_ms, remaining_ms);
                }
            }
            Event::KeyHeld { .. } | Event::KeyFreed { .. } | Event::Overrun => {}
            Event::SessionExpired => {
                if let Some(session) = self.lanes[lane].session {
                    self.note_session_over(session, now_ms);
                }
            }
        }
    }
}

/// Whether a repetition must get this answer again: what had no effect may be tried anew.
fn is_kept(response: &Response<'_>) -> bool {
    match response {
        Response::Error(error) => {
            !matches!(error.code, ErrorCode::SessionGone | ErrorCode::Shutdown)
                && !is_lost_while_waiting(error)
        }
        _ => true,
    }
}

fn is_lost_while_waiting(error: &ErrorAnswer<'_>) -> bool {
    matches!(error.detail, ErrorDetail::Text { message, .. } if message == LOST_WHILE_WAITING)
}
