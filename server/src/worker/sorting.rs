//! Sorting of frames into batches.

use super::State;
use super::admission::begins_claim;
use super::apply::claim_id;
use super::lane::Stage;
use super::serve::FrameLocation;
use super::spans::has_trace_context;
use super::window::{RequestState, Window};
use crate::node::Node;
use waymaker_engine::{Answer, LaneSlot, Refusal, Ticket};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{ErrorCode, Frame, NamespaceKind, Request, Route, route};

/// Result of sorting a frame.
pub(super) enum FrameRoute {
    /// The frame was answered.
    Answered,
    /// The frame was added to the batch.
    Batched,
    /// The frame must be served after the batch. It may change the connection, for example.
    AfterBatch,
}

impl State {
    /// Adds a frame to the batch, answers or refuses it here, or leaves it until after the batch.
    #[inline]
    pub(super) fn sort(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        frame: Frame<'_>,
        offset: usize,
        cost: usize,
    ) -> FrameRoute {
        let lane = &mut self.lanes[slot];
        // Refuse the frame, because the session of the lane has ended. No other reason is possible: no frame reaches
        // this method before `HELLO` or after `GOODBYE`.
        if lane.stage != Stage::Open {
            self.refuse_for_session(node, slot, frame);
            return FrameRoute::Answered;
        }
        if lane.barriers.let_pass(frame.opcode()) {
            self.sort_open(node, slot, frame, offset, cost, false)
        } else {
            self.sort_barred(node, slot, frame, offset, cost)
        }
    }

    /// Sorts a frame after checks that most frames do not need. Its namespace may not support it, its client may lack a
    /// right, it may be an act of an operator, or it may be traced.
    #[cold]
    fn sort_barred(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        frame: Frame<'_>,
        offset: usize,
        cost: usize,
    ) -> FrameRoute {
        if node.traces.is_on() && has_trace_context(frame) {
            self.begin_span_of_new(node, slot, frame);
        }
        if self.is_barred(node, slot, frame) {
            return FrameRoute::Answered;
        }
        self.sort_open(node, slot, frame, offset, cost, true)
    }

    /// Sorts a frame that its client may send.
    #[inline(always)]
    fn sort_open(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        frame: Frame<'_>,
        offset: usize,
        cost: usize,
        may_be_act: bool,
    ) -> FrameRoute {
        let lane = &mut self.lanes[slot];
        let is_new = |window: &Window| window.look(frame.number()) == RequestState::New;
        // Do not refuse REGISTER here while the server stops: the owner of a registration also renews it with REGISTER.
        // Only the shard knows the owner. At the beginning of each turn, the worker tells the shard that the server
        // stops. The shard then refuses new registrations.
        let is_refused = begins_claim(frame.opcode()) && frame.opcode() != opcode::REGISTER;
        if node.is_stopping() && is_refused && lane.window.as_deref().is_none_or(is_new) {
            // Shards learn of the stop one after the other. This check makes all of them refuse from the same moment
            // on.
            self.refuse(slot, frame.number(), ErrorCode::Shutdown, 0, "", "the server is stopping");
            return FrameRoute::Answered;
        }
        if frame.opcode() == opcode::WATCH
            && let Some(limit) = node.memory.full()
            && lane.window.as_deref().is_none_or(is_new)
        {
            self.refuse_for_memory(slot, frame.number(), limit);
            return FrameRoute::Answered;
        }
        let route = route(frame);
        let shard = match route {
            Route::Key(_) | Route::Namespace if lane.kind == NamespaceKind::Tree => lane.namespace_shard,
            Route::Key(key) => node.shard_of_key(key),
            Route::Claim(id) => node.shard_of_claim(claim_id(id)),
            Route::Cursor(_) | Route::MultiKey | Route::Broadcast => return FrameRoute::AfterBatch,
            Route::Connection => return self.sort_of_connection(node, slot, frame),
            Route::Malformed | Route::Namespace => {
                self.refuse_malformed(slot, frame);
                return FrameRoute::Answered;
            }
        };
        if usize::from(shard) >= node.shards.len() {
            if may_be_act {
                self.note_act(node, slot, frame);
                let ticket = Ticket { lane: self.lanes[slot].address, number: frame.number() };
                self.followed.end(ticket, &Answer::Refused(Refusal::NotFound));
            }
            self.refuse(
                slot,
                frame.number(),
                ErrorCode::NotFound,
                0,
                "id",
                "no claim of this namespace has this id; it may have expired or been released",
            );
            return FrameRoute::Answered;
        }
        if !self.admit(slot, frame, cost)
            || !self.multi_shard.is_empty() && self.cancels_multi_shard(node, slot, frame)
        {
            return FrameRoute::Answered;
        }
        if may_be_act {
            self.note_act(node, slot, frame);
        }
        self.batch.push(FrameLocation::new(offset, frame, shard, &route));
        FrameRoute::Batched
    }

    /// Answers `KEEP_ALIVE`, `SERVER_STATUS` and `PONG`. Leaves requests that change the connection until after the
    /// batch.
    #[inline(never)]
    fn sort_of_connection(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) -> FrameRoute {
        match frame.opcode() {
            opcode::KEEP_ALIVE => self.keep_alive(slot, frame),
            opcode::SERVER_STATUS => self.server_status(node, slot, frame),
            // A `PONG` needs no handling: reading its bytes was the sign of life.
            opcode::PONG if Request::decode(frame).is_ok() => {}
            opcode::PONG => self.refuse_malformed(slot, frame),
            _ => return FrameRoute::AfterBatch,
        }
        FrameRoute::Answered
    }
}
