//! The requests of a client on their way to the server.

use super::Client;
use super::lane::{Lane, Stage};
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::SessionRequest;
use waymaker_protocol::limits::ANY_WORKER;

impl Client {
    pub(super) fn connect(&mut self, world: &mut World) -> Vec<usize> {
        let mut opened = Vec::new();
        for lane in 0..self.lanes.len() {
            let Lane { connection: None, stage: Stage::Down { retry_at_us }, .. } = self.lanes[lane] else {
                continue;
            };
            if retry_at_us > world.now_us {
                continue;
            }
            let session = match (self.session, self.lanes[lane].number) {
                (Some(session), Some(lane)) => SessionRequest::Resume { id: session.id, lane },
                (Some(session), None) => SessionRequest::Join { id: session.id },
                (None, _) if self.wants_session && lane == 0 => match self.session_of_mate(world) {
                    Some(id) => {
                        world.shared_sessions.insert(id);
                        SessionRequest::Join { id }
                    }
                    None => SessionRequest::New { lease_ms: self.session_lease_ms },
                },
                // The client connects once there is a session to join.
                (None, _) if self.wants_session => continue,
                (None, _) => SessionRequest::None,
            };
            let worker_count = world.settings.worker_count as u64;
            let thread = world.random.below(worker_count) as usize;
            let worker =
                if world.random.once_in(3) { world.random.below(worker_count) as u16 } else { ANY_WORKER };
            let connection = world.connect(self.index, thread, self.is_front);
            world.auditor.open(self.lanes[lane].auditor_lane, self.is_front);
            let (index, auditor_lane) = (self.index, self.lanes[lane].auditor_lane);
            world.trace.note(world.now_us, 20, connection as u64, || {
                format!("client {index}  opens connection {connection} of lane {auditor_lane} to worker {thread}: {session:?}")
            });
            self.lanes[lane].connection = Some(connection);
            self.lanes[lane].stage = Stage::Greeting { sent_us: world.now_us };
            self.lanes[lane].input.clear();
            self.lanes[lane].output.clear();
            self.send(
                world,
                lane,
                hello_number(connection),
                Operation::Hello { session, worker, kind: self.kind },
            );
            opened.push(connection);
        }
        opened
    }

    /// Sends a request.
    pub(super) fn send(&mut self, world: &mut World, lane: usize, number: u32, operation: Operation) {
        let Some(connection) = self.lanes[lane].connection else { return };
        let (index, now_us, auditor_lane) = (self.index, world.now_us, self.lanes[lane].auditor_lane);
        world.trace.note(now_us, 21, u64::from(number), || {
            format!("client {index}  sends {number} of lane {auditor_lane} on connection {connection}: {operation:?}")
        });
        let output = &mut self.lanes[lane].output;
        operation.encode(number, &world.settings, &self.owner, output);
        let end = world.network.connections[connection].to_server.written_count() + output.len() as u64;
        let now_ms = world.server_ms();
        world.auditor.asks(connection, number, operation, end, now_ms);
        if let Some(recorder) = &mut world.recorder {
            let session = self.session.map(|session| (session.id, u64::from(session.lease_ms) * 1000));
            let call = (index, self.lanes[lane].auditor_lane, number);
            recorder.note_sent(&world.settings, call, session, &operation, now_us);
        }
        self.flush_lane(world, lane);
    }

    /// Sends a new request on an open lane.
    pub(super) fn ask(&mut self, world: &mut World, operation: Operation) {
        if let Some(lane) = self.pick_lane(world) {
            self.ask_on(world, lane, operation);
        }
    }

    /// Picks a lane on which the client can send a request.
    pub(super) fn pick_lane(&self, world: &mut World) -> Option<usize> {
        let open: Vec<usize> =
            (0..self.lanes.len()).filter(|lane| self.lanes[*lane].takes_requests()).collect();
        world.random.pick(&open)
    }

    /// Sends a new request and returns its number.
    pub(super) fn ask_on(&mut self, world: &mut World, lane: usize, operation: Operation) -> u32 {
        self.asked_count += 1;
        let number = self.lanes[lane].note_pending(operation, world.now_us);
        self.send(world, lane, number, operation);
        if let Operation::Cancel { acquire: other, .. } | Operation::Unwatch { watch: other, .. } = operation
            && self.is_front
        {
            // A CANCEL to a front end stands for the reset of a stream, so neither request is answered.
            if let Some(connection) = self.lanes[lane].connection {
                world.auditor.note_reset(connection, other);
            }
            self.lanes[lane].pending.remove(&other);
            self.lanes[lane].pending.remove(&number);
        }
        number
    }

    /// Returns whether some lane takes a request.
    pub(super) fn can_ask(&self) -> bool {
        self.lanes.iter().any(Lane::takes_requests)
    }

    pub(super) fn flush(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            self.flush_lane(world, lane);
        }
    }

    fn flush_lane(&mut self, world: &mut World, lane: usize) {
        let Lane { connection: Some(connection), output, .. } = &mut self.lanes[lane] else { return };
        if !output.is_empty() {
            let len = world.send(*connection, true, output);
            world.trace.bytes(&output[..len]);
            output.drain(..len);
        }
    }
}

/// Returns the request number of a greeting, which is far from the numbers of other requests.
pub(super) fn hello_number(connection: usize) -> u32 {
    u32::MAX - connection as u32
}
