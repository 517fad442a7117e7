//! What this worker has to come back for, and the reading of sockets that must go before.

use super::State;
use crate::mail::{Batch, Mail};
use crate::node::Node;
use waymaker_engine::{Time, planted};

/// Timers of a worker.
///
/// A deadline that has come is not enough to end anything: first every worker must have read its sockets empty after
/// that deadline (`Node::drained`), because the renewal may be among what they have not read. So a worker with something
/// due asks the others to drain, drains itself, and ends it when all have done so. Nobody waits meanwhile.
#[derive(Debug)]
pub(crate) struct Timers {
    /// For each shard, when this worker comes by.
    shards: Vec<Time>,
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
}

impl Timers {
    pub(super) fn new(shard_count: usize, worker_count: usize) -> Self {
        Self {
            shards: vec![Time::NEVER; shard_count],
            next_wake: Time::NEVER,
            due: false,
            own: false,
            asked: vec![Time::ZERO; worker_count],
            askers: Vec::new(),
        }
    }

    /// This worker comes by at that instant.
    #[inline]
    pub(super) fn arm(&mut self, shard: u16, at: Time) {
        let armed = &mut self.shards[usize::from(shard)];
        *armed = at.min(*armed);
        self.next_wake = self.next_wake.min(at);
    }

    pub(super) fn asked_to_drain(&mut self, asker: u16, due: Time) {
        self.askers.push((asker, due));
    }

    #[inline]
    pub(super) fn wants_drain(&self) -> bool {
        self.own || !self.askers.is_empty()
    }
}

impl State {
    /// When the next session may end; never while that waits for the drain.
    #[inline]
    pub(super) fn sessions_wake(&self) -> Time {
        if self.timers.due { Time::NEVER } else { self.sessions.next_deadline() }
    }

    /// Ends what is due as far as the sockets have been read, and asks for the rest to be read.
    pub(super) fn turn(&mut self, node: &Node) {
        let drained = node.drained();
        for shard in 0..self.timers.shards.len() {
            let at = self.timers.shards[shard];
            if at <= self.now && at <= drained {
                self.timers.shards[shard] = Time::NEVER;
                self.hand_over(node, shard as u16, Batch::Expire { drained });
            }
        }
        while let Some(session) = self.sessions.next_over(drained.min(self.now)) {
            self.end_session(node, session);
        }
        let next = self.timers.shards.iter().copied().min().unwrap_or(Time::NEVER);
        let due = next.min(self.sessions.next_deadline());
        self.timers.due = due <= self.now && due > drained;
        self.timers.next_wake = if next <= self.now && next > drained { Time::NEVER } else { next };
        if self.timers.due {
            self.ask_for_drain(node, due);
        }
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

    /// This worker's sockets were read empty after `at`.
    pub(super) fn drained(&mut self, node: &Node, at: Time) {
        // What was learned from those bytes goes out first: who sees the new instant finds it delivered.
        self.post(node);
        let at = if planted!(DrainedIsPublishedLate) { self.now.after_ms(20) } else { at };
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
