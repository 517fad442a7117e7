//! The logic of one worker, without sockets or threads. All times come from the driver or from the clock of the node.

mod acts;
mod admission;
mod answer;
mod apply;
mod broadcast;
mod budget;
mod by_ticket;
mod cost;
mod expectation;
mod followed_requests;
mod hello;
mod hello_refusal;
mod idle_namespaces;
mod inspection;
mod kinds;
mod lane;
mod lifecycle;
mod mailbox;
mod moved;
mod multi_shard;
mod multi_shard_queue;
mod outbox;
mod reauthorize;
mod refusals;
mod requests;
mod restored;
mod rights;
mod serve;
mod server_status;
mod sessions;
mod sorting;
mod spans;
mod state;
#[cfg(test)]
pub(crate) mod test_node;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod vacancy;
mod window;
mod withdrawals;

pub use budget::{Budget, Spent, Unlimited};
pub use lane::{Client, Identification};
pub use moved::{MoveTicket, MovedConnection};

use crate::audit::AuditEvent;
use crate::clock::Moment;
use crate::limits::{OUTPUT_LEN_MAX, OUTPUT_LEN_PAUSE, READ_LEN_MAX};
use crate::mail::{ConnectionKey, Mail};
use crate::node::Node;
use crate::traces::AcquireSpan;
use state::State;
use std::sync::Arc;
use waymaker_engine::Time;

/// Next step of the driver after it handed in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Continue to read this connection.
    Continue,
    /// Continue under this key: the connection took over a lane of its session.
    Rebound(ConnectionKey),
    /// Hand the socket, and the bytes that were read from it and not served, to this worker.
    Move(u16),
}

/// The logic of one worker: its connections, their sessions, and its turns in the shards.
///
/// The worker does no I/O. A driver hands in each event, and then calls these methods in this order:
///
/// ```text
/// handle_*      hands in an event: open, bytes, lost, mail or drained, usually with the time
/// poll_dirty    returns connections that now have something to write
/// output/wrote  returns the bytes to write, and notes how many of them were written
/// poll_wake     returns workers to wake, usually because they were asleep when this worker left mail for them
/// next_deadline returns when to call `tick` if no event comes before
/// wants_drain   returns whether to read all sockets empty once, and then to call `handle_drained`
/// poll_accept   returns up to when new connections must be accepted, see `Node::publish_accepted`
/// ```
///
/// All input comes from the driver. The time comes from the driver or from the clock of the node. A simulator can
/// therefore run whole nodes on one thread, with any network and any clock.
///
/// # One request
///
/// The worker parses bytes in place into frames; each frame knows its shard. For each shard of the batch the worker
/// tries to take the turn. A worker that gets the turn serves its requests and writes the answers straight into the
/// output of their connections. It then serves the batches that other workers left in the shard meanwhile. If another
/// worker holds the turn, this worker continues with the next shard. At the end it tries this one once more, unless the
/// batch has a single request. If that fails too, it leaves a copy of its frames for the worker that holds the turn.
/// Answers for lanes of other workers are collected in one mail for each of these workers.
pub struct Worker {
    node: Arc<Node>,
    state: State,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Worker").field("index", &self.state.index).finish_non_exhaustive()
    }
}

impl Worker {
    /// Returns a worker without connections, with the restored sessions that it gets.
    pub fn new(node: Arc<Node>, index: u16, now: impl Into<Moment>) -> Self {
        let state = State::new(&node, index, now.into());
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

    /// Notes whether a connection has one of the places that a full server reserves for operators and health checks.
    /// Such a connection may begin a session even if memory is full.
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

    /// Serves requests of this connection that an earlier call left unserved. The reason was that too many bytes of
    /// answers were unsent, or that the budget of that call was spent. The caller must first have written enough
    /// answers: [`Worker::wants_read`] must be true. `budget` limits the time of this call, which serves at least one
    /// batch.
    pub fn handle_set_aside(
        &mut self,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        now: impl Into<Moment>,
    ) -> Next {
        self.handle_bytes_within(budget, key, &[], now)
    }

    /// Ends a connection that was closed or that failed. If its lane has a session, the lane stays.
    pub fn handle_lost(&mut self, key: ConnectionKey, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.lose(&self.node, key);
        self.state.finish_step(&self.node);
    }

    /// Ends leases, waits and sessions that are due if all workers have read their sockets since, and continues
    /// unfinished work. Must be called when `next_deadline` has come.
    pub fn tick(&mut self, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.tick(&self.node);
        self.state.finish_step(&self.node);
    }

    /// Reports to the worker that sent a connection here with this ticket: the connection has served the bytes that
    /// were unread when it moved, has used up the time for that, or has ended.
    pub fn handle_settled(&mut self, ticket: MoveTicket) {
        self.state.mail(&self.node, ticket.from, Mail::Settled(ticket.number));
    }

    /// Handles the report of the driver that it has read all sockets of this worker empty after `at`. No byte that
    /// arrived before `at` is still unread, except on some connections. These have used too much of the worker's time,
    /// or their clients do not read their answers (`edge/read_barrier.rs`).
    pub fn handle_drained(&mut self, at: Time, now: impl Into<Moment>) {
        self.state.advance(now.into());
        self.state.drained(&self.node, at);
        self.state.finish_step(&self.node);
    }

    /// Closes stalled connections, looks for idle namespaces, checks the identities and rights of connections, and
    /// publishes metrics. Must be called every `HOUSEKEEPING_MS` milliseconds; a longer pause counts as time in which
    /// the server did not run.
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

    /// Removes a connection from the list of those that have bytes to write or must be closed, and returns it. Returns
    /// `None` if the list is empty.
    pub fn poll_dirty(&mut self) -> Option<ConnectionKey> {
        let key = self.state.dirty.pop()?;
        if let Some(lane) = self.state.lanes.of(key) {
            lane.dirty = false;
            lane.count_grants();
        }
        Some(key)
    }

    /// Removes a connection from the end of the list that `poll_dirty` empties. Does nothing if another connection is
    /// last. The driver calls this after it has taken the output without `poll_dirty`.
    #[inline]
    pub(crate) fn settle(&mut self, key: ConnectionKey) {
        if self.state.dirty.last() == Some(&key) {
            self.poll_dirty();
        }
    }

    /// Returns the next event for the audit log, oldest first, or `None`.
    pub fn poll_audit(&mut self) -> Option<AuditEvent> {
        self.state.followed.acts.poll()
    }

    /// Returns the next traced acquire that has ended, oldest first, or `None`. The driver must call this until it
    /// returns `None`, after each call that hands in bytes, mail or the time. Otherwise spans get times that are too
    /// late.
    #[inline]
    pub(crate) fn poll_span(&mut self) -> Option<AcquireSpan> {
        self.state.followed.poll_span(self.state.nanos)
    }

    /// Returns a worker to wake, or `None` if all have been returned.
    #[inline]
    pub fn poll_wake(&mut self) -> Option<u16> {
        self.state.wakes.pop()
    }

    /// Returns the bytes to write to this connection, or `None` if the driver must close the connection.
    #[inline]
    pub fn output(&mut self, key: ConnectionKey) -> Option<&[u8]> {
        let lane = self.state.lanes.of(key)?;
        let over = lane.stage.is_closing() && lane.pending_len() == 0;
        if over || lane.pending_len() > OUTPUT_LEN_MAX {
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
            // Free a large buffer: after a burst of answers, a connection may be quiet for long and must not keep so
            // much memory.
            if lane.output.capacity() > READ_LEN_MAX {
                lane.output = Vec::new();
            }
        } else {
            lane.output_since = Some(now);
            if !lane.overrun.is_empty() && lane.pending_len() < OUTPUT_LEN_PAUSE {
                // There is room again, so an event that is dropped from now on is announced by a new `OVERRUN`.
                lane.overrun.clear();
            }
        }
    }

    /// Whether the driver should read this connection. False while too many bytes of answers wait to be written, and
    /// once the connection is about to be closed.
    #[inline]
    pub fn wants_read(&mut self, key: ConnectionKey) -> bool {
        let Some(lane) = self.state.lanes.of(key) else { return false };
        !lane.stage.is_over() && lane.pending_len() < OUTPUT_LEN_PAUSE
    }

    /// Whether this connection has whole requests that were read but not served. An earlier call left them because too
    /// many bytes of answers were unsent, or because its budget (a limit of time) was spent.
    pub fn has_input(&mut self, key: ConnectionKey) -> bool {
        self.state.lanes.of(key).is_some_and(|lane| {
            waymaker_protocol::next_frame(&lane.input, usize::MAX).is_ok_and(|f| f.is_some())
        })
    }

    /// Returns a connection that must move to another worker, with all bytes that were read and not served, and removes
    /// it here. This worker publishes its next reading of all sockets only after the other worker has called
    /// [`Worker::handle_settled`] with the ticket.
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

    /// Whether the driver must read all sockets empty, for this worker, another one, or the watchdog. Leases, waits and
    /// sessions that are due may end only after that.
    #[inline]
    pub fn wants_drain(&self) -> bool {
        self.state.timers.wants_drain()
    }

    /// Returns the time up to which the acceptors must accept all new connections and hand them to workers. Sessions
    /// that are due end only after that, because a client may be resuming its session on such a connection. Returns
    /// each time only once, otherwise `None`. An acceptor that is done sends `Mail::Drained` to this worker.
    #[inline]
    pub fn poll_accept(&mut self) -> Option<Time> {
        self.state.timers.take_wants_accepted()
    }

    /// Returns the number of connections.
    pub fn connection_count(&self) -> usize {
        self.state.lanes.iter().count()
    }

    /// Returns the latest time that the driver handed in, usually with bytes or mail.
    #[inline]
    pub fn moment(&self) -> Moment {
        Moment { now: self.state.now, passed: self.state.passed, nanos: self.state.nanos }
    }

    /// Whether this worker is closing all its connections, because the server ends.
    pub fn is_finishing(&self) -> bool {
        self.state.finishing
    }
}
