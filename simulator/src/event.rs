//! The events of a run and their queue.

use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event of the queue. Its consequences are decided when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The first bytes in flight to the server arrive on this connection.
    ArriveAtServer(usize),
    /// The first bytes in flight to the client arrive on this connection.
    ArriveAtClient(usize),
    /// The server learns that this connection was cut.
    ServerNotices(usize),
    /// The client learns that this connection was cut.
    ClientNotices(usize),
    /// The thread of this worker runs one task.
    Run(usize),
    /// The sleep of this worker's sweeper has ended.
    Alarm(usize),
    /// A worker of this start of the server looks for stalled connections.
    Housekeep(usize, u32),
    /// The auditor looks for holds of requests that the front end of this connection has given up.
    LookForStrangers(usize),
    /// The acceptor accepts the waiting connections.
    Accept,
    /// The log thread of this start of the server runs.
    Log(u32),
    /// The keeper thread beside the log of this start of the server has finished an errand.
    Keeper(u32),
    /// The disk becomes full or has room again. Only the last planned change counts.
    Disk(u64),
    /// The thread of this start of the server that asks the cluster runs.
    Quorum(u32),
    /// This transaction arrives at the cluster.
    Apply(u64),
    /// The result of a transaction arrives at the thread of this start of the server that sent it.
    Counted(u32, u64),
    /// The cluster does not answer for a while.
    Outage,
    /// The whole server crashes, stops or starts again. Only the last planned event of this kind counts.
    Disaster(u64),
    /// This client acts.
    Act(usize),
    /// A lease or the session of this client is about to end.
    Brink(usize),
    /// This visitor acts.
    Visit(usize),
    /// This tenant acts.
    Tenant(usize),
    /// The server gets another policy.
    Reload,
    /// This real client acts.
    Step(usize),
    /// A worker is stalled, or a turn is taken and passed on.
    Interfere,
}

/// The events that are still to happen.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled_count: u64,
}

impl EventQueue {
    /// Schedules an event. The seed decides the order of events at the same instant.
    pub(crate) fn push(&mut self, at_us: u64, event: Event, random: &mut Random) {
        self.scheduled_count += 1;
        let tie = random.any() << 32 | self.scheduled_count & 0xffff_ffff;
        self.events.push(Reverse((at_us, tie, event)));
    }

    /// Returns the next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.events.pop().map(|Reverse((at_us, _, event))| (at_us, event))
    }
}
