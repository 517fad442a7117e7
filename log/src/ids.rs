//! Ids of claims in records, fences, and the scope of a fence counter.

/// Id of a claim: its position in a shard (`place`), and 64 secret random bits. A request about the claim must show
/// these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClaimId {
    /// Position of the claim's record. From the lowest bit up: its slot in the shard (32 bits), the generation of the
    /// slot (16 bits) and the number of the shard (16 bits). The generation distinguishes claims that used the same
    /// slot.
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

    /// Returns the shard number in a place. Clients send places in requests, so a shard with this number may not exist.
    #[inline]
    pub fn shard_of(place: u64) -> u16 {
        (place >> 48) as u16
    }

    /// Returns the slot in a claim's `place`: the index of the claim's record in its shard. Clients send places in
    /// requests, so the slot may have no claim.
    #[inline]
    pub fn slot_of(place: u64) -> u32 {
        place as u32
    }

    /// Returns the generation in a claim's `place`. The generation distinguishes claims that used the same slot of a
    /// shard one after the other.
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
    /// Fence of a key without grants, or of a claim that was not granted. The fences of grants begin at 1.
    pub const NONE: Self = Self(0);

    /// Returns the fence with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number that clients see and that the log stores.
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

/// Durability of a fence counter. Each scope in this list survives more failures than the scope before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    /// The fence counter is kept in memory, so a crash loses it. A server with a log also writes it to the log when it
    /// stops cleanly.
    #[default]
    Ephemeral,
    /// Kept in the log of this server.
    Local,
    /// The counter is kept by an etcd cluster, and also in the log of this server if it has one.
    Quorum,
}

impl Scope {
    /// Returns whether the counter survives a crash of the server. A local counter does so only if the server has a
    /// log.
    #[inline]
    pub fn is_durable(self) -> bool {
        self != Self::Ephemeral
    }
}
