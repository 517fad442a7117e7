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
    /// Serve the work that is queued for this shard, then give its turn back. The previous worker has served its share.
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
    /// A worker that was asked to drain has drained.
    Drained,
    /// A connection that moved to another worker with this number has served its unread input.
    Settled(u64),
    /// The server is stopping.
    Stop,
    /// A turn that this worker needs together with others was given back.
    Knocked {
        /// Number of the shard.
        shard: u16,
    },
    /// Retry the work that needs several turns.
    Untried,
    /// Continue to end multi-key claims.
    Withdraw,
    /// Continue to verify the identities of connections again.
    Reauthorize,
    /// Count the remaining claims.
    Count,
    /// No shard has a claim of this session, which belongs to this worker and has no connection.
    Vacant(Arc<Vacancy>),
    /// Every shard has closed the lane of this connection.
    Closed(ConnectionKey),
    /// Results of reservations in a shard.
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
    /// Count the claims.
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
    /// Notify this worker when the turn is given back; it needs the turn together with others.
    Knock(u16),
    /// Report whether the shard has a claim of this session.
    Vacancy(Arc<Vacancy>),
    /// Check whether these namespaces are empty, and forget their idle keys.
    Forget(EmptinessCheck),
    /// A request to every shard, its time, and the progress of this shard.
    Broadcast(Arc<Broadcast>, Reading, CountedClaims),
}

/// Cost of the queued requests of one lane at shards.
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
    /// Owner of the lane.
    pub owner: Arc<[u8]>,
    /// Rights of the client; `None` allows everything.
    pub access: Option<Arc<Access>>,
    /// Number of the lane's namespace.
    pub namespace: u16,
    /// Kind of the namespace.
    pub kind: NamespaceKind,
    /// Session of the lane, if it has one.
    pub session: Option<SessionTag>,
    /// Earliest end of the session.
    pub session_end: Time,
    /// Time at which the frames were read.
    pub at: Reading,
    /// Cost of serving the frames.
    pub cost: usize,
    /// Cost of serving the frames, counted for the lane until they are served.
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
