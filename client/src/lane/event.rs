//! Events of a lane for the guards of its holds. The driver of the lane handles them in their order.

use std::time::Duration;

use crate::clock::BootTime;
use crate::hold::GuardId;
use crate::key::Key;
use crate::loss::{LossCallback, LossReason};
use crate::one_or_more::OneOrMore;
use crate::request::job::Grantee;

/// A change that the driver of the lane must pass on to guards.
pub(crate) enum Event {
    /// The caller gets guards for these holds. The lane counts the holds as guarded from now on. If the driver makes no
    /// guard for a hold, it must call [`Lane::give_back`](super::Lane::give_back), or the lane keeps a hold that no
    /// guard releases.
    Granted { grantee: Grantee, on_loss: Option<LossCallback>, holds: OneOrMore<GuardedHold> },
    /// New value of [`Hold::bound`](crate::hold::Hold::bound). The bound is the earliest of three deadlines: by the
    /// hold's own lease, by pending extends, and the one from before an outage, until the server has confirmed the
    /// hold.
    Bound { guard: GuardId, until: BootTime },
    /// New length of the hold's lease in milliseconds.
    LeaseLength { guard: GuardId, lease_ms: u32 },
    /// The guard has lost its hold.
    Lost { guard: GuardId, reason: LossReason, message: Box<str> },
    /// A new session began. For the guards of later grants, the driver makes two new instants that these guards share:
    /// the session's deadline, and [`Lane::alive`](super::Lane::alive) (when the connection was last known alive).
    /// Guards of the old session keep the old instants, which do not move any more.
    SessionBegan,
}

/// A hold that gets a guard.
pub(crate) struct GuardedHold {
    pub(crate) guard: GuardId,
    pub(crate) key: Key,
    pub(crate) fence: u64,
    pub(crate) shared: bool,
    pub(crate) clamped: bool,
    pub(crate) lease_ms: u32,
    /// First value of [`Hold::bound`](crate::hold::Hold::bound).
    pub(crate) until: BootTime,
    /// Whether the hold is on the session's lease, and so ends with it.
    pub(crate) is_on_session: bool,
    /// Longest time for which the hold counts as held after [`Lane::alive`](super::Lane::alive), the last time at which
    /// the connection is known to have been alive. The server ends the hold its `release_after` after the loss of the
    /// connection; this time is shorter by a margin. `None` without a `release_after`, or if it is below one second.
    pub(crate) grace: Option<Duration>,
}
