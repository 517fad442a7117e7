//! What all parts of a run share: the time, chance, what is going to happen, the network, and who judges.

use crate::auditor::Auditor;
use crate::clock::VirtualClock;
use crate::cluster::SimulatedCluster;
use crate::history::Recorder;
use crate::network::Network;
use crate::operation::{Acquire, Operation};
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::Settings;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_protocol::{LockId, NamespaceKind, SessionId};
use waymaker_server::clock::Clock;

/// Something that is going to happen. What it leads to is decided when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The first bytes on the way to the server arrive.
    ArriveAtServer(usize),
    /// The first bytes on the way to the client arrive.
    ArriveAtClient(usize),
    /// The server learns that a connection was cut.
    ServerNotices(usize),
    /// The client learns that a connection was cut.
    ClientNotices(usize),
    /// The thread of a worker does one thing.
    Run(usize),
    /// The sweeper of a worker has slept long enough.
    Alarm(usize),
    /// A worker of this start of the server looks for connections that stall.
    Housekeep(usize, u32),
    /// The auditor looks for holds of requests that the front end of this connection has given up.
    LookForStrangers(usize),
    /// The acceptor takes the connections that wait for it.
    Accept,
    /// The log of this start of the server does something.
    Log(u32),
    /// The thread beside the log of this start of the server has done an errand.
    Keeper(u32),
    /// The disk becomes full, or has room again. Only the last one that was planned counts.
    Disk(u64),
    /// The thread of this start of the server that asks the cluster does something.
    Quorum(u32),
    /// A transaction arrives at the cluster.
    Apply(u64),
    /// The thread that sent a transaction, of this start of the server, learns what became of it.
    Counted(u32, u64),
    /// The cluster does not answer for a while.
    Outage,
    /// Something happens to the whole server, or it starts again. Only the last one that was planned counts.
    Disaster(u64),
    /// A client does something.
    Act(usize),
    /// A lease or a session of a client ends in a moment.
    Brink(usize),
    /// A visitor acts.
    Visit(usize),
    /// A real client acts.
    Step(usize),
    /// Somebody gets into the server's way.
    Interfere,
}

/// A request of an adversarial client about the hold of a real client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prey {
    pub(crate) kind: NamespaceKind,
    pub(crate) operation: Operation,
    pub(crate) process: usize,
}

/// What a run is made of, except the node and its clients.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    /// The source of chance for what clients do about the edge of the server.
    pub(crate) edge_random: Random,
    /// Bytes that are sent now arrive soon.
    pub(crate) is_hasty: bool,
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) auditor: Auditor,
    pub(crate) cluster: SimulatedCluster,
    /// Kept only where somebody wants it.
    pub(crate) recorder: Option<Recorder>,
    /// What the server reads.
    pub(crate) clock: Arc<VirtualClock>,
    /// The session that each client said it has, for others that want to join it.
    pub(crate) sessions: BTreeMap<usize, SessionId>,
    /// Sessions that more than one client wanted to be in.
    pub(crate) shared_sessions: BTreeSet<SessionId>,
    /// The last acquire with a request id of each owner that several clients have, by the kind of its namespace.
    pub(crate) named: Vec<((usize, NamespaceKind), Acquire)>,
    /// Holds of real clients for adversarial clients of the same kind to end.
    pub(crate) prey: Vec<Prey>,
    /// Holds that an adversarial client moves just now, with the processes whose guards move them too.
    pub(crate) rivals: Vec<(usize, LockId)>,
    /// No more faults.
    pub(crate) calm: bool,
    /// When the machine was booted, in milliseconds of the run: its clock began at zero.
    booted_ms: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled_count: u64,
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
            is_hasty: false,
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
            queue: BinaryHeap::new(),
            scheduled_count: 0,
        }
    }

    /// Lets something happen so much later. Of things that happen at one instant the seed chooses the first.
    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.scheduled_count += 1;
        let tie = self.random.any() << 32 | self.scheduled_count & 0xffff_ffff;
        self.queue.push(Reverse((at_us.max(self.now_us), tie, event)));
    }

    /// The next thing to happen; the time moves on to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((at_us, _, event)) = self.queue.pop()?;
        self.now_us = at_us;
        self.set_clock();
        Some(event)
    }

    fn set_clock(&self) {
        self.clock.set(self.server_time().as_millis() * 1_000_000 + self.now_us % 1000 * 1000);
    }

    /// The machine has booted so long ago.
    pub(crate) fn boot(&mut self, ago_ms: u64) {
        self.booted_ms = self.server_ms().saturating_sub(ago_ms);
        self.clock.set_booted(self.booted_ms);
        self.set_clock();
    }

    /// When the machine was booted, in milliseconds of the run.
    pub(crate) fn booted_ms(&self) -> u64 {
        self.booted_ms
    }

    /// What the server's clock shows.
    pub(crate) fn server_time(&self) -> Time {
        Time::from_millis(self.server_ms() - self.booted_ms)
    }

    /// The time of day in microseconds, as the server has it.
    pub(crate) fn unix_us(&self) -> u64 {
        u64::try_from(self.clock.unix_micros()).unwrap_or(0)
    }

    /// The time of the run in milliseconds, which is what the server's clock shows until its machine is booted again.
    pub(crate) fn server_ms(&self) -> u64 {
        self.settings.server_ms(self.now_us)
    }

    /// The server read bytes, the first of which had arrived at that time.
    pub(crate) fn note_read(&mut self, connection: usize, unread_since_us: u64) {
        let arrived_ms = self.settings.server_ms(unread_since_us);
        self.network.connections[connection].read_since_us = unread_since_us;
        self.auditor.read(connection, arrived_ms, self.settings.server_ms(self.now_us));
    }

    /// The server serves bytes of this connection that it had read before.
    pub(crate) fn note_served(&mut self, connection: usize) {
        self.auditor.served(connection, self.settings.server_ms(self.now_us));
    }

    /// The server said this to a connection. What it says of the end of a session is judged with what it had not read.
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

    /// A connection is broken or closed: from here on the server may know.
    pub(crate) fn note_lost(&mut self, connection: usize) {
        let (client, now_us) = (self.network.connections[connection].client, self.now_us);
        self.auditor.lost(connection, self.settings.server_ms(now_us));
        if let Some(recorder) = &mut self.recorder {
            recorder.note_lost(client, now_us);
        }
    }

    /// The server is done with a connection.
    pub(crate) fn note_done(&mut self, connection: usize) {
        let link = &self.network.connections[connection];
        if link.cut_us.is_none() && !link.client_done {
            self.auditor.judge_last_words(connection);
        }
        self.auditor.done(connection, self.now_us);
        self.trace.note(self.now_us, 7, connection as u64, || {
            format!("server    is done with connection {connection}")
        });
    }
}
