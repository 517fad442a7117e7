//! Parsing of bytes into frames, and serving of frames in batches.

use super::cost::cost_of;
use super::expectation::Expectation;
use super::lane::Stage;
use super::outbox::mark_dirty;
use super::serve::FrameLocation;
use super::sorting::FrameRoute;
use super::{Budget, Next, State, Unlimited, answer};
use crate::limits::{BATCH_COST_MAX, EVERYWHERE_IN_FLIGHT_MAX, OUTPUT_LEN_PAUSE};
use crate::mail::ConnectionKey;
use crate::node::Node;
use waymaker_engine::{LaneAddress, LaneSlot};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{ErrorCode, Frame, KeptAlive, Request, Route, next_frame, route};

impl State {
    /// Serves the bytes just read, together with bytes that were set aside before. Sets aside the bytes that it does
    /// not serve: an incomplete frame, or whole frames beyond the budget or the limit of the output.
    #[inline]
    pub(super) fn receive(
        &mut self,
        node: &Node,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        bytes: &[u8],
    ) -> Next {
        let Some(lane) = self.lanes.of(key) else { return Next::Continue };
        if lane.stage == Stage::Hello {
            return self.receive_hello(node, budget, key, bytes);
        }
        if let Some(session) = lane.session
            && !bytes.is_empty()
        {
            lane.session_end = self.sessions.renew(session, self.now);
        }
        if lane.input.is_empty() {
            let served = self.serve_frames(node, budget, key, bytes);
            self.set_aside(key, &bytes[served..]);
        } else {
            let mut input = std::mem::take(&mut lane.input);
            input.extend_from_slice(bytes);
            let served = self.serve_frames(node, budget, key, &input);
            input.drain(..served);
            if served > 0
                && let Some(lane) = self.lanes.of(key)
            {
                // The frame that the server waited for is complete. Any bytes left begin another frame, for which the
                // time limit starts again.
                lane.expectation = Expectation::Nothing;
            }
            self.set_aside_whole(key, input);
        }
        Next::Continue
    }

    #[inline]
    fn set_aside(&mut self, key: ConnectionKey, rest: &[u8]) {
        if !rest.is_empty() {
            self.set_aside_whole(key, rest.to_vec());
        } else if let Some(lane) = self.lanes.of(key) {
            lane.expectation = Expectation::Nothing;
        }
    }

    pub(super) fn set_aside_whole(&mut self, key: ConnectionKey, input: Vec<u8>) {
        let now = self.now;
        let Some(lane) = self.lanes.of(key).filter(|lane| !lane.stage.is_over()) else { return };
        lane.expectation = if input.is_empty() { Expectation::Nothing } else { lane.expectation.frame(now) };
        lane.input = input;
    }

    /// Serves whole frames in batches, until the budget is spent or too many bytes of answers are pending. Returns the
    /// number of bytes served, or of all bytes if the connection ends.
    fn serve_frames(
        &mut self,
        node: &Node,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        bytes: &[u8],
    ) -> usize {
        let mut offset = 0;
        loop {
            let before = offset;
            let mut after_batch = None;
            let mut cost = 0;
            while cost < BATCH_COST_MAX {
                match next_frame(&bytes[offset..], FRAME_LEN_MAX) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        offset += frame.len();
                        let frame_cost = cost_of(frame, || self.lanes[key.slot].kind);
                        cost += frame_cost;
                        match self.sort(node, key.slot, frame, offset - frame.len(), frame_cost) {
                            FrameRoute::Batched => {}
                            FrameRoute::Answered
                                if self.lanes[key.slot].pending_len() >= OUTPUT_LEN_PAUSE =>
                            {
                                break;
                            }
                            FrameRoute::Answered => {}
                            FrameRoute::AfterBatch => {
                                after_batch = Some(frame);
                                break;
                            }
                        }
                    }
                    Err(error) => {
                        // Serve the valid frames before the refusal, so that answers keep the order of the requests.
                        self.serve(node, key.slot, bytes);
                        let limit = FRAME_LEN_MAX as u64;
                        self.refuse_connection(
                            key,
                            0,
                            ErrorCode::BadInput,
                            limit,
                            "length",
                            &error.to_string(),
                        );
                        return bytes.len();
                    }
                }
            }
            if cost >= BATCH_COST_MAX {
                budget.begin();
            }
            self.serve(node, key.slot, bytes);
            if let Some(frame) = after_batch {
                self.serve_after_batch(node, key, frame, bytes);
            }
            let Some(lane) = self.lanes.of(key) else { return bytes.len() };
            if lane.stage.is_over() {
                return bytes.len();
            }
            if offset == before || lane.pending_len() >= OUTPUT_LEN_PAUSE {
                return offset;
            }
            if offset < bytes.len() && budget.is_spent() {
                return offset;
            }
        }
    }

    /// Serves a request again that a client repeated in this lane, if the lane has an open connection.
    #[cold]
    pub(super) fn serve_again(&mut self, node: &Node, address: LaneAddress, frame: &[u8]) {
        if let Some(lane) = self.lanes.at(address).filter(|lane| lane.epoch != 0 && lane.stage == Stage::Open)
        {
            let key = lane.key();
            self.serve_frames(node, &mut Unlimited, key, frame);
        }
    }

    pub(super) fn keep_alive(&mut self, slot: LaneSlot, frame: Frame<'_>) {
        if Request::decode(frame).is_err() {
            return self.refuse_malformed(slot, frame);
        }
        let now = self.now;
        let lane = &mut self.lanes[slot];
        let remaining_ms = if lane.session.is_some() { lane.session_end.remaining_ms_since(now) } else { 0 };
        KeptAlive { remaining_ms, stamp_ms: now.as_millis() }.encode(frame.number(), &mut lane.output);
        mark_dirty(lane, &mut self.dirty);
    }

    /// Serves a frame that cannot be part of a batch.
    fn serve_after_batch(&mut self, node: &Node, key: ConnectionKey, frame: Frame<'_>, bytes: &[u8]) {
        let number = frame.number();
        let cost = cost_of(frame, || self.lanes[key.slot].kind);
        let route = route(frame);
        match route {
            Route::Cursor(cursor) => {
                let (shard, _) = answer::read_list_cursor(cursor);
                if shard >= node.shards.len() as u64 {
                    let limit = node.shards.len() as u64;
                    let message = "must be the value returned with the previous page";
                    return self.refuse(key.slot, number, ErrorCode::BadInput, limit, "cursor", message);
                }
                if self.admit(key.slot, frame, cost) {
                    let offset = frame.bytes().as_ptr() as usize - bytes.as_ptr() as usize;
                    self.batch.push(FrameLocation::new(offset, frame, shard as u16, &route));
                    self.serve(node, key.slot, bytes);
                }
            }
            Route::MultiKey => {
                if self.admit(key.slot, frame, cost) {
                    self.serve_multi_shard(node, key.slot, frame);
                }
            }
            Route::Broadcast => {
                if self.admit(key.slot, frame, cost) {
                    if self.may_broadcast(key.slot) {
                        return self.serve_broadcast(node, key.slot, frame);
                    }
                    self.lanes[key.slot].in_flight -= 1;
                    let (limit, name) = (EVERYWHERE_IN_FLIGHT_MAX, "requests to all shards in flight");
                    let message = format!("the connection has {limit} {name}, the maximum");
                    self.refuse(key.slot, number, ErrorCode::Overloaded, u64::from(limit), name, &message);
                }
            }
            _ => match Request::decode(frame) {
                Ok(Request::Goodbye(_)) => self.say_goodbye(node, key, number),
                Ok(_) => {
                    let message = "the connection is already open; HELLO must be its first request only";
                    self.refuse(key.slot, number, ErrorCode::BadInput, 0, "opcode", message);
                }
                Err(_) => self.refuse_malformed(key.slot, frame),
            },
        }
    }
}
