//! Parsing of bytes into frames, and sorting of frames into batches.

use super::answer::put_error;
use super::apply::claim_id;
use super::cost::cost_of;
use super::expectation::Expectation;
use super::kinds::serves;
use super::lane::Stage;
use super::outbox::mark_dirty;
use super::rights::missing_right;
use super::serve::FrameLocation;
use super::spans::has_trace_context;
use super::window::{NOBODY, RequestState, Window};
use super::{Budget, Next, State, Unlimited, answer};
use crate::limits::{
    BATCH_COST_MAX, EVERYWHERE_IN_FLIGHT_MAX, LEFT_COST_MAX, LONG_COST_MIN, OUTPUT_LEN_PAUSE, WINDOW_LEN_MAX,
};
use crate::mail::ConnectionKey;
use crate::memory;
use crate::node::Node;
use waymaker_engine::{Answer, LaneAddress, Refusal, Ticket};
use waymaker_protocol::limits::{FRAME_LEN_MAX, IN_FLIGHT_MAX};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    ErrorCode, Frame, KeptAlive, NamespaceKind, Quoted, Request, Route, next_frame, route,
};

/// Result of sorting a frame.
enum FrameRoute {
    /// The frame was answered.
    Answered,
    /// The frame was added to the batch.
    Batched,
    /// The frame must be served after the batch. It may change the connection, for example.
    AfterBatch,
}

impl State {
    /// Serves the bytes just read, together with bytes that were set aside before. Sets aside an incomplete frame.
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
                // The awaited frame is complete, and the bytes after it are the beginning of a new one.
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

    /// Serves whole frames in batches, until the budget is spent or too many bytes of answers are pending. Returns
    /// the number of bytes served.
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

    /// Adds a frame to the batch, or answers it here if it does not belong to a shard.
    #[inline]
    fn sort(&mut self, node: &Node, slot: u32, frame: Frame<'_>, offset: usize, cost: usize) -> FrameRoute {
        let lane = &mut self.lanes[slot];
        // The session of the lane has ended. No frame gets here before `HELLO` or after `GOODBYE`.
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

    /// Sorts a frame that needs a closer look first. Its namespace may not support it, its client may lack a right,
    /// it may be an act of an operator, or it may be traced.
    #[cold]
    fn sort_barred(
        &mut self,
        node: &Node,
        slot: u32,
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
        slot: u32,
        frame: Frame<'_>,
        offset: usize,
        cost: usize,
        may_be_act: bool,
    ) -> FrameRoute {
        let lane = &mut self.lanes[slot];
        let is_new = |window: &Window| window.look(frame.number()) == RequestState::New;
        // An owner also renews with REGISTER. The shard knows the owner, and refuses other clients once the stop was
        // announced to it.
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
        let shard = match route(frame) {
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
        self.batch.push(FrameLocation::new(offset, frame, shard));
        FrameRoute::Batched
    }

    /// Answers `KEEP_ALIVE`, `SERVER_STATUS` and `PONG`. Leaves requests that change the connection until after the
    /// batch.
    #[inline(never)]
    fn sort_of_connection(&mut self, node: &Node, slot: u32, frame: Frame<'_>) -> FrameRoute {
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

    #[cold]
    fn refuse_for_session(&mut self, node: &Node, slot: u32, frame: Frame<'_>) {
        if frame.opcode() == opcode::PONG {
            return;
        }
        if self.lanes[slot].stage == Stage::SessionEnds {
            self.close_lane_at_once(node, self.lanes[slot].key());
        }
        self.refuse(slot, frame.number(), ErrorCode::SessionGone, 0, "session", "the session has ended");
        if let Some(window) = &mut self.lanes[slot].window {
            // An earlier connection may have sent this request too. The answer to that attempt is dropped.
            window.begin(frame.number(), NOBODY);
        }
    }

    /// Whether to serve a request: it is new, and the connection has room for one more. The request then counts as in
    /// flight.
    #[inline]
    fn admit(&mut self, slot: u32, frame: Frame<'_>, cost: usize) -> bool {
        let lane = &mut self.lanes[slot];
        if lane.window.is_some() && !self.is_new(slot, frame) {
            return false;
        }
        let lane = &mut self.lanes[slot];
        let over = if lane.in_flight >= IN_FLIGHT_MAX as i32 {
            Some((IN_FLIGHT_MAX, "requests in flight"))
        } else if lane.waiting >= self.waiting_max && begins_claim(frame.opcode()) {
            Some((self.waiting_max.cast_unsigned(), "waiting acquires per connection"))
        } else if cost >= LONG_COST_MIN
            && lane.left_cost() >= LEFT_COST_MAX
            && !ends_or_renews_claim(frame.opcode())
        {
            Some((LEFT_COST_MAX, "cost of requests that wait for a shard"))
        } else {
            None
        };
        if let Some((limit, name)) = over {
            let message = format!("the limit of {limit} {name} is reached");
            self.refuse(slot, frame.number(), ErrorCode::Overloaded, u64::from(limit), name, &message);
            return false;
        }
        lane.in_flight += 1;
        true
    }

    /// Whether the frame cancels a request that still waits for its turns. That request is then over.
    fn cancels_multi_shard(&mut self, node: &Node, slot: u32, frame: Frame<'_>) -> bool {
        match Request::decode(frame) {
            Ok(Request::Cancel(cancel)) => {
                self.cancel_multi_shard(node, slot, frame.number(), cancel.acquire_number)
            }
            _ => false,
        }
    }

    /// Opens the span of an acquire, unless the acquire repeats an earlier one.
    fn begin_span_of_new(&mut self, node: &Node, slot: u32, frame: Frame<'_>) {
        let window = self.lanes[slot].window.as_deref();
        if window.is_none_or(|window| window.look(frame.number()) == RequestState::New) {
            self.begin_span(node, slot, frame);
        }
    }

    /// Refuses a request that its namespace does not support, or for which its client lacks the right. Returns
    /// whether it refused.
    #[cold]
    fn is_barred(&mut self, node: &Node, slot: u32, frame: Frame<'_>) -> bool {
        let lane = &self.lanes[slot];
        if !serves(lane.kind, frame.opcode()) {
            self.refuse_kind(slot, frame);
            return true;
        }
        // A repeated request gets the answer of the first attempt, even if the client has lost the right since.
        if lane.window.as_deref().is_some_and(|window| window.look(frame.number()) != RequestState::New) {
            return false;
        }
        // A malformed request passes here and is refused as malformed later.
        let (Some(access), Ok(request)) = (&lane.access, Request::decode(frame)) else { return false };
        let Some((right, key)) = missing_right(access, &request) else { return false };
        let message = format!(
            "no rule gives {} the right `{right}` for this request",
            Quoted(access.identity().as_bytes())
        );
        self.refuse(slot, frame.number(), ErrorCode::Unauthorized, 0, right, &message);
        self.describe_denied(node, slot, key);
        true
    }

    #[cold]
    fn refuse_kind(&mut self, slot: u32, frame: Frame<'_>) {
        if Request::decode(frame).is_err() {
            return self.refuse_malformed(slot, frame);
        }
        let kind = self.lanes[slot].kind.name();
        let message = format!("a namespace of kind {kind} does not support this request");
        self.refuse(slot, frame.number(), ErrorCode::BadInput, 0, "kind", &message);
    }

    /// Whether a request of a lane with a session is served for the first time. Otherwise the kept answer is sent
    /// again, or the answer in preparation goes to this connection.
    fn is_new(&mut self, slot: u32, frame: Frame<'_>) -> bool {
        let lane = &mut self.lanes[slot];
        let Some(window) = &mut lane.window else { return true };
        match window.look(frame.number()) {
            RequestState::InFlight if frame.opcode() == opcode::WATCH => {
                self.refuse_repeated_watch(slot, frame.number());
                false
            }
            RequestState::New => {
                window.begin(frame.number(), lane.epoch);
                if frame.opcode() == opcode::CANCEL {
                    give_up(window, frame);
                }
                true
            }
            RequestState::InFlight => {
                if begins_claim(frame.opcode()) {
                    window.ask_again(frame.number(), lane.epoch, frame.bytes());
                } else {
                    window.begin(frame.number(), lane.epoch);
                }
                false
            }
            RequestState::Dropped => {
                let message = "the request was served, but the server no longer keeps the response";
                let field = "bytes of kept responses";
                put_error(
                    &mut lane.output,
                    frame.number(),
                    ErrorCode::Unknown,
                    WINDOW_LEN_MAX as u64,
                    field,
                    message,
                );
                mark_dirty(lane, &mut self.dirty);
                false
            }
            RequestState::Answered(answer) => {
                lane.output.extend_from_slice(answer);
                mark_dirty(lane, &mut self.dirty);
                false
            }
        }
    }

    /// Serves a request again that a connection of this lane repeated, if that connection is still open.
    #[cold]
    pub(super) fn serve_again(&mut self, node: &Node, address: LaneAddress, frame: &[u8]) {
        if let Some(lane) = self.lanes.at(address).filter(|lane| lane.epoch != 0 && lane.stage == Stage::Open)
        {
            let key = lane.key();
            self.serve_frames(node, &mut Unlimited, key, frame);
        }
    }

    /// Refuses a repeated watch whose first answer is still pending. A watch ends with its connection, so that answer
    /// belongs to no connection.
    #[cold]
    fn refuse_repeated_watch(&mut self, slot: u32, number: u32) {
        let message = "the watch ended with its connection; send it again under another request number";
        self.refuse(slot, number, ErrorCode::Cancelled, 0, "number", message);
        if let Some(window) = &mut self.lanes[slot].window {
            window.begin(number, NOBODY);
        }
    }

    fn keep_alive(&mut self, slot: u32, frame: Frame<'_>) {
        if Request::decode(frame).is_err() {
            return self.refuse_malformed(slot, frame);
        }
        let now = self.now;
        let lane = &mut self.lanes[slot];
        let remaining_ms = if lane.session.is_some() { lane.session_end.remaining_ms_since(now) } else { 0 };
        KeptAlive { remaining_ms, stamp_ms: now.as_millis() }.encode(frame.number(), &mut lane.output);
        mark_dirty(lane, &mut self.dirty);
    }

    #[cold]
    fn refuse_for_memory(&mut self, slot: u32, number: u32, limit: u64) {
        self.refuse(slot, number, ErrorCode::Overloaded, limit, memory::LIMIT_NAME, &memory::refusal(limit));
    }

    #[cold]
    pub(super) fn refuse_malformed(&mut self, slot: u32, frame: Frame<'_>) {
        let (code, limit, field, message) = match Request::decode(frame) {
            Err(error) => (ErrorCode::BadInput, error.limit(), error.field(), error.to_string()),
            Ok(_) => (ErrorCode::Internal, 0, "frame", "the frame could not be routed".to_owned()),
        };
        self.refuse(slot, frame.number(), code, limit, field, &message);
    }

    /// Serves a frame that cannot be part of a batch.
    fn serve_after_batch(&mut self, node: &Node, key: ConnectionKey, frame: Frame<'_>, bytes: &[u8]) {
        let number = frame.number();
        let cost = cost_of(frame, || self.lanes[key.slot].kind);
        match route(frame) {
            Route::Cursor(cursor) => {
                let (shard, _) = answer::read_list_cursor(cursor);
                if shard >= node.shards.len() as u64 {
                    let limit = node.shards.len() as u64;
                    let message = "must be the value returned with the previous page";
                    return self.refuse(key.slot, number, ErrorCode::BadInput, limit, "cursor", message);
                }
                if self.admit(key.slot, frame, cost) {
                    let offset = frame.bytes().as_ptr() as usize - bytes.as_ptr() as usize;
                    self.batch.push(FrameLocation::new(offset, frame, shard as u16));
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

    /// Answers a request with an error.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        slot: u32,
        number: u32,
        code: ErrorCode,
        value: u64,
        field: &'static str,
        message: &str,
    ) {
        // The pause after failed logins is not a limit that can be raised, and it has its own metric.
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

    /// Refuses a whole connection: sends the reason and closes it.
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
}

/// Whether a request of this kind begins something lasting, which a stopping server refuses.
#[inline]
fn begins_claim(opcode: u8) -> bool {
    matches!(
        opcode,
        opcode::ACQUIRE
            | opcode::ACQUIRE_SET
            | opcode::ACQUIRE_KEYS
            | opcode::ACQUIRE_PERMITS
            | opcode::REGISTER
            | opcode::WATCH
    )
}

/// Whether a request of this kind ends or renews one claim. It takes little time even if its cost is high, and other
/// clients may wait for it.
fn ends_or_renews_claim(opcode: u8) -> bool {
    matches!(opcode, opcode::RELEASE | opcode::FORCE_RELEASE | opcode::EXTEND | opcode::CANCEL)
}

/// Notes in the window which request a CANCEL gives up.
#[cold]
fn give_up(window: &mut Window, frame: Frame<'_>) {
    if let Ok(Request::Cancel(cancel)) = Request::decode(frame) {
        window.give_up(cancel.acquire_number);
    }
}
