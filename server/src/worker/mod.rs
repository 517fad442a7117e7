//! The logic of one worker, without sockets, threads or clock.

mod acts;
mod answer;
mod apply;
mod broadcast;
mod budget;
mod by_ticket;
mod cost;
mod expectation;
mod followed_requests;
mod hello;
mod idle_namespaces;
mod kinds;
mod lane;
mod lifecycle;
mod moved;
mod multi_shard;
mod outbox;
mod reauthorize;
mod requests;
mod restored;
mod rights;
mod serve;
mod server_status;
mod sessions;
mod spans;
#[cfg(test)]
pub(crate) mod test_node;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod vacancy;
mod window;

pub use budget::{Budget, Spent, Unlimited};
pub use lane::{Client, Identification};
pub use moved::{MoveTicket, MovedConnection};

use crate::audit::AuditEvent;
use crate::clock::Moment;
use crate::log::port::LogBatch;
use crate::mail::{Batch, ConnectionKey, Content, Letter, Mail};
use crate::metrics::WorkerMetrics;
use crate::node::Node;
use crate::traces::AcquireSpan;
use followed_requests::FollowedRequests;
use lane::{Lane, Lanes, Stage};
use lifecycle::LaneEnd;
use multi_shard::{FollowUp, MultiShard};
use outbox::Outbox;
use reauthorize::Look;
use serve::FrameLocation;
use sessions::{SessionLimits, Sessions};
use std::collections::VecDeque;
use std::sync::Arc;
use timers::Timers;
use vacancy::VacancyCheck;
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{LaneAddress, Nanos, QuorumQuestion, Reading, Time};

/// Next step of the driver after it handed in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Continue to read this connection.
    Continue,
    /// Continue under this key: the connection took over a lane of its session.
    Rebound(ConnectionKey),
    /// Hand the socket, and the bytes read from it so far, to this worker.
    Move(u16),
}

/// The logic of one worker: its connections, their sessions, and its turns in the shards.
///
/// The worker does no I/O. A driver hands in each event, and then calls these methods in this order:
///
/// ```text
/// handle_*      hands in an event: open, bytes, lost, mail or drained, with the time at which sockets were read
/// poll_dirty    returns connections that now have something to write
/// output/wrote  returns the bytes to write, and notes how many of them were written
/// poll_wake     returns workers to wake, because they were asleep when this worker left mail for them
/// next_deadline returns when to call `tick` if no event comes before
/// wants_drain   returns whether to read all sockets empty once, and then to call `handle_drained`
/// poll_accept   returns up to when new connections must be accepted, see `Node::publish_accepted`
/// ```
///
/// A simulator can therefore run whole nodes on one thread, with any network and any clock.
///
/// # One request
///
/// The worker parses bytes in place into frames; each frame knows its shard. For each shard of the batch the worker
/// tries to take the turn. A worker that gets the turn serves its requests and writes the answers straight into the
/// output of their connections. It then serves the batches that other workers left in the shard meanwhile. If another
/// worker holds the turn, this worker continues with the next shard and tries this one once more at the end. If that
/// fails too, it leaves a copy of its frames for the worker that holds the turn. Answers for lanes of other workers
/// go to the mailboxes of these workers, as one mail for each batch.
pub struct Worker {
    node: Arc<Node>,
    state: State,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Worker").field("index", &self.state.index).finish_non_exhaustive()
    }
}

/// State that belongs to this worker alone.
pub(crate) struct State {
    index: u16,
    metrics: Arc<WorkerMetrics>,
    /// Maximum number of acquires of one connection that may wait in queues.
    waiting_max: i32,
    /// Time at which sockets were last read, rounded up. Leases and waits that begin now begin at this instant.
    now: Time,
    /// The same time rounded down: the latest instant that has certainly passed.
    passed: Time,
    /// The same time in nanoseconds, not rounded.
    nanos: Nanos,
    lanes: Lanes,
    sessions: Sessions,
    timers: Timers,
    dirty: Vec<ConnectionKey>,
    /// Letters to other workers, indexed by worker, until the next post.
    letters: Vec<Vec<Letter>>,
    /// Records for the log, until the next post.
    log: LogBatch,
    questions: Vec<QuorumQuestion>,
    /// Mail that was taken from the mailbox together with letters, and that can wait.
    mails: VecDeque<Mail>,
    /// Workers that the driver must wake.
    wakes: Vec<u16>,
    /// Work that a turn caused and that begins only after the turn is given back.
    follow_ups: Vec<FollowUp>,
    /// Ended multi-key claims, still to be withdrawn in later steps so that other work does not wait for them.
    withdrawals: VecDeque<Arc<MultiKeyClaim>>,
    /// Multi-shard work that waits for the turns of its shards.
    multi_shard: VecDeque<MultiShard>,
    /// Shards whose turn holder will send mail when the turn is free.
    knocked: Vec<u16>,
    /// Number of entries of `multi_shard`, from the front, that are still to be tried again.
    untried: usize,
    /// Acts of operators and traced acquires.
    followed: FollowedRequests,
    /// Frames of the batch that is being served. `sorted` has the same frames in the order of their shards.
    batch: Vec<FrameLocation>,
    sorted: Vec<FrameLocation>,
    /// Index in `sorted` at which the part of each shard ends.
    ends: Vec<usize>,
    finishing: bool,
    /// Time at which this worker last looked for idle namespaces.
    namespaces_looked_at: Time,
    /// Time at which this worker last looked for stalled connections.
    housekept_at: Time,
    /// Session without a connection, while this worker counts its claims in all shards.
    vacancy_check: Option<VacancyCheck>,
    /// Lanes of ended sessions that are still to be closed in shards.
    lane_ends: VecDeque<LaneEnd>,
    /// The running check whether identities and rights of connections are still valid.
    look: Option<Look>,
    /// Version of the policy at the last such check.
    access_version: u64,
}

impl Worker {
    /// Returns a worker without connections.
    pub fn new(node: Arc<Node>, index: u16, now: impl Into<Moment>) -> Self {
        let Moment { now, passed, nanos } = now.into();
        let state = State {
            index,
            metrics: Arc::clone(&node.metrics.workers[usize::from(index)]),
            waiting_max: node.set.waiters_per_connection.cast_signed(),
            now,
            passed,
            nanos,
            lanes: Lanes::new(index),
            sessions: Sessions::new(index, node.session_seed, SessionLimits::of(&node)),
            timers: Timers::new(node.shards.len(), node.worker_count()),
            dirty: Vec::new(),
            letters: (0..node.worker_count()).map(|_| Vec::new()).collect(),
            log: LogBatch::default(),
            questions: Vec::new(),
            mails: VecDeque::new(),
            wakes: Vec::new(),
            follow_ups: Vec::new(),
            withdrawals: VecDeque::new(),
            multi_shard: VecDeque::new(),
            knocked: Vec::new(),
            untried: 0,
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
        };
        let mut worker = Self { node, state };
        worker.state.restore_sessions(&worker.node);
        worker.state.arm_restored(&worker.node);
        worker
    }

    /// Opens a connection from `peer`. The peer address is the owner until the client names another owner.
    pub fn handle_open(&mut self, peer: &[u8], now: impl Into<Moment>) -> ConnectionKey {
        self.state.advance(now.into());
        let now = self.state.now;
        self.state.lanes.open(peer, now)
    }

    /// Opens a connection that another worker sent here. That worker may have read bytes of it already.
    pub fn handle_moved(&mut self, peer: &[u8], now: impl Into<Moment>) -> ConnectionKey {
        let key = self.handle_open(peer, now);
        if let Some(lane) = self.state.lanes.of(key) {
            lane.moved = true;
        }
        key
    }

    /// Notes whether a connection has a place in a reserve. Such a connection may begin a session even if memory is
    /// full.
    pub(crate) fn note_reserved(&mut self, key: ConnectionKey, is_reserved: bool) {
        if let Some(lane) = self.state.lanes.of(key) {
            lane.is_reserved = is_reserved;
        }
    }

    /// Sets the client of a connection. Must be called before the first bytes of the connection are handed in.
    pub fn note_client(&mut self, key: ConnectionKey, client: Client) {
        if let Some(lane) = self.state.lanes.of(key) {
            lane.client = client;
        }
    }

    /// Serves bytes that were read from a connection.
    #[inline]
    pub fn handle_bytes(&mut self, key: ConnectionKey, bytes: &[u8], now: impl Into<Moment>) -> Next {
        self.handle_bytes_within(&mut Unlimited, key, bytes, now)
    }

    /// Serves bytes that were read from a connection, within a budget. Requests that remain when the budget is spent
    /// are set aside: see [`Worker::has_input`].
    #[inline]
    pub fn handle_bytes_within(
        &mut self,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        bytes: &[u8],
        now: impl Into<Moment>,
    ) -> Next {
        self.state.advance(now.into());
        let next = self.state.receive(&self.node, budget, key, bytes);
        self.state.finish_step(&self.node);
        next
    }

    /// Serves requests that were set aside. The connection must have room for answers, and `budget` is a new one.
    pub fn handle_set_aside(
        &mut self,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        now: impl Into<Moment>,
    ) -> Next {
        self.handle_bytes_within(budget, key, &[], now)
    }

    /// Removes a connection that was closed or that failed.
    pub fn handle_lost(&mut self, key: ConnectionKey, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.lose(&self.node, key);
        self.state.finish_step(&self.node);
    }

    /// Takes and handles the mail of this worker. Returns whether there was any.
    #[inline]
    pub fn handle_mail(&mut self, now: impl Into<Moment>) -> bool {
        let letters = self.state.read_letters(&self.node);
        if self.state.mails.is_empty() && self.state.follow_ups.is_empty() {
            return letters;
        }
        self.state.advance(now.into());
        // Serving one mail may put further mails in the queue.
        while let Some(mail) = self.state.mails.pop_front() {
            let is_long = matches!(
                mail,
                Mail::Turn { .. } | Mail::Knocked { .. } | Mail::Untried | Mail::Withdraw | Mail::Reauthorize
            );
            match mail {
                Mail::Letters(letters) => self.state.deliver(&self.node, letters),
                Mail::Turn { shard, pass } => self.state.take_turn(&self.node, shard, pass),
                Mail::Drain { asker, due } => self.state.timers.asked_to_drain(asker, due),
                Mail::Drained => self.state.tick(&self.node),
                Mail::Settled(number) => self.state.settled(&self.node, number),
                Mail::Vacant(vacancy) => self.state.vacate(&vacancy),
                Mail::Closed(key) => self.state.tell_of_end(key),
                Mail::Knocked { shard } => self.state.retry_multi_shard(&self.node, shard),
                Mail::Untried => self.state.try_multi_shard(&self.node),
                Mail::Withdraw => self.state.go_on_withdrawing(&self.node),
                Mail::Reauthorize => self.state.reauthorize(&self.node),
                Mail::Stop => self.state.stop_shards(&self.node),
                Mail::Count => self.state.count_claims(&self.node),
                Mail::Reserved { shard, end, reserved } => {
                    self.state.hand_over(&self.node, shard, Batch::Reserved(end, reserved));
                }
                Mail::ReservedMultiKey(end, multi_shard) => {
                    self.state.end_multi_shard(&self.node, end, multi_shard);
                }
                Mail::Finish => self.state.finish(&self.node),
            }
            if is_long && !self.state.mails.is_empty() {
                // Connections have their turns before the rest of the mail. The wake brings this worker back to the
                // mail.
                self.state.wakes.push(self.state.index);
                break;
            }
        }
        self.state.finish_step(&self.node);
        true
    }

    /// Ends leases and waits that are due, and continues unfinished work. Must be called when `next_deadline` has
    /// come.
    pub fn tick(&mut self, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.tick(&self.node);
        self.state.finish_step(&self.node);
    }

    /// Reports to the sending worker that a moved connection has served the bytes that were unread when it arrived.
    pub fn handle_settled(&mut self, ticket: MoveTicket) {
        self.state.mail(&self.node, ticket.from, Mail::Settled(ticket.number));
    }

    /// Notes that all sockets were read empty after `at`: no byte that arrived before `at` is still unread.
    pub fn handle_drained(&mut self, at: Time, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.drained(&self.node, at);
        self.state.finish_step(&self.node);
    }

    /// Closes stalled connections, looks for idle namespaces, checks access and publishes metrics. Must be called
    /// from time to time.
    pub fn housekeep(&mut self, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.close_stalled(&self.node);
        self.state.look_for_idle_namespaces(&self.node);
        self.state.begin_to_reauthorize(&self.node);
        self.state.publish(&self.node);
        self.state.finish_step(&self.node);
    }

    /// Whether any connection has bytes to write or must be closed.
    #[inline]
    pub fn has_dirty(&self) -> bool {
        !self.state.dirty.is_empty()
    }

    /// Returns the next connection that has bytes to write or must be closed. Returns each connection once.
    pub fn poll_dirty(&mut self) -> Option<ConnectionKey> {
        let key = self.state.dirty.pop()?;
        if let Some(lane) = self.state.lanes.of(key) {
            lane.dirty = false;
            lane.count_grants();
        }
        Some(key)
    }

    /// Removes a connection from the dirty list if it is last there. The driver calls this after it has taken the
    /// output itself.
    #[inline]
    pub(crate) fn settle(&mut self, key: ConnectionKey) {
        if self.state.dirty.last() == Some(&key) {
            self.poll_dirty();
        }
    }

    /// Returns the next event for the audit log, oldest first.
    pub fn poll_audit(&mut self) -> Option<AuditEvent> {
        self.state.followed.acts.poll()
    }

    /// Returns the next traced acquire that has ended, oldest first. Must be called after each step.
    #[inline]
    pub(crate) fn poll_span(&mut self) -> Option<AcquireSpan> {
        self.state.followed.poll_span(self.state.nanos)
    }

    /// Returns the next worker to wake.
    #[inline]
    pub fn poll_wake(&mut self) -> Option<u16> {
        self.state.wakes.pop()
    }

    /// Returns the bytes to write to this connection, or `None` if the driver must close the connection.
    #[inline]
    pub fn output(&mut self, key: ConnectionKey) -> Option<&[u8]> {
        let lane = self.state.lanes.of(key)?;
        let over = lane.stage.is_closing() && lane.pending_len() == 0;
        if over || lane.pending_len() > crate::limits::OUTPUT_LEN_MAX {
            return None;
        }
        Some(&lane.output[lane.written..])
    }

    /// Notes that `len` bytes of the output were written.
    #[inline]
    pub fn wrote(&mut self, key: ConnectionKey, len: usize) {
        let now = self.state.now;
        let Some(lane) = self.state.lanes.of(key) else { return };
        lane.written += len;
        if lane.written == lane.output.len() {
            lane.clear_output();
            // A burst of answers must not keep its memory for a connection that is quiet from now on.
            if lane.output.capacity() > crate::limits::READ_LEN_MAX {
                lane.output = Vec::new();
            }
        } else {
            lane.output_since = Some(now);
            if !lane.overrun.is_empty() && lane.pending_len() < crate::limits::OUTPUT_LEN_PAUSE {
                // There is room again, so an event that is dropped from now on is announced by a new `OVERRUN`.
                lane.overrun.clear();
            }
        }
    }

    /// Whether the driver should read this connection. False while too many bytes of answers wait to be written.
    #[inline]
    pub fn wants_read(&mut self, key: ConnectionKey) -> bool {
        let Some(lane) = self.state.lanes.of(key) else { return false };
        !lane.stage.is_over() && lane.pending_len() < crate::limits::OUTPUT_LEN_PAUSE
    }

    /// Whether requests were set aside, because of too many answers or because the budget was spent.
    pub fn has_input(&mut self, key: ConnectionKey) -> bool {
        self.state.lanes.of(key).is_some_and(|lane| {
            waymaker_protocol::next_frame(&lane.input, usize::MAX).is_ok_and(|f| f.is_some())
        })
    }

    /// Returns a connection that must move to another worker, with all bytes read from it, and removes it here. The
    /// next drain of this worker counts only after [`Worker::handle_settled`] of the other worker was called with the
    /// ticket.
    pub fn take_moving(&mut self, key: ConnectionKey) -> MovedConnection {
        let lane = self.state.lanes.of(key);
        let taken = lane.map(|lane| (std::mem::take(&mut lane.input), std::mem::take(&mut lane.client)));
        let (input, client) = taken.unwrap_or_default();
        self.state.lose(&self.node, key);
        let ticket = MoveTicket { from: self.state.index, number: self.state.timers.note_move() };
        MovedConnection { input, client, ticket }
    }

    /// Returns when to call `tick`.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.state.timers.next_wake.min(self.state.sessions_wake())
    }

    /// Whether the driver must read all sockets empty. Leases or waits that are due may end only after that.
    #[inline]
    pub fn wants_drain(&self) -> bool {
        self.state.timers.wants_drain()
    }

    /// Returns up to when new connections must be accepted and handed to a worker, if sessions wait for that.
    /// `Mail::Drained` reports that it was done.
    #[inline]
    pub fn poll_accept(&mut self) -> Option<Time> {
        self.state.timers.take_wants_accepted()
    }

    /// Returns the number of connections.
    pub fn connection_count(&self) -> usize {
        self.state.lanes.iter().count()
    }

    /// Returns the address of a connection's lane in the shards. For tests.
    pub fn address(&self, key: ConnectionKey) -> Option<LaneAddress> {
        self.state.lanes.iter().find(|lane| lane.key() == key).map(|lane| lane.address)
    }

    /// Returns the connections that have work in progress. The three counts are requests in flight, waiting acquires,
    /// and the cost of requests that wait for shards. For tests.
    pub fn open_counts(&self) -> Vec<(ConnectionKey, [i64; 3])> {
        let counts = |lane: &Lane| {
            let counts = [lane.in_flight.into(), lane.waiting.into(), lane.left_cost().into()];
            (counts != [0; 3]).then(|| (lane.key(), counts))
        };
        self.state.lanes.iter().filter_map(counts).collect()
    }

    /// Returns when this worker next visits a shard to end leases and waits. For tests.
    pub fn comes_by(&self, shard: usize) -> Time {
        self.state.timers.comes_by(shard)
    }

    /// Whether this worker will check again that all keys of a waiting multi-key claim are clear. For tests.
    pub fn will_recheck(&self, multi_key: &MultiKeyClaim) -> bool {
        self.state.will_recheck(multi_key)
    }

    /// Returns the time at which sockets were last read.
    #[inline]
    pub fn moment(&self) -> Moment {
        Moment { now: self.state.now, passed: self.state.passed, nanos: self.state.nanos }
    }

    /// Whether the server has asked every connection to end.
    pub fn is_finishing(&self) -> bool {
        self.state.finishing
    }
}

impl State {
    #[inline]
    fn advance(&mut self, moment: Moment) {
        self.now = self.now.max(moment.now);
        self.passed = self.passed.max(moment.passed);
        self.nanos = self.nanos.max(moment.nanos);
    }

    /// Returns the time at which sockets were last read.
    #[inline]
    fn reading(&self) -> Reading {
        Reading { time: self.now, nanos: self.nanos }
    }

    fn outbox<'a>(&'a mut self, node: &'a Node, shard: u16, stamp: Time) -> Outbox<'a> {
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

    /// Ends a step: does the follow-ups of its turns, then posts records, questions and letters.
    #[inline]
    fn finish_step(&mut self, node: &Node) {
        if !self.follow_ups.is_empty() {
            self.follow_up(node);
        }
        self.post(node);
    }

    /// Posts the records to the log, the questions to the quorum, and the letters as one mail for each worker.
    #[inline]
    fn post(&mut self, node: &Node) {
        if let Some(log) = &node.log
            && !self.log.is_empty()
        {
            log.post(std::mem::take(&mut self.log));
        }
        // Questions go after the records: when the log has the record of an answer, it also has all records before
        // it.
        if let Some(quorum) = &node.quorum
            && !self.questions.is_empty()
        {
            quorum.ask(std::mem::take(&mut self.questions));
        }
        if self.letters.len() == 1 {
            return;
        }
        for (worker, letters) in self.letters.iter_mut().enumerate() {
            if !letters.is_empty() && node.mailboxes[worker].post(Mail::Letters(std::mem::take(letters))) {
                self.wakes.push(worker as u16);
            }
        }
    }

    fn mail(&mut self, node: &Node, worker: u16, mail: Mail) {
        if node.mailboxes[usize::from(worker)].post(mail) {
            self.wakes.push(worker);
        }
    }

    /// Delivers the letters in the mailbox and keeps other mail for later. Returns whether the mailbox had any mail.
    #[inline]
    fn read_letters(&mut self, node: &Node) -> bool {
        let mails = node.mailboxes[usize::from(self.index)].take();
        let any = !mails.is_empty();
        for mail in mails {
            match mail {
                Mail::Letters(letters) => self.deliver(node, letters),
                other => self.mails.push_back(other),
            }
        }
        any
    }

    fn deliver(&mut self, node: &Node, letters: Vec<Letter>) {
        for Letter { stamp, shard, content } in letters {
            let mut outbox = self.outbox(node, shard, stamp);
            match content {
                Content::Answer(ticket, answer) => outbox.deliver_answer(ticket, &answer),
                Content::AcquireAnswer(ticket, answer) => outbox.deliver_acquire_answer(ticket, &answer),
                Content::Waits(ticket) => outbox.note_waits(ticket),
                Content::WaiterAnswer(ticket, answer) => outbox.deliver_waiter_answer(ticket, &answer),
                Content::Event(lane, event) => outbox.deliver_event(lane, &event),
                Content::Frame(ticket, frame) => outbox.deliver_frame(ticket, &frame),
            }
        }
    }

    /// Stops reading the lane, and closes its connection once all answers are written.
    fn close(&mut self, key: ConnectionKey) {
        if let Some(lane) = self.lanes.of(key) {
            // `FAREWELL` is the last frame of a connection, so a lane at this stage keeps it.
            if lane.stage != Stage::Left {
                lane.stage = Stage::Closing;
            }
            lane.input = Vec::new();
            outbox::mark_dirty(lane, &mut self.dirty);
        }
    }

    /// Closes every connection once its answers are written.
    fn finish(&mut self, node: &Node) {
        self.finishing = true;
        // The log must not keep a hold of an ended session.
        while !self.lane_ends.is_empty() {
            self.close_lanes(node);
        }
        let keys: Vec<_> = self.lanes.iter().map(Lane::key).collect();
        for key in keys {
            // Another worker may not have closed the lane in a shard yet; the stop does not wait for that.
            self.tell_of_end(key);
            self.close(key);
        }
    }
}
