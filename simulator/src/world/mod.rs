//! The state that all parts of a run share: the time, the random source, the queue of events, the network and
//! the auditor.
//!
//! The network, the cluster and the auditor do not know each other or the world. The world calls them and
//! gives the results of one to another.

mod cluster;
mod network;

use crate::auditor::Auditor;
use crate::clock::VirtualClock;
use crate::cluster::SimulatedCluster;
use crate::event::{Event, EventQueue};
use crate::history::Recorder;
use crate::network::Network;
use crate::operation::{Acquire, Operation};
use crate::random::Random;
use crate::surroundings::Surroundings;
use crate::trace::Trace;
use crate::workload::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_protocol::{LockId, NamespaceKind, SessionId};
use waymaker_server::clock::Clock;

/// A hold of a real client that adversarial clients may end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prey {
    pub(crate) kind: NamespaceKind,
    pub(crate) operation: Operation,
    pub(crate) process: usize,
}

/// The state of a run, except the node and its clients.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    /// Random source for the acts of clients in `Settings::edge`.
    pub(crate) edge_random: Random,
    /// Random source for changes of the policy.
    pub(crate) identity_random: Random,
    /// Clients with the second identity of clients that are not tenants.
    pub(crate) colleagues: BTreeSet<usize>,
    /// Number of the policy of the server.
    pub(crate) policy: usize,
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) auditor: Auditor,
    pub(crate) cluster: SimulatedCluster,
    /// Records the calls of clients; `None` unless the history of the run is wanted.
    pub(crate) recorder: Option<Recorder>,
    /// The clock of the server.
    pub(crate) clock: Arc<VirtualClock>,
    /// The session that each client has announced, for clients that join it.
    pub(crate) sessions: BTreeMap<usize, SessionId>,
    /// Sessions that more than one client has tried to join.
    pub(crate) shared_sessions: BTreeSet<SessionId>,
    /// For owners that several clients share, the last acquire with a request id, by owner and kind of
    /// namespace.
    pub(crate) named: Vec<((usize, NamespaceKind), Acquire)>,
    /// Holds of real clients that adversarial clients of the same kind may end.
    pub(crate) prey: Vec<Prey>,
    /// Holds whose leases an adversarial client and a real client change at the same time, with the number of
    /// the real client.
    pub(crate) rivals: Vec<(usize, LockId)>,
    /// True if no more faults happen.
    pub(crate) calm: bool,
    /// Boot time of the server's machine, in milliseconds of the run. The machine's clock began at zero then.
    booted_ms: u64,
    queue: EventQueue,
}

impl World {
    pub(crate) fn new(settings: Settings, random: Random, trace: Trace) -> Self {
        let clock = Arc::new(VirtualClock::default());
        clock.set(settings.server_ms(0) * 1_000_000);
        let mut auditor = Auditor::new(&settings);
        if trace.keeps_text() {
            auditor.describe_responses();
        }
        Self {
            now_us: 0,
            clock,
            auditor,
            cluster: SimulatedCluster::default(),
            recorder: None,
            edge_random: Random::new(settings.edge.map_or(0, |edge| edge.seed)),
            identity_random: Random::new(settings.identities.map_or(0, |identities| !identities.seed)),
            colleagues: BTreeSet::new(),
            policy: 0,
            settings,
            random,
            trace,
            network: Network::default(),
            sessions: BTreeMap::new(),
            shared_sessions: BTreeSet::new(),
            named: Vec::new(),
            prey: Vec::new(),
            rivals: Vec::new(),
            calm: false,
            booted_ms: 0,
            queue: EventQueue::default(),
        }
    }

    /// Lends the parts of the run that simulated parts use.
    fn surroundings(&mut self) -> (Surroundings<'_>, &mut Network, &mut SimulatedCluster) {
        let Self { now_us, calm, settings, random, edge_random, queue, trace, network, cluster, .. } = self;
        let surroundings =
            Surroundings { now_us: *now_us, calm: *calm, settings, random, edge_random, queue, trace };
        (surroundings, network, cluster)
    }

    /// Schedules an event after a delay. The seed decides the order of events at the same instant.
    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.surroundings().0.after(delay_us, event);
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.surroundings().0.at(at_us, event);
    }

    /// Returns the next event and advances the time to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let (at_us, event) = self.queue.pop()?;
        self.now_us = at_us;
        self.set_clock();
        Some(event)
    }

    fn set_clock(&self) {
        self.clock.set(self.server_time().as_millis() * 1_000_000 + self.now_us % 1000 * 1000);
    }

    /// Reboots the server's machine. The boot was `ago_ms` milliseconds ago.
    pub(crate) fn boot(&mut self, ago_ms: u64) {
        self.booted_ms = self.server_ms().saturating_sub(ago_ms);
        self.clock.set_booted(self.booted_ms);
        self.set_clock();
    }

    /// Returns the boot time of the server's machine, in milliseconds of the run.
    pub(crate) fn booted_ms(&self) -> u64 {
        self.booted_ms
    }

    /// Returns the time that the server's clock shows.
    pub(crate) fn server_time(&self) -> Time {
        Time::from_millis(self.server_ms() - self.booted_ms)
    }

    /// Returns the server's time of day in microseconds since 1970.
    pub(crate) fn unix_us(&self) -> u64 {
        u64::try_from(self.clock.unix_micros()).unwrap_or(0)
    }

    /// Returns the time of the run in milliseconds. The server's clock shows it until its machine is
    /// rebooted.
    pub(crate) fn server_ms(&self) -> u64 {
        self.settings.server_ms(self.now_us)
    }

    /// Notes that the server has read bytes, the first of which arrived at `unread_since_us`.
    pub(crate) fn note_read(&mut self, connection: usize, unread_since_us: u64) {
        let arrived_ms = self.settings.server_ms(unread_since_us);
        self.network.connections[connection].read_since_us = unread_since_us;
        self.auditor.read(connection, arrived_ms, self.settings.server_ms(self.now_us));
    }

    /// Notes that the server serves bytes of this connection that it had read before.
    pub(crate) fn note_served(&mut self, connection: usize) {
        self.auditor.served(connection, self.settings.server_ms(self.now_us));
    }

    /// Notes bytes that the server has written to a connection. If they report the end of a session, no older
    /// bytes of that session may be unread.
    pub(crate) fn note_said(&mut self, connection: usize, bytes: &[u8]) {
        let now_ms = self.server_ms();
        self.auditor.said(connection, bytes, now_ms);
        for line in self.auditor.take_spoken() {
            self.trace.describe(self.now_us, || format!("server    {line}"));
        }
        while let Some((session, certain_until_ms)) = self.auditor.next_ended_session() {
            for other in self.auditor.connections_of(session) {
                let link = &self.network.connections[other];
                if link.cut_us.is_some() || link.server_done {
                    continue;
                }
                let unread_ms = link.to_server.unread_since_us().map(|at_us| self.settings.server_ms(at_us));
                if let Some(unread_ms) = unread_ms.filter(|unread_ms| *unread_ms < certain_until_ms) {
                    self.auditor.accuse("lost-session", || {
                        format!(
                            "session {session} ended at {certain_until_ms} although bytes that arrived on \
                             connection {other} at {unread_ms} were not read"
                        )
                    });
                }
            }
        }
    }

    /// Notes that a connection was broken or closed. From now on the server may know.
    pub(crate) fn note_lost(&mut self, connection: usize) {
        let (client, now_us) = (self.network.connections[connection].client, self.now_us);
        self.auditor.lost(connection, self.settings.server_ms(now_us));
        if let Some(recorder) = &mut self.recorder {
            recorder.note_lost(client, now_us);
        }
    }

    /// Notes that the server has closed a connection.
    pub(crate) fn note_done(&mut self, connection: usize) {
        let link = &self.network.connections[connection];
        if link.cut_us.is_none() && !link.client_done {
            self.auditor.judge_last_words(connection);
        }
        self.auditor.done(connection, self.now_us);
        self.trace.note(self.now_us, 7, connection as u64, || {
            format!("server    has closed connection {connection}")
        });
    }
}
