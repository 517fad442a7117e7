//! The state of one worker.

use super::followed_requests::FollowedRequests;
use super::lane::{Lane, Lanes, Stage};
use super::lifecycle::LaneEnd;
use super::multi_shard::FollowUp;
use super::multi_shard_queue::MultiShardQueue;
use super::outbox::{Outbox, mark_dirty};
use super::reauthorize::Look;
use super::serve::FrameLocation;
use super::sessions::{SessionLimits, Sessions};
use super::timers::Timers;
use super::vacancy::VacancyCheck;
use super::withdrawals::Withdrawals;
use crate::clock::Moment;
use crate::log::LogBatch;
use crate::mail::{ConnectionKey, Letter, Mail};
use crate::metrics::WorkerMetrics;
use crate::node::Node;
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::{Nanos, QuorumQuestion, Reading, Time};

/// State that belongs to this worker alone.
pub(crate) struct State {
    pub(super) index: u16,
    pub(super) metrics: Arc<WorkerMetrics>,
    /// Maximum number of acquires of one connection that may wait in queues.
    pub(super) waiting_max: i32,
    /// Latest reading of the clock, rounded up. The driver passes a reading with each input, such as bytes, mail or a
    /// tick. Leases and waits that begin now begin at this instant.
    pub(super) now: Time,
    /// Latest reading of the clock, rounded down: the latest instant that has certainly passed.
    pub(super) passed: Time,
    /// Latest reading of the clock, in nanoseconds and not rounded.
    pub(super) nanos: Nanos,
    pub(super) lanes: Lanes,
    pub(super) sessions: Sessions,
    pub(super) timers: Timers,
    /// Connections that have something to write or must be closed.
    pub(super) dirty: Vec<ConnectionKey>,
    /// Letters (answers and events for lanes of other workers) that are not posted yet, indexed by worker.
    pub(super) letters: Vec<Vec<Letter>>,
    /// Records for the log that are not posted yet.
    pub(super) log: LogBatch,
    /// Grants of quorum scope for which the cluster must raise the fence counters. They are not posted to the thread
    /// that asks the cluster yet.
    pub(super) questions: Vec<QuorumQuestion>,
    /// Mail from the mailbox that waits for the next call of `handle_mail`. The worker often empties its mailbox only
    /// to deliver the letters (answers and events for its lanes), and keeps all other mail here.
    pub(super) mails: VecDeque<Mail>,
    /// Workers that the driver must wake.
    pub(super) wakes: Vec<u16>,
    /// Work that a turn caused and that begins only after the turn is given back.
    pub(super) follow_ups: Vec<FollowUp>,
    pub(super) withdrawals: Withdrawals,
    /// Work that needs the turns of several shards at once, such as a multi-key acquire. The work waits until other
    /// workers have given these turns back, or for a later step of this worker.
    pub(super) multi_shard: MultiShardQueue,
    /// Shards whose turn holder will send mail when the turn is free.
    pub(super) knocked: Vec<u16>,
    /// Acts of operators and traced acquires.
    pub(super) followed: FollowedRequests,
    /// Frames of the batch that is being served. `sorted` has the same frames in the order of their shards.
    pub(super) batch: Vec<FrameLocation>,
    pub(super) sorted: Vec<FrameLocation>,
    /// Index in `sorted` at which the frames of each shard end, in the order in which the shards are visited.
    pub(super) ends: Vec<usize>,
    /// Whether all connections are being closed, because the server ends.
    pub(super) finishing: bool,
    /// Time at which this worker last looked for idle namespaces.
    pub(super) namespaces_looked_at: Time,
    /// Time at which this worker last looked for stalled connections.
    pub(super) housekept_at: Time,
    /// Question whether a session without a connection has claims, while some shards are still to be asked.
    pub(super) vacancy_check: Option<VacancyCheck>,
    /// Lanes of ended sessions that are still to be closed in shards.
    pub(super) lane_ends: VecDeque<LaneEnd>,
    /// The running check whether identities and rights of connections are still valid.
    pub(super) look: Option<Look>,
    /// Version of the access policy when the identities and rights of all connections were last checked.
    pub(super) access_version: u64,
}

impl State {
    /// Returns the state of a worker without connections.
    pub(super) fn new(node: &Node, index: u16, moment: Moment) -> Self {
        let Moment { now, passed, nanos } = moment;
        Self {
            index,
            metrics: Arc::clone(&node.metrics.workers[usize::from(index)]),
            waiting_max: node.set.waiters_per_connection.cast_signed(),
            now,
            passed,
            nanos,
            lanes: Lanes::new(index),
            sessions: Sessions::new(index, node.session_seed, SessionLimits::of(node)),
            timers: Timers::new(node.shards.len(), node.worker_count()),
            dirty: Vec::new(),
            letters: (0..node.worker_count()).map(|_| Vec::new()).collect(),
            log: LogBatch::default(),
            questions: Vec::new(),
            mails: VecDeque::new(),
            wakes: Vec::new(),
            follow_ups: Vec::new(),
            withdrawals: Withdrawals::default(),
            multi_shard: MultiShardQueue::default(),
            knocked: Vec::new(),
            followed: FollowedRequests::new(index),
            batch: Vec::new(),
            sorted: Vec::new(),
            ends: vec![0; node.shards.len()],
            finishing: false,
            namespaces_looked_at: now,
            housekept_at: now,
            vacancy_check: None,
            lane_ends: VecDeque::new(),
            look: None,
            access_version: 0,
        }
    }

    #[inline]
    pub(super) fn advance(&mut self, moment: Moment) {
        self.now = self.now.max(moment.now);
        self.passed = self.passed.max(moment.passed);
        self.nanos = self.nanos.max(moment.nanos);
    }

    /// Returns the latest reading of the clock, which came with the last input of the worker.
    #[inline]
    pub(super) fn reading(&self) -> Reading {
        Reading { time: self.now, nanos: self.nanos }
    }

    pub(super) fn outbox<'a>(&'a mut self, node: &'a Node, shard: u16, stamp: Time) -> Outbox<'a> {
        let Self { index, metrics, lanes, dirty, letters, log, questions, follow_ups, followed, .. } = self;
        let (worker, shard_count) = (*index, node.shards.len() as u16);
        let (expiries, namespaces) = (&node.expiries, &node.namespaces);
        Outbox {
            worker,
            shard,
            shard_count,
            stamp,
            lanes,
            dirty,
            letters,
            log,
            questions,
            follow_ups,
            followed,
            namespaces,
            expiries,
            metrics,
        }
    }

    /// Ends a step (one call by the driver, which hands in bytes, mail or the time). First does the work in
    /// `follow_ups`, which turns of this step left because it can begin only after they were given back. Then posts
    /// records to the log, questions to the cluster, and letters (answers and events) to other workers.
    #[inline]
    pub(super) fn finish_step(&mut self, node: &Node) {
        if !self.follow_ups.is_empty() {
            self.follow_up(node);
        }
        self.post(node);
    }

    /// Stops reading the lane, and closes its connection once all answers are written.
    pub(super) fn close(&mut self, key: ConnectionKey) {
        if let Some(lane) = self.lanes.of(key) {
            // `FAREWELL` is the last frame of a connection. If it is already in the output, keep the stage `Left`,
            // which drops later answers.
            if lane.stage != Stage::Left {
                lane.stage = Stage::Closing;
            }
            lane.input = Vec::new();
            mark_dirty(lane, &mut self.dirty);
        }
    }

    /// Closes every connection once its answers are written.
    pub(super) fn finish(&mut self, node: &Node) {
        self.finishing = true;
        // Close the lanes of ended sessions in all shards first, so that their holds end. The log must not keep such a
        // hold.
        while !self.lane_ends.is_empty() {
            self.close_lanes(node);
        }
        let keys: Vec<_> = self.lanes.iter().map(Lane::key).collect();
        for key in keys {
            // Usually a client learns of the end of its lane only when all shards have closed the lane. A worker that
            // stops tells the client now: other workers may close the lane in their shards too late or never.
            self.tell_of_end(key);
            self.close(key);
        }
    }
}
