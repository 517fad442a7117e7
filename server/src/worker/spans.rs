//! Spans of traced acquires that lanes of this worker request, from the request to the response. Only a server that
//! exports traces has any.
//!
//! The worker reads the clock once for each input, such as the bytes of one read, and spans begin and end at these
//! times. So if the worker grants an acquire while it serves the bytes that contain the acquire, the span has a
//! duration of 0.

use super::State;
use super::acts::error_code_of;
use super::by_ticket::{ByTicket, Place};
use crate::limits::SPAN_OPEN_COUNT_MAX;
use crate::metrics::{AcquireResult, NO_FRONT_END};
use crate::node::Node;
use crate::traces::AcquireSpan;
use std::collections::VecDeque;
use std::sync::PoisonError;
use waymaker_engine::{Answer, CancelReason, LaneAddress, LaneSlot, Nanos, Refusal, Ticket};
use waymaker_protocol::message::{acquire_terms, opcode, registry};
use waymaker_protocol::{ErrorCode, Frame, Request, TraceParent};

/// Error of an acquire whose connection was lost.
const CONNECTION_LOST: &str = "connection_lost";

/// Spans of one worker.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    open: ByTicket<AcquireSpan>,
    /// Open spans of claims that have entered a queue since the last call of `poll`, which sets this time in the spans.
    newly_queued: Vec<Place>,
    ended: VecDeque<AcquireSpan>,
}

impl Spans {
    /// Returns whether no span is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens a span. Returns false if too many are open.
    pub(super) fn begin(&mut self, ticket: Ticket, span: AcquireSpan) -> bool {
        let has_room = self.open.len() < SPAN_OPEN_COUNT_MAX;
        if has_room {
            self.open.insert(ticket, span);
        }
        has_room
    }

    /// Notes that the claim of this request waits.
    pub(super) fn note_waits(&mut self, ticket: Ticket) {
        let queued = self.open.of(ticket).find(|(_, span)| span.queued.is_none());
        self.newly_queued.extend(queued.map(|(place, _)| *place));
    }

    /// Ends the span of a request with its response.
    pub(super) fn end(&mut self, ticket: Ticket, answer: &Answer) {
        let Some(mut span) = self.open.take(ticket) else { return };
        // `AcquireResult::of` returns `None` only if the answer repeats an earlier grant, which metrics must not count
        // again. The span of such a repetition ends as granted.
        span.result = AcquireResult::of(answer).unwrap_or(AcquireResult::Granted);
        match answer {
            Answer::Granted(grant) => span.fence = Some(grant.fence.get()),
            Answer::GrantedMultiKey(grants) => span.fence = grants.first().map(|key| key.grant.fence.get()),
            Answer::Registered(registered) => span.fence = Some(registered.fence.get()),
            Answer::Refused(Refusal::Cancelled(CancelReason::ConnectionLost)) => {
                span.error = Some(CONNECTION_LOST);
            }
            Answer::Refused(refusal) => span.error = error_code_of(refusal),
            _ => {}
        }
        self.ended.push_back(span);
    }

    /// Ends the span of a request that is refused before it reaches a shard.
    pub(super) fn end_refused(&mut self, ticket: Ticket, code: ErrorCode) {
        if let Some(span) = self.open.take(ticket) {
            self.ended.push_back(AcquireSpan {
                result: AcquireResult::Refused,
                error: Some(code.name()),
                ..span
            });
        }
    }

    /// Ends the span of a request whose client has left before it got a response.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        if let Some(span) = self.open.take(ticket) {
            let (result, error) = (AcquireResult::Cancelled, Some(CONNECTION_LOST));
            self.ended.push_back(AcquireSpan { result, error, ..span });
        }
    }

    /// Ends the spans of all open acquires of a lane whose connection was lost. Its waiters may get no answer that
    /// would end their spans.
    pub(super) fn give_up_lane(&mut self, lane: LaneAddress) {
        self.open.tickets_of(lane).into_iter().for_each(|ticket| self.give_up(ticket));
    }

    /// Returns the next span that has ended, oldest first. `now` is the time of the input (such as bytes or mail) that
    /// the worker has just handled. Must be called after each input until it returns `None`, because this function sets
    /// the times at which spans were queued and ended.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<AcquireSpan> {
        for place in self.newly_queued.drain(..) {
            if let Some(span) = self.open.get_mut(place) {
                span.queued = Some(now);
            }
        }
        let span = self.ended.pop_front()?;
        Some(AcquireSpan { ended: now, ..span })
    }
}

impl State {
    /// Opens a span if a new request is an acquire or a REGISTER of a sampled trace.
    pub(super) fn begin_span(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        // A malformed request passes here and is refused as malformed later.
        let Ok(request) = Request::decode(frame) else { return };
        let Some((parent, key)) = traced(&request) else { return };
        let lane = &self.lanes[slot];
        let namespace = {
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.name_of(lane.namespace).unwrap_or_default().into()
        };
        let span = AcquireSpan {
            parent,
            namespace,
            kind: lane.kind,
            front_end: lane.client.front_end.unwrap_or(NO_FRONT_END),
            key: AcquireSpan::start_of(lane.kind, key),
            begun: self.nanos,
            queued: None,
            ended: self.nanos,
            result: AcquireResult::Granted,
            fence: None,
            error: None,
        };
        let ticket = Ticket { lane: lane.address, number: frame.number() };
        if !self.followed.begin_span(ticket, span) {
            node.traces.note_dropped();
        }
    }
}

/// Returns the flag by which a request with this opcode announces a trace context; 0 if it cannot have one.
pub(super) const fn trace_context_flag(opcode: u8) -> u16 {
    match opcode {
        opcode::ACQUIRE | opcode::ACQUIRE_KEYS | opcode::ACQUIRE_SET | opcode::ACQUIRE_PERMITS => {
            acquire_terms::flag::TRACEPARENT
        }
        opcode::REGISTER => registry::TRACEPARENT,
        _ => 0,
    }
}

/// Returns whether a request has a trace context.
pub(super) fn has_trace_context(frame: Frame<'_>) -> bool {
    frame.flags() & trace_context_flag(frame.opcode()) != 0
}

/// Returns the trace context and the key of a request whose trace is sampled. Of several keys, returns the first in
/// bytewise order; of a set of paths, the first in the request.
fn traced<'a>(request: &Request<'a>) -> Option<(TraceParent, &'a [u8])> {
    let (parent, key) = match request {
        Request::Acquire(acquire) => (acquire.terms.options.traceparent, acquire.key),
        Request::AcquirePermits(acquire) => (acquire.terms.options.traceparent, acquire.name),
        Request::AcquireKeys(acquire) => {
            let key = acquire.items.iter().map(|item| item.key).min();
            (acquire.terms.options.traceparent, key.unwrap_or_default())
        }
        Request::AcquireSet(acquire) => {
            let path = acquire.items.iter().map(|item| item.path.as_bytes()).next();
            (acquire.terms.options.traceparent, path.unwrap_or_default())
        }
        Request::Register(register) => (register.traceparent, register.key),
        _ => return None,
    };
    let parent = TraceParent::from_bytes(parent?).ok()?;
    parent.is_sampled().then_some((parent, key))
}
