//! Identifiers that stay valid beyond one turn: of lanes, requests, claims and counters.

use crate::handle::ClaimIx;

/// Address of a lane: its worker and its place in that worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LaneAddress {
    /// Worker that owns the lane.
    pub worker: u16,
    /// Place of the lane among the lanes of its worker.
    pub slot: u32,
    /// Distinguishes the lane from earlier lanes in the same place.
    pub generation: u32,
}

/// Destination of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ticket {
    /// Lane that sent the request.
    pub lane: LaneAddress,
    /// Number of the request on that lane.
    pub number: u32,
}

/// Id of a claim: its place, and 64 secret random bits that a request about the claim must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClaimId {
    /// Slot (32 bits), generation (16 bits) and shard (16 bits), from the lowest bit up.
    pub place: u64,
    /// Random bits, different for each claim.
    pub secret: u64,
}

impl ClaimId {
    /// Returns the id of the claim with this handle.
    #[inline]
    pub fn new(shard: u16, slot: ClaimIx, generation: u16, secret: u64) -> Self {
        let place = u64::from(slot.number()) | u64::from(generation) << 32 | u64::from(shard) << 48;
        Self { place, secret }
    }

    /// Returns the shard that a place names. Clients send places, so the shard may not exist.
    #[inline]
    pub fn shard_of(place: u64) -> u16 {
        (place >> 48) as u16
    }

    /// Returns the handle that a place names. The claim may not exist.
    #[inline]
    pub fn slot_of(place: u64) -> ClaimIx {
        ClaimIx::new(place as u32)
    }

    /// Returns the generation that a place names.
    #[inline]
    pub fn generation_of(place: u64) -> u16 {
        (place >> 32) as u16
    }
}

/// Name of a fence counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// Namespace of the counter.
    pub namespace: u16,
    /// The key, or the name of the pool; empty for a tree namespace.
    pub key: Box<[u8]>,
}

/// Durability of a fence counter. Each scope survives more failures than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    /// Kept in memory.
    #[default]
    Ephemeral,
    /// Kept in the log of this server.
    Local,
    /// Kept by a cluster.
    Quorum,
}

impl Scope {
    /// Whether the counter survives a restart of the process, if the server has a log.
    #[inline]
    pub fn is_durable(self) -> bool {
        self != Self::Ephemeral
    }
}
