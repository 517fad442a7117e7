//! Measurements of a shard for metrics. No decision depends on them.

use crate::time::Nanos;

/// One measurement. Durations are differences of the readings of the clock that turns are given, so a duration within one turn is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A waiter was granted after this time in its queue.
    Waited {
        /// Nanoseconds.
        nanos: u64,
    },
    /// A waiter was granted this long after its key, its permits or its paths became free.
    HandedOver {
        /// Nanoseconds.
        nanos: u64,
    },
    /// A lease was renewed when this much of it remained.
    Renewed {
        /// Nanoseconds.
        slack_nanos: u64,
    },
    /// An acquire waits, and this number of claims waits for its key now, itself included.
    Queued {
        /// Number of waiters.
        depth: u32,
    },
    /// A hold ended that its holder did not release.
    Lost(LossReason),
}

/// Why a holder lost its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossReason {
    /// Its lease expired.
    Expired,
    /// Its connection was lost and did not return in time.
    ConnectionLost,
    /// Its session ended.
    SessionEnded,
    /// An operator released it.
    Forced,
    /// Another client that knew its id released it.
    ReleasedElsewhere,
}

impl LossReason {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 5] =
        [Self::Expired, Self::ConnectionLost, Self::SessionEnded, Self::Forced, Self::ReleasedElsewhere];

    /// The name of the reason in metrics.
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

/// When a key, a pool or a tree last became free for its waiters; nothing was freed since its last grant without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct FreedAt(Nanos);

impl FreedAt {
    /// Nothing was freed.
    pub(crate) const NEVER: Self = Self(Nanos::ZERO);

    #[inline]
    pub(crate) fn at(instant: Nanos) -> Self {
        Self(instant)
    }

    /// The measurement of a waiter that is granted now because of it.
    #[inline]
    pub(crate) fn handed_over(self, now: Nanos) -> Option<Measure> {
        (self != Self::NEVER).then(|| Measure::HandedOver { nanos: now.since(self.0) })
    }
}
