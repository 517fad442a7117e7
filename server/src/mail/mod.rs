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
    /// Read all sockets, publish the time, and answer with [`Mail::Drained`]. The asking worker wants to expire leases.
    Drain {
        /// Worker that asks.
        asker: u16,
        /// Time of the deadlines; only reads that start after it count.
        due: Time,
    },
    /// A worker that was asked with [`Mail::Drain`] has read its sockets, or an acceptor has accepted all waiting
    /// connections. The receiver checks whether leases may expire now.
    Drained,
    /// The receiver moved a connection to another worker, and gave this number to the move. The connection has now
    /// served the bytes that were unread when it arrived, or has ended.
    Settled(u64),
    /// The server is stopping.
    Stop,
    /// The turn of this shard is free. The receiver asked for this notice with [`Batch::Knock`], because it needs the
    /// turns of several shards at once.
    Knocked {
        /// Number of the shard.
        shard: u16,
    },
    /// Retry the requests that need the turns of several shards at once.
    Untried,
    /// Continue to end multi-key claims in their shards.
    Withdraw,
    /// Continue to verify the identities of connections again.
    Reauthorize,
    /// Count the remaining claims in the shards of this worker, because the server is draining.
    Count,
    /// No shard has a claim of this session, which belongs to this worker and has no connection.
    Vacant(Arc<Vacancy>),
    /// Every shard has closed the lane of this connection.
    Closed(ConnectionKey),
    /// Results of reservations in a shard: of claims that were granted subject to the log or the cluster.
    Reserved {
        /// Number of the shard.
        shard: u16,
        /// Common result of the reservations.
        end: ReservedEnd,
        /// The reservations.
        reserved: Vec<Reserved>,
    },
    /// Result of the reservations of a multi-key claim.
    ReservedMultiKey(ReservedEnd, Box<ReservedMultiKey>),
    /// Close every connection after its responses are written, then end the worker.
    Finish,
}

/// A response or event for a lane of another worker.
#[derive(Debug)]
pub struct Letter {
    /// Time of the turn that produced it.
    pub stamp: Time,
    /// Shard that produced it.
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

/// Work that a worker queues at a shard for the worker with its turn. The serving worker may have read the clock long
/// before, so each batch has its own time. Nothing is decided at a time before it was requested.
#[derive(Debug)]
pub enum Batch {
    /// Requests of one lane for this shard.
    Requests(RequestBatch),
    /// A change of a lane at this time.
    Lane(LaneAddress, LaneChange, Reading),
    /// The server is stopping.
    Stop,
    /// Count the claims for a draining server.
    Count,
    /// Publish the state of the shard for metrics.
    Publish,
    /// Results of reservations.
    Reserved(ReservedEnd, Vec<Reserved>),
    /// Expire the leases that were due by this time. Input that workers had read by then was queued before this batch.
    Expire {
        /// Time up to which every worker had read its sockets.
        drained: Time,
    },
    /// A waiting multi-key claim ended at this time.
    Withdraw(Arc<MultiKeyClaim>, Reading),
    /// Send [`Mail::Knocked`] to this worker when the turn is free. The worker needs the turns of several shards at
    /// once.
    Knock(u16),
    /// Report whether the shard has a claim of this session.
    Vacancy(Arc<Vacancy>),
    /// Check whether these namespaces are empty, and forget their idle keys.
    Forget(EmptinessCheck),
    /// A request to every shard, its time, and the progress of this shard.
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
    /// Adds this cost to the lane until the value is dropped.
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
    /// Time until which the session lives at least; for display only.
    pub session_end: Time,
    /// Time at which the frames were read.
    pub at: Reading,
    /// Cost of serving the frames, in the unit of `BATCH_COST_MAX`.
    pub cost: usize,
    /// The same cost, which counts for the lane until the frames are served.
    pub counted: LeftCost,
    /// The frames, one after the other.
    pub frames: Vec<u8>,
}

/// A change of a lane.
#[derive(Clone, Debug)]
pub enum LaneChange {
    /// The connection was lost; its session may resume it.
    Detached,
    /// A connection resumed the lane.
    Attached,
    /// The rights of the client changed; `None` allows everything.
    Access(Option<Arc<Access>>),
    /// The lane was closed for good.
    Closed {
        /// Whether the session has ended too.
        session_ended: bool,
        /// Connection that waits until every shard has closed the lane.
        closing: Option<Arc<LaneClosing>>,
    },
}
