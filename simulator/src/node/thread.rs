//! One worker and the tasks of its thread, run one at a time.

use crate::network::Found;
use crate::world::{Event, World};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_server::limits::{HOUSEKEEPING_MS, READ_LEN_MAX};
use waymaker_server::mail::Mail;
use waymaker_server::node::Node;
use waymaker_server::worker::{Budget, ConnectionKey, Next, Worker};

/// How long one task takes before the next one runs.
const STEP_MAX_US: u64 = 30;
/// How long a thread that lost its processor waits for it.
const PREEMPTION_MAX_US: u64 = 20_000;
/// How long a thread takes to wake.
const WAKE_MAX_US: u64 = 60;

/// A task that is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Take a connection that was handed to this worker.
    Accept,
    /// Read a connection, and write where the flusher could not.
    Read(usize),
    /// Write what connections have to say.
    Flush,
    TakeMail,
    /// End what is due.
    Sweep,
    Housekeep,
}

/// Reads of one connection in one turn.
const READS_PER_TURN: u32 = 4;
/// Batches of one connection in most turns; in some it is one.
const BATCHES_PER_TURN: u32 = 8;

/// Budget of a connection for one turn, in batches.
struct Batches(u32);

impl Budget for Batches {
    fn is_spent(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }
}

/// A connection on its way to a worker.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) connection: usize,
    /// What another worker had read from it.
    pub(crate) moved: Option<Vec<u8>>,
}

/// Reading all sockets empty before anything may end.
#[derive(Debug)]
struct Drain {
    at: Time,
    /// Connections that had something to read then.
    behind: BTreeSet<usize>,
    /// Connections that had been handed over then.
    intake_count: usize,
}

/// What other threads have to do after a step.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    pub(crate) wakes: Vec<usize>,
    pub(crate) moves: Vec<(usize, Intake)>,
}

/// The thread of one worker. It does what `driver` does in a server, in the same order of calls, one task a step; which
/// of the tasks that are ready comes next, and how long each takes, the seed decides.
#[derive(Debug)]
pub(crate) struct Thread {
    index: usize,
    /// Which start of the server it belongs to.
    start: u32,
    pub(crate) worker: Worker,
    ready: Vec<Task>,
    intake: VecDeque<Intake>,
    /// The name of each connection at the worker.
    keys: BTreeMap<usize, ConnectionKey>,
    /// By slot, the connection that is written to when the worker names it.
    registered: BTreeMap<u32, (ConnectionKey, usize)>,
    drain: Option<Drain>,
    sweeper_sleeps_until: Time,
    is_parked: bool,
    /// When it runs next.
    runs_at_us: Option<u64>,
    stalled_until_us: u64,
}

impl Thread {
    pub(crate) fn new(node: &Arc<Node>, index: usize, start: u32, now: Time) -> Self {
        Self {
            index,
            start,
            worker: Worker::new(Arc::clone(node), index as u16, now),
            ready: vec![Task::Sweep],
            intake: VecDeque::new(),
            keys: BTreeMap::new(),
            registered: BTreeMap::new(),
            drain: None,
            sweeper_sleeps_until: Time::ZERO,
            is_parked: false,
            runs_at_us: None,
            stalled_until_us: 0,
        }
    }

    /// It begins to run.
    pub(crate) fn begin(&mut self, world: &mut World) {
        self.schedule(world, 0);
    }

    /// A connection for this worker.
    pub(crate) fn hand(&mut self, world: &mut World, intake: Intake) {
        self.intake.push_back(intake);
        self.make_ready(world, Task::Accept);
    }

    /// Somebody posted mail while this worker slept.
    pub(crate) fn wake(&mut self, world: &mut World) {
        self.make_ready(world, Task::TakeMail);
    }

    /// The connection has something to read, or room to write.
    pub(crate) fn note_io(&mut self, world: &mut World, connection: usize) {
        if self.keys.contains_key(&connection) {
            self.make_ready(world, Task::Read(connection));
        }
    }

    /// The sweeper has slept until some instant, perhaps the one that it wanted.
    pub(crate) fn alarm(&mut self, world: &mut World) {
        if self.drain.is_none() && world.server_time() >= self.sweeper_sleeps_until {
            self.make_ready(world, Task::Sweep);
        }
    }

    pub(crate) fn housekeep(&mut self, world: &mut World) {
        self.make_ready(world, Task::Housekeep);
        world.after(HOUSEKEEPING_MS * 1000, Event::Housekeep(self.index, self.start));
    }

    /// Nothing is left for it to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_parked && self.intake.is_empty() && self.drain.is_none()
    }

    /// Does not run for so long.
    pub(crate) fn stall(&mut self, world: &mut World, for_us: u64) {
        self.stalled_until_us = self.stalled_until_us.max(world.now_us + for_us);
        world.auditor.note_stall(world.now_us, for_us);
        let index = self.index;
        world.trace.note(world.now_us, 3, index as u64, || {
            format!("worker {index}  is not scheduled for {}.{:03} ms", for_us / 1000, for_us % 1000)
        });
    }

    /// Runs again at once.
    pub(crate) fn end_stall(&mut self, world: &mut World) {
        self.stalled_until_us = 0;
        self.schedule(world, 0);
    }

    fn make_ready(&mut self, world: &mut World, task: Task) {
        if !self.ready.contains(&task) {
            self.ready.push(task);
        }
        if self.runs_at_us.is_none() {
            let delay_us = if self.is_parked { world.random.between(1, WAKE_MAX_US) } else { 0 };
            self.schedule(world, delay_us);
        }
    }

    fn schedule(&mut self, world: &mut World, delay_us: u64) {
        let at_us = (world.now_us + delay_us).max(self.stalled_until_us);
        self.runs_at_us = Some(at_us);
        world.at(at_us, Event::Run(self.index));
    }

    /// Does one thing.
    pub(crate) fn run(&mut self, world: &mut World, node: &Node) -> Errands {
        let mut errands = Errands::default();
        if self.runs_at_us != Some(world.now_us) {
            // It was put off, or brought forward.
            return errands;
        }
        self.runs_at_us = None;
        if world.now_us < self.stalled_until_us {
            self.schedule(world, 0);
            return errands;
        }
        self.is_parked = false;
        if !self.ready.is_empty() {
            let task = self.ready.remove(world.random.below(self.ready.len() as u64) as usize);
            let index = self.index;
            world.trace.note(world.now_us, 4, index as u64, || format!("worker {index}  {task:?}"));
            self.perform(world, task, &mut errands);
        }
        if self.ready.is_empty() && !node.mailboxes[self.index].sleep() {
            self.ready.push(Task::TakeMail);
        }
        if self.ready.is_empty() {
            self.is_parked = true;
        } else {
            // Between any two tasks the thread may lose its processor for a while.
            let loses = !world.calm && world.random.once_in(20);
            let delay_us = world.random.spread(1, if loses { PREEMPTION_MAX_US } else { STEP_MAX_US });
            if loses {
                world.auditor.note_stall(world.now_us, delay_us);
            }
            self.schedule(world, delay_us);
        }
        errands
    }

    fn perform(&mut self, world: &mut World, task: Task, errands: &mut Errands) {
        let now = world.server_time();
        match task {
            Task::Accept => self.accept(world, errands),
            Task::Read(connection) => self.read(world, connection, errands),
            Task::Flush => self.flush(world),
            Task::TakeMail => {
                self.worker.handle_mail(now);
                self.follow_up(world, errands);
            }
            Task::Sweep => self.sweep(world, errands),
            Task::Housekeep => {
                self.worker.housekeep(now);
                self.follow_up(world, errands);
            }
        }
    }

    /// What `Local::follow_up` does.
    fn follow_up(&mut self, world: &mut World, errands: &mut Errands) {
        self.worker.handle_mail(self.worker.moment());
        if self.worker.has_dirty() {
            self.make_ready(world, Task::Flush);
        }
        while let Some(other) = self.worker.poll_wake() {
            errands.wakes.push(usize::from(other));
        }
        if self.drain.is_none()
            && (self.worker.wants_drain() || self.worker.next_deadline() < self.sweeper_sleeps_until)
        {
            self.make_ready(world, Task::Sweep);
        }
    }

    fn accept(&mut self, world: &mut World, errands: &mut Errands) {
        let Some(Intake { connection, moved }) = self.intake.pop_front() else { return };
        if !self.intake.is_empty() {
            self.make_ready(world, Task::Accept);
        }
        if let Some(drain) = &mut self.drain
            && drain.intake_count > 0
        {
            drain.intake_count -= 1;
            // It may have said something before it was taken up.
            if world.network.connections[connection].to_server.is_readable() {
                drain.behind.insert(connection);
            }
        }
        let now = world.server_time();
        let peer = format!("peer-{connection}");
        let mut key = match moved {
            None => self.worker.handle_open(peer.as_bytes(), now),
            Some(_) => self.worker.handle_moved(peer.as_bytes(), now),
        };
        self.keys.insert(connection, key);
        if let Some(bytes) = moved {
            if let Next::Rebound(rebound) = self.worker.handle_bytes(key, &bytes, now) {
                key = rebound;
                self.keys.insert(connection, key);
            }
            self.follow_up(world, errands);
        }
        self.register(world, key, connection);
        self.make_ready(world, Task::Read(connection));
        self.note_progress(world);
    }

    fn register(&mut self, world: &mut World, key: ConnectionKey, connection: usize) {
        if let Some((_, old)) = self.registered.insert(key.slot, (key, connection))
            && old != connection
            && self.keys.contains_key(&old)
        {
            self.make_ready(world, Task::Read(old));
        }
    }

    /// What the task of a connection does when it is polled.
    fn read(&mut self, world: &mut World, connection: usize, errands: &mut Errands) {
        let Some(mut key) = self.keys.get(&connection).copied() else { return };
        if !self.write_on(world, connection, key) {
            return self.finish(world, connection, errands);
        }
        let mut budget = Batches(if world.random.once_in(4) { 0 } else { BATCHES_PER_TURN });
        for _ in 0..READS_PER_TURN {
            if !self.worker.wants_read(key) {
                return self.note_empty(world, connection);
            }
            let next = if self.worker.has_input(key) {
                self.worker.handle_set_aside(&mut budget, key, world.server_time())
            } else {
                let len_max = if world.random.once_in(8) { 40 } else { READ_LEN_MAX };
                let link = &mut world.network.connections[connection];
                let is_broken = link.server_noticed;
                let pipe = &mut link.to_server;
                let unread_since_us = pipe.unread_since_us();
                match pipe.read(len_max) {
                    Found::Nothing if is_broken => {
                        return self.finish(world, connection, errands);
                    }
                    Found::Nothing => return self.note_empty(world, connection),
                    Found::End => {
                        self.write_on(world, connection, key);
                        return self.finish(world, connection, errands);
                    }
                    Found::Bytes(bytes) => {
                        world.trace.bytes(&bytes);
                        if std::mem::take(&mut pipe.wants_room) {
                            world.after(1, Event::ArriveAtClient(connection));
                        }
                        world.note_read(connection, unread_since_us.unwrap_or(world.now_us));
                        self.worker.handle_bytes_within(&mut budget, key, &bytes, world.server_time())
                    }
                }
            };
            match next {
                Next::Continue => {}
                Next::Rebound(rebound) => {
                    if self.registered.get(&key.slot).is_some_and(|(registered, _)| *registered == key) {
                        self.registered.remove(&key.slot);
                    }
                    key = rebound;
                    self.keys.insert(connection, key);
                    self.register(world, key, connection);
                }
                Next::Move(to) => {
                    let moved = Some(self.worker.take_moving(key));
                    self.forget(world, connection, key);
                    world.network.connections[connection].thread = usize::from(to);
                    errands.moves.push((usize::from(to), Intake { connection, moved }));
                    return self.follow_up(world, errands);
                }
            }
            self.follow_up(world, errands);
            if self.worker.has_input(key) && budget.is_spent() {
                break;
            }
        }
        self.make_ready(world, Task::Read(connection));
    }

    /// Writes as much as the connection takes. False: the connection is to be closed.
    fn write_on(&mut self, world: &mut World, connection: usize, key: ConnectionKey) -> bool {
        loop {
            let Some(output) = self.worker.output(key) else { return false };
            if output.is_empty() {
                return true;
            }
            let output = output.to_vec();
            let len = world.send(connection, false, &output);
            if len == 0 {
                return true;
            }
            world.trace.bytes(&output[..len]);
            world.note_said(connection, &output[..len]);
            self.worker.wrote(key, len);
        }
    }

    fn flush(&mut self, world: &mut World) {
        while let Some(key) = self.worker.poll_dirty() {
            let Some((registered, connection)) = self.registered.get(&key.slot).copied() else { continue };
            if registered != key {
                continue;
            }
            let paused = !self.worker.wants_read(key);
            let is_open = self.write_on(world, connection, key);
            let is_written = self.worker.output(key).is_some_and(<[u8]>::is_empty);
            if paused || !is_open || !is_written {
                self.make_ready(world, Task::Read(connection));
            }
        }
    }

    /// The connection is over here.
    fn finish(&mut self, world: &mut World, connection: usize, errands: &mut Errands) {
        let Some(key) = self.keys.get(&connection).copied() else { return };
        self.forget(world, connection, key);
        self.worker.handle_lost(key, world.server_time());
        self.follow_up(world, errands);
        let link = &mut world.network.connections[connection];
        link.server_done = true;
        world.note_lost(connection);
        world.close(connection, false);
        world.note_done(connection);
    }

    /// The server can learn from here on that a connection was cut.
    pub(crate) fn notice(&mut self, world: &mut World, connection: usize) {
        world.network.connections[connection].server_noticed = true;
        self.note_io(world, connection);
    }

    fn forget(&mut self, world: &mut World, connection: usize, key: ConnectionKey) {
        self.keys.remove(&connection);
        if self.registered.get(&key.slot).is_some_and(|(registered, _)| *registered == key) {
            self.registered.remove(&key.slot);
        }
        self.ready.retain(|task| *task != Task::Read(connection));
        self.note_empty(world, connection);
    }

    /// A connection has been read empty, or is read no more.
    fn note_empty(&mut self, world: &mut World, connection: usize) {
        if let Some(drain) = &mut self.drain {
            drain.behind.remove(&connection);
        }
        self.note_progress(world);
    }

    fn note_progress(&mut self, world: &mut World) {
        let is_over = |drain: &Drain| drain.behind.is_empty() && drain.intake_count == 0;
        if self.drain.as_ref().is_some_and(is_over) {
            self.make_ready(world, Task::Sweep);
        }
    }

    /// One round of the sweeper.
    fn sweep(&mut self, world: &mut World, errands: &mut Errands) {
        let now = world.server_time();
        if let Some(drain) = self.drain.take() {
            if !drain.behind.is_empty() || drain.intake_count > 0 {
                self.drain = Some(drain);
                return;
            }
            self.worker.handle_drained(drain.at, now);
            self.follow_up(world, errands);
        } else {
            self.sweeper_sleeps_until = Time::ZERO;
            self.worker.turn(now);
            self.follow_up(world, errands);
        }
        self.rest(world);
    }

    /// What the sweeper does next: it drains, or it sleeps.
    fn rest(&mut self, world: &mut World) {
        if self.worker.wants_drain() {
            let worker = &mut self.worker;
            // Requests that were read and set aside are not served yet.
            let is_behind = |(connection, key): (&usize, &ConnectionKey)| {
                let is_readable = world.network.connections[*connection].to_server.is_readable();
                (is_readable || worker.has_input(*key)).then_some(*connection)
            };
            let behind: BTreeSet<usize> = self.keys.iter().filter_map(is_behind).collect();
            for connection in &behind {
                if !self.ready.contains(&Task::Read(*connection)) {
                    self.ready.push(Task::Read(*connection));
                }
            }
            let drain = Drain { at: world.server_time(), behind, intake_count: self.intake.len() };
            self.drain = Some(drain);
            self.ready.retain(|task| *task != Task::Sweep);
            return self.note_progress(world);
        }
        let until = self.worker.next_deadline();
        self.sweeper_sleeps_until = until;
        if until <= world.server_time() {
            self.make_ready(world, Task::Sweep);
        } else if until != Time::NEVER {
            let wait_ms = until.ms_since(world.server_time());
            // The clock shows whole milliseconds: it shows this one from its beginning on.
            let at_us = (world.now_us / 1000 + wait_ms) * 1000;
            world.at(at_us, Event::Alarm(self.index));
        }
    }

    /// Puts a letter into the mailbox of this worker.
    pub(crate) fn post(&mut self, world: &mut World, node: &Node, mail: Mail) {
        if node.mailboxes[self.index].post(mail) {
            self.wake(world);
        }
    }
}
