//! What workers send each other.

use crate::namespaces::Looking;
use crate::worker::{ConnectionKey, CountedClaims, Everywhere, LaneClosing, Vacancy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use waymaker_engine::log::SessionTag;
use waymaker_engine::several::Several;
use waymaker_engine::{
    Access, Answer, Event, LaneAddress, Pass, Reading, Reserved, ReservedEnd, ReservedTogether, Ticket, Time,
};
use waymaker_protocol::NamespaceKind;

/// A batch of one kind for one worker.
#[derive(Debug)]
pub enum Mail {
    /// For lanes of the worker that gets it.
    Letters(Vec<Letter>),
    /// Serve what was left for this shard and give its turn back: whoever had it has served its share.
    Turn {
        /// The shard.
        shard: u16,
        /// The right to it.
        pass: Pass,
    },
    /// Read your sockets, say when you did, and tell this worker: it wants to end what is due.
    Drain {
        /// Who asks.
        asker: u16,
        /// What is due then: reading that began before does not count.
        due: Time,
    },
    /// A worker that was asked to drain has done so.
    Drained,
    /// A connection that moved away with this number has served what was unread then.
    Settled(u64),
    /// The server is stopping.
    Stop,
    /// A turn that this worker wanted together with others was given back.
    Knocked {
        /// The shard.
        shard: u16,
    },
    /// Go on with what wants several turns.
    Untried,
    /// Go on with claims over several keys that are over.
    Withdraw,
    /// Go on with the look whether the identities of connections still hold.
    Reauthorize,
    /// Count the claims that are left.
    Count,
    /// No shard has a claim of a session of this worker that has no connection.
    Vacant(Arc<Vacancy>),
    /// Every shard has closed the lane of this connection.
    Closed(ConnectionKey),
    /// What was reserved in a shard goes on.
    Reserved {
        /// The shard.
        shard: u16,
        /// How.
        end: ReservedEnd,
        /// What was reserved.
        reserved: Vec<Reserved>,
    },
    /// The keys of a claim over several keys go on together.
    ReservedTogether(ReservedEnd, Box<ReservedTogether>),
    /// Close every connection once its answers are written, then end.
    Finish,
}

/// An answer or an event for a lane of another worker.
#[derive(Debug)]
pub struct Letter {
    /// The time of the turn in which it became true.
    pub stamp: Time,
    /// The shard that said it.
    pub shard: u16,
    /// To whom and what.
    pub content: Content,
}

/// What a letter says.
#[derive(Debug)]
pub enum Content {
    /// The answer to a request.
    Answer(Ticket, Answer),
    /// The answer to an acquire that did not wait.
    AcquireAnswer(Ticket, Answer),
    /// The acquire of this ticket waits.
    Waits(Ticket),
    /// The answer to an acquire that waited.
    WaiterAnswer(Ticket, Answer),
    /// Something that a lane should know.
    Event(LaneAddress, Event),
    /// The answer to a request, as a frame.
    Frame(Ticket, Vec<u8>),
}

/// What a worker leaves for whoever has the turn of a shard. Whoever serves it may have looked at the clock long before it
/// was left, so it brings its own time: nothing is decided at an instant before it was asked.
#[derive(Debug)]
pub enum Batch {
    /// Requests of one lane, all for this shard.
    Requests(RequestBatch),
    /// Something happened to a lane, at that time.
    Lane(LaneAddress, LaneChange, Reading),
    /// The server is stopping.
    Stop,
    /// Count the claims.
    Count,
    /// Publish the state of the shard for metrics.
    Publish,
    /// What was reserved goes on.
    Reserved(ReservedEnd, Vec<Reserved>),
    /// End what was due by then. Whatever workers had read by then was handed over before this was.
    Expire {
        /// Up to when every worker was known to have read its sockets.
        drained: Time,
    },
    /// A waiting claim over several keys is over, since that time.
    Withdraw(Arc<Several>, Reading),
    /// Tell this worker that the turn was given back: it wants it together with others.
    Knock(u16),
    /// Say whether there is a claim of this session.
    Vacancy(Arc<Vacancy>),
    /// Check whether these namespaces are empty, and forget their idle keys.
    Forget(Looking),
    /// A question that every shard has to answer, asked at that time, and how far this shard has come with it.
    Everywhere(Arc<Everywhere>, Reading, CountedClaims),
}

/// Cost of requests that one lane has left at shards.
#[derive(Debug)]
pub struct LeftCost {
    of_lane: Arc<AtomicU32>,
    cost: u32,
}

impl LeftCost {
    /// Counts this cost for the lane until it is dropped.
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

/// Whole frames of one lane, copied out of its receive buffer.
#[derive(Debug)]
pub struct RequestBatch {
    /// Who asks.
    pub lane: LaneAddress,
    /// The owner of the lane.
    pub owner: Arc<[u8]>,
    /// What its client may do; `None`: everything.
    pub access: Option<Arc<Access>>,
    /// The namespace of the lane.
    pub namespace: u16,
    /// And its kind.
    pub kind: NamespaceKind,
    /// The session of the lane, if it has one.
    pub session: Option<SessionTag>,
    /// It lives at least until then.
    pub session_end: Time,
    /// When they were read.
    pub at: Reading,
    /// Cost of serving the frames.
    pub cost: usize,
    /// It counts for the lane until they are served.
    pub counted: LeftCost,
    /// The frames, one behind the other.
    pub frames: Vec<u8>,
}

/// What happened to a lane.
#[derive(Clone, Debug)]
pub enum LaneChange {
    /// Its connection was lost; its session may bring it back.
    Detached,
    /// It is back.
    Attached,
    /// Its client may do this from here on; `None`: everything.
    Access(Option<Arc<Access>>),
    /// It is gone for ever.
    Closed {
        /// And so is its session.
        session_ended: bool,
        /// Its connection, if that waits for the end.
        closing: Option<Arc<LaneClosing>>,
    },
}
