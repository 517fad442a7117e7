//! Messages between workers, and work that workers queue at shards.

mod broadcast;
mod lane_closing;
mod vacancy;

pub use broadcast::{Broadcast, CountedClaims};
pub(crate) use broadcast::{NamespacePage, Question};
pub use lane_closing::LaneClosing;
pub use vacancy::Vacancy;

use crate::namespaces::EmptinessCheck;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{
    Access, Answer, Event, LaneAddress, LaneSlot, Pass, Reading, Reserved, ReservedEnd, ReservedMultiKey,
    Ticket, Time,
};
use waymaker_log::SessionTag;
use waymaker_protocol::NamespaceKind;

/// Identifies one connection of a worker. The key stays unique when the lane passes to another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// Slot of the lane.
    pub slot: LaneSlot,
    /// Number of the connection. It is different for each connection that the lane has had.
    pub epoch: u32,
}

/// A message to one worker.
#[derive(Debug)]
pub enum Mail {
    /// Responses and events for lanes of the receiver.
    Letters(Vec<Letter>),
    /// Serve the work that is queued for this shard, then end its turn. The worker that had the turn passes it on,
    /// because it has served as much work of other workers as it may at once.
    Turn {
        /// Number of the shard.
        shard: u16,
        /// Right to the turn.
        pass: Pass,
    },
    /// Read all sockets, publish the time of the reading
    /// ([`Node::publish_drained`](crate::node::Node::publish_drained)), and answer with [`Mail::Drained`]. Leases that
    /// are due expire only after this reading. The watchdog also sends this message, to detect hanging workers.
    Drain {
        /// Worker that gets the answer.
        asker: u16,
        /// Instant up to which the sockets must be read: the reading must begin at this time or later.
        due: Time,
    },
    /// A worker that was asked with [`Mail::Drain`] has read its sockets, an acceptor has accepted all waiting
    /// connections, or the acceptors have stopped. The receiver checks whether leases may expire now.
    Drained,
    /// A connection that the receiver moved to another worker has caught up; the value is the number that the receiver
    /// gave the move. The connection has served the bytes that were unread when it arrived there, has used up the time
    /// for that, or has ended. The receiver may then report its own sockets as read, for which the expiry of leases
    /// waits.
    Settled(u64),
    /// The server is stopping.
    Stop,
    /// The turn of this shard is free. The receiver asked for this notice with [`Batch::Knock`], because it needs the
    /// turns of several shards at once.
    Knocked {
        /// Number of the shard.
        shard: u16,
    },
    /// Try the next requests that need the turns of several shards at once. A worker sends this to itself when it has
    /// tried as many as it may in one step.
    Untried,
    /// Remove further ended multi-key claims from their shards. A worker sends this to itself when it has removed as
    /// many as it may in one step.
    Withdraw,
    /// Verify the identities of further connections again. A worker sends this to itself when it has verified as many
    /// as it may in one step.
    Reauthorize,
    /// Count the claims whose end the draining server awaits. Each worker counts in its part of the shards.
    Count,
    /// No shard has a claim of this session. The session belongs to the receiver and had no connection when the
    /// receiver asked the shards. The receiver now makes the lease of the session expire early, unless a client has
    /// resumed it.
    Vacant(Arc<Vacancy>),
    /// Every shard that knew the lane of this connection has closed it. The receiver sends `FAREWELL` or
    /// `SESSION_EXPIRED` to the connection.
    Closed(ConnectionKey),
    /// Outcome of claims in a shard that were granted on condition that the log stores their records or the cluster
    /// counts their fences. The receiver passes it to the shard as [`Batch::Reserved`].
    Reserved {
        /// Number of the shard.
        shard: u16,
        /// Common outcome of the claims.
        end: ReservedEnd,
        /// The claims.
        reserved: Vec<Reserved>,
    },
    /// Outcome of a multi-key claim. All its parts were granted on condition that the log stores their records or the
    /// cluster counts their fences.
    ReservedMultiKey(ReservedEnd, Box<ReservedMultiKey>),
    /// Close every connection as soon as its responses are written. Then end the worker, also if connections are still
    /// open after a second.
    Finish,
}

/// A response or event for a lane of another worker.
#[derive(Debug)]
pub struct Letter {
    /// Time of the turn of the shard that produced the response or event.
    pub stamp: Time,
    /// Shard that produced the response or event.
    pub shard: u16,
    /// Receiver and contents.
    pub content: Content,
}

/// The contents of a letter.
#[derive(Debug)]
pub enum Content {
    /// Response to a request.
    Answer(Ticket, Answer),
    /// Response to an acquire that did not wait.
    AcquireAnswer(Ticket, Answer),
    /// The acquire with this ticket is waiting.
    Waits(Ticket),
    /// Response to an acquire that waited.
    WaiterAnswer(Ticket, Answer),
    /// Event for a lane.
    Event(LaneAddress, Event),
    /// Response to a request, encoded as a frame.
    Frame(Ticket, Vec<u8>),
}

/// Work that a worker queues at a shard for the worker that has the shard's turn. The latter may have read its clock
/// long before it serves the work. Requests, changes of lanes and withdrawals therefore carry the time at which their
/// input was read. The time of the shard advances to that time before they are served.
#[derive(Debug)]
pub enum Batch {
    /// Requests of one lane for this shard.
    Requests(RequestBatch),
    /// A change of a lane, with the time at which the input that caused it was read.
    Lane(LaneAddress, LaneChange, Reading),
    /// The server is stopping.
    Stop,
    /// Count the claims for a draining server.
    Count,
    /// Publish the state of the shard for metrics.
    Publish,
    /// Outcome of claims of the shard, whose grants were conditional: the log had to store their records, or the etcd
    /// cluster to count their fences. The claims are now held, have ended, or stay unknown because the log failed.
    Reserved(ReservedEnd, Vec<Reserved>),
    /// End the leases and waits that were due by this time. Renewals that workers had read by then were queued at the
    /// shard before this batch.
    Expire {
        /// Time up to which every worker had read its sockets.
        drained: Time,
    },
    /// A waiting or reserved multi-key claim (one claim for several keys) ended, so the shard ends its part of the
    /// claim. The second value is the time at which the input that ended the claim was read.
    Withdraw(Arc<MultiKeyClaim>, Reading),
    /// Send [`Mail::Knocked`] to this worker when the turn is free. The worker needs the turns of several shards at
    /// once.
    Knock(u16),
    /// Check whether the shard has a claim of this session. If not, decrement `Vacancy::left`.
    Vacancy(Arc<Vacancy>),
    /// Check whether these namespaces are empty, and forget their idle keys.
    Forget(EmptinessCheck),
    /// A request to every shard, and what this shard has counted for it so far. The second value is the time at which
    /// the request was read or this shard last worked on it.
    Broadcast(Arc<Broadcast>, Reading, CountedClaims),
}

/// Cost of one batch of requests that waits at a shard. While this value exists, the total of the batch's lane includes
/// the cost.
#[derive(Debug)]
pub struct LeftCost {
    of_lane: Arc<AtomicU32>,
    cost: u32,
}

impl LeftCost {
    /// Adds this cost to `of_lane`, the total cost of a lane's requests that wait for turns of shards. Dropping the
    /// returned value subtracts the cost. While the total is at its limit, the server refuses further long requests of
    /// the lane, except those that end or extend one claim.
    #[must_use]
    pub fn new(of_lane: &Arc<AtomicU32>, cost: usize) -> Self {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        of_lane.fetch_add(cost, Ordering::Relaxed);
        Self { of_lane: Arc::clone(of_lane), cost }
    }
}

impl Drop for LeftCost {
    fn drop(&mut self) {
        self.of_lane.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

/// Whole frames of one lane, copied from its receive buffer.
#[derive(Debug)]
pub struct RequestBatch {
    /// Lane that sent the requests.
    pub lane: LaneAddress,
    /// Default owner of the claims of the lane.
    pub owner: Arc<[u8]>,
    /// Rights of the client; `None` allows everything.
    pub access: Option<Arc<Access>>,
    /// Number of the lane's namespace.
    pub namespace: u16,
    /// Kind of the namespace.
    pub kind: NamespaceKind,
    /// Session of the lane, if it has one.
    pub session: Option<SessionTag>,
    /// Earliest time at which the session can expire; for display only.
    pub session_end: Time,
    /// Time at which the frames were read.
    pub at: Reading,
    /// Estimated cost of serving the frames, in the unit of `BATCH_COST_MAX`.
    pub cost: usize,
    /// Guard that adds `cost` to the total cost of the lane's requests that wait for turns of shards. The guard is
    /// dropped, and the cost subtracted, when all the frames are served.
    pub counted: LeftCost,
    /// The frames, one after the other.
    pub frames: Vec<u8>,
}

/// A change of a lane.
#[derive(Clone, Debug)]
pub enum LaneChange {
    /// The connection of the lane was lost. The session of the lane may resume the lane on another connection.
    Detached,
    /// A connection resumed the lane.
    Attached,
    /// The rights of the client changed; `None` allows everything.
    Access(Option<Arc<Access>>),
    /// The lane was closed for good.
    Closed {
        /// Whether the session has ended too.
        session_ended: bool,
        /// Closing of the lane that waits for this shard; `None` if no connection waits for the end.
        closing: Option<Arc<LaneClosing>>,
    },
}
