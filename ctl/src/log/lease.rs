//! What is left of a lease that stands in a log.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use waymaker_engine::log::{Hold, Item, Started};

/// What is left of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// So much, or nothing: the machine still runs as when it was written.
    Known(Duration),
    /// The machine was started anew, or it is not known when the lease began: the next start grants all of it again.
    Anew(Duration),
    /// It lasts as long as its session.
    Session,
    /// It has no end.
    Endless,
}

/// The clocks by which leases are looked at.
#[derive(Debug)]
pub(crate) struct Now {
    is_same_boot: bool,
    boot_ms: u64,
}

impl Now {
    /// As they stand for a log that was written by this server last.
    pub(crate) fn of(started: Option<&Started>) -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let boot_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
        let is_same_boot = started.is_some_and(|started| Some(started.boot_id) == boot_id());
        Self { is_same_boot, boot_ms }
    }

    pub(crate) fn is_same_boot(&self) -> bool {
        self.is_same_boot
    }

    pub(crate) fn left(&self, hold: &Hold<'_>) -> Left {
        if hold.session_lease {
            return Left::Session;
        }
        if hold.endless {
            return Left::Endless;
        }
        let full = Duration::from_millis(hold.lease_ms.into());
        let end_ms = match hold.item {
            Item::Registration { end_ms, .. } => Some(u64::try_from(end_ms).unwrap_or(0)),
            _ => hold.deadline_ms,
        };
        match end_ms {
            Some(end_ms) if self.is_same_boot => {
                Left::Known(Duration::from_millis(end_ms.saturating_sub(self.boot_ms)))
            }
            _ => Left::Anew(full),
        }
    }
}

/// Names the boot of this machine, as servers write it.
fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}
