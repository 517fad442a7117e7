//! What this worker has to come back for, and the reading of sockets that must go before.

use super::State;
use crate::limits::LANE_ENDS_PER_TURN;
use crate::mail::{Batch, Mail};
use crate::node::Node;
use std::collections::BTreeSet;
use waymaker_engine::Time;

/// Timers of a worker.
///
/// A deadline that has come is not enough to end anything: first every worker must have read its sockets empty after
/// that deadline (`Node::drained`), because the renewal may be among what they have not read. So a worker with something
/// due asks the others to drain, drains itself, and ends it when all have done so. Nobody waits meanwhile.
#[derive(Debug)]
pub(crate) struct Timers {
    /// For each shard, when this worker comes by: at once if work is left over.
    shards: Vec<Time>,
    /// For each shard, when the next lease or wait ends. Leftover work is done without reading any sockets, so it must not hide this.
    ends: Vec<Time>,
    /// When `turn` has something to do.
    pub(super) next_wake: Time,
    /// Something of ours is due and waits for the drain.
    due: bool,
    /// This worker's own sockets have to be read.
    own: bool,
    /// What each other worker was last asked to read up to.
    asked: Vec<Time>,
    /// Workers that asked us, and up to when we are to read.
    askers: Vec<(u16, Time)>,
    /// How far the end of sessions has come.
    ending: Option<Ending>,
    /// Everything that connected by then is to be accepted.
    wants_accepted: Option<Time>,
    moves: Moves,
}

/// Connections that this worker sent on to others.
#[derive(Debug, Default)]
struct Moves {
    /// Moves so far. The last one has this number.
    count: u64,
    /// Numbers of those whose connections have not served what was unread when they moved.
    unsettled: BTreeSet<u64>,
    /// The end of a sweep that waits for all moves up to this number.
    held: Option<(Time, u64)>,
}

/// Sessions whose deadline had passed at some instant, on their way to their end.
///
/// A lease of a hold is renewed on a connection that some worker reads, so it may end once all have read. A session is
/// also resumed, by a connection that nobody reads yet, because it waits to be accepted. So before a session ends, all connections
/// are accepted, and then all sockets are read. Reading includes a connection that has to move to the worker of the session.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// Those end that are not renewed by then.
    due: Time,
    /// What has to be done before.
    step: EndingStep,
}

#[derive(Clone, Copy, Debug)]
enum EndingStep {
    /// Accept whoever connected.
    Accept,
    /// Read all sockets after that instant.
    Read(Time),
    /// End the sessions that are due, some in each turn.
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

    /// This worker comes by at that instant. The next lease or wait of the shard ends at `end`.
    #[inline]
    pub(super) fn arm(&mut self, shard: u16, at: Time, end: Time) {
        let shard = usize::from(shard);
        self.shards[shard] = at.min(self.shards[shard]);
        // Also an instant that is not up to date any more is read for: `shards` may have it.
        self.ends[shard] = end.min(self.ends[shard]);
        self.next_wake = self.next_wake.min(at);
    }

    /// When this worker comes by at a shard.
    pub(super) fn comes_by(&self, shard: usize) -> Time {
        self.shards[shard]
    }

    /// This worker has something to do at that instant beside the shards.
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

    /// Returns the number of another move.
    pub(super) fn note_move(&mut self) -> u64 {
        self.moves.count += 1;
        self.moves.unsettled.insert(self.moves.count);
        self.moves.count
    }

    /// Up to when whoever connected is to be accepted, asked once.
    pub(super) fn take_wants_accepted(&mut self) -> Option<Time> {
        self.wants_accepted.take()
    }
}

impl State {
    /// When to see to the end of sessions; never while that waits for the drain.
    #[inline]
    pub(super) fn sessions_wake(&self) -> Time {
        if self.timers.due { Time::NEVER } else { self.sessions_due() }
    }

    /// What sessions wait for: a deadline, or that all sockets were read after some instant.
    #[inline]
    fn sessions_due(&self) -> Time {
        match self.timers.ending {
            None => self.sessions.next_deadline(),
            Some(Ending { step: EndingStep::Accept, .. }) => Time::NEVER,
            Some(Ending { step: EndingStep::Read(after), .. }) => after,
            Some(Ending { step: EndingStep::End, .. }) => Time::ZERO,
        }
    }

    /// Ends what is due as far as the sockets have been read, and asks for the rest to be read.
    pub(super) fn turn(&mut self, node: &Node) {
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
        let is_left = self.asking.is_some() || !self.lane_ends.is_empty();
        let next_look = if is_left { Time::ZERO } else { self.sessions.next_look() };
        self.timers.next_wake = next.min(next_look);
        if let Some(due) = due {
            self.ask_for_drain(node, due);
        }
    }

    /// Goes on with the end of sessions that are due, as far as connections were accepted and read.
    fn end_sessions(&mut self, node: &Node, drained: Time) {
        if self.timers.ending.is_none() && self.sessions.first_over(self.passed).is_some() {
            self.timers.ending = Some(Ending { due: self.passed, step: EndingStep::Accept });
            self.timers.wants_accepted = Some(self.passed);
        }
        let Some(Ending { due, mut step }) = self.timers.ending else { return };
        // A step begins in a later millisecond than the one before ended in: so what that left is there.
        let later = self.now.after_ms(1);
        match step {
            EndingStep::Accept if node.accepted() < due => return,
            EndingStep::Accept => step = EndingStep::Read(later),
            EndingStep::Read(after) if drained < after => return,
            EndingStep::Read(_) | EndingStep::End => {
                step = EndingStep::End;
                while self.lane_ends.len() < LANE_ENDS_PER_TURN {
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

    /// Asks whoever has not read its sockets since `due`, once.
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

    /// This worker's sockets were read empty after `at`. That counts once connections that moved away meanwhile have served what was
    /// unread.
    pub(super) fn drained(&mut self, node: &Node, at: Time) {
        if self.timers.moves.unsettled.is_empty() {
            self.publish_drained(node, at);
        } else {
            self.timers.moves.held = Some((at, self.timers.moves.count));
        }
    }

    /// A connection that moved away with this number has served what was unread then.
    pub(super) fn settled(&mut self, node: &Node, number: u64) {
        let moves = &mut self.timers.moves;
        moves.unsettled.remove(&number);
        let is_over = |last: u64| moves.unsettled.first().is_none_or(|first| *first > last);
        if let Some((at, _)) = moves.held.take_if(|(_, last)| is_over(*last)) {
            self.publish_drained(node, at);
        }
    }

    fn publish_drained(&mut self, node: &Node, at: Time) {
        // What was learned from those bytes goes out first: who sees the new instant finds it delivered.
        self.post(node);
        node.publish_drained(usize::from(self.index), at);
        self.timers.own = false;
        // Who asked for more than this reading gave would not ask again: it is told after the next one.
        let (told, waiting) =
            std::mem::take(&mut self.timers.askers).into_iter().partition(|(_, due)| *due <= at);
        self.timers.askers = waiting;
        let told: Vec<(u16, Time)> = told;
        for (asker, _) in told {
            self.mail(node, asker, Mail::Drained);
        }
        self.turn(node);
    }

    /// The server is stopping: every shard refuses its waiters. Any worker may be told first; telling twice does no harm.
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

    /// Counts the claims of this worker's shards.
    pub(super) fn count_claims(&mut self, node: &Node) {
        for shard in self.home_shards(node) {
            self.hand_over(node, shard, Batch::Count);
        }
    }

    fn home_shards(&self, node: &Node) -> impl Iterator<Item = u16> + use<> {
        (self.index..node.shards.len() as u16).step_by(node.worker_count())
    }
}
