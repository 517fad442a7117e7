//! Deadlines of leases, waits and sessions for which this worker must act, and the reading of all sockets that must
//! precede each end.

use super::State;
use crate::limits::LANE_ENDS_PER_TICK;
use crate::mail::{Batch, Mail};
use crate::node::Node;
use std::collections::BTreeSet;
use waymaker_engine::Time;

/// Timers of a worker.
///
/// A deadline alone does not end a lease or a wait. First every worker must have read its sockets empty after the
/// deadline (`Node::drained`), because a renewal may be among the unread bytes. Only connections that have used up
/// their time may still have some. So a worker with an expired deadline asks the other workers to drain and drains its
/// own sockets. It ends the lease or wait when all workers have done so. No worker blocks meanwhile.
#[derive(Debug)]
pub(crate) struct Timers {
    /// For each shard, the earliest time of the next visit that this worker has armed: `ZERO` if work is left over,
    /// `NEVER` if no visit is armed. In a visit, this worker takes the turn of the shard, ends leases and waits that
    /// are due, and continues the work.
    shards: Vec<Time>,
    /// For each shard, a time at or before the end of its next lease or wait; `NEVER` if none is known. `shards` may
    /// contain an earlier visit, for leftover work, which does not require that sockets are read. So this time has its
    /// own entry.
    ends: Vec<Time>,
    /// Time of the next call of `tick`, apart from the calls that end sessions.
    pub(super) next_wake: Time,
    /// Whether a lease, wait or session of this worker is due and ends only after all workers have read their sockets
    /// empty.
    due: bool,
    /// Whether this worker must read its own sockets, because one of its leases, waits or sessions is due.
    own: bool,
    /// For each other worker, the latest instant for which this worker has asked it to read its sockets empty.
    asked: Vec<Time>,
    /// Workers that asked this worker to read its sockets empty, each with the instant up to which it must read. The
    /// watchdog asks in the name of this worker.
    askers: Vec<(u16, Time)>,
    /// Progress of the sessions that are ending; `None` if no session is due.
    ending: Option<Ending>,
    /// Instant up to which new connections must be accepted, so that sessions may end. `None` after the driver has
    /// taken it, and if no session is due.
    wants_accepted: Option<Time>,
    moves: Moves,
}

/// Connections that this worker sent on to other workers.
#[derive(Debug, Default)]
struct Moves {
    /// Number of connections that this worker has sent to other workers so far. Each such move has a number, counted
    /// from 1, so this is also the number of the last move.
    count: u64,
    /// Numbers of the moves that are not settled. A move is settled when its connection has served the bytes that were
    /// unread when it moved, has used up the time for that, or has ended.
    unsettled: BTreeSet<u64>,
    /// Time of a finished reading of all sockets (a sweep) that is not published yet, and the number of the last move
    /// before its end. The time is published when all moves up to this number are settled.
    held: Option<(Time, u64)>,
}

/// Sessions whose deadline had passed at some instant. Each of them ends after the steps below, unless its client
/// renews it before.
///
/// A client renews the lease of a hold on a connection that some worker reads, so the lease may end once all workers
/// have read. A client may also resume a session on a connection that no worker reads yet, because it waits to be
/// accepted. So before a session ends, the server accepts all connections and then reads all sockets. This reading
/// includes connections that must move to the worker of the session.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// Sessions whose deadline is at or before this instant end.
    due: Time,
    /// Step that is under way.
    step: EndingStep,
}

#[derive(Clone, Copy, Debug)]
enum EndingStep {
    /// Accept all new connections.
    Accept,
    /// Read all sockets after this instant.
    Read(Time),
    /// End the sessions that are due, a limited number in each tick.
    End,
}

impl Timers {
    pub(super) fn new(shard_count: usize, worker_count: usize) -> Self {
        Self {
            shards: vec![Time::NEVER; shard_count],
            ends: vec![Time::NEVER; shard_count],
            next_wake: Time::NEVER,
            due: false,
            own: false,
            asked: vec![Time::ZERO; worker_count],
            askers: Vec::new(),
            ending: None,
            wants_accepted: None,
            moves: Moves::default(),
        }
    }

    /// Arms a visit of this worker to the shard for `at`, unless an earlier visit is armed. The visit ends leases and
    /// waits, and continues work that was left over. `end` is a time at or before the end of the shard's next lease or
    /// wait. Before that lease or wait ends, the worker makes all workers read their sockets.
    #[inline]
    pub(super) fn arm(&mut self, shard: u16, at: Time, end: Time) {
        let shard = usize::from(shard);
        self.shards[shard] = at.min(self.shards[shard]);
        // Keep an earlier end, even if another worker has already ended that lease. `shards` may still contain the time
        // that was set with it. `tick` takes the turn for that time only after all sockets were read, and only an entry
        // in `ends` makes the worker request the reading.
        self.ends[shard] = end.min(self.ends[shard]);
        self.next_wake = self.next_wake.min(at);
    }

    /// Returns the time for which the next visit of this worker to a shard is armed; `NEVER` if no visit is armed.
    pub(super) fn comes_by(&self, shard: usize) -> Time {
        self.shards[shard]
    }

    /// Makes the driver call `tick` at `at` or earlier, for work that `arm` does not cover. Such work is closing lanes
    /// of ended sessions, and asking shards for claims of sessions without a connection.
    pub(super) fn wake_at(&mut self, at: Time) {
        self.next_wake = self.next_wake.min(at);
    }

    pub(super) fn asked_to_drain(&mut self, asker: u16, due: Time) {
        self.askers.push((asker, due));
    }

    #[inline]
    pub(super) fn wants_drain(&self) -> bool {
        (self.own || !self.askers.is_empty()) && self.moves.held.is_none()
    }

    /// Counts one more move and returns its number.
    pub(super) fn note_move(&mut self) -> u64 {
        self.moves.count += 1;
        self.moves.unsettled.insert(self.moves.count);
        self.moves.count
    }

    /// Returns the time up to which new connections must be accepted before sessions that are due may end. A client may
    /// be resuming its session on such a connection. The driver passes the request to the acceptors, so each time is
    /// returned only once.
    pub(super) fn take_wants_accepted(&mut self) -> Option<Time> {
        self.wants_accepted.take()
    }
}

impl State {
    /// Returns when the driver must call `tick` to begin or continue the end of sessions. Returns `NEVER` while leases,
    /// waits or sessions that are due must wait until all workers have read their sockets. The worker itself calls
    /// `tick` when it learns of the end of that reading.
    #[inline]
    pub(super) fn sessions_wake(&self) -> Time {
        if self.timers.due { Time::NEVER } else { self.sessions_due() }
    }

    /// Returns the time at which the next step of ending sessions is due: the deadline of a session, or the time after
    /// which all sockets must be read. `NEVER` while connections are being accepted, and `ZERO` while sessions end.
    #[inline]
    fn sessions_due(&self) -> Time {
        match self.timers.ending {
            None => self.sessions.next_deadline(),
            Some(Ending { step: EndingStep::Accept, .. }) => Time::NEVER,
            Some(Ending { step: EndingStep::Read(after), .. }) => after,
            Some(Ending { step: EndingStep::End, .. }) => Time::ZERO,
        }
    }

    /// Ends the leases, the waits of waiters, and the sessions that are due. A deadline counts only if all workers have
    /// read their sockets since, because a renewal may still be in a socket. Asks workers that have not done so to
    /// read. Also continues the checks of sessions without a connection, and closes lanes of ended sessions.
    pub(super) fn tick(&mut self, node: &Node) {
        let drained = node.drained();
        for shard in 0..self.timers.shards.len() {
            let at = self.timers.shards[shard];
            if at <= self.passed && at <= drained {
                self.timers.shards[shard] = Time::NEVER;
                self.timers.ends[shard] = Time::NEVER;
                self.hand_over(node, shard as u16, Batch::Expire { drained });
            }
        }
        self.look_at_vacant_sessions(node);
        self.end_sessions(node, drained);
        self.close_lanes(node);
        let next = self.timers.shards.iter().copied().min().unwrap_or(Time::NEVER);
        let is_due = |end: &Time| *end <= self.passed && *end > drained;
        let ends = self.timers.ends.iter().copied().chain([self.sessions_due()]);
        let due = ends.filter(is_due).min();
        self.timers.due = due.is_some();
        self.metrics.set_oldest_due(due.unwrap_or(Time::NEVER));
        let next = if is_due(&next) { Time::NEVER } else { next };
        let is_left = self.vacancy_check.is_some() || !self.lane_ends.is_empty();
        let next_look = if is_left { Time::ZERO } else { self.sessions.next_look() };
        self.timers.next_wake = next.min(next_look);
        if let Some(due) = due {
            self.ask_for_drain(node, due);
        }
    }

    /// Begins or continues to end the sessions that are due. First all new connections must be accepted and then all
    /// sockets read, because a client may be resuming its session.
    fn end_sessions(&mut self, node: &Node, drained: Time) {
        if self.timers.ending.is_none() && self.sessions.first_over(self.passed).is_some() {
            self.timers.ending = Some(Ending { due: self.passed, step: EndingStep::Accept });
            self.timers.wants_accepted = Some(self.passed);
        }
        let Some(Ending { due, mut step }) = self.timers.ending else { return };
        // Before sessions end, all connections are accepted, and then all sockets are read. The reading must begin in a
        // later millisecond than the accepting ended, so that it covers all connections that were accepted.
        let later = self.now.after_ms(1);
        match step {
            EndingStep::Accept if node.accepted() < due => return,
            EndingStep::Accept => step = EndingStep::Read(later),
            EndingStep::Read(after) if drained < after => return,
            EndingStep::Read(_) | EndingStep::End => {
                step = EndingStep::End;
                while self.lane_ends.len() < LANE_ENDS_PER_TICK {
                    let Some(session) = self.sessions.first_over(due) else {
                        self.timers.ending = None;
                        return;
                    };
                    self.end_session(session);
                }
            }
        }
        self.timers.ending = Some(Ending { due, step });
    }

    /// Asks each worker that has not read its sockets empty since `due` to do so, this worker included. Does not ask
    /// another worker again that was already asked for `due` or for a later time.
    fn ask_for_drain(&mut self, node: &Node, due: Time) {
        for worker in 0..node.worker_count() {
            if node.drained_by(worker) >= due {
                continue;
            }
            if worker == usize::from(self.index) {
                self.timers.own = true;
            } else if self.timers.asked[worker] < due {
                self.timers.asked[worker] = due;
                let asker = self.index;
                self.mail(node, worker as u16, Mail::Drain { asker, due });
            }
        }
    }

    /// Notes that this worker's sockets were read empty after `at`. Other workers see this only after all moves of
    /// connections to other workers are settled (see `Moves::unsettled`).
    pub(super) fn drained(&mut self, node: &Node, at: Time) {
        if self.timers.moves.unsettled.is_empty() {
            self.publish_drained(node, at);
        } else {
            self.timers.moves.held = Some((at, self.timers.moves.count));
        }
    }

    /// Removes the move with this number from the unsettled moves. Its connection, now at another worker, has served
    /// the bytes that were unread when it moved, has used up the time for that, or has ended. Publishes a finished
    /// reading of all sockets that waited only for this move.
    pub(super) fn settled(&mut self, node: &Node, number: u64) {
        let moves = &mut self.timers.moves;
        moves.unsettled.remove(&number);
        let is_over = |last: u64| moves.unsettled.first().is_none_or(|first| *first > last);
        if let Some((at, _)) = moves.held.take_if(|(_, last)| is_over(*last)) {
            self.publish_drained(node, at);
        }
    }

    fn publish_drained(&mut self, node: &Node, at: Time) {
        // Post before publishing. A worker that sees the published time may end leases. The effects of all bytes read
        // before that time must already be in its mailbox.
        self.post(node);
        node.publish_drained(usize::from(self.index), at);
        self.timers.own = false;
        // Some workers have asked this worker by mail to read its sockets up to a time that is later than `at`. They
        // ask only once for a time. So keep their requests, and answer them after the next reading.
        let (told, waiting) =
            std::mem::take(&mut self.timers.askers).into_iter().partition(|(_, due)| *due <= at);
        self.timers.askers = waiting;
        let told: Vec<(u16, Time)> = told;
        for (asker, _) in told {
            self.mail(node, asker, Mail::Drained);
        }
        self.tick(node);
    }

    /// Makes every shard of this worker refuse its waiters and new claims, because the server is stopping. A repeated
    /// call does no harm.
    pub(super) fn stop_shards(&mut self, node: &Node) {
        for shard in self.home_shards(node) {
            self.hand_over(node, shard, Batch::Stop);
        }
    }

    /// Publishes the state of this worker and of its shards for metrics.
    pub(super) fn publish(&mut self, node: &Node) {
        self.metrics.session_count.set(self.sessions.len() as u64);
        for shard in self.home_shards(node) {
            self.hand_over(node, shard, Batch::Publish);
        }
    }

    /// Makes each shard of this worker report how many claims a stop of the server would lose.
    pub(super) fn count_claims(&mut self, node: &Node) {
        for shard in self.home_shards(node) {
            self.hand_over(node, shard, Batch::Count);
        }
    }

    fn home_shards(&self, node: &Node) -> impl Iterator<Item = u16> + use<> {
        (self.index..node.shards.len() as u16).step_by(node.worker_count())
    }
}
