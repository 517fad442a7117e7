//! One worker and the tasks of its thread, which run one at a time.

mod turns;

use super::backlog::Allowance;
use super::front::{Front, WakeList};
use super::io::{LaneTable, register};
use super::tasks::{EVENTS_PER_POLL, Errands, Task, Tasks};
use crate::event::Event;
use crate::identities::{evidence_of_others, tenant_identity_of};
use crate::world::World;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_server::edge::connection::{Connection, Newcomer};
use waymaker_server::edge::late::LateQueue;
use waymaker_server::edge::read_barrier::{ReadBarrier, SweepNext};
use waymaker_server::limits::HOUSEKEEPING_MS;
use waymaker_server::mail::Mail;
use waymaker_server::node::Node;
use waymaker_server::worker::{Client, Identification, MovedConnection, Worker};

/// Longest time between two tasks of a thread.
const STEP_MAX_US: u64 = 30;
/// Longest time for which a preempted thread waits for its processor.
const PREEMPTION_MAX_US: u64 = 20_000;

/// A connection on its way to a worker.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) connection: usize,
    /// Unserved input that another worker had read from the connection.
    pub(crate) moved: Option<MovedConnection>,
    /// Upper bound of the instant up to which all workers may count as having read everything, until the
    /// connection is served here.
    pub(crate) drained_max: Time,
}

/// The thread of one worker. It runs the same tasks as `driver` in a server, with the same components. The
/// seed decides the order of the ready tasks and the duration of each task.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Number of the server start that the thread belongs to.
    start: u32,
    pub(crate) worker: Worker,
    barrier: ReadBarrier,
    late: LateQueue<usize>,
    /// Connections that gave way and wait, in the order in which they gave way.
    gave_way: VecDeque<usize>,
    tasks: Tasks,
    intake: VecDeque<Intake>,
    pub(super) connections: BTreeMap<usize, ServedConnection>,
    pub(super) registered: LaneTable,
    woken: WakeList,
}

/// A connection that is served here.
#[derive(Debug)]
pub(super) struct ServedConnection {
    pub(super) inner: Inner,
    pub(super) allowance: Allowance,
    /// True if the operating system has named the socket, and no read has found it empty since.
    is_readable: bool,
    /// True if the operating system knows the socket, which it does from the first turn on.
    is_known: bool,
    /// True if the connection gave way and waits for its turn.
    is_queued: bool,
}

#[derive(Debug)]
pub(super) enum Inner {
    Binary(Connection),
    Front(Box<Front>),
}

impl Thread {
    pub(crate) fn new(node: &Arc<Node>, index: usize, start: u32, now: Time) -> Self {
        Self {
            start,
            worker: Worker::new(Arc::clone(node), index as u16, now),
            barrier: ReadBarrier::new(EVENTS_PER_POLL),
            late: LateQueue::default(),
            gave_way: VecDeque::new(),
            tasks: Tasks::new(index),
            intake: VecDeque::new(),
            connections: BTreeMap::new(),
            registered: LaneTable::new(),
            woken: WakeList::default(),
        }
    }

    /// Starts the thread.
    pub(crate) fn begin(&mut self, world: &mut World) {
        self.tasks.schedule(world, 0);
    }

    /// Hands a connection to this worker.
    pub(crate) fn hand(&mut self, world: &mut World, intake: Intake) {
        self.intake.push_back(intake);
        self.tasks.make_ready(world, Task::Accept);
    }

    /// Returns the latest instant that may count as read by all workers while connections are on their way to
    /// this worker.
    pub(crate) fn drained_max(&self) -> Time {
        self.intake.iter().map(|intake| intake.drained_max).min().unwrap_or(Time::NEVER)
    }

    /// Wakes the worker because another thread posted mail while it slept.
    pub(crate) fn wake(&mut self, world: &mut World) {
        self.tasks.make_ready(world, Task::TakeMail);
    }

    /// Notes that a connection has something to read, or room to write.
    pub(crate) fn note_io(&mut self, world: &mut World, connection: usize) {
        if self.connections.get(&connection).is_some_and(|served| served.is_known) {
            self.tasks.note_io(world, connection);
        }
    }

    /// Wakes the sweeper if it has slept long enough.
    pub(crate) fn alarm(&mut self, world: &mut World) {
        if !self.barrier.is_sweeping() && world.server_time() >= self.tasks.sweeper_sleeps_until {
            self.tasks.make_ready(world, Task::Sweep);
        }
    }

    pub(crate) fn housekeep(&mut self, world: &mut World) {
        self.tasks.make_ready(world, Task::Housekeep);
        world.after(HOUSEKEEPING_MS * 1000, Event::Housekeep(self.tasks.index, self.start));
    }

    /// Returns whether the thread has nothing left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_parked
            && self.tasks.is_empty()
            && self.intake.is_empty()
            && self.late.is_empty()
            && !self.barrier.is_sweeping()
    }

    /// Returns whether the thread sleeps and was not woken.
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_idle() && self.tasks.runs_at_us.is_none()
    }

    /// Keeps the thread from running for a while.
    pub(crate) fn stall(&mut self, world: &mut World, for_us: u64) {
        self.tasks.stalled_until_us = self.tasks.stalled_until_us.max(world.now_us + for_us);
        world.auditor.note_stall(world.now_us, for_us);
        let index = self.tasks.index;
        world.trace.note(world.now_us, 3, index as u64, || {
            format!("worker {index}  is not scheduled for {}.{:03} ms", for_us / 1000, for_us % 1000)
        });
    }

    /// Lets the thread run again at once.
    pub(crate) fn end_stall(&mut self, world: &mut World) {
        self.tasks.stalled_until_us = 0;
        self.tasks.schedule(world, 0);
    }

    /// Runs one task.
    pub(crate) fn run(&mut self, world: &mut World, node: &Node) -> Errands {
        let mut errands = Errands::default();
        if self.tasks.runs_at_us != Some(world.now_us) {
            // The run was put off or brought forward.
            return errands;
        }
        self.tasks.runs_at_us = None;
        if world.now_us < self.tasks.stalled_until_us {
            self.tasks.schedule(world, 0);
            return errands;
        }
        self.tasks.is_parked = false;
        if self.tasks.is_empty() || world.random.once_in(4) {
            self.ask_system(world);
        }
        if let Some(task) = self.tasks.take(world) {
            let index = self.tasks.index;
            world.trace.note(world.now_us, 4, index as u64, || format!("worker {index}  {task:?}"));
            self.perform(world, task, &mut errands);
            self.tasks.note_ran(task);
            for connection in self.woken.take() {
                self.tasks.make_ready(world, Task::Connection(connection));
            }
        }
        if self.tasks.is_empty() && !node.mailboxes[self.tasks.index].sleep() {
            self.tasks.make_ready(world, Task::TakeMail);
        }
        if self.tasks.is_empty() && !self.tasks.has_unnamed() {
            self.tasks.is_parked = true;
            self.tasks.runs_at_us = None;
        } else {
            // Between any two tasks the thread may be preempted for a while.
            let loses = !world.calm && world.random.once_in(20);
            let delay_us = world.random.spread(1, if loses { PREEMPTION_MAX_US } else { STEP_MAX_US });
            if loses {
                world.auditor.note_stall(world.now_us, delay_us);
            }
            self.tasks.schedule(world, delay_us);
        }
        errands
    }

    /// Asks the operating system once, and makes the tasks of the connections ready that it names.
    fn ask_system(&mut self, world: &mut World) {
        for connection in self.tasks.ask_system() {
            if let Some(served) = self.connections.get_mut(&connection) {
                served.is_readable = true;
                self.tasks.make_ready(world, Task::Connection(connection));
            }
        }
    }

    fn perform(&mut self, world: &mut World, task: Task, errands: &mut Errands) {
        let now = world.server_time();
        match task {
            Task::Accept => self.accept(world, errands),
            Task::Connection(connection) => self.give_turn(world, connection, errands),
            Task::Flush => self.flush(world, errands),
            Task::TakeMail => {
                self.worker.handle_mail(now);
                self.tasks.follow_up(world, &mut self.worker, errands);
            }
            Task::Sweep => self.sweep(world, errands),
            Task::Late => self.continue_late(world),
            Task::Housekeep => {
                self.worker.housekeep(now);
                self.tasks.follow_up(world, &mut self.worker, errands);
                for (connection, served) in &self.connections {
                    if matches!(&served.inner, Inner::Front(front) if front.has_quiet_streams()) {
                        self.tasks.make_ready(world, Task::Connection(*connection));
                    }
                }
            }
        }
    }

    fn accept(&mut self, world: &mut World, errands: &mut Errands) {
        if let Some(intake) = self.intake.pop_front() {
            self.take_over(world, intake, errands);
        }
        if !self.intake.is_empty() {
            self.tasks.make_ready(world, Task::Accept);
        }
    }

    /// Begins to serve a connection. Its first turn makes its socket known to the operating system.
    fn take_over(&mut self, world: &mut World, intake: Intake, errands: &mut Errands) {
        let Intake { connection, moved, .. } = intake;
        let link = &world.network.connections[connection];
        let allowance = Allowance::of_newcomer(moved.is_some(), world.now_us);
        let inner = if link.is_front {
            Inner::Front(Box::new(Front::new(connection, &self.woken)))
        } else {
            let (peer, now) = (format!("peer-{connection}"), world.server_time().into());
            let Self { worker, barrier, tasks, registered, .. } = self;
            if moved.is_some() {
                world.note_served(connection);
            }
            let client = client_of(world, connection);
            let newcomer = Newcomer { client, ..Newcomer::new(peer.as_bytes(), moved) };
            let inner = Connection::begin(worker, barrier, newcomer, now);
            tasks.follow_up(world, worker, errands);
            register(world, tasks, registered, inner.key(), connection);
            Inner::Binary(inner)
        };
        let (is_readable, is_known, is_queued) = (false, false, false);
        self.connections
            .insert(connection, ServedConnection { inner, allowance, is_readable, is_known, is_queued });
        self.barrier.note_newcomer();
        self.tasks.make_ready(world, Task::Connection(connection));
    }

    /// Notes that the server can learn from now on that a connection was cut.
    pub(crate) fn notice(&mut self, world: &mut World, connection: usize) {
        world.network.connections[connection].server_noticed = true;
        self.note_io(world, connection);
    }

    /// Runs the sweeper.
    fn sweep(&mut self, world: &mut World, errands: &mut Errands) {
        let now = world.server_time();
        // Work that an earlier sweep allowed continues during a sweep.
        if !self.barrier.is_sweeping() || self.worker.next_deadline() <= now {
            self.tasks.sweeper_sleeps_until = Time::ZERO;
            self.worker.tick(now);
            self.tasks.follow_up(world, &mut self.worker, errands);
        }
        if !self.barrier.is_sweeping() {
            if !self.worker.wants_drain() {
                return self.rest(world);
            }
            while let Some(intake) = self.intake.pop_front() {
                self.take_over(world, intake, errands);
            }
            self.connections.values_mut().for_each(|served| served.allowance.begin_sweep());
            self.barrier.begin_sweep(now);
            self.tasks.is_sweeping = true;
        }
        match self.barrier.poll_sweep(self.connections.len()) {
            SweepNext::Round => {
                self.ask_system(world);
                self.tasks.yield_sweep();
            }
            SweepNext::Complete(at) => {
                self.tasks.is_sweeping = false;
                self.note_swept(world.now_us);
                self.worker.handle_drained(at, now);
                self.tasks.follow_up(world, &mut self.worker, errands);
                self.rest(world);
            }
        }
    }

    /// Lets the sweeper sleep until something is due.
    fn rest(&mut self, world: &mut World) {
        let until = self.worker.next_deadline();
        self.tasks.sweeper_sleeps_until = until;
        if self.worker.wants_drain() || until <= world.server_time() {
            self.tasks.make_ready(world, Task::Sweep);
        } else if until != Time::NEVER {
            let wait_ms = until.ms_since(world.server_time());
            // The clock shows whole milliseconds. It shows this one from the beginning of that millisecond
            // on.
            let at_us = (world.now_us / 1000 + wait_ms) * 1000;
            world.at(at_us, Event::Alarm(self.tasks.index));
        }
    }

    /// Posts a letter to the mailbox of this worker.
    pub(crate) fn post(&mut self, world: &mut World, node: &Node, mail: Mail) {
        if node.mailboxes[self.tasks.index].post(mail) {
            self.wake(world);
        }
    }
}

/// Returns the data that the server has about the client of a new connection before its HELLO.
pub(super) fn client_of(world: &World, connection: usize) -> Client {
    if world.settings.identities.is_none() {
        return Client::default();
    }
    let client = world.network.connections[connection].client;
    let evidence = match tenant_identity_of(client) {
        Some(tenant) => tenant.evidence(),
        None => evidence_of_others(world.colleagues.contains(&client)),
    };
    Client {
        identification: Identification::Unidentified,
        evidence: Some(Arc::new(evidence)),
        ..Client::default()
    }
}
