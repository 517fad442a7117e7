//! Lanes, their connections, and the bytes that the server sends on them.

use super::Auditor;
use super::duties::Duty;
use super::records::{LaneRecord, Listener, Loss};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Response, next_frame};

impl Auditor {
    /// Adds a lane for a client that shares its owner with no other client.
    #[cfg(test)]
    pub(crate) fn new_lane(&mut self, client: usize) -> usize {
        self.new_lane_of(client, client)
    }

    /// Adds a lane of a process. All processes of one owner count as one client, but each process knows only
    /// its own requests.
    pub(crate) fn new_lane_of(&mut self, client: usize, process: usize) -> usize {
        self.lanes.push(LaneRecord { client, process, ..LaneRecord::default() });
        self.lanes.len() - 1
    }

    /// Opens a connection for a lane. Connections are numbered in the order in which they are opened.
    pub(crate) fn open(&mut self, lane: usize, is_front: bool) {
        self.lanes[lane].connections.push(self.connections.len());
        self.connections.push(Listener { lane, is_front, ..Listener::default() });
    }

    /// Opens a connection for a visitor. The `visits` module checks its responses one by one.
    pub(crate) fn open_to_visitor(&mut self, client: usize) {
        let lane = self.new_lane_of(client, client);
        self.open(lane, false);
        self.connections.last_mut().into_iter().for_each(|listener| listener.is_visitor = true);
    }

    /// Records that the first `count` bytes of a connection have arrived at the server.
    pub(crate) fn arrived(&mut self, connection: usize, count: u64, now_ms: u64) {
        let next = |connection: &mut Listener| connection.unarrived.pop_front_if(|(end, _)| *end <= count);
        while let Some((_, request)) = next(&mut self.connections[connection]) {
            self.requests[request].arrived_ms = Some(now_ms);
            self.owe_answer(connection, request, now_ms);
        }
        let next =
            |connection: &mut Listener| connection.unarrived_visits.pop_front_if(|(end, _)| *end <= count);
        while let Some((_, number)) = next(&mut self.connections[connection]) {
            self.owe(self.to_us(now_ms + 1), Duty::Visit { connection, number });
        }
    }

    /// Records that a connection is broken or closed: from now on the server may know of it.
    pub(crate) fn lost(&mut self, connection: usize, now_ms: u64) {
        if std::mem::replace(&mut self.connections[connection].is_lost, true) {
            return;
        }
        let lane = self.connections[connection].lane;
        self.lanes[lane].losses.push(Loss { connection, at_ms: now_ms, back_ms: None });
        self.note_left(lane, now_ms);
        self.limit_belief_in_lane(lane);
    }

    /// Decodes and checks bytes that the server sends to a connection, even if they never arrive.
    pub(crate) fn said(&mut self, connection: usize, bytes: &[u8], now_ms: u64) {
        if self.connections[connection].is_visitor {
            return self.note_said_to_visitor(connection, bytes);
        }
        let mut said = std::mem::take(&mut self.connections[connection].said);
        said.extend_from_slice(bytes);
        let mut offset = 0;
        loop {
            match next_frame(&said[offset..], FRAME_LEN_MAX) {
                Ok(None) => break,
                Err(error) => {
                    self.accuse("answers", || {
                        format!("the byte stream to connection {connection} has no valid frame: {error}")
                    });
                    break;
                }
                Ok(Some(frame)) => {
                    offset += frame.len();
                    match Response::decode(frame) {
                        Ok(mut response) => {
                            if let Some(spoken) = &mut self.spoken {
                                let (lane, number) = (self.connections[connection].lane, frame.number());
                                spoken.push(format!("says to {number} of lane {lane}: {response:?}"));
                            }
                            self.place_stamps(&mut response);
                            if self.guards.is_real(self.connections[connection].lane) {
                                let end = self.connections[connection].said_from + offset as u64;
                                self.note_unread(connection, end, frame.number(), &response);
                            }
                            self.hear(connection, frame.number(), &response, frame.bytes(), now_ms);
                        }
                        Err(error) => self.accuse("answers", || {
                            format!("connection {connection} got a frame that is no valid response: {error}")
                        }),
                    }
                }
            }
        }
        said.drain(..offset);
        self.connections[connection].said = said;
        self.connections[connection].said_from += offset as u64;
    }

    /// Records whether the server could write all pending bytes of a connection.
    pub(crate) fn note_flow(&mut self, connection: usize, flows: bool, now_us: u64) {
        let listener = &mut self.connections[connection];
        if flows && listener.is_clogged {
            listener.flows_from_us = now_us;
        }
        listener.is_clogged = !flows;
    }

    /// Records that the server is done with a connection. Bytes that it read but has not served are left to
    /// some worker.
    pub(crate) fn done(&mut self, connection: usize, now_us: u64) {
        self.connections[connection].done_us = Some(now_us);
    }

    /// Returns the latest time at which a request without a response took effect, if it did. Returns `None`
    /// if it may still take effect.
    pub(super) fn last_effect_ms(&self, request: usize) -> Option<u64> {
        let lane = &self.lanes[self.requests[request].lane];
        let mut done_us = 0;
        for connection in &lane.connections {
            done_us = done_us.max(self.connections[*connection].done_us?);
        }
        Some(self.settings.server_ms(self.stalls.latest_us(done_us)))
    }
}
