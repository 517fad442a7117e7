//! How connections and sessions end.

use super::State;
use super::lane::{ConnectionKey, Lane, Stage};
use super::outbox::mark_dirty;
use crate::limits::{FRAME_MS, HELLO_MS, WRITE_MS};
use crate::mail::LaneChange;
use crate::node::Node;
use waymaker_engine::planted;
use waymaker_protocol::{ErrorCode, Event, Farewell};

impl State {
    /// A connection is over. Its waiters leave; its holds follow their policy; a lane with a session waits for another.
    pub(super) fn lose(&mut self, node: &Node, key: ConnectionKey) {
        let Some(lane) = self.lanes.of(key) else { return };
        let (address, known_to) = (lane.address, lane.known_to.clone());
        lane.epoch = 0;
        lane.dirty = false;
        lane.input = Vec::new();
        lane.input_since = None;
        lane.output = Vec::new();
        lane.clear_output();
        if let Some(session) = lane.session {
            self.note_left(session);
            self.change_lane(node, address, &known_to, LaneChange::Detached);
        } else {
            // Freed first: an answer to a waiter that leaves has nowhere to go.
            self.lanes.free(key.slot);
            self.change_lane(node, address, &known_to, LaneChange::Closed { session_ended: true });
        }
    }

    /// Gives up a connection that a driver still has. Whoever drives it finds out that it is over.
    pub(super) fn cut_off(&mut self, node: &Node, key: ConnectionKey) {
        self.lose(node, key);
        self.dirty.push(key);
    }

    /// A session ends, for ever: its waiters leave and what is held on its lease ends. Connections that are still there
    /// are told once, and then that their session is gone.
    pub(super) fn end_session(&mut self, node: &Node, session: u32) {
        for (number, slot) in self.sessions.end(session) {
            let lane = &mut self.lanes[slot];
            let (address, known_to) = (lane.address, lane.known_to.clone());
            // The window stays: it tells late answers for an earlier connection from those for this one.
            lane.session = None;
            lane.known_to.clear();
            lane.shard_lanes.clear();
            if lane.epoch == 0 {
                self.lanes.free(slot);
            } else if lane.stage == Stage::Open {
                lane.stage = Stage::SessionGone;
                Event::SessionExpired.encode(0, &mut lane.output);
                mark_dirty(lane, &mut self.dirty);
            }
            let session_ended = number == 0 || !planted!(SessionEndLeavesJoined);
            self.change_lane(node, address, &known_to, LaneChange::Closed { session_ended });
        }
    }

    /// The client ends its session, or only this connection where it has none.
    pub(super) fn say_goodbye(&mut self, node: &Node, key: ConnectionKey, number: u32) {
        let lane = &mut self.lanes[key.slot];
        Farewell.encode(number, &mut lane.output);
        lane.stage = Stage::Closing;
        mark_dirty(lane, &mut self.dirty);
        if let Some(session) = lane.session {
            return self.end_session(node, session);
        }
        // Its waiters leave now: no grant may follow the farewell.
        let (address, known_to) = (lane.address, lane.known_to.clone());
        self.change_lane(node, address, &known_to, LaneChange::Closed { session_ended: true });
    }

    /// Gives up connections that do not say `HELLO`, do not finish a frame, or do not take their answers.
    pub(super) fn close_stalled(&mut self, node: &Node) {
        let now = self.now;
        for lane in self.lanes.iter_mut() {
            // One that takes nothing at all never says when it began.
            if lane.pending_len() > 0 {
                lane.output_since.get_or_insert(now);
            }
        }
        let stalled = |lane: &Lane| {
            let reading = lane.input_since.map(|since| now.ms_since(since)).unwrap_or(0);
            let writing = lane.output_since.map(|since| now.ms_since(since)).unwrap_or(0);
            let input = lane.input_len_wanted();
            match lane.stage {
                Stage::Hello if reading > HELLO_MS => Some(("hello", HELLO_MS)),
                Stage::Open | Stage::SessionGone if input && reading > FRAME_MS => Some(("frame", FRAME_MS)),
                _ if writing > WRITE_MS => Some(("output", WRITE_MS)),
                _ => None,
            }
        };
        let found: Vec<_> = self
            .lanes
            .iter()
            .filter_map(|lane| stalled(lane).map(|(what, limit)| (lane.key(), what, limit)))
            .collect();
        for (key, what, limit) in found {
            let message = match what {
                "hello" => format!("no HELLO within {limit} ms"),
                "frame" => format!("a frame was begun and not finished within {limit} ms"),
                _ => format!("no answer was taken for {limit} ms"),
            };
            if what == "output" {
                // It takes nothing, so there is no use in telling it, and no later answer may follow half a frame.
                self.cut_off(node, key);
            } else {
                self.refuse_connection(key, 0, ErrorCode::BadInput, limit, what, &message);
            }
        }
    }
}

impl Lane {
    /// Whether the client owes the rest of a frame: what was set aside because of too many answers is not its fault.
    fn input_len_wanted(&self) -> bool {
        !self.input.is_empty() && self.pending_len() < crate::limits::OUTPUT_LEN_PAUSE
    }
}
