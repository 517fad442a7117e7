//! The one place that reads a clock.

use waymaker_engine::Time;

/// Where workers get the time from. A simulator hands in another.
pub trait Clock {
    /// Milliseconds since boot, suspended time included.
    fn now(&self) -> Time;
}

/// The machine's boot-time clock. It goes on while the machine is suspended, so leases run out as they should.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Time::from_millis(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000)
    }
}
