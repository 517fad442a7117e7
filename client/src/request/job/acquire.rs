//! Acquires, and grants that are confirmed before their callers get them.

use std::sync::Arc;

use tokio::sync::oneshot;
use waymaker_protocol::LockId;

use crate::clock::BootTime;
use crate::hold::Hold;
use crate::loss::LossCallback;
use crate::one_or_more::OneOrMore;
use crate::request::claim::{Claim, Lease, Wait};
use crate::request::grant::Grant;
use crate::request::queue_place::QueuePlace;
use crate::request::reply::Reply;

/// Destination of the holds of a grant. The caller makes guards of them.
pub(crate) type Grantee = Reply<OneOrMore<Arc<Hold>>>;

/// An acquire, with the settings and callbacks that the lane needs when the server grants it.
pub(crate) struct AcquireJob {
    /// Rises with each acquire of the connection. It orders the acquires, and it identifies an acquire whose future was
    /// dropped.
    pub(crate) token: u64,
    pub(crate) claim: Claim,
    pub(crate) wait: Wait,
    /// Instant at which the lane's timer for this acquire fires.
    pub(crate) timer: BootTime,
    /// Whether the client renews the lease of the hold.
    pub(crate) renew: bool,
    /// Number of grants of this acquire that arrived after their local deadline.
    pub(crate) late_grant_count: u32,
    pub(crate) on_loss: Option<LossCallback>,
    /// Receives the queue position if the acquire has to wait.
    pub(crate) on_queued: Option<oneshot::Sender<QueuePlace>>,
    /// Destination of the grant. If the caller has gone, the grant is released at once.
    pub(crate) reply: Grantee,
}

/// A grant whose holds the lane confirms before the caller gets them: for one hold after the other, it extends the
/// lease or queries the status. If a hold has ended, the lane releases the other holds and repeats the acquire.
pub(crate) struct ConfirmJob {
    pub(crate) grant: Grant,
    /// Index of the hold that is being confirmed.
    pub(crate) index: usize,
    /// Whether a newer acquire has taken up the holds. The response to the confirmation then delivers and releases
    /// nothing.
    pub(crate) is_superseded: bool,
    /// Whether the end of the hold's lease has moved since the confirmation was sent, so that the lane must confirm the
    /// hold again.
    pub(crate) is_stale: bool,
    /// Hold of the grant whose end the server has reported. A confirmation that arrives later may have been decided
    /// before the end, so it counts as refused.
    pub(crate) ended: Option<LockId>,
    pub(crate) acquire: Box<AcquireJob>,
}

impl ConfirmJob {
    pub(crate) fn new(grant: Grant, acquire: Box<AcquireJob>) -> Self {
        Self { grant, index: 0, is_superseded: false, is_stale: false, ended: None, acquire }
    }

    pub(crate) fn id(&self) -> LockId {
        self.grant.holds[self.index].id
    }
}

impl AcquireJob {
    /// Returns the lease that each renewal requests, in milliseconds (0 for the server's default). `None` if the client
    /// does not renew the hold, or if the hold is on the session's lease.
    pub(crate) fn renews_itself(&self) -> Option<u32> {
        match self.claim.lease {
            Lease::Own { ms } if self.renew => Some(ms),
            _ => None,
        }
    }
}
