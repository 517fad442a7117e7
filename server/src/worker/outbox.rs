//! Delivery of effects: to lanes of this worker at once, to lanes of other workers by mail.

use super::acts;
use super::answer::{Context, lock_id, put_allowance, put_answer, put_event, put_grant, put_refusal};
use super::followed_requests::FollowedRequests;
use super::lane::{Lane, Lanes, Stage};
use super::multi_shard::FollowUp;
use super::window::Withdrawal;
use crate::audit::{Act, AuditEvent, Caller, Detail};
use crate::deferred::DeferredEffect;
use crate::expiries::Expiries;
use crate::limits::{OUTPUT_LEN_PAUSE, OUTPUT_LEN_REFUSE};
use crate::log::LogBatch;
use crate::mail::{ConnectionKey, Content, Letter};
use crate::metrics::{AcquireResult, WorkerMetrics};
use crate::namespaces::Namespaces;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{
    ActOnOther, Allowance, Answer, CancelReason, ClaimAct, Effects, Event, Grant, LaneAddress, Measure,
    QuorumQuestion, Refusal, Ticket, Time, WhenDurable,
};
use waymaker_log::Record;
use waymaker_protocol::Released;

/// Delivers the effects of a turn while the turn is still held, so that they leave in the order of the changes. Also
/// delivers answers that need no turn, and the letters of other workers.
#[derive(Debug)]
pub(crate) struct Outbox<'a> {
    pub(crate) worker: u16,
    pub(crate) shard: u16,
    pub(crate) shard_count: u16,
    /// Time of the turn that produced the effects, or of the input if there was no turn.
    pub(crate) stamp: Time,
    pub(crate) lanes: &'a mut Lanes,
    /// Connections that have something to write or must be closed.
    pub(crate) dirty: &'a mut Vec<ConnectionKey>,
    /// Letters for lanes of other workers (answers, events, and notices that an acquire waits) that are not posted yet,
    /// indexed by worker.
    pub(crate) letters: &'a mut [Vec<Letter>],
    /// Records for the log that are not posted yet.
    pub(crate) log: &'a mut LogBatch,
    /// Grants of quorum scope for which the cluster must raise the fence counters. They are not posted to the thread
    /// that asks the cluster yet.
    pub(crate) questions: &'a mut Vec<QuorumQuestion>,
    /// Work to do after the turn is given back.
    pub(crate) follow_ups: &'a mut Vec<FollowUp>,
    /// Acts of operators and traced requests.
    pub(crate) followed: &'a mut FollowedRequests,
    /// Namespaces of the server, to look up their names.
    pub(crate) namespaces: &'a Mutex<Namespaces>,
    /// Counts of registrations whose lease expired.
    pub(crate) expiries: &'a Expiries,
    /// Metrics of this worker.
    pub(crate) metrics: &'a WorkerMetrics,
}

impl Effects for Outbox<'_> {
    #[inline]
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        if ticket.lane.worker == self.worker {
            self.deliver_answer(ticket, &answer);
        } else {
            self.mail(ticket.lane.worker, Content::Answer(ticket, answer));
        }
    }

    #[inline]
    fn granted(&mut self, ticket: Ticket, grant: Grant) {
        let is_put = self.put_plainly(ticket, |lane, context| {
            lane.uncounted_grants = lane.uncounted_grants.wrapping_add(1);
            put_grant(&mut lane.output, ticket.number, &grant, context);
        });
        if !is_put {
            self.answer_acquire(ticket, Answer::Granted(grant));
        }
    }

    fn answer_acquire(&mut self, ticket: Ticket, answer: Answer) {
        if ticket.lane.worker == self.worker {
            self.deliver_acquire_answer(ticket, &answer);
        } else {
            self.mail(ticket.lane.worker, Content::AcquireAnswer(ticket, answer));
        }
    }

    #[inline(always)]
    fn hold_ended(&mut self, held_nanos: u64) {
        self.metrics.holds.note_nanos(held_nanos);
    }

    fn measure(&mut self, measure: Measure) {
        self.metrics.note(measure);
    }

    #[inline]
    fn released(&mut self, ticket: Ticket) {
        let released = Released { was_waiting: false };
        if !self.put_plainly(ticket, |lane, _| released.encode(ticket.number, &mut lane.output)) {
            self.answer(ticket, Answer::Released { was_waiting: false });
        }
    }

    #[inline]
    fn throttled(&mut self, ticket: Ticket, allowance: Allowance) {
        if !self.put_plainly(ticket, |lane, _| put_allowance(&mut lane.output, ticket.number, &allowance)) {
            self.answer(ticket, Answer::Throttled(allowance));
        }
    }

    fn namespaces_forgotten(&mut self, number: u64, in_use: Vec<u16>) {
        self.follow_ups.push(FollowUp::Looked(number, in_use));
    }

    fn waits(&mut self, ticket: Ticket) {
        if ticket.lane.worker == self.worker {
            self.note_waits(ticket);
        } else {
            self.mail(ticket.lane.worker, Content::Waits(ticket));
        }
    }

    fn answer_waiter(&mut self, ticket: Ticket, answer: Answer) {
        if ticket.lane.worker == self.worker {
            self.deliver_waiter_answer(ticket, &answer);
        } else {
            self.mail(ticket.lane.worker, Content::WaiterAnswer(ticket, answer));
        }
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        if lane.worker == self.worker {
            self.deliver_event(lane, &event);
        } else {
            self.mail(lane.worker, Content::Event(lane, event));
        }
    }

    fn recheck(&mut self, multi_key: &Arc<MultiKeyClaim>) {
        self.follow_ups.push(FollowUp::Recheck(Arc::clone(multi_key)));
    }

    fn withdraw(&mut self, multi_key: &Arc<MultiKeyClaim>) {
        self.follow_ups.push(FollowUp::Withdraw(Arc::clone(multi_key)));
    }

    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        self.log.push(shard, number, record);
    }

    fn acted_on_other(&mut self, act: ActOnOther<'_>) {
        let ActOnOther { act, lane, by, namespace, id, key, owner } = act;
        let namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        // This worker cannot read a lane (the state of a connection) of another worker. If the client that acted has
        // such a lane, the audit event names it by its identity only, without address, front end and owner.
        let own = self.lanes.at(lane).filter(|_| lane.worker == self.worker).map(|lane| acts::caller(lane));
        let caller = Caller { identity: Some(Arc::clone(by)), ..own.unwrap_or_default() };
        let namespace = namespaces.name_of(namespace).map(Box::from);
        let (act, lease_ms) = match act {
            ClaimAct::Release => (Act::ReleaseOther, None),
            ClaimAct::Extend { lease_ms } => (Act::ExtendOther, Some(u64::from(lease_ms))),
            ClaimAct::Register { lease_ms } => (Act::RegisterOther, Some(lease_ms)),
            ClaimAct::TakeOver => (Act::TakeOver, None),
        };
        let mut details = vec![("holder", Detail::Bytes(owner.into()))];
        details.extend(lease_ms.map(|lease_ms| ("lease_ms", Detail::Number(lease_ms))));
        self.followed.acts.note(AuditEvent {
            namespace,
            id: Some(lock_id(id)),
            key: Some(key.into()),
            details,
            ..AuditEvent::new(act, caller)
        });
    }

    fn registration_expired(&mut self, namespace: u16, type_name: &[u8]) {
        self.expiries.count(namespace, type_name);
    }

    fn when_durable(&mut self, then: WhenDurable) {
        self.log.waiting.push(DeferredEffect { stamp: self.stamp, shard: self.shard, then });
    }

    fn ask_quorum(&mut self, question: QuorumQuestion) {
        self.questions.push(question);
    }
}

impl Outbox<'_> {
    #[cold]
    fn mail(&mut self, worker: u16, content: Content) {
        self.letters[usize::from(worker)].push(Letter { stamp: self.stamp, shard: self.shard, content });
    }

    /// Writes an answer straight to the output of a connected lane of this worker that has no session. Returns false,
    /// and does nothing, for any other lane. Also returns false while any act of an operator or traced request of this
    /// worker is unanswered. The answer may be the one that ends its audit event or span.
    #[inline]
    fn put_plainly(&mut self, ticket: Ticket, put: impl FnOnce(&mut Lane, Context)) -> bool {
        let (stamp, shard, shard_count) = (self.stamp, self.shard, self.shard_count);
        if !self.followed.is_plain(ticket) {
            return false;
        }
        let Some(lane) = self.lanes.at(ticket.lane).filter(|lane| lane.is_plain()) else { return false };
        lane.in_flight -= 1;
        let context = Context { stamp, shard, shard_count, session_end: lane.session_end };
        put(lane, context);
        mark_dirty(lane, self.dirty);
        true
    }

    /// Counts the acquire of this ticket as waiting in a queue, and no longer as a request in flight. Its lane has a
    /// limit for each count. If the acquire is traced, its span gets the time at which it began to wait.
    pub(crate) fn note_waits(&mut self, ticket: Ticket) {
        self.followed.note_waits(ticket);
        if let Some(lane) = self.lanes.at(ticket.lane) {
            lane.in_flight -= 1;
            lane.waiting += 1;
        }
    }

    /// Delivers the answer of an acquire that waited: to the output of its lane, and to the kept answers of a session.
    /// Counts the acquire as no longer waiting.
    pub(crate) fn deliver_waiter_answer(&mut self, ticket: Ticket, answer: &Answer) {
        if let Some(lane) = self.lanes.at(ticket.lane) {
            lane.in_flight += 1;
            lane.waiting -= 1;
        }
        self.deliver_acquire_answer(ticket, answer);
    }

    /// Delivers the answer of an acquire to the output of its lane, and to the kept answers of a session. Counts the
    /// result of the acquire, unless the answer repeats a grant.
    pub(crate) fn deliver_acquire_answer(&mut self, ticket: Ticket, answer: &Answer) {
        self.deliver(ticket, answer, AcquireResult::of(answer));
    }

    /// Writes an answer to the output of its lane. If the lane has a session, also keeps the answer, unless the request
    /// was served and is of a kind without an effect.
    #[inline]
    pub(crate) fn deliver_answer(&mut self, ticket: Ticket, answer: &Answer) {
        self.deliver(ticket, answer, None);
    }

    #[inline]
    fn deliver(&mut self, ticket: Ticket, answer: &Answer, result: Option<AcquireResult>) {
        // End the audit event of an operator's act, or the span of a traced request, even if the client has left.
        self.followed.end(ticket, answer);
        if let Answer::Refused(Refusal::Overloaded { limit, .. }) = answer {
            self.metrics.note_rejected(limit);
        }
        let (stamp, shard, shard_count) = (self.stamp, self.shard, self.shard_count);
        let Some(lane) = self.lanes.at(ticket.lane) else { return };
        if let Some(result) = result {
            lane.count_acquire(result);
        }
        if lane.pending_len() >= OUTPUT_LEN_REFUSE && is_long(answer) {
            return self.deliver_refused_as_full(ticket);
        }
        lane.in_flight -= 1;
        if lane.stage != Stage::Open && comes_too_late(lane.stage, answer) {
            return;
        }
        let context = Context { stamp, shard, shard_count, session_end: lane.session_end };
        if let Some(window) = &mut lane.window {
            if matches!(answer, Answer::Refused(Refusal::Cancelled(CancelReason::ConnectionLost))) {
                match window.withdraw(ticket.number, lane.epoch) {
                    Withdrawal::Forgotten => {}
                    Withdrawal::AskedAgain(frame) => {
                        self.follow_ups.push(FollowUp::AskAgain(ticket.lane, frame));
                    }
                    Withdrawal::GivenUp => {
                        let given_up = Answer::Refused(Refusal::Cancelled(CancelReason::Asked));
                        keep_answer(lane, ticket.number, &given_up, context);
                        mark_dirty(lane, self.dirty);
                    }
                }
                return;
            }
            keep_answer(lane, ticket.number, answer, context);
        } else if lane.epoch != 0 {
            put_answer(&mut lane.output, ticket.number, answer, context);
        }
        mark_dirty(lane, self.dirty);
    }

    /// Delivers an answer that is already encoded as a frame. Only requests without an effect have such answers.
    pub(crate) fn answer_frame(&mut self, ticket: Ticket, frame: Vec<u8>) {
        if ticket.lane.worker == self.worker {
            self.deliver_frame(ticket, &frame);
        } else {
            self.mail(ticket.lane.worker, Content::Frame(ticket, frame));
        }
    }

    pub(crate) fn deliver_frame(&mut self, ticket: Ticket, frame: &[u8]) {
        let is_full = self.lanes.at(ticket.lane).is_some_and(|lane| lane.pending_len() >= OUTPUT_LEN_REFUSE);
        if is_full {
            return self.deliver_refused_as_full(ticket);
        }
        self.deliver_unkept(ticket, frame);
    }

    /// Refuses a request because the output of its lane has no room for the answer.
    #[cold]
    fn deliver_refused_as_full(&mut self, ticket: Ticket) {
        let (limit, value) = ("bytes of unread responses", OUTPUT_LEN_REFUSE as u64);
        self.metrics.note_rejected(limit);
        let mut frame = Vec::new();
        put_refusal(&mut frame, ticket.number, &Refusal::Overloaded { limit, value });
        self.deliver_unkept(ticket, &frame);
    }

    /// Writes an answer to the output of its lane without keeping it. A repetition of the request is served again.
    /// Writes nothing if the present connection did not send the request.
    fn deliver_unkept(&mut self, ticket: Ticket, frame: &[u8]) {
        let Some(lane) = self.lanes.at(ticket.lane) else { return };
        lane.in_flight -= 1;
        let mut is_heard = lane.is_heard();
        if let Some(window) = &mut lane.window {
            is_heard &= window.is_asked_by(ticket.number, lane.epoch);
            window.forget(ticket.number);
        }
        if is_heard {
            lane.output.extend_from_slice(frame);
            mark_dirty(lane, self.dirty);
        }
    }

    pub(crate) fn deliver_event(&mut self, address: LaneAddress, event: &Event) {
        let Some(lane) = self.lanes.at(address).filter(|lane| lane.is_heard()) else { return };
        if let Event::KeyHeld { number, .. } | Event::KeyFreed { number, .. } = event
            && lane.pending_len() >= OUTPUT_LEN_PAUSE
        {
            // A client that does not read its events gets one `OVERRUN` for each watch until the output has room again.
            // The events themselves are dropped.
            if lane.overrun.insert(*number) {
                waymaker_protocol::Event::Overrun.encode(*number, &mut lane.output);
            }
            return;
        }
        if matches!(event, Event::TakenUp { .. }) && !lane.notify_taken_up {
            return;
        }
        // Drop the event if an earlier connection sent the request, or if the request was refused because its session
        // is gone.
        if let Event::Queued { number, .. } = event
            && lane.window.as_ref().is_some_and(|window| !window.is_asked_by(*number, lane.epoch))
        {
            return;
        }
        put_event(&mut lane.output, event, self.stamp);
        mark_dirty(lane, self.dirty);
    }
}

/// Returns true if the connection must not get this answer any more. A connection whose last frame was `FAREWELL` gets
/// no answer. A client that knows that its session has ended gets no grant.
#[cold]
fn comes_too_late(stage: Stage, answer: &Answer) -> bool {
    match stage {
        // `FAREWELL` was the last frame of the connection. This answer comes after it: it waited for the log, or the
        // server stops and did not wait for another worker.
        Stage::Left => true,
        // The client already knows that its session has ended, although another worker has not closed the lane yet.
        Stage::SessionGone => matches!(answer, Answer::Granted(_) | Answer::GrantedMultiKey(_)),
        _ => false,
    }
}

/// Adds the connection of a lane, if it has one, to the list of connections that have something to write, once.
#[inline]
pub(crate) fn mark_dirty(lane: &mut Lane, dirty: &mut Vec<ConnectionKey>) {
    if !lane.dirty && lane.epoch != 0 {
        lane.dirty = true;
        dirty.push(lane.key());
    }
}

/// Writes an answer to a lane, and keeps it for a repeated request. Does not keep the answer to a served request of a
/// kind without an effect. If the present connection did not send the request, or there is none, writes nothing.
fn keep_answer(lane: &mut Lane, number: u32, answer: &Answer, context: Context) {
    let start = lane.output.len();
    put_answer(&mut lane.output, number, answer, context);
    let Some(window) = &mut lane.window else { return };
    let is_heard = lane.epoch != 0 && window.is_asked_by(number, lane.epoch);
    match answer {
        // Do not keep the answer to a served request of a kind without an effect. The server can serve a repetition of
        // such a request again.
        answer if changes_nothing(answer) => window.forget(number),
        _ => window.answer(number, &lane.output[start..]),
    }
    if !is_heard {
        lane.output.truncate(start);
    }
}

/// Whether this is the answer to a served request of a kind without an effect, which can be served again. A refusal
/// does not count. A watch ends with its connection, so `WATCH` and `UNWATCH` count as such requests.
fn changes_nothing(answer: &Answer) -> bool {
    matches!(
        answer,
        Answer::Status(_)
            | Answer::Inspected(_)
            | Answer::Listed(_)
            | Answer::Watching { .. }
            | Answer::Unwatched { .. }
            | Answer::Verified(_)
            | Answer::PoolDescribed(_)
            | Answer::TreeStatistics(_)
            | Answer::LookedUp(_)
            | Answer::RegistrationsListed(_)
            | Answer::PoolsListed(_)
    )
}

/// Whether this is the answer to a served request of a kind without an effect, and may be long.
fn is_long(answer: &Answer) -> bool {
    changes_nothing(answer)
        && !matches!(
            answer,
            Answer::Watching { .. }
                | Answer::Unwatched { .. }
                | Answer::Verified(_)
                | Answer::TreeStatistics(_)
        )
}
