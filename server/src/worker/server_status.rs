//! The response to SERVER_STATUS. The worker that reads the request answers it without a shard.

use super::State;
use super::outbox::mark_dirty;
use crate::node::Node;
use crate::readiness::{Readiness, ReadyStatus, Reason};
use waymaker_engine::LaneSlot;
use waymaker_protocol as wire;
use waymaker_protocol::{Frame, Request, ServerReason, ServerStatusAnswer};

/// Version of this server.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl State {
    /// Answers with the state of the server. A session does not keep the response: a repetition gets the newer state.
    #[cold]
    pub(super) fn server_status(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        if Request::decode(frame).is_err() {
            return self.refuse_malformed(slot, frame);
        }
        let readiness = Readiness::of(node);
        let answer = ServerStatusAnswer {
            uptime_ms: node.clock.now().ms_since(node.start),
            readiness: in_wire(readiness.status),
            version: VERSION.as_bytes(),
            addresses: node.addresses.as_bytes(),
            reasons: readiness.reasons.iter().map(reason_in_wire).collect(),
        };
        let lane = &mut self.lanes[slot];
        answer.encode(frame.number(), &mut lane.output);
        mark_dirty(lane, &mut self.dirty);
    }
}

fn in_wire(status: ReadyStatus) -> wire::Readiness {
    match status {
        ReadyStatus::Ready => wire::Readiness::Ready,
        ReadyStatus::Degraded => wire::Readiness::Degraded,
        ReadyStatus::NotReady => wire::Readiness::NotReady,
    }
}

fn reason_in_wire(reason: &Reason) -> ServerReason<'_> {
    ServerReason {
        code: reason.code.name().as_bytes(),
        message: reason.message.as_bytes(),
        remaining_ms: reason.remaining_ms.unwrap_or(0),
    }
}
