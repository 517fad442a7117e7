//! Requests that the worker follows from their arrival to their response, because they need an audit event (acts of
//! operators) or a span (traced acquires and registrations).
//!
//! The worker keeps an event or a span for a followed request until its response; a span also ends with the connection
//! or session. Nearly all requests are not followed. While a worker follows none, its outbox, which writes the
//! responses, finds this out by comparing two worker numbers, without a lookup.

use super::acts::Acts;
use super::spans::Spans;
use crate::audit::AuditEvent;
use crate::traces::AcquireSpan;
use waymaker_engine::{Answer, LaneAddress, Nanos, Ticket};
use waymaker_protocol::ErrorCode;

/// Number that no worker has.
const NO_WORKER: u16 = u16::MAX;

/// The followed requests of one worker.
#[derive(Debug)]
pub(crate) struct FollowedRequests {
    pub(super) acts: Acts,
    spans: Spans,
    worker: u16,
    /// Number of this worker while no request of it has an open audit event or span; `NO_WORKER` otherwise. If the lane
    /// of a response has this worker number, no event and no span has to be looked up and ended.
    plain_worker: u16,
}

impl FollowedRequests {
    pub(super) fn new(worker: u16) -> Self {
        Self { acts: Acts::default(), spans: Spans::default(), worker, plain_worker: worker }
    }

    /// Returns whether a request certainly has no open audit event and no span. True only for lanes of this worker, and
    /// only while no request of this worker has either.
    #[inline]
    pub(super) fn is_plain(&self, ticket: Ticket) -> bool {
        ticket.lane.worker == self.plain_worker
    }

    /// Ends the audit event and the span of a request, if it has them. Both get the result from the response.
    #[inline]
    pub(super) fn end(&mut self, ticket: Ticket, answer: &Answer) {
        if !self.is_plain(ticket) {
            self.end_followed(ticket, answer);
        }
    }

    #[cold]
    fn end_followed(&mut self, ticket: Ticket, answer: &Answer) {
        self.acts.end(ticket, answer);
        self.spans.end(ticket, answer);
        self.look();
    }

    /// Notes in the span of an acquire, if it has one, that the claim waits.
    #[inline]
    pub(super) fn note_waits(&mut self, ticket: Ticket) {
        if !self.is_plain(ticket) {
            self.spans.note_waits(ticket);
        }
    }

    /// Ends the span of a request that is refused before it reaches a shard.
    pub(super) fn end_refused(&mut self, ticket: Ticket, code: ErrorCode) {
        if !self.is_plain(ticket) {
            self.spans.end_refused(ticket, code);
            self.look();
        }
    }

    /// Ends the span of a request that is not served, because its client has left or its session has ended.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        self.spans.give_up(ticket);
        self.look();
    }

    /// Ends the spans of a lane whose session has ended, or that lost its connection and had no session.
    pub(super) fn give_up_lane(&mut self, lane: LaneAddress) {
        if !self.spans.is_idle() {
            self.spans.give_up_lane(lane);
            self.look();
        }
    }

    pub(super) fn begin_act(&mut self, ticket: Ticket, event: AuditEvent) {
        self.acts.begin(ticket, event);
        self.look();
    }

    /// Opens a span. Returns false if too many are open.
    pub(super) fn begin_span(&mut self, ticket: Ticket, span: AcquireSpan) -> bool {
        let has_begun = self.spans.begin(ticket, span);
        self.look();
        has_begun
    }

    /// Returns the next span (the record of a traced acquire) that has ended, with `now` as its end. Must be called
    /// after the worker has handled an input, such as the bytes of one read, with the time of that input.
    #[inline]
    pub(super) fn poll_span(&mut self, now: Nanos) -> Option<AcquireSpan> {
        self.spans.poll(now)
    }

    /// Sets `plain_worker` after an event or a span has begun or ended: to the number of this worker if none is open,
    /// otherwise to `NO_WORKER`.
    fn look(&mut self) {
        let is_idle = self.acts.is_idle() && self.spans.is_idle();
        self.plain_worker = if is_idle { self.worker } else { NO_WORKER };
    }
}
