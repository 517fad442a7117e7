//! Events: messages to a lane that are no responses to a request.

use crate::ids::{ClaimId, Fence};
use std::sync::Arc;

/// A message to a lane that is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The claim of an acquire waits. Sent only if the acquire asked for this event.
    Queued {
        /// Number of the acquire.
        number: u32,
        /// The claim.
        id: ClaimId,
        /// Number of waiters before the claim. In a pool, and for a claim that has other waiters of its key behind it,
        /// the number is counted only up to [`POSITION_COUNT_MAX`](crate::limits::POSITION_COUNT_MAX). For a set of
        /// paths, the number of all other waiting sets of its tree.
        position: u32,
        /// Number of the claim in the order in which the claims of the shard began to wait.
        ticket: u64,
    },
    /// The lease of a hold expired.
    Expired {
        /// The hold.
        id: ClaimId,
    },
    /// Another lane that knew the id moved the end of the lease of a hold, or changed the future lease of a claim that
    /// waits for permits.
    LeaseMoved {
        /// The hold.
        id: ClaimId,
        /// Remaining lease from now on. For a waiting claim, the length of the lease that begins with the grant.
        remaining_ms: u32,
    },
    /// A hold ended without a request of its lane.
    Revoked {
        /// The hold.
        id: ClaimId,
        /// Why the hold ended.
        reason: RevokeReason,
    },
    /// A later acquire with the same request id took over a hold. The acquire that was granted the hold gets no more
    /// events about it.
    TakenUp {
        /// Number of the acquire that was granted the hold.
        number: u32,
        /// The hold.
        id: ClaimId,
    },
    /// A watched key has a new holder.
    KeyHeld {
        /// Number of the request that began the watch.
        number: u32,
        /// Fence of the grant.
        fence: Fence,
        /// Whether the hold is shared with other readers.
        shared: bool,
        /// Owner of the hold.
        owner: Arc<[u8]>,
    },
    /// A watched key has no holder any more.
    KeyFreed {
        /// Number of the request that began the watch.
        number: u32,
        /// Newest fence of the key.
        fence: Fence,
    },
}

/// Reason why a hold ended without a request of its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another lane that knew the id released the hold.
    ReleasedElsewhere,
    /// The connection was lost and did not resume in time.
    ConnectionLost,
    /// An operator released the hold, for this reason.
    Forced(Arc<[u8]>),
}
