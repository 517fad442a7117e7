//! Decision whether a request is served: whether it is new, allowed, and within the limits of its connection.

use super::State;
use super::answer::put_error;
use super::kinds::serves;
use super::outbox::mark_dirty;
use super::rights::missing_right;
use super::window::{RequestState, Window};
use crate::limits::{LEFT_COST_MAX, LONG_COST_MIN, WINDOW_LEN_MAX};
use crate::node::Node;
use waymaker_engine::LaneSlot;
use waymaker_protocol::limits::IN_FLIGHT_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{ErrorCode, Frame, Quoted, Request};

impl State {
    /// Whether to serve a request: it is new, and the connection has reached none of its limits. The request then
    /// counts as in flight. Otherwise it was answered or refused, or its first attempt is still being served.
    #[inline]
    pub(super) fn admit(&mut self, slot: LaneSlot, frame: Frame<'_>, cost: usize) -> bool {
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

    /// Gives up the request for several shards that this frame cancels, if that request still waits for its turns.
    /// Returns whether it did.
    pub(super) fn cancels_multi_shard(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) -> bool {
        match Request::decode(frame) {
            Ok(Request::Cancel(cancel)) => {
                self.cancel_multi_shard(node, slot, frame.number(), cancel.acquire_number)
            }
            _ => false,
        }
    }

    /// Opens a span if the request is an acquire or a REGISTER of a sampled trace, and repeats no earlier request.
    pub(super) fn begin_span_of_new(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        let window = self.lanes[slot].window.as_deref();
        if window.is_none_or(|window| window.look(frame.number()) == RequestState::New) {
            self.begin_span(node, slot, frame);
        }
    }

    /// Refuses a request that its namespace does not support, or for which its client lacks the right. Returns
    /// whether it refused.
    #[cold]
    pub(super) fn is_barred(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) -> bool {
        let lane = &self.lanes[slot];
        if !serves(lane.kind, frame.opcode()) {
            self.refuse_kind(slot, frame);
            return true;
        }
        // Skip the check of rights for a repeated request. The client gets the answer of the first attempt, even if it
        // has lost the right since.
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

    /// Whether to serve a request: it is new, or its lane has no session. Otherwise this is a repetition. If the answer
    /// is kept, it is sent again. If the first attempt is still being served, its answer goes to this connection. A
    /// watch that is repeated while it is served, and a request whose answer was dropped, are refused.
    fn is_new(&mut self, slot: LaneSlot, frame: Frame<'_>) -> bool {
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
}

/// Whether a request with this opcode begins a claim or a watch. A stopping server refuses such requests, except
/// renewals of registrations and repetitions of earlier requests.
#[inline]
pub(super) fn begins_claim(opcode: u8) -> bool {
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

/// Whether a request with this opcode ends or renews one claim other than a registration. The limit on the cost of
/// requests that wait for a shard does not apply to it. The request takes little time even if its cost is high, and
/// other clients may be waiting for the end of the claim.
fn ends_or_renews_claim(opcode: u8) -> bool {
    matches!(opcode, opcode::RELEASE | opcode::FORCE_RELEASE | opcode::EXTEND | opcode::CANCEL)
}

/// Notes in `window`, the lane's record of requests and kept answers, that this CANCEL cancels an earlier acquire. If
/// the client has repeated the acquire on a later connection, the server does not serve the repetition.
#[cold]
fn give_up(window: &mut Window, frame: Frame<'_>) {
    if let Ok(Request::Cancel(cancel)) = Request::decode(frame) {
        window.give_up(cancel.acquire_number);
    }
}
