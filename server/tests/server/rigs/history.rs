//! What clients saw, by one clock: the time of each call and of its answer.

use waymaker_protocol::LockId;

/// Microseconds by the one clock of the rigs, which counts time in suspend as leases do.
pub(crate) type Micros = u64;

/// The clock of the rigs.
pub(crate) fn now() -> Micros {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// When something was asked, and when its answer was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) invoked: Micros,
    pub(crate) returned: Micros,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lease lasts at least until then.
    Done { until: Micros },
    /// The server says that there is no such hold.
    Gone,
    /// Nobody knows. If it took effect the lease has this length from some moment of the call on.
    Lost { lease: Micros },
}

/// What a client saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It was told that it holds this key, and that it does so at least until then.
    Granted { call: Call, id: LockId, key: u32, shared: bool, fence: u64, until: Micros },
    /// It asked for another lease.
    Renewed { call: Call, id: LockId, outcome: Renewal },
    /// It gave a hold back, which may have happened whatever the answer was.
    Released { call: Call, id: LockId, was_found: Option<bool> },
    /// It asked what became of a hold: the fence, if it is held.
    Seen { call: Call, id: LockId, fence: Option<u64> },
    /// It asked for several keys, got no answer, and later found so many of them in its name.
    Found { call: Call, name: String, held: usize, wanted: usize },
    /// It was told something that nobody may be told.
    Wrong { call: Call, what: String },
}

impl Entry {
    /// When it was asked and answered.
    pub(crate) fn call(&self) -> Call {
        match self {
            Self::Granted { call, .. }
            | Self::Renewed { call, .. }
            | Self::Released { call, .. }
            | Self::Seen { call, .. }
            | Self::Found { call, .. }
            | Self::Wrong { call, .. } => *call,
        }
    }
}
