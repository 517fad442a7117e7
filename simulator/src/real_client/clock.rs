//! The clock of a client's machine.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use waymaker_client::{BootTime, Clock, Timer};

/// Nanoseconds on the clock per two microseconds of the run, without drift.
const STEADY: u64 = 2_000;

/// Clock of a machine that was booted at another time than the server's, and that is faster or slower by up
/// to 1 part in 2,000.
#[derive(Debug)]
pub(crate) struct SkewedClock {
    skew_ns: u64,
    /// Nanoseconds on the clock per two microseconds of the run.
    rate: u64,
    now_ns: AtomicU64,
}

impl SkewedClock {
    /// Creates a clock. A `drift` of -1, 0 or 1 makes it slow, steady or fast.
    pub(crate) fn new(skew_ns: u64, drift: i64) -> Self {
        let rate = STEADY.saturating_add_signed(drift);
        Self { skew_ns, rate, now_ns: AtomicU64::new(skew_ns) }
    }

    /// Sets the clock to this time of the run.
    pub(crate) fn set(&self, now_us: u64) {
        self.now_ns.store(self.skew_ns + now_us * self.rate / 2, Ordering::Relaxed);
    }

    /// Returns the last microsecond of the run in which the clock does not show `at` yet.
    pub(crate) fn last_us_before(&self, at: BootTime) -> u64 {
        let passed = u128::from(at.as_nanos().saturating_sub(self.skew_ns)) * 2;
        u64::try_from(passed.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX).saturating_sub(1)
    }

    /// Returns the first microsecond of the run in which the clock shows `at`.
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

/// Timer that never fires, because the simulation wakes the client in time.
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
    fn an_instant_of_the_clock_converts_to_the_time_of_the_run() {
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
