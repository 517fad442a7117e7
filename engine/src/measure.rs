//! Measurements of a shard for metrics. No decision depends on them.

use crate::time::Nanos;

/// Measurement of a shard. Durations are differences between clock readings of turns, so a duration within one turn is
/// 0.
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
    /// A claim began to wait. `depth` claims now wait for its key, including this one.
    Queued {
        /// Number of waiters.
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
    /// Another client that knew the id of the hold released it.
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

/// Time at which a key, a pool or a tree last became free for its waiters. `NEVER` if nothing was freed since its last
/// grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct FreedAt(Nanos);

impl FreedAt {
    /// Nothing was freed since the last grant.
    pub(crate) const NEVER: Self = Self(Nanos::ZERO);

    #[inline]
    pub(crate) fn at(instant: Nanos) -> Self {
        Self(instant)
    }

    /// Returns the measurement of a waiter that is granted now, or `None` if nothing was freed.
    #[inline]
    pub(crate) fn handed_over(self, now: Nanos) -> Option<Measure> {
        (self != Self::NEVER).then(|| Measure::HandedOver { nanos: now.since(self.0) })
    }
}
