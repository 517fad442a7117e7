//! Events: messages to a lane beside the responses to its requests.

use crate::ids::{ClaimId, Fence};
use std::sync::Arc;

/// A message to a lane that is not the response to a request.
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
        /// paths, the number of all other waiting sets of its tree. For a multi-key claim, the position at its first
        /// key.
        position: u32,
        /// Arrival number of the claim. Among the waiters of a shard, a claim that arrived later has a higher number;
        /// there are gaps.
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
        /// Remaining lease when its end was moved.
        remaining_ms: u32,
    },
    /// A hold ended although its lane did not release it. Not sent if its lease expired.
    Revoked {
        /// The hold.
        id: ClaimId,
        /// Why the hold ended.
        reason: RevokeReason,
    },
    /// A later acquire with the same request id took over a hold. The acquire that had the hold until then gets no more
    /// events about it.
    TakenUp {
        /// Number of the acquire that had the hold until then.
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

/// Reason why a hold ended although its lane did not release it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another lane that knew the id released the hold.
    ReleasedElsewhere,
    /// An operator released the hold, for this reason.
    Forced(Arc<[u8]>),
}
