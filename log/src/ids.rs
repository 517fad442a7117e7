//! Ids in records: claims, and the scope of a counter.

/// Id of a claim: its place, and 64 secret random bits that a request about the claim must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClaimId {
    /// Slot (32 bits), generation (16 bits) and shard (16 bits), from the lowest bit up.
    pub place: u64,
    /// Random bits, different for each claim.
    pub secret: u64,
}

impl ClaimId {
    /// Returns the id of the claim in this slot of a shard.
    #[inline]
    pub fn new(shard: u16, slot: u32, generation: u16, secret: u64) -> Self {
        let place = u64::from(slot) | u64::from(generation) << 32 | u64::from(shard) << 48;
        Self { place, secret }
    }

    /// Returns the shard that a place names. Places come from outside, so there may be no such shard.
    #[inline]
    pub fn shard_of(place: u64) -> u16 {
        (place >> 48) as u16
    }

    /// Returns the slot that a place names. There may be no claim in this slot.
    #[inline]
    pub fn slot_of(place: u64) -> u32 {
        place as u32
    }

    /// Returns the generation that a place names. It tells claims apart that used the same slot one after the other.
    #[inline]
    pub fn generation_of(place: u64) -> u16 {
        (place >> 32) as u16
    }
}

/// Fence of a grant. Each grant of a key has a greater fence than the grants before it. Fences may skip numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Fence(u64);

impl Fence {
    /// Fence of a key without grants, or of a claim that was not granted. No grant has it.
    pub const NONE: Self = Self(0);

    /// Returns the fence with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, as clients and files have it.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next fence.
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Durability of a fence counter. Each scope survives more failures than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    /// Kept in memory. A server with a log also writes it when it stops cleanly.
    #[default]
    Ephemeral,
    /// Kept in the log of this server.
    Local,
    /// Kept by an etcd cluster, and in the log of this server if it has one.
    Quorum,
}

impl Scope {
    /// Returns whether the counter survives a crash of the server, if the server has a log.
    #[inline]
    pub fn is_durable(self) -> bool {
        self != Self::Ephemeral
    }
}
