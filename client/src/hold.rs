//! State of a hold, shared by its guard and the connection task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use waymaker_protocol::LockId;

use crate::clock::BootTime;
use crate::key::Key;
use crate::loss::Loss;

/// Value of `lease_ms` for a claim or a hold without a lease.
pub(crate) const WITHOUT_LEASE_MS: u32 = u32::MAX;

/// Identifies one guard of a hold. Older guards of the same hold have other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardId {
    pub(crate) hold: LockId,
    /// Number of the guard, unique in the lane.
    pub(crate) number: u64,
}

/// A granted lock. The connection task moves the deadline and records the loss; the guard reads both.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) guard: GuardId,
    pub(crate) fence: u64,
    pub(crate) shared: bool,
    pub(crate) clamped: bool,
    pub(crate) lease_ms: LeaseMs,
    /// Earliest of three instants: the local deadline of the hold's own lease, the deadline that follows if the server
    /// serves a pending extend at once, and the deadline from before an outage until the server has confirmed the hold.
    /// [`BootTime::NEVER`] if none applies.
    pub(crate) bound: SharedInstant,
    /// Local deadline of the session, if the hold is on the session's lease. One keep-alive moves it for all holds of
    /// the connection on the session's lease.
    pub(crate) session: Option<Arc<SharedInstant>>,
    /// Additional deadline of a hold that the server ends some time after the loss of its connection. Present only if
    /// this time is at least one second.
    pub(crate) tie: Option<ConnectionTie>,
    pub(crate) loss: Loss,
}

/// Length of a lease in milliseconds, as the server last reported it.
#[derive(Debug)]
pub(crate) struct LeaseMs(AtomicU32);

impl LeaseMs {
    pub(crate) fn new(ms: u32) -> Self {
        Self(AtomicU32::new(ms))
    }

    /// Returns the length; `None` for a hold without a lease.
    pub(crate) fn get(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ms| *ms != WITHOUT_LEASE_MS)
    }

    pub(crate) fn set(&self, ms: u32) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

/// Deadline of a hold that the server ends some time after the connection is lost.
///
/// The server may notice the loss of a connection long before the client does, if the client ever does. The client only
/// knows that the connection was alive when the server decided a response, so at the earliest when the request was
/// sent. It learns this from responses that become the anchor for deadlines, and from the welcome.
#[derive(Debug)]
pub(crate) struct ConnectionTie {
    /// Send time of the newest request of the connection whose response became the anchor for deadlines, or of the
    /// HELLO.
    pub(crate) alive: Arc<SharedInstant>,
    /// How long the hold survives the loss of the connection, less a margin.
    pub(crate) grace: Duration,
}

/// An instant that one task writes and others read.
#[derive(Debug)]
pub(crate) struct SharedInstant(AtomicU64);

impl SharedInstant {
    pub(crate) fn new(at: BootTime) -> Self {
        Self(AtomicU64::new(at.as_nanos()))
    }

    pub(crate) fn get(&self) -> BootTime {
        BootTime::from_nanos(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, at: BootTime) {
        self.0.store(at.as_nanos(), Ordering::Release);
    }
}

impl ConnectionTie {
    pub(crate) fn deadline(&self) -> BootTime {
        self.alive.get().after(self.grace)
    }
}

impl Hold {
    /// Returns the id by which the server knows the hold.
    pub(crate) fn id(&self) -> LockId {
        self.guard.hold
    }

    /// Returns the local deadline. After it, the lock must not count as held without a new response from the server.
    pub(crate) fn deadline(&self) -> BootTime {
        let session = self.session.as_ref().map_or(BootTime::NEVER, |deadline| deadline.get());
        let tie = self.tie.as_ref().map_or(BootTime::NEVER, ConnectionTie::deadline);
        // Load `bound` last: the earliest deadline by the hold's own lease, by pending extends, and from before an
        // outage. After an outage, the driver of the lane first sets `bound` of every hold to its old deadline. Only
        // then does it move forward `session` (the session's deadline) and `alive` (when the connection was last known
        // alive). So a reader that sees one of these moved also sees the old deadline.
        session.min(tie).min(self.bound.get())
    }
}
