//! Events of a lane for the guards of its holds. The driver of the lane handles them in their order.

use std::time::Duration;

use crate::clock::BootTime;
use crate::hold::GuardId;
use crate::key::Key;
use crate::loss::{LossCallback, LossReason};
use crate::one_or_more::OneOrMore;
use crate::request::job::Grantee;

/// A change that concerns guards.
pub(crate) enum Event {
    /// The caller gets guards for these holds. The lane counts them as guarded from now on, so the driver must give
    /// back a hold without a guard.
    Granted { grantee: Grantee, on_loss: Option<LossCallback>, holds: OneOrMore<GuardedHold> },
    /// New bound of the hold, by its own lease and by the check after a resumed connection.
    Bound { guard: GuardId, until: BootTime },
    /// New length of the lease in milliseconds.
    LeaseLength { guard: GuardId, lease_ms: u32 },
    /// The guard has lost its hold.
    Lost { guard: GuardId, reason: LossReason, message: Box<str> },
    /// A new session began. Later guards use a new shared deadline and a new sign of life of the connection.
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
    /// As in [`Event::Bound`].
    pub(crate) until: BootTime,
    /// Whether the hold also ends with the lease of the session.
    pub(crate) is_on_session: bool,
    /// Time after the last sign of life of the connection at which the hold also ends.
    pub(crate) grace: Option<Duration>,
}
