//! A whole server node: its shards, and a thread for each worker.
//!
//! Terms of the server that this module uses:
//!
//! - A *worker* serves connections. It takes the *turn* of a shard to run it; no other worker runs that shard
//!   meanwhile. If the turn is taken, the worker leaves its *batch* of requests for the worker that has it.
//!   A turn that was passed on to another worker by mail is in transit.
//! - Before leases end, a worker reads its sockets empty. This is a *sweep*, and the task that does it is the
//!   *sweeper*. `drained` is the instant up to which a worker has read and served all requests.
//! - A *front end* is a gRPC or WebSocket connection. Its requests pass through *inlets* of a worker, and each
//!   request that expects responses or events is a *stream*.

mod acceptor;
mod accounts;
mod backlog;
mod contents;
mod damage;
mod disasters;
mod front;
mod io;
mod listeners;
mod log;
mod multi_key;
mod quorum;
mod tasks;
mod thread;

use crate::disk::SimulatedDisk;
use crate::event::Event;
use crate::key::{Key, kind_of};
use crate::world::World;
use acceptor::Acceptor;
use accounts::KeptAccounts;
pub(crate) use accounts::plan_reload;
use disasters::Stage;
use log::SimulatedLog;
use quorum::SimulatedQuorum;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use tasks::Errands;
use thread::Thread;
use waymaker_engine::{Answer, Caller, ClaimId, Effects, LaneAddress, Ticket, Time, Turn};
use waymaker_protocol::NamespaceKind;
use waymaker_server::log::LogPort;
use waymaker_server::mail::Mail;
use waymaker_server::node::{Node, NodeConfig};
use waymaker_server::quorum::port::QuorumPort;

/// Largest number of steps that a turn requests in vain. Each piece of work, and each request, may do so
/// once.
const STEPS_IN_VAIN_MAX: u32 = 48;

/// Longest stall of a worker when something is about to end.
const BRINK_STALL_MAX_US: u64 = 20_000;

/// Number of events between two checks of all shards in a run with a crowd of clients.
const CROWD_VERIFY_EVERY: u64 = 500;

/// The server of a run.
#[derive(Debug)]
pub(crate) struct Server {
    node: Shared,
    threads: Vec<Thread>,
    accounts: KeptAccounts,
    /// The shards that the keys of the run belong to.
    shards: Vec<usize>,
    /// For each worker, the instant up to which it has read everything, as of the last check.
    drained: Vec<Time>,
    stage: Stage,
    acceptor: Acceptor,
    happened_count: u64,
    /// Number of the current start of the server.
    start: u32,
    /// Number of the current boot of its machine.
    boot: u64,
    log: Option<SimulatedLog>,
    quorum: Option<SimulatedQuorum>,
    /// The disk of the log while the server is down.
    disk: Option<SimulatedDisk>,
    is_disk_full: bool,
    /// True if the log on the disk is damaged, so that the next start must accept damage.
    is_damaged: bool,
    /// Time limit for the end of the log of a stopping server.
    closes_until_us: u64,
    /// Number of the last planned event that fills or frees the disk.
    disk_change: u64,
    /// Number of the last planned crash, stop or start.
    disaster: u64,
    /// Number of times that the next crash was put off.
    put_off: u32,
    /// Holds on the disk after a crash that no cluster had counted.
    uncounted: BTreeSet<ClaimId>,
}

/// The node, with a `Debug` output that is empty of its contents.
struct Shared(Arc<Node>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Node").field("shards", &self.0.shards.len()).finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(world: &mut World) -> Self {
        let mut server = Self {
            node: Shared(Arc::new(Node::new(&config(world, 0, (None, None))))),
            threads: Vec::new(),
            accounts: KeptAccounts::default(),
            shards: Vec::new(),
            drained: Vec::new(),
            stage: Stage::Down,
            acceptor: Acceptor::default(),
            happened_count: 0,
            start: 0,
            boot: 0,
            log: None,
            quorum: None,
            disk: world.settings.log().map(|_| SimulatedDisk::default()),
            is_disk_full: false,
            is_damaged: false,
            closes_until_us: 0,
            disk_change: 0,
            disaster: 0,
            put_off: 0,
            uncounted: BTreeSet::new(),
        };
        server.start(world);
        server.plan_disk(world);
        server
    }

    /// Handles an event that concerns a worker or the log.
    pub(crate) fn happen(&mut self, world: &mut World, event: Event) {
        self.verify_awake(world);
        let errands = match event {
            Event::Run(thread) => match self.threads.get_mut(thread) {
                Some(thread) => thread.run(world, &self.node.0),
                None => return,
            },
            Event::Alarm(thread) => {
                return self.threads.get_mut(thread).into_iter().for_each(|thread| thread.alarm(world));
            }
            Event::Housekeep(thread, start) => {
                if start == self.start
                    && let Some(housekept) = self.threads.get_mut(thread)
                {
                    housekept.housekeep(world);
                    self.judge_streams(world, thread);
                }
                return;
            }
            Event::LookForStrangers(connection) => return self.judge_unknown(world, connection),
            Event::ServerNotices(connection) => {
                let thread = world.network.connections[connection].thread;
                let thread = self.threads.get_mut(thread);
                return thread.into_iter().for_each(|thread| thread.notice(world, connection));
            }
            Event::Accept => return self.accept_all(world),
            Event::Log(start) if start == self.start => self.run_log(world),
            Event::Quorum(_) | Event::Counted(..) => self.run_quorum(world, event),
            Event::Keeper(start) if start == self.start => return self.keep_log(world),
            Event::Disk(number) if number == self.disk_change => return self.change_disk(world),
            Event::Disaster(number) if number == self.disaster => return self.suffer(world),
            _ => return,
        };
        self.run_errands(world, errands);
        self.verify_turns(world);
        self.verify_moves(world);
        self.verify_drained(world);
        self.judge_quotas(world);
        self.happened_count += 1;
        if !world.settings.is_crowd || self.happened_count.is_multiple_of(CROWD_VERIFY_EVERY) {
            self.verify();
            self.verify_multi_key_claims();
        }
    }

    fn run_errands(&mut self, world: &mut World, errands: Errands) {
        if let Some(asker) = errands.asks_acceptor {
            self.ask_acceptor(world, asker);
        }
        for other in errands.wakes {
            // There are no workers any more while the log of a stopping server is closed.
            self.threads.get_mut(other).into_iter().for_each(|thread| thread.wake(world));
        }
        for (to, mut intake) in errands.moves {
            let connection = intake.connection;
            // Sweeps that were complete before a worker got the connection do not cover its bytes.
            let since_us = world.network.connections[connection].readable_since_us();
            let since_ms = world.settings.server_ms(since_us).saturating_sub(world.booted_ms());
            intake.drained_max = self.node.0.drained().max(Time::from_millis(since_ms));
            world.trace.note(world.now_us, 5, connection as u64, || {
                format!("network   connection {connection} moves to worker {to}")
            });
            self.threads[to].hand(world, intake);
        }
        if let Some(log) = &mut self.log {
            log.poke(world);
        }
        if let Some(quorum) = &mut self.quorum {
            quorum.poke(world);
        }
    }

    /// Notes that a connection has something to read, or room to write.
    pub(crate) fn note_io(&mut self, world: &mut World, connection: usize) {
        let thread = world.network.connections[connection].thread;
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.note_io(world, connection);
        }
    }

    /// Interferes with the server: stalls workers, or takes the turn of a shard and passes it on to a worker
    /// that is then stalled.
    pub(crate) fn interfere(&mut self, world: &mut World) {
        let gap_us = world.settings.interfere_us;
        if world.calm {
            return;
        }
        let next_us = world.random.between(1, 2 * gap_us);
        world.after(next_us, Event::Interfere);
        if !self.stage.is_up() {
            return;
        }
        if world.random.percent(world.settings.stall_percent) {
            let for_us = world.random.spread(100, world.settings.stall_max_us);
            if world.random.once_in(3) {
                for thread in &mut self.threads {
                    thread.stall(world, for_us);
                }
            } else {
                let thread = world.random.below(self.threads.len() as u64) as usize;
                self.threads[thread].stall(world, for_us);
            }
            return;
        }
        let shard = self.shards[world.random.below(self.shards.len() as u64) as usize];
        let thread = world.random.below(self.threads.len() as u64) as usize;
        let Some(turn) = self.node.0.shards[shard].enter() else { return };
        world.trace.note(world.now_us, 6, shard as u64, || {
            format!("simulator takes the turn of shard {shard} and passes it on to worker {thread}")
        });
        let pass = turn.pass_on();
        let for_us_max =
            if world.random.once_in(10) { 200_000 } else { world.settings.interfere_us.min(20_000) };
        let for_us = world.random.spread(10, for_us_max);
        self.threads[thread].stall(world, for_us);
        self.threads[thread].post(world, &self.node.0, Mail::Turn { shard: shard as u16, pass });
    }

    /// In some cases, stalls workers for a moment when something is about to end.
    pub(crate) fn interfere_at_brink(&mut self, world: &mut World) {
        if world.calm || !self.stage.is_up() || !world.edge_random.once_in(3) {
            return;
        }
        let for_us = world.edge_random.spread(100, BRINK_STALL_MAX_US);
        let one = world.edge_random.below(2 * self.threads.len() as u64) as usize;
        let count = self.threads.len();
        for (index, thread) in self.threads.iter_mut().enumerate() {
            if one >= count || index == one {
                thread.stall(world, for_us);
            }
        }
    }

    /// Tells the server to stop. A stopping server refuses waiters and new claims, and still serves releases.
    pub(crate) fn stop(&mut self, world: &mut World) {
        if !self.stage.is_up() {
            return;
        }
        world.trace.note(world.now_us, 8, 0, || "server    begins to stop".to_owned());
        let now_ms = world.server_ms();
        world.auditor.note_stopping(now_ms);
        self.node.0.set_stopping();
        let are_busy = !world.calm && world.random.once_in(2);
        for thread in &mut self.threads {
            if are_busy && world.random.once_in(2) {
                // A stalled worker learns of the stop later than others.
                let for_us = world.random.spread(1_000, 100_000);
                thread.stall(world, for_us);
            }
            thread.post(world, &self.node.0, Mail::Stop);
        }
    }

    /// Reports a violation if, some seconds after the last fault, the log still lacks room or the cluster
    /// still counts as unavailable.
    pub(crate) fn judge_recovered(&self, world: &mut World) {
        if self.log.as_ref().is_some_and(SimulatedLog::lacks_room) {
            world.auditor.accuse("log", || {
                "the log still reports a full disk, but the disk has free space".to_owned()
            });
        }
        let is_unavailable = self.quorum.as_ref().is_some_and(SimulatedQuorum::is_unavailable);
        if is_unavailable && world.settings.cluster().is_some_and(|cluster| cluster.stranger_percent == 0) {
            world.auditor.accuse("log", || {
                "the server still considers the cluster unavailable, but the cluster responds".to_owned()
            });
        }
    }

    /// Ends all stalls of workers.
    pub(crate) fn end_stalls(&mut self, world: &mut World) {
        self.threads.iter_mut().for_each(|thread| thread.end_stall(world));
    }

    /// Checks that some worker is awake if something was due in an earlier millisecond.
    fn verify_awake(&self, world: &mut World) {
        if !self.stage.is_up() || !self.threads.iter().all(Thread::is_asleep) {
            return;
        }
        let now = world.server_time();
        for shard in &self.shards {
            if let Some(turn) = self.node.0.shards[*shard].enter() {
                let deadline = turn.shard.next_deadline();
                leave(turn);
                if deadline < now {
                    world.auditor.accuse("armed", || {
                        format!("a deadline of shard {shard} was due at {deadline:?}, and all workers sleep at {now:?}")
                    });
                }
            }
        }
    }

    /// Checks that no lease can end while a connection that is moving to another worker has older unserved
    /// bytes.
    fn verify_moves(&self, world: &mut World) {
        let drained_max = self.threads.iter().map(Thread::drained_max).min().unwrap_or(Time::NEVER);
        let drained = self.node.0.drained();
        if drained > drained_max {
            world.auditor.accuse("drained", || {
                format!("all workers claim to have read everything before {drained:?}, but a moving connection has bytes from {drained_max:?}")
            });
        }
    }

    /// Checks that every worker has served all requests that arrived before the instant that it has
    /// published.
    fn verify_drained(&mut self, world: &mut World) {
        self.drained.resize(self.threads.len(), Time::ZERO);
        for (index, thread) in self.threads.iter_mut().enumerate() {
            let drained = self.node.0.drained_by(index);
            if std::mem::replace(&mut self.drained[index], drained) != drained {
                thread.judge_drained(world, drained);
            }
        }
    }

    /// Checks that no turn requested more steps of follow-up work than its limit, apart from a few in vain,
    /// and that a worker will come back for the next deadline of each shard.
    fn verify_turns(&self, world: &mut World) {
        let (step_count_max, now) = (world.settings.limits.work_per_turn, world.server_time());
        // Each client may have left a request for the turn.
        let requested_max = step_count_max + STEPS_IN_VAIN_MAX + world.settings.client_count as u32;
        for shard in &self.shards {
            if let Some(turn) = self.node.0.shards[*shard].enter() {
                let (step_count, deadline) = (turn.shard.steps_asked(), turn.shard.next_deadline());
                leave(turn);
                let comes_by = self.threads.iter().map(|thread| thread.worker.comes_by(*shard)).min();
                if comes_by.is_some_and(|comes_by| comes_by > deadline.max(now)) {
                    world.auditor.accuse("armed", || {
                        format!("shard {shard} has a deadline at {deadline:?}, but no worker visits it before {comes_by:?}")
                    });
                }
                if step_count > requested_max {
                    world.auditor.accuse("steps", || {
                        format!(
                            "a turn of shard {shard} requested {step_count} steps; its limit is {step_count_max}"
                        )
                    });
                }
            }
        }
    }

    /// Checks every invariant of the shards that keys belong to, except shards whose turns are in transit.
    /// Panics like `Shard::verify`.
    pub(crate) fn verify(&self) {
        for shard in &self.shards {
            if let Some(turn) = self.node.0.shards[*shard].enter() {
                turn.shard.verify();
                leave(turn);
            }
        }
    }

    /// Returns the number of claims, waiting and held; `None` while a turn is in transit.
    pub(crate) fn claim_count(&self) -> Option<u32> {
        if self.threads.is_empty() {
            return None;
        }
        let mut count = 0;
        for cell in &self.node.0.shards {
            let turn = cell.enter()?;
            count += turn.shard.claim_count();
            leave(turn);
        }
        Some(count)
    }

    /// Describes the holders and waiters of each key for a report.
    pub(crate) fn describe_keys(&self, world: &World) -> Vec<String> {
        let keys = world.settings.inspected_keys();
        keys.into_iter().map(|key| format!("{key}: {:?}", self.inspect(world, key))).collect()
    }

    /// Returns the free keys. Leaves out the keys of shards whose turns are in transit.
    pub(crate) fn free_keys(&self, world: &World) -> Vec<Key> {
        let is_free = |key: &Key| matches!(self.inspect(world, *key), Some(Answer::Inspected(status)) if status.holder_count == 0);
        world.settings.inspected_keys().into_iter().filter(is_free).collect()
    }

    /// Inspects a key in its shard; `None` while the turn of the shard is in transit.
    fn inspect(&self, world: &World, key: Key) -> Option<Answer> {
        let (kind, name) = (kind_of(key), world.settings.name_of(key));
        let place = if kind == NamespaceKind::Tree { kind.name().as_bytes() } else { &name };
        let namespaces = self.node.0.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, ..) = namespaces.by_number(0).find(|(_, _, other)| *other == kind)?;
        let mut turn = self.node.0.shards[usize::from(self.node.0.shard_of_key(place))].enter()?;
        let ticket = Ticket::default();
        let lane = turn.shard.lane(ticket.lane, &Arc::from([]), 0);
        let mut seen = InspectionAnswer::default();
        let caller = Caller { lane, ticket, namespace: number };
        if kind == NamespaceKind::Pool {
            turn.shard.describe_pool(&caller, &name, &mut seen);
        } else {
            turn.shard.inspect(&caller, &name, &mut seen);
        }
        leave(turn);
        seen.0
    }

    /// Returns the number of connections that the workers have.
    pub(crate) fn connection_count(&self) -> usize {
        self.threads.iter().map(|thread| thread.worker.connection_count()).sum()
    }
}

/// Returns the configuration of a node for this start of the server. Each start has different random values.
fn config(world: &World, start: u32, (log, quorum): (Option<LogPort>, Option<QuorumPort>)) -> NodeConfig {
    let mut seed = world.settings.node_seed;
    seed.iter_mut().zip(start.to_le_bytes()).for_each(|(byte, start)| *byte ^= start);
    NodeConfig {
        worker_count: world.settings.worker_count,
        memory: Arc::default(),
        acceptor_count: usize::from(world.settings.edge.is_some()),
        limits: world.settings.limits,
        session_vacant_ms: world.settings.session_vacant_ms,
        start: world.server_time(),
        seed,
        clock: world.clock.clone(),
        log,
        quorum,
    }
}

/// Gives back a turn that was taken only to inspect a shard. No other thread runs meanwhile, so nothing is
/// left for the turn.
fn leave<S, B>(turn: Turn<'_, S, B>) {
    let left = turn.leave();
    assert!(left.is_none(), "a batch was left for this turn, although no other thread ran");
}

/// Receives the response to an inspection.
#[derive(Default)]
struct InspectionAnswer(Option<Answer>);

impl Effects for InspectionAnswer {
    fn answer(&mut self, _: Ticket, answer: Answer) {
        self.0 = Some(answer);
    }

    fn event(&mut self, _: LaneAddress, _: waymaker_engine::Event) {}
}
