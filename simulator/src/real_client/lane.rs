//! A lane of a real client on the simulated network. It replaces the connection task of the client library
//! and makes the same calls in the same order.

use super::CallerFuture;
use super::clock::SkewedClock;
use super::decoding::Names;
use crate::network::ReadResult;
use crate::operation::Operation;
use crate::world::World;
use std::time::Duration;
use waymaker_client::BootTime;
use waymaker_client::harness::{Greeting, Harness};
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{NamespaceKind, Request, SessionRequest, next_frame};

/// Time limit for a greeting.
const GREETING_US: u64 = 2_000_000;

/// Stage of the connection of a lane.
#[derive(Debug)]
enum Stage {
    Down { retry_at_us: u64 },
    Greeting { greeting: Greeting, since_us: u64, input: Vec<u8> },
    Open,
}

#[derive(Debug)]
pub(super) struct RealLane {
    /// Number of the client on the network.
    client: usize,
    pub(super) kind: NamespaceKind,
    pub(super) harness: Harness,
    /// Number of the lane at the auditor. It is different in each session.
    auditor_lane: usize,
    pub(super) connection: Option<usize>,
    stage: Stage,
    output: Vec<u8>,
    /// Time at which the lane was last without a connection for as long as callers wait.
    given_up_us: Option<u64>,
    /// Time at which the lane was last without a connection.
    down_us: u64,
    /// Start of the current outage, on the clock of the process.
    down_since: BootTime,
    /// Time at which the lane last received bytes from the server.
    heard_us: u64,
    /// True if the lane is closing and has had its connection since it began to.
    closes_well: bool,
}

impl RealLane {
    pub(super) fn new(
        client: usize,
        kind: NamespaceKind,
        harness: Harness,
        auditor_lane: usize,
        now: BootTime,
    ) -> Self {
        Self {
            client,
            kind,
            harness,
            auditor_lane,
            connection: None,
            stage: Stage::Down { retry_at_us: 0 },
            output: Vec::new(),
            given_up_us: None,
            down_us: 0,
            down_since: now,
            heard_us: 0,
            closes_well: false,
        }
    }

    /// Returns the number of the lane at the auditor.
    pub(super) fn auditor_lane(&self) -> usize {
        self.auditor_lane
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Notes whether the outage has lasted for `patience`, the time for which callers wait.
    pub(super) fn note_outage(&mut self, now_us: u64, now: BootTime, patience: Duration) {
        if self.is_open() {
            self.down_since = now;
            return;
        }
        self.down_us = now_us;
        if now >= self.down_since.after(patience) {
            self.given_up_us = Some(now_us);
        }
    }

    /// Returns the time at which the lane was last without a connection.
    pub(super) fn down_us(&self) -> u64 {
        self.down_us
    }

    /// Begins to close the lane. The future is ready when its caller may continue.
    pub(super) fn close_client(&mut self) -> CallerFuture<()> {
        self.closes_well = self.is_open();
        Box::pin(self.harness.close())
    }

    /// Returns whether the lane has closed while it had its connection, so that the server has received
    /// everything.
    pub(super) fn has_closed_well(&self) -> bool {
        self.closes_well && self.harness.is_finished()
    }

    /// Returns the time at which bytes last arrived from the server; `None` without a connection.
    pub(super) fn heard_us(&self) -> Option<u64> {
        self.is_open().then_some(self.heard_us)
    }

    /// Returns whether the lane was without a connection at `at_us` or later.
    pub(super) fn was_down_since(&self, at_us: u64) -> bool {
        self.down_us >= at_us
    }

    /// Returns whether, at `at_us` or later, the lane had been without a connection for as long as callers
    /// wait.
    pub(super) fn gave_up_since(&self, at_us: u64) -> bool {
        self.given_up_us.is_some_and(|given_up_us| given_up_us >= at_us)
    }

    /// Reads everything that has arrived.
    pub(super) fn listen(&mut self, world: &mut World) {
        while let Some(connection) = self.connection {
            let link = &mut world.network.connections[connection];
            match link.to_client.read(usize::MAX) {
                ReadResult::Bytes(bytes) => {
                    if std::mem::take(&mut link.to_client.wants_room) {
                        world.after(1, crate::event::Event::ArriveAtServer(connection));
                    }
                    world.trace.bytes(&bytes);
                    self.heard_us = world.now_us;
                    world.auditor.note_heard(connection, bytes.len(), world.now_us);
                    self.hear(world, bytes);
                }
                ReadResult::Nothing if link.client_noticed => self.hang_up(world, "cut"),
                ReadResult::Nothing => break,
                ReadResult::End => self.hang_up(world, "the server closed the connection"),
            }
        }
    }

    fn hear(&mut self, world: &mut World, bytes: Vec<u8>) {
        let rest = match &mut self.stage {
            Stage::Down { .. } => return,
            Stage::Open => bytes,
            Stage::Greeting { greeting, input, .. } => {
                input.extend_from_slice(&bytes);
                let Ok(Some(frame)) = next_frame(input, FRAME_LEN_MAX) else { return };
                if !self.harness.greeted(*greeting, frame) {
                    self.close(world);
                    return;
                }
                let rest = input[frame.len()..].to_vec();
                self.stage = Stage::Open;
                // The process may not have run for a while, so the outage ends only now.
                self.down_us = world.now_us;
                rest
            }
        };
        if self.harness.receive(&rest).is_err() {
            self.hang_up(world, "the client hangs up");
        }
    }

    /// Ends the connection on the side of the lane.
    pub(super) fn hang_up(&mut self, world: &mut World, reason: &str) {
        match self.stage {
            Stage::Down { .. } => return,
            Stage::Greeting { .. } => self.harness.attempt_failed(reason),
            Stage::Open => {
                self.closes_well &= self.harness.is_finished();
                self.down_us = world.now_us;
                self.harness.disconnected(reason);
            }
        }
        self.close(world);
    }

    fn close(&mut self, world: &mut World) {
        let retry_us = if !world.calm && world.random.once_in(8) { 2_500_000 } else { 50_000 };
        self.stage = Stage::Down { retry_at_us: world.now_us + world.random.spread(1, retry_us) };
        self.output.clear();
        let Some(connection) = self.connection.take() else { return };
        let client = self.client;
        world.trace.note(world.now_us, 31, connection as u64, || {
            format!("process {client}  has closed connection {connection}")
        });
        world.network.connections[connection].client_done = true;
        world.close(connection, true);
        world.note_lost(connection);
    }

    /// Sends the requests of the lane. Closes the connection if the lane doubts it.
    pub(super) fn speak(&mut self, world: &mut World, names: &mut Names) {
        let mut sent = Vec::new();
        self.harness.transmit(&mut sent);
        if let (Stage::Open, Some(connection)) = (&self.stage, self.connection) {
            self.note_asked(world, names, connection, &sent);
            self.output.extend_from_slice(&sent);
        }
        self.flush(world);
        if self.harness.is_finished() || self.harness.doubt().is_some() {
            let reason = self.harness.doubt().unwrap_or("the lane is finished");
            self.hang_up(world, reason);
        }
        if let Stage::Greeting { since_us, .. } = self.stage
            && since_us + GREETING_US <= world.now_us
        {
            self.hang_up(world, "no answer in time");
        }
    }

    /// Tells the auditor of these frames. They follow the unsent output.
    fn note_asked(&self, world: &mut World, names: &mut Names, connection: usize, frames: &[u8]) {
        let written = world.network.connections[connection].to_server.written_count();
        let mut end = written + self.output.len() as u64;
        let mut rest = frames;
        while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
            end += frame.len() as u64;
            rest = &rest[frame.len()..];
            let request = Request::decode(frame).expect("a client speaks the protocol");
            let Some(operation) = names.operation(self.kind, &request) else { continue };
            let (now_ms, client, lane, number) =
                (world.server_ms(), self.client, self.auditor_lane, frame.number());
            world.trace.note(world.now_us, 32, u64::from(number), || {
                format!(
                    "process {client}  sends {number} of lane {lane} on connection {connection}: {operation:?}"
                )
            });
            world.auditor.asks(connection, number, operation, end, now_ms);
        }
    }

    fn flush(&mut self, world: &mut World) {
        if let (Some(connection), false) = (self.connection, self.output.is_empty()) {
            let len = world.send(connection, true, &self.output);
            world.trace.bytes(&self.output[..len]);
            self.output.drain(..len);
        }
    }

    /// Connects if that is due. Returns the new connection.
    pub(super) fn connect(&mut self, world: &mut World, auditor_client: usize) -> Option<usize> {
        let Stage::Down { retry_at_us } = self.stage else { return None };
        if retry_at_us > world.now_us || self.harness.is_finished() || !self.harness.wants_connection() {
            return None;
        }
        let number = u32::MAX - world.network.connections.len() as u32;
        let Some(greeting) = self.harness.greet(number, &mut self.output) else {
            self.stage = Stage::Down { retry_at_us: world.now_us + 1_000 };
            return None;
        };
        let session = greeting.session;
        if !matches!(session, SessionRequest::Resume { .. }) {
            self.auditor_lane = world.auditor.new_lane_of_process(auditor_client, self.client);
        }
        let thread = world.random.below(world.settings.worker_count as u64) as usize;
        let connection = world.connect(self.client, thread, false);
        world.auditor.open(self.auditor_lane, false);
        let (client, lane) = (self.client, self.auditor_lane);
        world.trace.note(world.now_us, 33, connection as u64, || {
            format!("process {client}  opens connection {connection} of lane {lane} to worker {thread}: {session:?}")
        });
        let operation = Operation::Hello { session, worker: ANY_WORKER, kind: self.kind };
        let now_ms = world.server_ms();
        world.auditor.asks(connection, number, operation, self.output.len() as u64, now_ms);
        self.connection = Some(connection);
        self.stage = Stage::Greeting { greeting, since_us: world.now_us, input: Vec::new() };
        self.flush(world);
        Some(connection)
    }

    /// Returns the next time at which the lane has something to do.
    pub(super) fn next_us(&self, clock: &SkewedClock, now_us: u64) -> u64 {
        let timeout_us = clock.first_us_at(self.harness.next_timeout());
        let stage_us = match self.stage {
            Stage::Down { retry_at_us } if self.harness.wants_connection() && !self.harness.is_finished() => {
                retry_at_us.max(now_us + 1)
            }
            Stage::Down { .. } | Stage::Open => u64::MAX,
            Stage::Greeting { since_us, .. } => since_us + GREETING_US,
        };
        timeout_us.min(stage_us)
    }

    /// Returns whether every request has its response.
    pub(super) fn is_at_rest(&self) -> bool {
        (self.harness.is_at_rest() || self.harness.is_finished()) && self.output.is_empty()
    }
}
