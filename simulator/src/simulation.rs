//! Runs one seed, from the choice of its settings to the verdict.

use crate::auditor::Violation;
use crate::client::Client;
use crate::event::Event;
use crate::history::{History, Recorder};
use crate::identities::FIRST_TENANT;
use crate::node::{Server, plan_reload};
use crate::random::Random;
use crate::real_client::RealClients;
use crate::tenants::Tenants;
use crate::trace::Trace;
use crate::visitors::{FIRST_VISITOR, Visitors};
use crate::workload::Settings;
use crate::world::World;
use std::panic::AssertUnwindSafe;

/// Time after the last fault within which every request must be answered. No lease and no session lasts
/// longer than a sixth of this time.
const ANSWERED_WITHIN_MS: u64 = 40_000;
/// Time after the last client has left within which the node must be empty.
const EMPTY_WITHIN_MS: u64 = 20_000;
/// Longest time until the watchers of a key learn that the key is free.
const QUIET_MS: u64 = 1_000;
/// Time after the last fault within which the server must have noticed that its disk and its cluster work
/// again.
const RECOVERED_MS: u64 = 3_000;
/// Requests that were sent within this time before the end of the calm phase may still be unanswered.
const RECENT_US: u64 = 1_000_000;
/// Number of events between two checks whether a phase has ended.
const LOOK_EVERY: u64 = 32;

/// Options for running a seed. The defaults leave all choices to the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Number of operations of the run. `None` lets the seed choose.
    pub operation_count: Option<u32>,
    /// True if every event is printed as it happens.
    pub prints: bool,
    /// True if the server has no log, even if the seed chooses one.
    pub is_without_log: bool,
    /// True if no client uses a front end, even if the seed chooses some.
    pub is_without_fronts: bool,
    /// True if the run has no real clients, that is, no processes that use the client library.
    pub is_without_real_clients: bool,
    /// True if no client has an identity, even if the seed chooses some.
    pub is_without_identities: bool,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed of the run.
    pub seed: u64,
    /// Hash over all events. Equal runs have equal hashes.
    pub hash: u64,
    /// Number of events.
    pub event_count: u64,
    /// Number of grants that clients received.
    pub grant_count: u64,
    /// Duration of the run in virtual time, in milliseconds.
    pub virtual_ms: u64,
    /// The first failure; `None` if no promise was broken.
    pub failure: Option<Failure>,
}

/// A broken promise, with the event and the trace that lead to it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The broken rule, with a description. The rule `invariant` stands for a panic of the server.
    pub violation: Violation,
    /// Number of the event after which the failure was found.
    pub step: u64,
    /// The last events before the failure, as text.
    pub last_events: Vec<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, hash, event_count, grant_count, virtual_ms, failure } = self;
        match failure {
            None => write!(
                formatter,
                "seed {seed}: {event_count} events, {grant_count} grants in {virtual_ms} ms, hash {hash:016x}"
            ),
            Some(Failure { violation, step, last_events }) => {
                for line in last_events {
                    writeln!(formatter, "{line}")?;
                }
                writeln!(formatter, "seed {seed}, event {step}: {}: {}", violation.rule, violation.text)?;
                write!(formatter, "reproduce with: cargo run -p waymaker-simulator -- --seed {seed} --trace")
            }
        }
    }
}

/// Runs a seed. A run that fails is repeated with its trace kept, so that the outcome shows the last events.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let mut outcome = run_once(seed, options, options.prints);
    if outcome.failure.is_some() && !options.prints {
        let again = run_once(seed, options, true);
        if let (Some(failure), Some(again)) = (&mut outcome.failure, again.failure) {
            failure.last_events = again.last_events;
        }
    }
    outcome
}

/// Runs a seed for its verdict alone and keeps no trace.
pub fn judge(seed: u64, options: &Options) -> Outcome {
    run_once(seed, options, false)
}

/// Runs a seed and returns the history of its clients' calls. The auditor is silent, so that only the reader
/// of the history judges it. Only a panic of the server ends the run early.
pub fn record(seed: u64, options: &Options) -> (Outcome, History) {
    // The history covers neither restarts nor the calls of real clients.
    let options = &Options {
        is_without_log: true,
        is_without_fronts: true,
        is_without_real_clients: true,
        is_without_identities: true,
        ..*options
    };
    let mut simulation = Simulation::new(seed, options, false);
    simulation.world.auditor.silence();
    simulation.world.recorder = Some(Recorder::new(&simulation.world.settings));
    let outcome = finish(seed, &mut simulation);
    (outcome, simulation.world.recorder.map(Recorder::into_history).unwrap_or_default())
}

fn run_once(seed: u64, options: &Options, keeps_text: bool) -> Outcome {
    finish(seed, &mut Simulation::new(seed, options, keeps_text))
}

fn finish(seed: u64, simulation: &mut Simulation) -> Outcome {
    // A broken invariant inside the server panics. The panic becomes the failure of the run.
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let violation = match result {
        Ok(()) => simulation.world.auditor.violation().cloned(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            Some(Violation { rule: "invariant", text })
        }
    };
    let step = simulation.event_count;
    let last_events = simulation.world.trace.lines();
    Outcome {
        seed,
        hash: simulation.world.trace.hash(),
        event_count: step,
        grant_count: simulation.world.auditor.grant_count(),
        virtual_ms: simulation.world.now_us / 1000,
        failure: violation.map(|violation| Failure { violation, step, last_events }),
    }
}

/// Simulation of a whole node, its clients and the network between them, on one thread and in virtual time.
///
/// ```text
///            seed
///             |
///   Random ---+--> Settings          size of the run, kinds and rates of faults
///             v
///   +-------------- World: time, queue of events, trace, shared state ---------------+
///   |  Client 0..n  <---- Network: delays, fragments, holds back, cuts ---->  Server |
///   |      |                             |                                  threads  |
///   |      +-- requests, beliefs --> Auditor <-- arrivals, responses, reads ----+    |
///   +--------------------------------------------------------------------------------+
/// ```
///
/// The shards, the workers and the protocol of the server are the production code. The simulation replaces
/// the driver: it runs one task of one worker thread at a time (`node::thread`). It also simulates everything
/// outside the server. The seed decides everything that can happen in more than one way: which worker runs
/// next and how long it pauses, when bytes arrive and in which pieces, which connections break and when each
/// side notices, and what clients ask for.
///
/// One thread is enough for contention. The simulation takes the turn of a shard and passes it on by mail to
/// a worker, and then does not run that worker for a while. Meanwhile the other workers find the shard busy
/// and leave their batches, as they would if the thread with the turn were not scheduled. All of this is the
/// server's own code.
///
/// A run has three phases:
///
/// 1. **Faults.** Clients start as many operations as the seed chooses. In some runs the server begins to stop
///    before the last of them, and refuses new requests from then on.
/// 2. **Calm.** Stalls end, the network delivers, clients ask for nothing new, and every request must be
///    answered in bounded time.
/// 3. **Empty.** The clients leave, and the node must have no claims and no connections left.
///
/// In all phases the auditor checks every response, and the invariants of the shards are checked between
/// events.
///
/// To add a kind of lock, add its requests to `operation`, their choice to `mix` and `client::kinds`, the
/// handling of responses to `client::responses`, and its rules to `auditor`.
#[derive(Debug)]
struct Simulation {
    world: World,
    server: Server,
    clients: Vec<Client>,
    real: RealClients,
    visitors: Visitors,
    tenants: Option<Tenants>,
    /// Operations that clients may still begin.
    budget: u32,
    event_count: u64,
}

impl Simulation {
    fn new(seed: u64, options: &Options, keeps_text: bool) -> Self {
        let mut random = Random::new(seed);
        let mut settings = Settings::new(seed, options.operation_count, &mut random);
        if options.is_without_log {
            settings.durability = None;
        }
        if options.is_without_fronts {
            settings.front_percent = 0;
            settings.edge = None;
        }
        if !options.is_without_real_clients {
            settings.add_processes(seed);
        }
        if !options.is_without_identities {
            settings.add_identities(seed);
        }
        let budget = settings.operation_count;
        let client_count = settings.client_count;
        let mut trace = Trace::new(keeps_text, options.prints);
        trace.note(0, 0, seed, || format!("seed {seed}: {settings:?}"));
        let mut world = World::new(settings, random, trace);
        let server = Server::new(&mut world);
        let clients = (0..client_count).map(|index| Client::new(&mut world, index)).collect();
        let real = RealClients::new(&mut world);
        let visitors = Visitors::new(&mut world);
        let tenants = Tenants::new(&mut world);
        plan_reload(&mut world);
        world.after(0, Event::Interfere);
        world.interrupt_cluster();
        Self { world, server, clients, real, visitors, tenants, budget, event_count: 0 }
    }

    fn run(&mut self) {
        if let Some(left) = self.world.settings.stops_before {
            if !self.go_on(u64::MAX, |simulation| simulation.budget <= left) {
                return;
            }
            self.server.stop(&mut self.world);
        }
        if !self.go_on(u64::MAX, |simulation| simulation.budget == 0) {
            return;
        }
        self.world.calm = true;
        self.server.end_stalls(&mut self.world);
        self.server.end_disk_faults(&mut self.world);
        self.clients.iter_mut().for_each(|client| client.leave(&mut self.world));
        self.real.leave(&mut self.world);
        self.visitors.leave(&mut self.world);
        self.tenants.iter_mut().for_each(|tenants| tenants.leave(&mut self.world));
        let answered = |simulation: &Self| {
            simulation.clients.iter().all(|client| client.outstanding(u64::MAX).is_empty())
                && simulation.real.outstanding().is_empty()
        };
        let is_answered = self.go_on(ANSWERED_WITHIN_MS, answered);
        if self.world.auditor.violation().is_some() {
            return;
        }
        // In a run with 200 clients that keep listing their holds, some client always waits for a response.
        let until_us = self.world.now_us.saturating_sub(RECENT_US);
        let mut outstanding: Vec<_> =
            self.clients.iter().map(|client| client.outstanding(until_us)).collect();
        outstanding.push(self.real.outstanding());
        if !is_answered && outstanding.iter().any(|waiting| !waiting.is_empty()) {
            let keys = self.server.describe_keys(&self.world);
            return self.world.auditor.accuse("unanswered", || {
                format!(
                    "after {ANSWERED_WITHIN_MS} ms without faults clients still wait for {outstanding:?}; the keys: \
                     {keys:?}"
                )
            });
        }
        let free = self.server.free_keys(&self.world);
        let is_durable = self.world.settings.durability.is_some();
        self.go_on(if is_durable { RECOVERED_MS } else { QUIET_MS }, |_| false);
        self.server.judge_recovered(&mut self.world);
        if self.world.auditor.violation().is_some() {
            return;
        }
        let still_free = self.server.free_keys(&self.world);
        self.world.auditor.judge_watches(|key| free.contains(&key) && still_free.contains(&key));
        let now_ms = self.world.server_ms();
        self.world.auditor.judge_unowned(now_ms);
        self.server.judge_strangers(&mut self.world);
        if answered(self) {
            self.server.judge_counts(&mut self.world);
        }
        self.clients.iter_mut().for_each(|client| client.say_farewell(&mut self.world));
        self.real.say_farewell(&mut self.world);
        let empty = |simulation: &Self| {
            let may_be_left = simulation.world.settings.mix.lazy_registration_count();
            let claims_are_gone =
                simulation.server.claim_count().is_some_and(|count| u64::from(count) <= may_be_left);
            claims_are_gone
                && simulation.server.connection_count() == 0
                && simulation.server.left_in_accounts(may_be_left).is_empty()
        };
        if !self.go_on(EMPTY_WITHIN_MS, empty) {
            let left = self.server.left_in_accounts(self.world.settings.mix.lazy_registration_count());
            if !left.is_empty() {
                return self.world.auditor.accuse("quota", || {
                    format!("accounts count {left:?} after all clients have disconnected")
                });
            }
            let (claims, connections) = (self.server.claim_count(), self.server.connection_count());
            return self.world.auditor.accuse("leftover", || {
                format!(
                    "{claims:?} claims and {connections} connections remain after all clients have disconnected"
                )
            });
        }
        self.server.verify();
        self.world.auditor.finish();
    }

    /// Handles events until the phase has ended. Returns false if it does not end in time, or if a
    /// promise was broken.
    fn go_on(&mut self, within_ms: u64, is_over: impl Fn(&Self) -> bool) -> bool {
        let end_us = self.world.now_us.saturating_add(within_ms.saturating_mul(1000));
        loop {
            if self.world.now_us > end_us {
                return false;
            }
            self.world.auditor.look_at_duties(self.world.now_us);
            for _ in 0..LOOK_EVERY {
                self.happen();
                if self.world.auditor.violation().is_some() {
                    return false;
                }
            }
            if is_over(self) {
                return true;
            }
        }
    }

    fn happen(&mut self) {
        let Some(event) = self.world.next() else { return };
        self.event_count += 1;
        let world = &mut self.world;
        match event {
            Event::ArriveAtServer(connection) => {
                world.arrive(connection, true);
                self.server.note_io(world, connection);
            }
            Event::ArriveAtClient(connection) => {
                world.arrive(connection, false);
                let client = world.network.connections[connection].client;
                self.wake(client);
            }
            Event::ClientNotices(connection) => {
                world.network.connections[connection].client_noticed = true;
                let client = world.network.connections[connection].client;
                self.wake(client);
            }
            Event::Step(client) => {
                let is_active = self.budget > 0;
                for connection in self.real.step(world, client, is_active) {
                    self.server.accept(world, connection);
                }
            }
            Event::Act(client) => {
                for connection in self.clients[client].act(world, &mut self.budget) {
                    self.server.accept(world, connection);
                }
                while let Some((process, id)) = world.rivals.pop() {
                    self.real.rival(world, process, id);
                }
            }
            Event::Brink(client) => {
                self.server.interfere_at_brink(world);
                if world.edge_random.once_in(3) {
                    let other = world.edge_random.below(self.clients.len() as u64) as usize;
                    self.clients[other].chatter(world);
                }
                self.clients[client].renew_at_brink(world);
            }
            Event::Visit(visitor) => {
                if let Some(connection) = self.visitors.act(world, visitor) {
                    self.server.accept(world, connection);
                }
            }
            Event::Tenant(tenant) => {
                let opened = self.tenants.as_mut().and_then(|tenants| tenants.act(world, tenant));
                if let Some(connection) = opened {
                    self.server.accept(world, connection);
                }
            }
            Event::Reload => self.server.reload(world),
            Event::Apply(transaction) => world.apply(transaction),
            Event::Outage => world.interrupt_cluster(),
            Event::Interfere => self.server.interfere(world),
            Event::ServerNotices(_)
            | Event::Run(_)
            | Event::Alarm(_)
            | Event::Housekeep(..)
            | Event::LookForStrangers(_)
            | Event::Accept
            | Event::Log(_)
            | Event::Quorum(_)
            | Event::Counted(..)
            | Event::Keeper(_)
            | Event::Disk(_)
            | Event::Disaster(_) => {
                self.server.happen(world, event);
            }
        }
    }

    /// Wakes a client, because bytes arrived for it or one of its connections was lost.
    fn wake(&mut self, client: usize) {
        match self.clients.get_mut(client) {
            Some(client) => client.wake(&mut self.world),
            None if client >= FIRST_TENANT => {
                self.tenants.iter_mut().for_each(|tenants| tenants.wake(&mut self.world, client));
            }
            None if client >= FIRST_VISITOR => self.visitors.wake(&mut self.world, client),
            None => self.real.wake(&mut self.world, client),
        }
    }
}
