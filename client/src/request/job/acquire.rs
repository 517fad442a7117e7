//! Acquires, and grants that the lane confirms. A grant may have ended before it reaches the client, for example if the
//! server decided it before an outage. The lane then asks the server whether the holds still exist, before the caller
//! gets them.

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
    /// Instant at which the lane's timer for this acquire fires; `NEVER` if it is not set.
    pub(crate) timer: BootTime,
    /// Whether the client renews the lease of the hold. Has no effect on a hold without a lease of its own.
    pub(crate) renew: bool,
    /// Number of grants of this acquire that arrived after their local deadline and that the lane tried to confirm.
    pub(crate) late_grant_count: u32,
    pub(crate) on_loss: Option<LossCallback>,
    /// Receives the queue position if the acquire has to wait.
    pub(crate) on_queued: Option<oneshot::Sender<QueuePlace>>,
    /// Destination of the grant. If no caller waits any more, the lane releases the holds of the grant.
    pub(crate) reply: Grantee,
}

/// A grant whose holds the lane confirms before the caller gets them: for one hold after the other, it extends the
/// lease or queries the status. If a hold has ended, the lane releases the other holds and, if the caller still waits,
/// repeats the acquire.
pub(crate) struct ConfirmJob {
    pub(crate) grant: Grant,
    /// Index of the hold that is being confirmed.
    pub(crate) index: usize,
    /// Whether a newer acquire has taken up one of the holds. The lane then ignores the server's response to its
    /// confirmation request (a lease extension or a status query): the caller gets no grant from it, and the lane
    /// releases no hold.
    pub(crate) is_superseded: bool,
    /// Whether the lease of the hold at `index` has moved, or may move, since its confirmation request (a lease
    /// extension or a status query) was queued. The response may then be outdated, so the lane sends another such
    /// request.
    pub(crate) is_stale: bool,
    /// Hold of the grant whose end the server has reported. The server may have decided a response to the lane's
    /// confirmation request before that end. So the lane treats a response that arrives later as a refusal.
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
    /// Returns the lease that renewals request until the caller extends the hold, in milliseconds (0 for the server's
    /// default). `None` if the client does not renew the hold, or if the hold has no lease of its own.
    pub(crate) fn renews_itself(&self) -> Option<u32> {
        match self.claim.lease {
            Lease::Own { ms } if self.renew => Some(ms),
            _ => None,
        }
    }
}
