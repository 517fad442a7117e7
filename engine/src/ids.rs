//! Names that outlive a turn: lanes, requests, claims and counters.

pub use waymaker_log::{ClaimId, Fence, Scope};

/// Place of a lane among the lanes of its worker. A place is used again after its lane has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LaneSlot(pub u32);

impl LaneSlot {
    /// Returns the index of the place in a list.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Address of a lane: its worker, and its place among the lanes of that worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LaneAddress {
    /// Worker that owns the lane.
    pub worker: u16,
    /// Place of the lane among the lanes of its worker.
    pub slot: LaneSlot,
    /// Distinguishes the lane from earlier lanes that had the same worker and slot.
    pub generation: u32,
}

/// Destination of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ticket {
    /// Lane that sent the request.
    pub lane: LaneAddress,
    /// Number of the request among the requests of its lane.
    pub number: u32,
}

/// Name of a fence counter: of a key, of a pool, or of a whole tree namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// Namespace of the counter.
    pub namespace: u16,
    /// The key, or the name of the pool; empty for a tree namespace.
    pub key: Box<[u8]>,
}
