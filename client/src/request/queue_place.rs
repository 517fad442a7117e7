//! Queue positions of claims.

use waymaker_protocol::LockId;

/// Queue position of a claim at the time when it began to wait, or when a later acquire took over the waiting claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Id of the claim. After the grant, the hold has the same id, unless the claim was queued again after its
    /// connection broke. The holds of a multi-key claim have other ids.
    pub id: LockId,
    /// Number of waiters in front of the claim; the server may count only up to 1,024. For a set of paths, the number
    /// of all other waiting sets.
    pub position: u32,
    /// Ticket, which rises with each waiting claim of the same shard. Waiters for one key with equal priority are
    /// queued in this order.
    pub ticket: u64,
}
