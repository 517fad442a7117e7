//! Refusals of requests and connections before they reach a shard.

use super::State;
use super::answer::put_error;
use super::lane::Stage;
use super::outbox::mark_dirty;
use super::window::NOBODY;
use crate::mail::ConnectionKey;
use crate::memory;
use crate::node::Node;
use waymaker_engine::{LaneSlot, Ticket};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{ErrorCode, Frame, Request};

impl State {
    /// Answers a request with an error, and forgets the request. Also ends its span, counts a refusal because of a
    /// limit, and notes one because of credentials or rights for the audit log.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        slot: LaneSlot,
        number: u32,
        code: ErrorCode,
        value: u64,
        field: &'static str,
        message: &str,
    ) {
        // Count the refusal as caused by a limit, unless it is the pause after failed logins. An operator cannot raise
        // that pause, and it has its own metric.
        if code == ErrorCode::Overloaded && field != "credentials" {
            self.metrics.note_rejected(field);
        }
        self.note_refused(slot, code, message);
        self.followed.end_refused(Ticket { lane: self.lanes[slot].address, number }, code);
        let lane = &mut self.lanes[slot];
        put_error(&mut lane.output, number, code, value, field, message);
        if let Some(window) = &mut lane.window {
            window.forget(number);
        }
        mark_dirty(lane, &mut self.dirty);
    }

    /// Refuses a whole connection: sends the reason, and closes the connection when its output is written.
    #[cold]
    pub(super) fn refuse_connection(
        &mut self,
        key: ConnectionKey,
        number: u32,
        code: ErrorCode,
        value: u64,
        field: &'static str,
        message: &str,
    ) {
        self.refuse(key.slot, number, code, value, field, message);
        self.close(key);
    }

    #[cold]
    pub(super) fn refuse_malformed(&mut self, slot: LaneSlot, frame: Frame<'_>) {
        let (code, limit, field, message) = match Request::decode(frame) {
            Err(error) => (ErrorCode::BadInput, error.limit(), error.field(), error.to_string()),
            Ok(_) => (ErrorCode::Internal, 0, "frame", "the frame could not be routed".to_owned()),
        };
        self.refuse(slot, frame.number(), code, limit, field, &message);
    }

    #[cold]
    pub(super) fn refuse_kind(&mut self, slot: LaneSlot, frame: Frame<'_>) {
        if Request::decode(frame).is_err() {
            return self.refuse_malformed(slot, frame);
        }
        let kind = self.lanes[slot].kind.name();
        let message = format!("a namespace of kind {kind} does not support this request");
        self.refuse(slot, frame.number(), ErrorCode::BadInput, 0, "kind", &message);
    }

    #[cold]
    pub(super) fn refuse_for_memory(&mut self, slot: LaneSlot, number: u32, limit: u64) {
        self.refuse(slot, number, ErrorCode::Overloaded, limit, memory::LIMIT_NAME, &memory::refusal(limit));
    }

    #[cold]
    pub(super) fn refuse_for_session(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        if frame.opcode() == opcode::PONG {
            return;
        }
        if self.lanes[slot].stage == Stage::SessionEnds {
            self.close_lane_at_once(node, self.lanes[slot].key());
        }
        self.refuse(slot, frame.number(), ErrorCode::SessionGone, 0, "session", "the session has ended");
        if let Some(window) = &mut self.lanes[slot].window {
            // If an earlier connection sent the same request, its answer may still come. With `NOBODY` the lane drops
            // that answer, because this connection has already got the refusal.
            window.begin(frame.number(), NOBODY);
        }
    }

    /// Refuses a repeated watch whose first answer is still pending. A watch ends with its connection, so that answer
    /// belongs to no connection.
    #[cold]
    pub(super) fn refuse_repeated_watch(&mut self, slot: LaneSlot, number: u32) {
        let message = "the watch ended with its connection; send it again under another request number";
        self.refuse(slot, number, ErrorCode::Cancelled, 0, "number", message);
        if let Some(window) = &mut self.lanes[slot].window {
            window.begin(number, NOBODY);
        }
    }
}
