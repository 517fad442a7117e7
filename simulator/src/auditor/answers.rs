//! Checks each response against its request.

use super::Auditor;
use crate::form::Form;
use crate::operation::{Acquire, Operation};
use waymaker_protocol::{ErrorCode, Event, Response};

impl Auditor {
    /// Checks one frame that the server sends to a connection.
    pub(super) fn hear(
        &mut self,
        connection: usize,
        number: u32,
        response: &Response<'_>,
        frame: &[u8],
        now_ms: u64,
    ) {
        let lane = self.connections[connection].lane;
        self.judge_welcome(connection, response);
        self.judge_farewell(connection, number, response);
        if let Response::Event(event) = response {
            if let Event::KeyHeld { .. } | Event::KeyFreed { .. } | Event::Overrun = event {
                return self.hear_watch(connection, number, event, now_ms);
            }
            return self.hear_event(connection, number, event, now_ms);
        }
        if number == 0 {
            // The frame is about the connection, which the server closes.
            return;
        }
        let Some(request) = self.lanes[lane].requests.get(&number).copied() else {
            return self.accuse("answers", || {
                format!(
                    "lane {lane}: the response has request number {number}, which was never sent: {response:?}"
                )
            });
        };
        if !self.connections[connection].answered.insert(number) {
            return self.accuse("answers", || {
                format!(
                    "lane {lane}: request {number} has a second response on the same connection: {response:?}"
                )
            });
        }
        if !self.is_first(request, response, frame) {
            return;
        }
        self.requests[request].is_answered = true;
        self.requests[request].answered_ms = Some(now_ms);
        if let Response::Welcome(_) = response {
            self.connections[connection].welcome_ms.get_or_insert(now_ms);
        }
        self.judge_stamp(request, response, now_ms);
        self.judge(connection, number, request, response, now_ms);
    }

    /// Rule `repeat`: returns whether this is the first response to a request. A repetition must be equal.
    fn is_first(&mut self, request: usize, response: &Response<'_>, frame: &[u8]) -> bool {
        let record = &mut self.requests[request];
        if !record.operation.has_effect() || self.lanes[record.lane].session.is_none() {
            return true;
        }
        match &record.kept {
            Some(kept) if kept == frame => false,
            Some(_) if !is_kept(response) => true,
            Some(_) => {
                let (lane, number) = (record.lane, record.number);
                self.accuse("repeat", || {
                    format!(
                        "lane {lane}: the repeated request {number} must get its first response again, but got {response:?}"
                    )
                });
                false
            }
            None => {
                if is_kept(response) {
                    record.kept = Some(frame.to_vec());
                }
                true
            }
        }
    }

    /// Rule `stamp`: the server decides a response after its request was sent and before the response is
    /// sent.
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
            self.accuse("stamp", || {
                format!(
                    "the stamp must lie between the request, sent at {sent_ms} ms, and its response, sent at {now_ms} ms: {response:?}"
                )
            });
        }
    }

    /// Rule `session-gone`: a connection gets no grant after the event that its session has ended.
    fn judge_session_is_there(
        &mut self,
        connection: usize,
        number: u32,
        operation: &Operation,
        response: &Response<'_>,
    ) {
        let listener = &mut self.connections[connection];
        match response {
            Response::Error(error) if error.code == ErrorCode::SessionGone => {
                listener.is_session_gone |= !matches!(operation, Operation::Hello { .. });
            }
            Response::Granted(_) | Response::GrantedKeys(_)
                // A front end may have another lane for each request.
                if listener.is_session_gone && !listener.is_front =>
            {
                self.accuse("session-gone", || {
                    format!(
                        "connection {connection} knows that its session has ended, but got a grant for request {number}: {response:?}"
                    )
                });
            }
            _ => {}
        }
    }

    fn judge(
        &mut self,
        connection: usize,
        number: u32,
        request: usize,
        response: &Response<'_>,
        now_ms: u64,
    ) {
        let (lane, operation) = (self.requests[request].lane, self.requests[request].operation);
        self.judge_durable(request, response);
        self.judge_session_is_there(connection, number, &operation, response);
        match (operation, response) {
            (_, Response::Error(error)) => self.judge_refusal(request, error, now_ms),
            (Operation::Release { id, own: true, .. } | Operation::Extend { id, own: true, .. }, _)
                if self.is_of_another_client(request, id) =>
            {
                self.accuse("own-claim", || {
                    format!(
                        "lane {lane}: the request is limited to own claims, but {id} belongs to another client: {response:?}"
                    )
                });
            }
            (
                Operation::Acquire(acquire @ Acquire { form: Form::Keys(keys), .. }),
                Response::GrantedKeys(granted),
            ) => {
                self.judge_grant_of_keys(request, &acquire, &keys, granted, now_ms);
            }
            (Operation::Acquire(acquire), Response::Granted(granted))
                if !matches!(acquire.form, Form::Keys(_)) =>
            {
                self.judge_grant(request, &acquire, granted, now_ms);
            }
            (Operation::Release { id, forged, .. }, Response::Released(released)) => {
                self.judge_release(request, id, forged, released.was_waiting, now_ms);
            }
            (Operation::Extend { id, lease_ms, .. }, Response::Extended(extended)) => {
                self.judge_extension(request, id, lease_ms, extended, now_ms);
            }
            (Operation::Cancel { acquire, .. }, Response::Cancelled(cancelled)) => {
                if cancelled.was_waiting {
                    self.judge_cancellation(request, acquire, now_ms);
                }
            }
            (Operation::Status { id }, Response::Status(status)) => {
                self.note_word(id, status.stamp_ms, status.remaining_ms);
                self.judge_status(request, id, status);
            }
            (Operation::Inspect { .. }, Response::Inspected(inspected)) => {
                self.judge_inspection(request, inspected, now_ms);
            }
            (Operation::List(listing), Response::Listed(listed)) => {
                self.judge_list(request, &listing, listed, now_ms);
            }
            (Operation::Holds { .. }, Response::Listed(listed)) => self.judge_holds(request, listed, now_ms),
            (Operation::Verify { key, fence }, Response::Verified(verified)) => {
                self.judge_verified(request, key, fence, verified, now_ms);
            }
            (Operation::Watch { .. }, Response::Watching(watching)) => {
                self.judge_watching(connection, request, watching, now_ms);
            }
            (Operation::Unwatch { watch, key }, Response::Unwatched(unwatched)) => {
                self.judge_unwatched(connection, watch, key, unwatched.was_watching);
            }
            (Operation::ForceRelease { id }, Response::ForceReleased(released)) => {
                self.judge_force_release(request, id, released, now_ms);
            }
            (Operation::Freeze { kind, prefix, thaw }, Response::Frozen(frozen)) => {
                self.judge_frozen(request, kind, prefix, thaw, now_ms);
                self.judge_frozen_count(kind, prefix, thaw, frozen);
            }
            (Operation::Describe { pool }, Response::PoolDescribed(described)) => {
                self.judge_description(request, pool, described, now_ms);
            }
            (Operation::ListPools(listing), Response::PoolsListed(listed)) => {
                self.judge_pools(request, &listing, listed, now_ms);
            }
            (Operation::SetCapacity { pool, .. }, Response::CapacitySet(set)) => {
                self.judge_previous_capacity(request, pool, set.previous, now_ms);
                self.judge_capacity_set(request, now_ms);
            }
            (Operation::Take(withdrawal), Response::Throttled(throttled)) => {
                self.judge_withdrawal(request, &withdrawal, throttled, now_ms);
            }
            (Operation::Register(registration), Response::Registered(registered)) => {
                self.judge_registered(request, &registration, registered, now_ms);
            }
            (Operation::Unregister { key }, Response::Unregistered(unregistered)) => {
                self.judge_unregistered(request, key, unregistered.was_expired, now_ms);
            }
            (Operation::LookUp { key }, Response::LookedUp(looked_up)) => {
                self.judge_look_up(request, key, looked_up, now_ms);
            }
            (Operation::ListEntries(listing), Response::EntriesListed(listed)) => {
                self.judge_entries(request, &listing, listed, now_ms);
            }
            (Operation::Namespaces { cursor, .. }, Response::NamespacesListed(listed)) => {
                let is_whole = cursor == 0 && listed.next == 0;
                self.judge_namespaces(request, is_whole, listed, now_ms);
            }
            (Operation::KeepAlive, Response::KeptAlive(kept)) => {
                self.judge_kept_alive(request, kept);
            }
            (Operation::Goodbye, Response::Farewell(_)) => {
                self.note_closed(connection, now_ms);
                self.owe_end_to_others(connection, now_ms);
            }
            (Operation::Hello { kind, .. }, Response::Welcome(welcome)) => {
                self.note_namespace(kind, now_ms);
                self.judge_announced(request, welcome);
                self.note_welcome(connection, welcome, now_ms);
            }
            _ => self
                .accuse("answers", || format!("{operation:?} got a response of another kind: {response:?}")),
        }
    }
}

/// Returns whether a repetition must get this response again. A request without an effect may be tried again.
fn is_kept(response: &Response<'_>) -> bool {
    match response {
        Response::Error(error) => {
            !matches!(error.code, ErrorCode::SessionGone | ErrorCode::Shutdown | ErrorCode::Overloaded)
        }
        _ => true,
    }
}
