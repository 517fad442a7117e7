//! The clock of a machine that a client runs on.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use waymaker_client::{BootTime, Clock, Timer};

/// Nanoseconds in two microseconds, without drift.
const STEADY: u64 = 2_000;

/// Shows the time since another boot than the server's, and runs faster or slower by up to one part in two thousand.
#[derive(Debug)]
pub(crate) struct SkewedClock {
    skew_ns: u64,
    /// Nanoseconds in two microseconds of the run.
    rate: u64,
    now_ns: AtomicU64,
}

impl SkewedClock {
    /// `drift` of -1, 0 or 1 is slow, steady or fast.
    pub(crate) fn new(skew_ns: u64, drift: i64) -> Self {
        let rate = STEADY.saturating_add_signed(drift);
        Self { skew_ns, rate, now_ns: AtomicU64::new(skew_ns) }
    }

    /// Sets the clock to this time of the run.
    pub(crate) fn set(&self, now_us: u64) {
        self.now_ns.store(self.skew_ns + now_us * self.rate / 2, Ordering::Relaxed);
    }

    /// The last microsecond of the run in which the clock does not show `at` yet.
    pub(crate) fn last_us_before(&self, at: BootTime) -> u64 {
        let passed = u128::from(at.as_nanos().saturating_sub(self.skew_ns)) * 2;
        u64::try_from(passed.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX).saturating_sub(1)
    }

    /// The first microsecond of the run in which the clock shows `at`.
    pub(crate) fn first_us_at(&self, at: BootTime) -> u64 {
        self.last_us_before(at).saturating_add(1)
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    fn timer(&self) -> io::Result<Box<dyn Timer>> {
        Ok(Box::new(NoTimer))
    }
}

/// The run itself wakes a client in time.
struct NoTimer;

impl Timer for NoTimer {
    fn arm(&mut self, _: BootTime) {}

    fn poll_fired(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_of_the_clock_is_found_in_the_time_of_the_run() {
        for drift in [-1, 0, 1] {
            let clock = SkewedClock::new(77, drift);
            for at_us in [0, 1, 999, 123_456_789] {
                clock.set(at_us);
                assert_eq!(clock.first_us_at(clock.now()), at_us.max(1), "drift {drift}");
                assert_eq!(clock.last_us_before(clock.now()), at_us.max(1) - 1, "drift {drift}");
            }
        }
    }
}
