//! Processes that use the Rust client library on the simulated network. The futures, guards and lanes are the
//! production code.
//!
//! Other clients of a run write frames themselves and know every rule of the protocol. These processes know
//! none of the rules. They acquire, give up, extend, release and crash as the seed decides, and the library
//! does everything else. The auditor receives their requests like the requests of any other client. It also
//! checks the state of each guard all the time (`auditor::guards`). In the calm phase it checks that the
//! library keeps its holds and answers every caller.

mod acts;
mod caller;
mod checks;
mod clock;
mod closing;
mod decoding;
mod lane;
mod silence;
mod watches;

use crate::auditor::WatchState;
use crate::event::Event;
use crate::key::Key;
use crate::operation::Acquire;
use crate::processes::ProcessSettings;
use crate::world::World;
use caller::Call;
use clock::SkewedClock;
use decoding::Names;
use lane::RealLane;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use waymaker_client::harness::Process;
use waymaker_client::{Clock, Lock, LockId, LossReason, NamespaceKind, QueuePlace, Watch};

/// Time after the last fault within which a client must have replaced its dead connections and renewed all
/// leases.
const SETTLED_US: u64 = 9_000_000;
/// Time for which guards are then kept.
const KEPT_US: u64 = 5_000_000;
/// Time within which the guards to keep must be granted.
const GRANTED_US: u64 = 1_000_000;
/// Number of acquires of a process that has settled.
const KEPT_COUNT: usize = 4;
/// Shortest lease of a guard to keep. A shorter lease may end within a round trip.
const KEPT_LEASE_MIN_MS: u32 = 200;

/// Interval between two checks for holds without a guard.
const LOOK_US: u64 = 500_000;

/// A future that a caller polls.
type CallerFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// The real clients of a run.
#[derive(Debug)]
pub(crate) struct RealClients {
    names: Names,
    processes: Vec<RealClient>,
    /// Number of the first real client on the network.
    first: usize,
}

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acting,
    /// The process keeps its guards. After it has settled it starts only a few last acquires.
    Keeping {
        settled_us: u64,
    },
    /// The process closes its client.
    Closing {
        since_us: u64,
    },
    /// The process releases all holds.
    Leaving,
    /// The client is dropped.
    Gone,
}

/// One acquire that a caller awaits.
struct PendingAcquire {
    future: CallerFuture<waymaker_client::Result<Vec<Lock>>>,
    terms: Terms,
    call: Call,
    losses: Losses,
    acquire: Acquire,
    /// Queue position of the acquire, until it is checked.
    place: Arc<Mutex<Option<QueuePlace>>>,
}

/// One watch of a key.
struct KeyWatch {
    key: Key,
    stage: WatchStage,
    since_us: u64,
    /// The last state that the watch has shown.
    shown: Option<WatchState>,
}

enum WatchStage {
    Beginning(CallerFuture<waymaker_client::Result<Watch>>),
    Open(Watch),
}

/// Reasons that the loss callback of an acquire was called with.
type Losses = Arc<Mutex<Vec<LossReason>>>;

/// Id of the extended hold and its remaining lease in the response; `None` for a release.
type ExtendResult = Option<(LockId, Duration)>;

/// A release or an extend that a caller awaits.
struct Answer {
    future: CallerFuture<waymaker_client::Result<ExtendResult>>,
    call: Call,
}

/// Options of an acquire, for the guards that result from it.
#[derive(Clone, Copy)]
struct Terms {
    kind: NamespaceKind,
    is_renewed: bool,
    /// True if the hold has its own lease, so that it ends without renewals.
    has_end: bool,
    is_on_session: bool,
}

/// One hold with its guard.
struct Guard {
    lock: Arc<Lock>,
    terms: Terms,
    /// True if the guard was held after the process had settled. From then on only a response of the server
    /// may end it.
    is_kept: bool,
    /// Number at the auditor of the lane that got the grant.
    lane: usize,
    /// Local deadline, as last seen.
    until_us: u64,
    /// True if the loss of the guard was checked.
    is_judged: bool,
    losses: Losses,
}

/// One process with one client.
struct RealClient {
    /// Number of the process on the network.
    index: usize,
    /// Number of the client at the auditor, which treats all processes of an owner as one client.
    auditor_client: usize,
    plan: ProcessSettings,
    clock: Arc<SkewedClock>,
    process: Process,
    lanes: Vec<RealLane>,
    acquires: Vec<PendingAcquire>,
    guards: Vec<Guard>,
    /// Releases and extends that callers await.
    answers: Vec<Answer>,
    watches: Vec<KeyWatch>,
    /// A hold whose lease another client changes at the same time.
    rival: Option<LockId>,
    phase: Phase,
    /// The unfinished closing futures of the lanes.
    closings: Vec<CallerFuture<()>>,
    /// Number of acquires that the process still sends after it has settled.
    asks_left: usize,
    /// Connections that break later, with their times.
    breaks: Vec<(u64, usize)>,
    acts_at_us: u64,
    steps_at_us: Option<u64>,
    paused_until_us: u64,
    /// Time since which the process runs without a pause.
    awake_us: u64,
    /// Earliest time of the next check for holds without a guard.
    looks_at_us: u64,
}

impl RealClients {
    pub(crate) fn new(world: &mut World) -> Self {
        let first = world.settings.client_count;
        let names = Names::new(&world.settings);
        let Some(plan) = world.settings.processes.clone() else {
            return Self { names, processes: Vec::new(), first };
        };
        let processes =
            (0..plan.process_count).map(|number| RealClient::new(world, &plan, first, number)).collect();
        Self { names, processes, first }
    }

    /// Returns the process with this number on the network.
    fn process(&mut self, client: usize) -> Option<(&mut RealClient, &mut Names)> {
        let process = self.processes.get_mut(client.checked_sub(self.first)?)?;
        Some((process, &mut self.names))
    }

    /// Wakes a client, because bytes arrived for it or one of its connections was lost.
    pub(crate) fn wake(&mut self, world: &mut World, client: usize) {
        if let Some((process, _)) = self.process(client) {
            process.schedule(world, world.now_us);
        }
    }

    /// Notes that another client changes the lease of a hold of this process at the same time.
    pub(crate) fn rival(&mut self, world: &mut World, client: usize, id: LockId) {
        if let Some((process, _)) = self.process(client) {
            process.rival = Some(id);
            process.schedule(world, world.now_us);
        }
    }

    /// Does everything that is due. Returns the connections that the process opened.
    pub(crate) fn step(&mut self, world: &mut World, client: usize, is_active: bool) -> Vec<usize> {
        match self.process(client) {
            Some((process, names)) => process.step(world, names, is_active),
            None => Vec::new(),
        }
    }

    /// Lets all processes ask for nothing new from now on.
    pub(crate) fn leave(&mut self, world: &mut World) {
        for process in &mut self.processes {
            process.paused_until_us = 0;
            process.awake_us = world.now_us;
            process.phase = Phase::Keeping { settled_us: world.now_us + SETTLED_US };
            process.schedule(world, world.now_us);
        }
    }

    /// Describes everything that the processes still wait for.
    pub(crate) fn outstanding(&self) -> Vec<String> {
        self.processes.iter().flat_map(RealClient::outstanding).collect()
    }

    /// Drops all clients.
    pub(crate) fn say_farewell(&mut self, world: &mut World) {
        for process in &mut self.processes {
            process.phase = Phase::Gone;
            process.lanes.iter_mut().for_each(|lane| lane.harness.desert());
            process.schedule(world, world.now_us);
        }
    }
}

impl RealClient {
    fn new(world: &mut World, plan: &ProcessSettings, first: usize, number: usize) -> Self {
        let index = first + number;
        let auditor_client = first + number / plan.processes_per_owner * plan.processes_per_owner;
        let clock = Arc::new(SkewedClock::new(world.random.below(1 << 43), world.random.below(3) as i64 - 1));
        clock.set(world.now_us);
        let process = process(plan, &clock, auditor_client);
        let mut client = Self {
            index,
            auditor_client,
            plan: plan.clone(),
            clock,
            process,
            lanes: Vec::new(),
            acquires: Vec::new(),
            guards: Vec::new(),
            answers: Vec::new(),
            watches: Vec::new(),
            rival: None,
            phase: Phase::Acting,
            closings: Vec::new(),
            asks_left: KEPT_COUNT,
            breaks: Vec::new(),
            acts_at_us: 0,
            steps_at_us: None,
            paused_until_us: 0,
            awake_us: 0,
            looks_at_us: 0,
        };
        client.begin_anew(world);
        client
    }

    /// Starts again with no state, as a restarted process does.
    fn begin_anew(&mut self, world: &mut World) {
        self.process = process(&self.plan, &self.clock, self.auditor_client);
        self.lanes.clear();
        for kind in self.plan.kinds.clone() {
            let harness = self.process.lane(kind, kind.name().as_bytes()).expect("a new client is open");
            let auditor_lane = world.auditor.new_lane_of_process(self.auditor_client, self.index);
            self.lanes.push(RealLane::new(self.index, kind, harness, auditor_lane, self.clock.now()));
        }
        self.schedule(world, world.now_us);
    }

    fn schedule(&mut self, world: &mut World, at_us: u64) {
        let at_us = at_us.max(self.paused_until_us).max(world.now_us);
        if self.steps_at_us.is_none_or(|steps_at_us| at_us < steps_at_us || steps_at_us < world.now_us) {
            self.steps_at_us = Some(at_us);
            world.at(at_us, Event::Step(self.index));
        }
    }

    fn step(&mut self, world: &mut World, names: &mut Names, is_active: bool) -> Vec<usize> {
        if self.steps_at_us != Some(world.now_us) {
            return Vec::new();
        }
        self.steps_at_us = None;
        self.clock.set(world.now_us);
        let now_us = world.now_us;
        self.breaks
            .extract_if(.., |(at_us, _)| *at_us <= now_us)
            .for_each(|(_, connection)| world.cut(connection));
        self.lanes.iter_mut().for_each(|lane| lane.listen(world));
        for lane in &mut self.lanes {
            // The timers run after the responses were read. The responses may move a deadline that is due
            // only because this process read late.
            lane.harness.handle_timers();
        }
        self.note_outages(world);
        self.look(world);
        self.move_beside(world);
        match self.phase {
            Phase::Acting if is_active && self.acts_at_us <= world.now_us => {
                self.act(world);
                self.acts_at_us = world.now_us + world.random.between(1, 2 * self.plan.pace_us);
            }
            Phase::Keeping { settled_us } => self.keep(world, settled_us),
            Phase::Closing { since_us } => self.go_on_closing(world, since_us),
            // Grants that arrive later are released at once.
            Phase::Leaving => {
                self.guards.clear();
                self.watches.clear();
            }
            Phase::Acting | Phase::Gone => {}
        }
        let mut opened = Vec::new();
        // The loop runs twice, because one lane may learn of the end of the session and tell the others.
        for _ in 0..2 {
            for lane in &mut self.lanes {
                lane.speak(world, names);
            }
        }
        for lane in &mut self.lanes {
            opened.extend(lane.connect(world, self.auditor_client));
        }
        self.note_outages(world);
        self.tell_beliefs(world);
        self.judge_watches(world);
        self.judge_silence(world);
        self.look_for_unowned(world);
        let lanes_us = self.lanes.iter().map(|lane| lane.next_us(&self.clock, world.now_us)).min();
        let acts_us = match self.phase {
            Phase::Acting if is_active => self.acts_at_us,
            Phase::Keeping { settled_us } if settled_us > world.now_us => settled_us,
            Phase::Keeping { .. } if self.asks_left > 0 => world.now_us + 1,
            Phase::Keeping { settled_us } => settled_us + KEPT_US,
            Phase::Closing { since_us } => self.closing_ends_us(since_us).max(world.now_us + 1),
            Phase::Acting | Phase::Leaving | Phase::Gone => u64::MAX,
        };
        let breaks_us = self.breaks.iter().map(|(at_us, _)| *at_us).min().unwrap_or(u64::MAX);
        let next_us = lanes_us.unwrap_or(u64::MAX).min(acts_us).min(breaks_us);
        if next_us < u64::MAX {
            self.schedule(world, next_us.max(world.now_us + 1));
        }
        opened
    }

    fn note_outages(&mut self, world: &World) {
        let (now, patience) = (self.clock.now(), self.plan.patience);
        self.lanes.iter_mut().for_each(|lane| lane.note_outage(world.now_us, now, patience));
    }

    /// Polls the futures of all callers.
    fn look(&mut self, world: &mut World) {
        let context = &mut Context::from_waker(Waker::noop());
        let mut answers = std::mem::take(&mut self.answers);
        answers.retain_mut(|one| match one.future.as_mut().poll(context) {
            Poll::Pending => self.judge_pending(world, &one.call),
            Poll::Ready(Ok(extended)) => {
                if let Some((id, remaining)) = extended {
                    world.auditor.judge_extended(self.index, id, remaining);
                }
                false
            }
            Poll::Ready(Err(error)) => self.judge_refusal(world, &one.call, &error),
        });
        self.answers.extend(answers);
        let mut acquires = std::mem::take(&mut self.acquires);
        acquires.retain_mut(|one| match one.poll(self.index, world, context) {
            Poll::Pending => self.judge_pending(world, &one.call),
            Poll::Ready(Ok(locks)) => {
                self.take(world, locks, one.terms, &one.losses);
                false
            }
            Poll::Ready(Err(error)) => self.judge_refusal(world, &one.call, &error),
        });
        self.acquires.extend(acquires);
        self.look_at_watches(world);
        // The holder of a lost guard drops it some time later.
        let random = &mut world.random;
        self.guards.retain(|guard| guard.is_kept || guard.lock.is_held() || !random.once_in(4));
    }

    fn take(&mut self, world: &mut World, locks: Vec<Lock>, terms: Terms, losses: &Losses) {
        let lane = self.lane_of(terms.kind).auditor_lane();
        for lock in locks {
            let (index, id) = (self.index, lock.id());
            world.trace.note(world.now_us, 34, id.place, || format!("process {index}  has {lock:?}"));
            self.guards.push(Guard {
                lock: Arc::new(lock),
                terms,
                is_kept: false,
                lane,
                until_us: 0,
                is_judged: false,
                losses: Arc::clone(losses),
            });
        }
    }

    fn lane_of(&self, kind: NamespaceKind) -> &RealLane {
        self.lanes.iter().find(|lane| lane.kind == kind).expect("a lane for each kind")
    }

    /// Acquires guards after the process has settled, and checks that none of them is lost.
    fn keep(&mut self, world: &mut World, settled_us: u64) {
        if settled_us > world.now_us {
            return;
        }
        if self.asks_left > 0 {
            self.asks_left -= 1;
            self.ask(world);
        }
        for guard in &mut self.guards {
            let is_long = guard.lock.lease_ms().is_none_or(|ms| ms >= KEPT_LEASE_MIN_MS);
            let is_early = world.now_us < settled_us + GRANTED_US;
            guard.is_kept |= is_long && is_early && guard.terms.is_renewed && guard.lock.is_held();
            let is_given_up = guard.lock.loss_reason() == Some(LossReason::LocalDeadline);
            if guard.is_kept && is_given_up && !world.auditor.is_stopping() {
                world.auditor.accuse_of_needless_loss(self.index, guard.lock.id());
            }
        }
        if settled_us + KEPT_US <= world.now_us {
            if self.plan.closes_early {
                return self.close(world);
            }
            self.phase = Phase::Leaving;
            self.guards.clear();
            let random = &mut world.random;
            self.acquires.retain(|_| random.once_in(2));
        }
    }

    fn outstanding(&self) -> Vec<String> {
        let index = self.index;
        let mut outstanding = Vec::new();
        if !matches!(self.phase, Phase::Leaving | Phase::Gone) {
            outstanding.push(format!("process {index} is in phase {:?}", self.phase));
        }
        let counts = [self.acquires.len(), self.answers.len(), self.guards.len(), self.watches.len()];
        if counts != [0; 4] {
            outstanding.push(format!("process {index} awaits {counts:?} acquires, answers, guards, watches"));
        }
        if self.phase != Phase::Gone {
            let busy = self.lanes.iter().filter(|lane| !lane.is_at_rest());
            outstanding.extend(busy.map(|lane| format!("process {index}: {lane:?}")));
        }
        outstanding
    }
}

impl PendingAcquire {
    fn poll(
        &mut self,
        process: usize,
        world: &mut World,
        context: &mut Context<'_>,
    ) -> Poll<waymaker_client::Result<Vec<Lock>>> {
        let polled = self.future.as_mut().poll(context);
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(place) = place {
            world.auditor.judge_place(process, place.id, place.position, place.ticket);
        }
        polled
    }
}

fn process(plan: &ProcessSettings, clock: &Arc<SkewedClock>, auditor_client: usize) -> Process {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let owner = format!("client-{auditor_client}");
    Process::new(clock, owner.as_bytes(), plan.session_lease_ms, plan.patience)
        .with_in_flight(plan.in_flight_max)
}

impl std::fmt::Debug for RealClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RealClient").field("index", &self.index).finish_non_exhaustive()
    }
}
