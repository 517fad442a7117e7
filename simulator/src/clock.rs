//! The clock of the server's simulated machine.

use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_engine::Time;
use waymaker_server::clock::Clock;

/// Time of day at which a run begins, in microseconds since 1970.
const UNIX_START_US: i64 = 1_700_000_000_000_000;

/// Converts milliseconds of the run to the time of day in microseconds since 1970.
pub(crate) fn unix_us(server_ms: u64) -> u64 {
    UNIX_START_US as u64 + server_ms * 1000
}

/// Clock that shows the virtual time. One thread runs everything; the atomics exist because servers require a
/// shareable clock.
#[derive(Debug, Default)]
pub(crate) struct VirtualClock {
    nanos: AtomicU64,
    /// Time of the run at which the machine was booted.
    booted_ms: AtomicU64,
}

impl VirtualClock {
    /// Sets the time since the boot of the machine, in nanoseconds.
    pub(crate) fn set(&self, nanos: u64) {
        self.nanos.store(nanos, Ordering::Relaxed);
    }

    /// Reboots the machine at this time of the run. The time of day continues.
    pub(crate) fn set_booted(&self, after_ms: u64) {
        self.booted_ms.store(after_ms, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time::from_millis(self.nanos() / 1_000_000)
    }

    fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    fn unix_micros(&self) -> i64 {
        let passed_us = self.nanos() / 1000 + self.booted_ms.load(Ordering::Relaxed) * 1000;
        UNIX_START_US + i64::try_from(passed_us).unwrap_or(i64::MAX)
    }
}
