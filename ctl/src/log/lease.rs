//! The remaining lease of a hold in a log.

use std::time::Duration;

use uuid::Uuid;
use waymaker_client::{BootClock, Clock};
use waymaker_log::{Hold, Item, Started};

/// Remaining lease of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Remaining time, perhaps zero. The machine has not been booted since the log was written.
    Known(Duration),
    /// The machine was booted since, or the start of the lease is unknown. The next start of the server grants the full lease again.
    Anew(Duration),
    /// The hold is on the lease of its session.
    Session,
    /// The hold has no lease.
    Endless,
}

/// The clock for remaining leases.
#[derive(Debug)]
pub(crate) struct Now {
    is_same_boot: bool,
    boot_ms: u64,
}

impl Now {
    /// Returns the clock for a log whose last server start is `started`.
    pub(crate) fn of(started: Option<&Started>) -> Self {
        let boot_ms = BootClock.now().as_nanos() / 1_000_000;
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

/// Returns the id of the current boot of this machine, in the form that servers write.
fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Uuid::try_parse(text.trim()).ok().map(Uuid::into_bytes)
}
