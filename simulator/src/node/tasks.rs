//! The tasks of a worker's thread, as a runtime runs them: which are ready, and what must run before what.

use crate::world::{Event, World};
use std::collections::VecDeque;
use waymaker_engine::Time;
use waymaker_server::worker::Worker;

/// How long a thread takes to wake.
const WAKE_MAX_US: u64 = 60;
/// Sockets that the simulated operating system names at once: few, so that a sweep must ask several times.
pub(super) const EVENTS_PER_POLL: usize = 3;

/// A task that is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Take a connection that was handed to this worker.
    Accept,
    /// Give a connection its turn.
    Connection(usize),
    /// Write what connections have to say.
    Flush,
    TakeMail,
    /// End what is due, and read all sockets empty where that must go before.
    Sweep,
    /// Let a connection that gave way continue.
    Late,
    Housekeep,
}

/// What other threads have to do after a step.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    pub(crate) wakes: Vec<usize>,
    pub(crate) moves: Vec<(usize, super::thread::Intake)>,
    /// The worker that must hear when all connections that wait now were accepted.
    pub(crate) asks_acceptor: Option<usize>,
}

/// The runtime of one thread.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) index: usize,
    ready: Vec<Task>,
    /// Sockets that can be read or written, and that the operating system has not named yet.
    unnamed: VecDeque<usize>,
    /// The sweeper has yielded: these tasks were ready then, and run before it.
    yielded: Option<Vec<Task>>,
    pub(super) is_sweeping: bool,
    pub(super) sweeper_sleeps_until: Time,
    pub(super) is_parked: bool,
    /// When the thread runs next.
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
            // It comes back by itself.
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

    /// A socket can be read or written. The operating system tells when it is asked.
    pub(super) fn note_io(&mut self, world: &mut World, connection: usize) {
        if !self.unnamed.contains(&connection) {
            self.unnamed.push_back(connection);
        }
        self.wake(world);
    }

    /// Asks the operating system once. Returns the sockets that it names.
    pub(super) fn ask_system(&mut self) -> Vec<usize> {
        let count = self.unnamed.len().min(EVENTS_PER_POLL);
        self.unnamed.drain(..count).collect()
    }

    /// The sweeper lets every task that is ready run before it goes on.
    pub(super) fn yield_sweep(&mut self) {
        self.ready.retain(|task| *task != Task::Sweep);
        if self.ready.is_empty() {
            self.ready.push(Task::Sweep);
        } else {
            self.yielded = Some(self.ready.clone());
        }
    }

    /// Takes the next task to run. Any of them may be next, whatever the order in which they became ready.
    pub(super) fn take(&mut self, world: &mut World) -> Option<Task> {
        if self.ready.is_empty() {
            return None;
        }
        let index = world.random.below(self.ready.len() as u64) as usize;
        Some(self.ready.remove(index))
    }

    /// A task has run.
    pub(super) fn note_ran(&mut self, task: Task) {
        if let Some(yielded) = &mut self.yielded {
            yielded.retain(|other| *other != task);
            if yielded.is_empty() {
                self.yielded = None;
                self.ready.push(Task::Sweep);
            }
        }
    }

    /// A task does not run any more.
    pub(super) fn forget(&mut self, task: Task) {
        if let Task::Connection(connection) = task {
            // The operating system names no socket that is closed.
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

    /// Does what the worker wants after it was fed, as `Local::follow_up` does.
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
