//! The clock of the simulated machine.

use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_engine::Time;
use waymaker_server::clock::Clock;

/// The time of day at which a run begins, in microseconds since 1970.
const UNIX_START_US: i64 = 1_700_000_000_000_000;

/// The time of day in microseconds since 1970 when the run's time begins to be this millisecond.
pub(crate) fn unix_us(server_ms: u64) -> u64 {
    UNIX_START_US as u64 + server_ms * 1000
}

/// Shows what the run says that it is. One thread runs everything; the atomic is there because servers ask for it.
#[derive(Debug, Default)]
pub(crate) struct VirtualClock {
    nanos: AtomicU64,
    /// How much time had passed when the machine was booted.
    booted_ms: AtomicU64,
}

impl VirtualClock {
    /// It is now so many nanoseconds after the boot of the machine.
    pub(crate) fn set(&self, nanos: u64) {
        self.nanos.store(nanos, Ordering::Relaxed);
    }

    /// The machine was booted after so much time. The time of day goes on.
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
