//! A node whose workers run when the input says so.

use crate::clock::ManualClock;
use crate::log::ManualLog;
use std::sync::Arc;
use waymaker_engine::{Limits, Time};
use waymaker_log::Started;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Event, LockId, Response, SessionId, next_frame};
use waymaker_server::limits::{HOUSEKEEPING_MS, SESSION_VACANT_MS};
use waymaker_server::mail::{ConnectionKey, Mail};
use waymaker_server::node::{Node, NodeConfig, shard_count};
use waymaker_server::recovery;
use waymaker_server::worker::{Next, Worker};

/// Most connections at a time.
const CONNECTION_COUNT_MAX: usize = 16;
/// Most ids that are kept for later requests.
const KEPT_COUNT_MAX: usize = 64;
/// Longest lease, so that a run can reach its end.
const LEASE_MAX_MS: u32 = 60_000;
/// Longest time that one step skips.
const HOUSEKEEPING_COUNT_MAX: u64 = 64;

/// Bits of the byte that configures a node.
mod config {
    pub(super) const TWO_WORKERS: u8 = 1;
    pub(super) const LOG: u8 = 2;
    pub(super) const SMALL_LIMITS: u8 = 4;
    pub(super) const SMALL_TURNS: u8 = 8;
    pub(super) const PROMPT_LOG: u8 = 16;
}

/// A connection of a client.
#[derive(Debug)]
struct Connection {
    worker: usize,
    key: ConnectionKey,
    /// The client does not read.
    is_stalled: bool,
    /// Bytes for the next read.
    unread: Vec<u8>,
}

/// The workers of one node and their clients.
pub(crate) struct Rig {
    config: u8,
    node: Arc<Node>,
    clock: Arc<ManualClock>,
    workers: Vec<Worker>,
    log: Option<ManualLog>,
    connections: Vec<Connection>,
    /// Shards whose turns the input has.
    turns: Vec<(u16, waymaker_engine::Pass)>,
    ids: Vec<LockId>,
    sessions: Vec<(SessionId, u16)>,
}

impl Rig {
    /// Creates the node that this byte describes.
    pub(crate) fn new(config: u8) -> Self {
        let worker_count = if config & config::TWO_WORKERS == 0 { 1 } else { 2 };
        let start = Time::from_millis(1_000_000);
        let clock = Arc::new(ManualClock::new(start));
        let (port, log) = if config & config::LOG == 0 {
            (None, None)
        } else {
            let (port, log) = ManualLog::new(shard_count(worker_count), start);
            (Some(port), Some(log))
        };
        let node =
            Arc::new(Node::new(&NodeConfig { log: port, ..node_config(config, worker_count, &clock) }));
        let workers = workers(&node, start);
        Self {
            config,
            node,
            clock,
            workers,
            log,
            connections: Vec::new(),
            turns: Vec::new(),
            ids: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// A client connects to this worker. Returns the connection.
    pub(crate) fn open(&mut self, worker: usize) -> usize {
        let worker = worker % self.workers.len();
        if self.connections.len() == CONNECTION_COUNT_MAX {
            self.lose(0);
        }
        let key = self.workers[worker].handle_open(b"peer", self.clock.time());
        self.connections.push(Connection { worker, key, is_stalled: false, unread: Vec::new() });
        self.connections.len() - 1
    }

    /// Returns the connection that this byte selects, if there is one.
    pub(crate) fn connection(&self, index: u8) -> Option<usize> {
        usize::from(index).checked_rem(self.connections.len())
    }

    /// Returns an id that a client learned, if there is one.
    pub(crate) fn id(&self, index: u8) -> Option<LockId> {
        usize::from(index).checked_rem(self.ids.len()).map(|index| self.ids[index])
    }

    /// Returns a session that a client learned, if there is one.
    pub(crate) fn session(&self, index: u8) -> Option<(SessionId, u16)> {
        usize::from(index).checked_rem(self.sessions.len()).map(|index| self.sessions[index])
    }

    /// Adds bytes to the next read of a connection.
    pub(crate) fn send(&mut self, connection: usize, bytes: &[u8]) {
        self.connections[connection].unread.extend_from_slice(bytes);
    }

    /// A worker reads the bytes that the client sent, and moves the connection if it must.
    pub(crate) fn read(&mut self, connection: usize) {
        let now = self.clock.time();
        let Connection { worker, key, unread, .. } = &mut self.connections[connection];
        let bytes = std::mem::take(unread);
        let next = self.workers[*worker].handle_bytes(*key, &bytes, now);
        self.follow(connection, next);
    }

    fn follow(&mut self, connection: usize, next: Next) {
        let now = self.clock.time();
        let Connection { worker, key, .. } = &mut self.connections[connection];
        match next {
            Next::Continue => {}
            Next::Rebound(new) => *key = new,
            Next::Move(to) => {
                let moved = self.workers[*worker].take_moving(*key);
                *worker = usize::from(to);
                let to = &mut self.workers[*worker];
                *key = to.handle_moved(b"peer", now);
                to.note_client(*key, moved.client);
                let next = to.handle_bytes(*key, &moved.input, now);
                to.handle_settled(moved.ticket);
                assert!(!matches!(next, Next::Move(_)), "a connection moves once");
                self.follow(connection, next);
            }
        }
    }

    /// A connection is lost.
    pub(crate) fn lose(&mut self, connection: usize) {
        let now = self.clock.time();
        let Connection { worker, key, .. } = self.connections.swap_remove(connection);
        self.workers[worker].handle_lost(key, now);
    }

    /// The client of a connection stops reading, or reads again.
    pub(crate) fn stall(&mut self, connection: usize, stalls: bool) {
        self.connections[connection].is_stalled = stalls;
    }

    /// Time passes, and workers look after their connections as often as in a server.
    pub(crate) fn pass_ms(&mut self, millis: u64) {
        let steps = millis.div_ceil(HOUSEKEEPING_MS).clamp(1, HOUSEKEEPING_COUNT_MAX);
        for step in 0..steps {
            let part = millis / steps + u64::from(step < millis % steps);
            self.clock.pass_ms(part);
            self.look_after();
        }
    }

    /// Each worker does what its driver asks of it now and then.
    fn look_after(&mut self) {
        let now = self.clock.time();
        for worker in &mut self.workers {
            worker.housekeep(now);
            if worker.next_deadline() <= now {
                worker.tick(now);
            }
            // Every step reads all sockets empty.
            worker.handle_drained(now, now);
        }
    }

    /// Takes the turn of a shard, if it is free, so that workers leave their batches for it.
    pub(crate) fn take_turn(&mut self, shard: usize) {
        let shard = shard % self.node.shards.len();
        if let Some(turn) = self.node.shards[shard].enter() {
            self.turns.push((shard as u16, turn.pass_on()));
        }
    }

    /// Passes a turn to a worker, which serves the batches that were left.
    pub(crate) fn pass_turn(&mut self, worker: usize) {
        if let Some((shard, pass)) = self.turns.pop() {
            self.node.mailboxes[worker % self.workers.len()].post(Mail::Turn { shard, pass });
        }
    }

    /// Makes records durable. With `fails` their outcome becomes unknown, and the log takes no more.
    pub(crate) fn sync(&mut self, fails: bool) {
        if let Some(log) = &mut self.log {
            log.sync(&self.node, fails);
        }
    }

    /// Sets whether the log has written for so long that it takes no more records.
    pub(crate) fn delay_log(&self, is_slow: bool) {
        if let Some(log) = &self.node.log {
            log.status().set_busy_since(if is_slow { Time::ZERO } else { Time::NEVER });
        }
    }

    /// Sets whether memory is full.
    pub(crate) fn fill_memory(&self, is_full: bool) {
        self.node.memory.note(if is_full { u64::MAX } else { 0 });
    }

    /// The server begins to stop.
    pub(crate) fn stop(&self) {
        self.node.set_stopping();
        for mailbox in &self.node.mailboxes {
            mailbox.post(Mail::Stop);
        }
    }

    /// Does what workers ask of their drivers, until nothing is left to do at this time.
    pub(crate) fn settle(&mut self) {
        loop {
            if self.config & config::PROMPT_LOG != 0 {
                self.sync(false);
            }
            let now = self.clock.time();
            let mut is_busy = false;
            for worker in &mut self.workers {
                while worker.handle_mail(now) {
                    is_busy = true;
                }
                if worker.wants_drain() {
                    worker.handle_drained(now, now);
                }
                while worker.poll_audit().is_some() {}
                while worker.poll_wake().is_some() {}
                let _ = worker.poll_accept();
            }
            self.write();
            if !is_busy {
                break;
            }
        }
    }

    /// Clients take what workers have for them.
    fn write(&mut self) {
        for index in 0..self.workers.len() {
            while self.workers[index].poll_dirty().is_some() {}
        }
        let mut index = 0;
        while index < self.connections.len() {
            if self.connections[index].is_stalled || self.take_output(index) {
                index += 1;
            } else {
                self.lose(index);
            }
        }
    }

    /// A client reads its responses. Returns false once the server closes the connection.
    fn take_output(&mut self, connection: usize) -> bool {
        let Connection { worker, key, .. } = self.connections[connection];
        loop {
            let Some(output) = self.workers[worker].output(key).map(<[u8]>::to_vec) else { return false };
            if output.is_empty() {
                let now = self.clock.time();
                let worker = &mut self.workers[worker];
                if !worker.wants_read(key) || !worker.has_input(key) {
                    return true;
                }
                // Requests that were set aside while too many responses were unread.
                let next = worker.handle_bytes(key, &[], now);
                self.follow(connection, next);
                return true;
            }
            self.hear(&output);
            self.workers[worker].wrote(key, output.len());
        }
    }

    /// Keeps ids for later requests.
    fn hear(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("a worker writes frames") {
            bytes = &bytes[frame.len()..];
            match Response::decode(frame).expect("a worker writes responses") {
                Response::Welcome(welcome) => keep(&mut self.sessions, (welcome.session_id, welcome.lane)),
                Response::Granted(granted) => keep(&mut self.ids, granted.id),
                Response::GrantedKeys(granted) => {
                    granted.keys.iter().for_each(|key| keep(&mut self.ids, key.id));
                }
                Response::Registered(registered) => keep(&mut self.ids, registered.id),
                Response::Event(Event::Queued { id, .. }) => keep(&mut self.ids, id),
                _ => {}
            }
        }
        assert!(bytes.is_empty(), "a worker writes whole frames");
    }

    /// Checks the invariants of all shards whose turns are free.
    pub(crate) fn verify(&self) {
        for hosted in &self.node.shards {
            if let Some(turn) = hosted.enter() {
                turn.shard.verify();
                assert!(turn.leave().is_none(), "no batch is left behind");
            }
        }
    }

    /// All clients leave. Then a server starts with everything that the log has.
    pub(crate) fn end(mut self) {
        while !self.turns.is_empty() {
            self.pass_turn(0);
        }
        self.sync(false);
        self.settle();
        while !self.connections.is_empty() {
            self.lose(0);
        }
        self.settle();
        self.pass_ms(SESSION_VACANT_MS + u64::from(2 * LEASE_MAX_MS));
        self.sync(false);
        self.settle();
        self.verify();
        let counts: Vec<_> = self.workers.iter().flat_map(Worker::open_counts).collect();
        assert!(counts.is_empty(), "lost connections have no requests: {counts:?}");
        let Self { config, node, clock, log, .. } = self;
        let Some(log) = log else { return };
        let mut image = log.into_image();
        image.rebase(&Started { boot_id: [1; 16], now_ms: clock.time().as_millis(), unix_ms: 0 });
        assert!(image.contradictions().is_empty(), "the log has conflicting holds");
        let mut restored = Node::new(&node_config(config, node.worker_count(), &clock));
        recovery::restore(&mut restored, &image, clock.time())
            .expect("a server restores what another one recorded");
        let restored = Arc::new(restored);
        let _workers = workers(&restored, clock.time());
        for hosted in &restored.shards {
            let turn = hosted.enter().expect("no worker runs");
            turn.shard.verify();
            assert!(turn.leave().is_none());
        }
    }
}

fn keep<T>(kept: &mut Vec<T>, one: T) {
    if kept.len() == KEPT_COUNT_MAX {
        kept.remove(0);
    }
    kept.push(one);
}

fn workers(node: &Arc<Node>, now: Time) -> Vec<Worker> {
    (0..node.worker_count()).map(|index| Worker::new(Arc::clone(node), index as u16, now)).collect()
}

fn node_config(config: u8, worker_count: usize, clock: &Arc<ManualClock>) -> NodeConfig {
    let mut limits = Limits { lease_max_ms: LEASE_MAX_MS, ..Limits::default() };
    if config & config::SMALL_LIMITS != 0 {
        let shards = shard_count(worker_count) as u32;
        limits = Limits {
            claim_count_max: 8 * shards,
            idle_key_count_max: 2 * shards,
            waiter_count_per_key_max: 2,
            linked_claim_count_per_lane_max: 4,
            path_count_per_lane_max: 4,
            node_count_per_tree_max: 16,
            node_count_max: 24,
            large_set_segment_count: 4,
            set_pool_count_max: 2 * shards,
            bucket_count_max: 2 * shards,
            kept_bucket_count: shards,
            ..limits
        };
    }
    if config & config::SMALL_TURNS != 0 {
        limits.work_per_turn = waymaker_engine::limits::WORK_PER_TURN_MIN;
    }
    NodeConfig {
        worker_count,
        acceptor_count: 0,
        limits,
        session_vacant_ms: SESSION_VACANT_MS,
        start: clock.time(),
        seed: [7; 32],
        clock: Arc::clone(clock) as Arc<dyn waymaker_server::clock::Clock>,
        memory: Arc::new(waymaker_server::memory::MemoryUse::new(Some(1 << 30))),
        log: None,
        quorum: None,
    }
}
