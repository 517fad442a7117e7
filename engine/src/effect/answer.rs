//! Responses.

use super::{
    ClaimStatus, ForceReleased, KeyStatus, Page, PoolPage, PoolStatus, Refusal, Registered, Registration,
    RegistrationPage, TreeStatistics,
};
use crate::ids::{ClaimId, Fence};
use crate::time::Time;

/// Response to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim is held.
    Granted(Grant),
    /// The multi-key claim is held. Each key has a hold of its own from now on. The grants are in bytewise order of the
    /// keys.
    GrantedMultiKey(Box<[KeyGrant]>),
    /// The claim ended.
    Released {
        /// Whether the claim was still waiting. Its acquire is then refused as cancelled.
        was_waiting: bool,
    },
    /// The end of the lease was moved, to a later or an earlier time. The lease of a claim that waits for permits has
    /// no end yet, only a length.
    Extended {
        /// Remaining lease. For a claim that waits for permits, the length of the lease that its grant will begin.
        remaining_ms: u32,
        /// Whether the requested lease was longer than the maximum.
        clamped: bool,
    },
    /// The cancellation was served.
    Cancelled {
        /// Whether the claim was still waiting. Its acquire is then refused as cancelled.
        was_waiting: bool,
    },
    /// State of a claim.
    Status(Box<ClaimStatus>),
    /// State of a key.
    Inspected(Box<KeyStatus>),
    /// One page of claims.
    Listed(Box<Page>),
    /// The lane watches the key from now on.
    Watching {
        /// Newest fence of the key.
        fence: Fence,
        /// Number of holders.
        holder_count: u32,
        /// Number of waiters.
        waiter_count: u32,
    },
    /// The lane watches the key no longer.
    Unwatched {
        /// Whether the lane watched the key before.
        was_watching: bool,
    },
    /// Whether a fence is still the newest of its key.
    Verified(Verified),
    /// An operator ended the claim.
    ForceReleased(Box<ForceReleased>),
    /// The prefix is frozen, or thawed.
    Frozen {
        /// Whether this request changed the state of the prefix.
        changed: bool,
        /// Number of frozen prefixes in the namespace.
        frozen_count: u16,
    },
    /// The namespace was removed.
    NamespaceRemoved,
    /// State of a pool.
    PoolDescribed(Box<PoolStatus>),
    /// The pool has the requested capacity, or does not exist because the request set capacity 0.
    CapacitySet {
        /// Capacity before; 0 for a pool that did not exist.
        previous: u64,
    },
    /// One page of pools.
    PoolsListed(Box<PoolPage>),
    /// Whether the tokens were taken from the bucket.
    Throttled(Allowance),
    /// The owner has the key.
    Registered(Registered),
    /// The owner no longer has the key.
    Unregistered {
        /// Whether the registration belonged to another owner whose lease had expired for longer than the grace period.
        was_expired: bool,
    },
    /// Registration of a key; `None` if the key is not registered.
    LookedUp(Option<Box<Registration>>),
    /// One page of registrations.
    RegistrationsListed(Box<RegistrationPage>),
    /// Counters of a tree namespace.
    TreeStatistics(Box<TreeStatistics>),
    /// The request was refused.
    Refused(Refusal),
}

/// One grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Id of the claim.
    pub id: ClaimId,
    /// Fence, which is larger than the fence of every earlier grant of the key, pool or tree namespace.
    pub fence: Fence,
    /// Remaining lease; `u32::MAX` if the hold has no end of its own. Without meaning if `session_lease` is set.
    pub remaining_ms: u32,
    /// Whether the requested lease was longer than the maximum.
    pub clamped: bool,
    /// Whether this acquire waited; false for a repeated grant.
    pub waited: bool,
    /// Whether the acquire repeated the request id of a claim that was already held, and thus got that hold instead of
    /// a new one.
    pub repeated: bool,
    /// Whether the hold lasts as long as its session.
    pub session_lease: bool,
}

/// One hold of a granted multi-key claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    /// The hold.
    pub grant: Grant,
    /// Whether the hold is shared with other readers.
    pub shared: bool,
    /// Key of the hold.
    pub key: Box<[u8]>,
}

/// Whether a fence is still the newest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Newest fence of the key. For an unknown key, the value at which its counter would start; the first grant would
    /// get a higher fence.
    pub newest_fence: Fence,
    /// Whether the fence of the request is the newest one; never true for fence 0. In a tree namespace, a fence also
    /// counts as the newest while the set of paths with this fence holds a path that overlaps the requested path.
    pub newest: bool,
    /// Whether the fence of the request is the newest one (`newest` is true) and the hold with this fence still exists.
    /// In a tree namespace, the hold must also contain a path that overlaps the requested path.
    pub held: bool,
}

/// Answer of the rate limiter to a [`Throttle`](crate::Throttle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Whether the tokens were taken, or returned by a refund. Also true for a cost of 0, which only reads the state.
    /// If false, nothing changed.
    pub allowed: bool,
    /// Number of whole tokens left.
    pub remaining: u64,
    /// Time until there are enough tokens if no other request takes any. 0 if allowed; `u64::MAX` if the cost is above
    /// the burst.
    pub retry_after_ns: u64,
    /// Time until the bucket is full if no request takes any tokens.
    pub reset_after_ns: u64,
}

impl Allowance {
    /// Returns the tighter of two answers: the one with the longer `retry_after_ns`, among equals the one with fewer
    /// tokens left, and then the one with the longer `reset_after_ns`.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        let tightness = |allowance: &Self| {
            (allowance.retry_after_ns, std::cmp::Reverse(allowance.remaining), allowance.reset_after_ns)
        };
        if tightness(&other) > tightness(&self) { other } else { self }
    }
}

/// Returns the time until `end` in milliseconds, as responses contain it: `u32::MAX` if there is no end.
pub(crate) fn remaining_ms(end: Time, now: Time) -> u32 {
    if end == Time::NEVER { u32::MAX } else { end.remaining_ms_since(now) }
}
