//! The end of connections and sessions, and the search for clients that do not send or read in time.

use super::State;
use super::expectation::{Expectation, Silence};
use super::lane::{Lane, Stage};
use super::outbox::mark_dirty;
use crate::limit_options::LimitOptions;
use crate::limits::{HOUSEKEEPING_MS, LANE_ENDS_PER_TICK, OUTPUT_LEN_PAUSE, PINGS_MISSED_MAX};
use crate::mail::{ConnectionKey, LaneChange, LaneClosing, Mail};
use crate::milliseconds::Milliseconds;
use crate::node::Node;
use crate::worker::sessions::SessionSlot;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use waymaker_engine::{LaneAddress, Time};
use waymaker_protocol::{ErrorCode, Event, Farewell};

/// A lane of a session that has ended.
#[derive(Debug)]
pub(super) struct LaneEnd {
    address: LaneAddress,
    closing: Arc<LaneClosing>,
    /// Shards that know the lane and must close it.
    shards: Vec<u16>,
}

impl State {
    /// Ends a connection, and informs the shards that know its lane. They end the watches and waiting claims of the
    /// lane at once. They end each hold with `release_after_ms` that long after the loss, unless a client resumes the
    /// lane before. A lane with a session stays for the next connection.
    pub(super) fn lose(&mut self, node: &Node, key: ConnectionKey) {
        let Some(lane) = self.lanes.of(key) else { return };
        let (address, known_to) = (lane.address, lane.known_to.clone());
        lane.epoch = 0;
        lane.counted = None;
        lane.dirty = false;
        lane.input = Vec::new();
        lane.expectation = Expectation::Nothing;
        lane.output = Vec::new();
        lane.clear_output();
        if let Some(session) = lane.session {
            self.note_left(session);
            self.change_lane(node, address, &known_to, &LaneChange::Detached);
        } else {
            // Free the lane first: its waiters end now, and their answers must be dropped.
            self.lanes.free(key.slot);
            let change = LaneChange::Closed { session_ended: true, closing: None };
            self.change_lane(node, address, &known_to, &change);
            self.followed.give_up_lane(address);
        }
    }

    /// Ends a connection that a driver still has. The driver finds no lane for the key and closes the socket.
    pub(super) fn cut_off(&mut self, node: &Node, key: ConnectionKey) {
        self.lose(node, key);
        self.dirty.push(key);
    }

    /// Ends a session for ever, and with it its waiters and the holds on its lease. From now on requests on its
    /// connections are refused because their session is gone. [`State::close_lanes`] informs the shards, and then the
    /// connections.
    pub(super) fn end_session(&mut self, session: SessionSlot) {
        let mut ended: Vec<_> = self.sessions.end(session).into_iter().collect();
        let is_leaving = |lane: &Lane| matches!(lane.stage, Stage::Leaving(_));
        // Begin with the lane that sent `GOODBYE`, if there is one. Each `push_front` below then puts another lane in
        // front of it in `lane_ends`, the queue from which `close_lanes` has the shards close lanes. So the other lanes
        // are closed first. The lane that sent `GOODBYE` gets `FAREWELL` once the shards have closed all lanes.
        ended.sort_by_key(|(_, slot)| !is_leaving(&self.lanes[*slot]));
        let is_awaited = ended.first().is_some_and(|(_, slot)| is_leaving(&self.lanes[*slot]));
        let other_count = ended.len().saturating_sub(1);
        let mut awaited_by = None;
        for (_, slot) in ended {
            // End the spans of the lane's traced acquires here, because shards may send no answers for waiters of an
            // ended session.
            self.followed.give_up_lane(self.lanes[slot].address);
            let lane = &mut self.lanes[slot];
            let (key, address, shards) = (lane.key(), lane.address, std::mem::take(&mut lane.known_to));
            // Keep `lane.window`: it tells late answers to requests of an earlier connection from answers to requests
            // of this connection.
            lane.session = None;
            lane.shard_lanes.clear();
            let is_leaver = is_leaving(lane);
            let left = shards.len() + 1 + if is_leaver { other_count } else { 0 };
            let closing = Arc::new(LaneClosing {
                worker: self.index,
                key,
                left: AtomicUsize::new(left),
                awaited_by: awaited_by.clone(),
            });
            if is_leaver {
                awaited_by = Some(Arc::clone(&closing));
            }
            let end = LaneEnd { address, closing, shards };
            // Lanes with a connection may have waiters, so they are closed before lanes without a connection. If the
            // client waits for `FAREWELL`, all lanes of its session go in front.
            if is_awaited || lane.epoch != 0 {
                self.lane_ends.push_front(end);
            } else {
                self.lane_ends.push_back(end);
            }
            if lane.epoch == 0 {
                self.lanes.free(slot);
            } else if lane.stage == Stage::Open {
                lane.stage = Stage::SessionEnds;
            }
        }
    }

    /// Closes lanes of ended sessions in shards, in at most `LANE_ENDS_PER_TICK` steps, so that other work does not
    /// wait long. A step closes one lane in one shard, or notes that all shards of a lane were told. The remaining
    /// lanes follow in [`State::tick`].
    pub(super) fn close_lanes(&mut self, node: &Node) {
        for _ in 0..LANE_ENDS_PER_TICK {
            let Some(lane) = self.lane_ends.front_mut() else { return };
            let (address, closing) = (lane.address, Arc::clone(&lane.closing));
            if let Some(shard) = lane.shards.pop() {
                let change = LaneChange::Closed { session_ended: true, closing: Some(closing) };
                self.change_lane(node, address, &[shard], &change);
            } else {
                self.lane_ends.pop_front();
                self.note_closed(node, &closing);
            }
        }
        self.timers.wake_at(Time::ZERO);
    }

    /// Closes the lane of a connection at once. The connection is about to learn that its session is gone, and no
    /// grant may follow that.
    pub(super) fn close_lane_at_once(&mut self, node: &Node, key: ConnectionKey) {
        if let Some(lane) = self.lane_ends.iter_mut().find(|lane| lane.closing.key == key) {
            let (address, shards) = (lane.address, std::mem::take(&mut lane.shards));
            let closing = Some(Arc::clone(&lane.closing));
            let change = LaneChange::Closed { session_ended: true, closing };
            self.change_lane(node, address, &shards, &change);
        }
        self.tell_of_end(key);
    }

    /// Notes that a shard has closed a lane, or that all shards were told to close it. After the last of these calls,
    /// the worker of the lane informs the connection.
    pub(super) fn note_closed(&mut self, node: &Node, closing: &LaneClosing) {
        let mut closing = Some(closing);
        if closing.is_some_and(|closing| closing.worker != self.index) {
            // Each shard that has closed the lane lowers `left`, below. Before that, post the letters of this worker
            // (responses for lanes of other workers), because they may contain grants of the lane. The worker of the
            // lane must receive them before it informs the client.
            self.post(node);
        }
        while let Some(LaneClosing { worker, key, left, awaited_by }) = closing {
            // AcqRel: each shard that has closed the lane lowers `left`. The worker that lowers it to 0 sees all
            // letters (responses for lanes of other workers) that the other workers posted before they lowered it.
            if left.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            if *worker == self.index {
                self.read_letters(node);
                self.tell_of_end(*key);
            } else {
                self.mail(node, *worker, Mail::Closed(*key));
            }
            closing = awaited_by.as_deref();
        }
    }

    /// Tells a connection that its session or its lane has ended, unless it was told before: sends `SESSION_EXPIRED`,
    /// or `FAREWELL` after its `GOODBYE`. From then on, it gets no grant.
    pub(super) fn tell_of_end(&mut self, key: ConnectionKey) {
        let Some(lane) = self.lanes.of(key) else { return };
        match lane.stage {
            Stage::SessionEnds => {
                lane.stage = Stage::SessionGone;
                Event::SessionExpired.encode(0, &mut lane.output);
            }
            Stage::Leaving(number) => {
                lane.stage = Stage::Left;
                Farewell.encode(number, &mut lane.output);
            }
            _ => return,
        }
        mark_dirty(lane, &mut self.dirty);
    }

    /// Ends the session of the client, or closes only the lane of this connection if it has no session. `FAREWELL`
    /// follows once all shards have closed the lanes.
    pub(super) fn say_goodbye(&mut self, node: &Node, key: ConnectionKey, number: u32) {
        let lane = &mut self.lanes[key.slot];
        lane.stage = Stage::Leaving(number);
        if let Some(session) = lane.session {
            self.end_session(session);
            return self.close_lanes(node);
        }
        // The waiters of the lane end now: no grant may follow the farewell.
        let (address, known_to) = (lane.address, lane.known_to.clone());
        let left = AtomicUsize::new(known_to.len() + 1);
        let closing = Arc::new(LaneClosing { worker: self.index, key, left, awaited_by: None });
        let change = LaneChange::Closed { session_ended: true, closing: Some(Arc::clone(&closing)) };
        self.change_lane(node, address, &known_to, &change);
        self.note_closed(node, &closing);
    }

    /// Closes connections that do not send `HELLO`, do not complete a frame, do not read their answers, or do not
    /// answer `PING`. Sends `PING` to silent clients. Time in which the server did not run does not count, because
    /// bytes that arrived then are not read yet. Only silence before a `PING` includes this time.
    pub(super) fn close_stalled(&mut self, node: &Node) {
        let now = self.now;
        let last = std::mem::replace(&mut self.housekept_at, now);
        let stood_still_ms = now.ms_since(last).saturating_sub(HOUSEKEEPING_MS);
        let mut found = Vec::new();
        for lane in self.lanes.iter_mut() {
            lane.excuse(stood_still_ms, now);
            // `output_since` is the time from which the limit on unread output counts. `wrote` sets it only if the
            // client takes a part of the output. If the client takes nothing at all, set it here.
            if lane.pending_len() > 0 {
                lane.output_since.get_or_insert(now);
            }
            if let Some(stall) = lane.stall(&node.set, now) {
                found.push((lane.key(), stall));
                continue;
            }
            match lane.look_for_silence(node.set.ping, now) {
                Silence::Short => {}
                Silence::Ping => {
                    Event::Ping.encode(0, &mut lane.output);
                    mark_dirty(lane, &mut self.dirty);
                }
                Silence::TooLong => found.push((lane.key(), Stall::Silent)),
            }
        }
        for (key, stall) in found {
            match stall {
                Stall::Hello => {
                    let limit_ms = node.set.hello.as_u64();
                    self.refuse_stalled(key, "hello", limit_ms, &format!("no HELLO within {limit_ms} ms"));
                }
                Stall::Frame => {
                    let limit_ms = node.set.frame.as_u64();
                    let message = format!("a frame did not arrive completely within {limit_ms} ms");
                    self.refuse_stalled(key, "frame", limit_ms, &message);
                }
                Stall::Silent => {
                    let ping_ms = node.set.ping.as_u64();
                    let message = format!(
                        "the client did not answer {PINGS_MISSED_MAX} pings, sent every {ping_ms} ms"
                    );
                    self.refuse_stalled(key, "ping", ping_ms, &message);
                }
                // Close the connection without an error message, because the client takes no output. The output may
                // also end within a frame, after which no other frame can follow.
                Stall::Output => self.cut_off(node, key),
            }
        }
    }

    fn refuse_stalled(&mut self, key: ConnectionKey, field: &'static str, limit_ms: u64, message: &str) {
        self.refuse_connection(key, 0, ErrorCode::BadInput, limit_ms, field, message);
    }
}

/// Action of a client that the server has awaited for too long.
#[derive(Clone, Copy, Debug)]
enum Stall {
    Hello,
    /// The rest of a frame.
    Frame,
    /// Reading of the answers.
    Output,
    /// Any sign of life.
    Silent,
}

impl Lane {
    /// Excludes the last `stood_still_ms`, in which the server did not run, from the waits for this client. These are
    /// the wait for `HELLO` or the rest of a frame, and the wait until the client takes output.
    fn excuse(&mut self, stood_still_ms: u64, now: Time) {
        self.expectation.excuse(stood_still_ms, now);
        self.output_since = self.output_since.map(|since| since.after_ms(stood_still_ms).min(now));
    }

    /// Returns the action for which the server has waited for too long, if any: the client must send `HELLO`, complete
    /// a frame, or read its answers. `look_for_silence` checks for silence.
    fn stall(&self, limits: &LimitOptions, now: Time) -> Option<Stall> {
        let reading_ms = self.expectation.frame_ms(now);
        let writing_ms = self.output_since.map_or(0, |since| now.ms_since(since));
        let wants_input = self.input_len_wanted();
        match self.stage {
            Stage::Hello if reading_ms > limits.hello.as_u64() => Some(Stall::Hello),
            Stage::Open | Stage::SessionGone if wants_input && reading_ms > limits.frame.as_u64() => {
                Some(Stall::Frame)
            }
            _ if writing_ms > limits.write.as_u64() => Some(Stall::Output),
            _ => None,
        }
    }

    /// Returns the action that the silence of this client requires: none, a `PING`, or closing the connection. A client
    /// that has not announced that it answers `PING` is allowed to be silent, so it requires none.
    fn look_for_silence(&mut self, ping: Milliseconds, now: Time) -> Silence {
        match self.stage {
            _ if self.pending_len() >= OUTPUT_LEN_PAUSE => {
                // While too much output is unsent, the server does not read the connection, so it cannot see answers of
                // the client to `PING`. This time does not count as silence.
                self.expectation.note_not_read();
                Silence::Short
            }
            Stage::Open | Stage::SessionGone if self.answers_ping => {
                self.expectation.look(ping.as_u64(), now)
            }
            _ => Silence::Short,
        }
    }

    /// Whether bytes of the client are unserved, usually the beginning of a frame, and the server reads the connection.
    /// If it does not read because too many answers are pending, the client cannot send the rest.
    fn input_len_wanted(&self) -> bool {
        !self.input.is_empty() && self.pending_len() < OUTPUT_LEN_PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::{Content, Letter};
    use crate::worker::Worker;
    use crate::worker::test_node::test_node;
    use waymaker_engine::{Answer, ClaimId, Fence, Grant, KeyGrant, Ticket};
    use waymaker_protocol::limits::FRAME_LEN_MAX;
    use waymaker_protocol::next_frame;

    /// Returns the numbers of the frames in the output of a connection.
    fn numbers_said(worker: &mut Worker, key: ConnectionKey) -> Vec<u32> {
        let mut said = worker.output(key).unwrap_or_default();
        let mut numbers = Vec::new();
        while let Ok(Some(frame)) = next_frame(said, FRAME_LEN_MAX) {
            numbers.push(frame.number());
            said = &said[frame.len()..];
        }
        numbers
    }

    #[test]
    fn a_farewell_waits_until_all_shards_have_closed_the_lane() {
        let now = Time::from_millis(1_000);
        let node = test_node(1, now);
        let mut worker = Worker::new(Arc::clone(&node), 0, now);
        let key = worker.handle_open(b"peer", now);
        worker.state.lanes[key.slot].stage = Stage::Leaving(3);
        let closing = LaneClosing { worker: 0, key, left: AtomicUsize::new(3), awaited_by: None };
        for _ in 0..2 {
            worker.state.note_closed(&node, &closing);
            assert_eq!(numbers_said(&mut worker, key), [0_u32; 0], "a shard has not closed the lane");
        }
        worker.state.note_closed(&node, &closing);
        assert_eq!(numbers_said(&mut worker, key), [3]);
    }

    /// The worker has told the client that its session is gone. Another worker has not closed the lane in its shard
    /// yet, and grants a claim of the lane. The client must not receive this grant.
    #[test]
    fn no_grant_follows_a_session_gone_response() {
        let now = Time::from_millis(1_000);
        let id = ClaimId { place: 1, secret: 2 };
        let (remaining_ms, clamped, waited, repeated, session_lease) = (1_000, false, false, false, false);
        let grant =
            Grant { id, fence: Fence::new(1), remaining_ms, clamped, waited, repeated, session_lease };
        let multi_key = [KeyGrant { grant, shared: false, key: Box::from(*b"key") }];
        for answer in [Answer::Granted(grant), Answer::GrantedMultiKey(Box::new(multi_key))] {
            for (stage, expected) in [(Stage::Open, vec![2]), (Stage::SessionGone, Vec::new())] {
                let node = test_node(2, now);
                let [mut own, mut other] = [0, 1].map(|index| Worker::new(Arc::clone(&node), index, now));
                let key = own.handle_open(b"peer", now);
                let lane = &mut own.state.lanes[key.slot];
                (lane.stage, lane.in_flight) = (stage, 1);
                let ticket = Ticket { lane: lane.address, number: 2 };
                let content = Content::Answer(ticket, answer.clone());
                other.state.letters[0].push(Letter { stamp: now, shard: 0, content });
                other.state.post(&node);
                own.state.read_letters(&node);
                assert_eq!(numbers_said(&mut own, key), expected, "{answer:?}");
            }
        }
    }

    /// The second worker has an answer of its shard for the lane, and the turn of this shard has not ended. It notes
    /// that this shard closed the lane, and posts the answer before. The worker of the lane then notes that all shards
    /// were told, and must send the answer before `FAREWELL`.
    #[test]
    fn a_farewell_follows_all_responses_of_the_worker_that_closed_the_lane() {
        let now = Time::from_millis(1_000);
        let node = test_node(2, now);
        let [mut own, mut other] = [0, 1].map(|index| Worker::new(Arc::clone(&node), index, now));
        let key = own.handle_open(b"peer", now);
        let lane = &mut own.state.lanes[key.slot];
        (lane.stage, lane.in_flight) = (Stage::Leaving(3), 1);
        let ticket = Ticket { lane: lane.address, number: 2 };
        let content = Content::Answer(ticket, Answer::Released { was_waiting: false });
        other.state.letters[0].push(Letter { stamp: now, shard: 0, content });
        let closing = LaneClosing { worker: 0, key, left: AtomicUsize::new(2), awaited_by: None };
        other.state.note_closed(&node, &closing);
        own.state.note_closed(&node, &closing);
        assert_eq!(numbers_said(&mut own, key), [2, 3]);
    }
}
