//! The time of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_engine::Time;
use waymaker_server::clock::Clock;

/// A clock that moves only when the input says so.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    /// Creates a clock that shows this time.
    pub(crate) fn new(start: Time) -> Self {
        Self(AtomicU64::new(start.as_millis()))
    }

    /// Returns the time.
    pub(crate) fn time(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Moves the clock forward.
    pub(crate) fn pass_ms(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        self.time()
    }

    fn nanos(&self) -> u64 {
        self.time().as_millis() * 1_000_000
    }

    fn unix_micros(&self) -> i64 {
        1_700_000_000_000_000 + self.time().as_millis() as i64 * 1_000
    }
}
