//! Measurements of a shard for metrics. No decision depends on them.

use crate::time::Nanos;

/// Measurement of a shard. A duration is the difference between two clock readings that the worker passed to the shard.
/// So two events of the same reading are 0 apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A waiter was granted after this time in its queue.
    Waited {
        /// Time in nanoseconds.
        nanos: u64,
    },
    /// A waiter was granted this long after its key, its permits or its paths became free.
    HandedOver {
        /// Time in nanoseconds.
        nanos: u64,
    },
    /// A lease was renewed with this much of it remaining.
    Renewed {
        /// Remaining lease in nanoseconds.
        slack_nanos: u64,
    },
    /// A claim began to wait.
    Queued {
        /// Number of claims that wait for the same key, pool or tree, including this one.
        depth: u32,
    },
    /// A hold ended without a release by its holder.
    Lost(LossReason),
}

/// Reason why a holder lost its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossReason {
    /// The lease of the hold expired.
    Expired,
    /// The connection of the hold was lost and not resumed in time.
    ConnectionLost,
    /// The session of the hold ended.
    SessionEnded,
    /// An operator released the hold.
    Forced,
    /// A client with another owner or identity, which knew the id of the hold, released it.
    ReleasedElsewhere,
}

impl LossReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 5] =
        [Self::Expired, Self::ConnectionLost, Self::SessionEnded, Self::Forced, Self::ReleasedElsewhere];

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::ConnectionLost => "connection_lost",
            Self::SessionEnded => "session_ended",
            Self::Forced => "forced",
            Self::ReleasedElsewhere => "released_elsewhere",
        }
    }
}

/// Time at which a hold ended and made room for the grants in progress. `NEVER` if the grants have another cause, for
/// example a waiter that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct FreedAt(Nanos);

impl FreedAt {
    /// No hold ended: the grants have another cause, or there are none in progress.
    pub(crate) const NEVER: Self = Self(Nanos::ZERO);

    #[inline]
    pub(crate) fn at(instant: Nanos) -> Self {
        Self(instant)
    }

    /// Returns the time from the end of a hold (`self`) to the grant of the waiter that got the freed room (`now`), as
    /// a measurement for metrics. Returns `None` if the grant has another cause than the end of a hold.
    #[inline]
    pub(crate) fn handed_over(self, now: Nanos) -> Option<Measure> {
        (self != Self::NEVER).then(|| Measure::HandedOver { nanos: now.since(self.0) })
    }
}
