//! One run, from its seed to its verdict.

use crate::auditor::Violation;
use crate::client::Client;
use crate::history::{History, Recorder};
use crate::node::Server;
use crate::random::Random;
use crate::real_client::{Plan, RealClients};
use crate::trace::Trace;
use crate::visitors::{FIRST_VISITOR, Visitors};
use crate::workload::Settings;
use crate::world::{Event, World};
use std::panic::AssertUnwindSafe;

/// How long after the last fault every request must have its answer. No lease and no session lasts longer than a sixth of
/// it.
const ANSWERED_WITHIN_MS: u64 = 40_000;
/// How long after the last client has left the node must be empty.
const EMPTY_WITHIN_MS: u64 = 20_000;
/// How long it takes at most until those who watch a key have heard that it is free.
const QUIET_MS: u64 = 1_000;
/// How long after the last fault disk and cluster must be known to be well again.
const RECOVERED_MS: u64 = 3_000;
/// Requests that were sent within this time before the end of the calm may still be unanswered.
const RECENT_US: u64 = 1_000_000;
/// Events between two looks at whether a phase is over.
const LOOK_EVERY: u64 = 32;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Operations of the run; without it the seed chooses.
    pub operation_count: Option<u32>,
    /// Print every event as it happens.
    pub prints: bool,
    /// The server has no log, whatever the seed says.
    pub is_without_log: bool,
    /// No client speaks to a front end, whatever the seed says.
    pub is_without_fronts: bool,
    /// Run adversarial clients alone.
    pub is_without_real_clients: bool,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Of everything that happened: equal for equal runs.
    pub hash: u64,
    /// Events that happened.
    pub event_count: u64,
    /// Grants that were heard of.
    pub grant_count: u64,
    /// How long the run took in its own time, in milliseconds.
    pub virtual_ms: u64,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}

/// A promise that was broken, and how to see it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which promise, and how it was broken. The rule `invariant` is a panic of the server itself.
    pub violation: Violation,
    /// The event after which it was found.
    pub step: u64,
    /// The last events before it, as text.
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
                write!(formatter, "again: cargo run -p waymaker-simulator -- --seed {seed} --trace")
            }
        }
    }
}

/// Runs a seed. A run that fails is done again for its text.
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

/// Runs a seed for its verdict alone, without text.
pub fn judge(seed: u64, options: &Options) -> Outcome {
    run_once(seed, options, false)
}

/// Runs a seed for the history of its clients' calls. The auditor says nothing, so that whoever reads the history judges
/// alone; only a panic of the server ends the run early.
pub fn record(seed: u64, options: &Options) -> (Outcome, History) {
    // The history covers neither restarts nor the calls of real clients.
    let options =
        &Options { is_without_log: true, is_without_fronts: true, is_without_real_clients: true, ..*options };
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
    // A broken invariant inside the server panics; here that is a finding like any other.
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

/// A whole node, its clients and the network between them, on one thread and in virtual time.
///
/// ```text
///            seed
///             |
///   Random ---+--> Settings          how large, how hostile
///             v
///   +------------------- World: time, what happens next, trace -------------------+
///   |  Client 0..n  <---- Network: late, cut up, held back, broken ---->  Server   |
///   |      |                             |                              threads    |
///   |      +---- asks, believes --> Auditor <---- arrived, said, read -----+       |
///   +------------------------------------------------------------------------------+
/// ```
///
/// The server is the real one: its shards, its workers, its protocol. Only what a driver would do is done here, one task
/// of one thread at a time (`node::thread`). All else is made up. Everything that could happen in more than one way is
/// decided by the seed: which worker runs next and for how long not, what arrives when and in which pieces, which
/// connections break and who learns of it when, and what clients want.
///
/// One thread is enough for contention. The simulator takes the turn of a shard itself and passes it on, by mail, to a
/// worker that it then does not run for a while. Meanwhile the others find the shard busy and leave their batches, as
/// they would behind a holder that is not scheduled; all of that is the server's own code.
///
/// A run has three phases. While there are **faults**, clients do as many operations as the seed says; before the last of
/// them some servers are told to stop, and refuse what is new from then on. Then all is
/// **calm**: stalls end, the network delivers, nobody asks for anything new, and every request must be answered in
/// bounded time. At last the clients leave, and the node must become **empty**. Invariants of the shards are checked all
/// the while, and the auditor judges every word.
///
/// To add a kind of lock: requests in `operation`, their choice in `mix` and `client::kinds`, what clients make of the
/// answers in `client::hearing`, and rules beside the others in `auditor`.
#[derive(Debug)]
struct Simulation {
    world: World,
    server: Server,
    clients: Vec<Client>,
    real: RealClients,
    visitors: Visitors,
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
            Plan::add(seed, &mut settings);
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
        world.after(0, Event::Interfere);
        world.interrupt_cluster();
        Self { world, server, clients, real, visitors, budget, event_count: 0 }
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
        let answered = |simulation: &Self| {
            simulation.clients.iter().all(|client| client.outstanding(u64::MAX).is_empty())
                && simulation.real.outstanding().is_empty()
        };
        let is_answered = self.go_on(ANSWERED_WITHIN_MS, answered);
        if self.world.auditor.violation().is_some() {
            return;
        }
        // Of 200 clients that list their holds again and again, some always await an answer.
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
            let may_be_left = simulation.world.settings.mix.lazy_entry_count();
            let claims_are_gone =
                simulation.server.claim_count().is_some_and(|count| u64::from(count) <= may_be_left);
            claims_are_gone && simulation.server.connection_count() == 0
        };
        if !self.go_on(EMPTY_WITHIN_MS, empty) {
            let (claims, connections) = (self.server.claim_count(), self.server.connection_count());
            return self.world.auditor.accuse("leftover", || {
                format!("{claims:?} claims and {connections} connections are left when all have gone")
            });
        }
        self.server.verify();
        self.world.auditor.finish();
    }

    /// Lets things happen until a phase is over. False if it is not over in time, or something went wrong.
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

    /// Bytes arrived for a client, or a connection of it was lost.
    fn wake(&mut self, client: usize) {
        match self.clients.get_mut(client) {
            Some(client) => client.wake(&mut self.world),
            None if client >= FIRST_VISITOR => self.visitors.wake(&mut self.world, client),
            None => self.real.wake(&mut self.world, client),
        }
    }
}
