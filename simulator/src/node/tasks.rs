//! The tasks of a worker's thread, as a runtime schedules them: the tasks that are ready, and their
//! constraints on order.

use crate::event::Event;
use crate::world::World;
use std::collections::VecDeque;
use waymaker_engine::Time;
use waymaker_server::worker::Worker;

/// Longest delay until a thread wakes.
const WAKE_MAX_US: u64 = 60;
/// Number of sockets that the simulated operating system names at once. It is small, so that a sweep must ask
/// several times.
pub(super) const EVENTS_PER_POLL: usize = 3;

/// A task that is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Takes over a connection that was handed to this worker.
    Accept,
    /// Gives a connection its turn.
    Connection(usize),
    /// Writes the output of connections.
    Flush,
    TakeMail,
    /// Ends leases, waits and sessions that are due. If necessary, reads all sockets empty first.
    Sweep,
    /// Lets a connection continue that gave way to others.
    Late,
    Housekeep,
}

/// Requests of a step to other threads.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    pub(crate) wakes: Vec<usize>,
    pub(crate) moves: Vec<(usize, super::thread::Intake)>,
    /// The worker to notify when all connections that wait now were accepted.
    pub(crate) asks_acceptor: Option<usize>,
}

/// The runtime of one thread.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) index: usize,
    ready: Vec<Task>,
    /// Sockets that can be read or written, and that the operating system has not named yet.
    unnamed: VecDeque<usize>,
    /// The tasks that were ready when the sweeper yielded, and that run before it continues.
    yielded: Option<Vec<Task>>,
    pub(super) is_sweeping: bool,
    pub(super) sweeper_sleeps_until: Time,
    pub(super) is_parked: bool,
    /// Time at which the thread runs next.
    pub(super) runs_at_us: Option<u64>,
    pub(super) stalled_until_us: u64,
}

impl Tasks {
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            ready: vec![Task::Sweep],
            unnamed: VecDeque::new(),
            yielded: None,
            is_sweeping: false,
            sweeper_sleeps_until: Time::ZERO,
            is_parked: false,
            runs_at_us: None,
            stalled_until_us: 0,
        }
    }

    pub(super) fn make_ready(&mut self, world: &mut World, task: Task) {
        if task == Task::Sweep && self.yielded.is_some() {
            // The task makes itself ready again when the sweep continues.
            return;
        }
        if !self.ready.contains(&task) {
            self.ready.push(task);
        }
        self.wake(world);
    }

    fn wake(&mut self, world: &mut World) {
        if self.runs_at_us.is_none() {
            let delay_us = if self.is_parked { world.random.between(1, WAKE_MAX_US) } else { 0 };
            self.schedule(world, delay_us);
        }
    }

    pub(super) fn schedule(&mut self, world: &mut World, delay_us: u64) {
        let at_us = (world.now_us + delay_us).max(self.stalled_until_us);
        self.runs_at_us = Some(at_us);
        world.at(at_us, Event::Run(self.index));
    }

    /// Notes that a socket can be read or written. The next [`ask_system`](Self::ask_system) may return it.
    pub(super) fn note_io(&mut self, world: &mut World, connection: usize) {
        if !self.unnamed.contains(&connection) {
            self.unnamed.push_back(connection);
        }
        self.wake(world);
    }

    /// Polls the simulated operating system once. Returns the sockets that it reports.
    pub(super) fn ask_system(&mut self) -> Vec<usize> {
        let count = self.unnamed.len().min(EVENTS_PER_POLL);
        self.unnamed.drain(..count).collect()
    }

    /// Lets every task that is ready run before the sweeper continues.
    pub(super) fn yield_sweep(&mut self) {
        self.ready.retain(|task| *task != Task::Sweep);
        if self.ready.is_empty() {
            self.ready.push(Task::Sweep);
        } else {
            self.yielded = Some(self.ready.clone());
        }
    }

    /// Takes the next task to run. Any ready task may be the next, regardless of the order in which the tasks became
    /// ready.
    pub(super) fn take(&mut self, world: &mut World) -> Option<Task> {
        if self.ready.is_empty() {
            return None;
        }
        let index = world.random.below(self.ready.len() as u64) as usize;
        Some(self.ready.remove(index))
    }

    /// Notes that a task has run.
    pub(super) fn note_ran(&mut self, task: Task) {
        if let Some(yielded) = &mut self.yielded {
            yielded.retain(|other| *other != task);
            if yielded.is_empty() {
                self.yielded = None;
                self.ready.push(Task::Sweep);
            }
        }
    }

    /// Removes a task that will not run any more.
    pub(super) fn forget(&mut self, task: Task) {
        if let Task::Connection(connection) = task {
            // The operating system does not name closed sockets.
            self.unnamed.retain(|other| *other != connection);
        }
        self.ready.retain(|other| *other != task);
        self.note_ran(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// Handles the consequences of a call into the worker, as `Local::follow_up` does.
    pub(super) fn follow_up(&mut self, world: &mut World, worker: &mut Worker, errands: &mut Errands) {
        worker.handle_mail(worker.moment());
        if worker.has_dirty() {
            self.make_ready(world, Task::Flush);
        }
        while let Some(other) = worker.poll_wake() {
            errands.wakes.push(usize::from(other));
        }
        if worker.poll_accept().is_some() {
            errands.asks_acceptor = Some(self.index);
        }
        let is_due = worker.wants_drain() || worker.next_deadline() < self.sweeper_sleeps_until;
        if !self.is_sweeping && is_due {
            self.make_ready(world, Task::Sweep);
        }
    }
}
