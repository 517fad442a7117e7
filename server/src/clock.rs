//! The boot-time clock, for leases and waits, and the time of day. Only this module asks the system for them. Other
//! modules use `Instant` for pauses and durations.

use uuid::Uuid;
use waymaker_engine::{Nanos, Time};

/// One reading of a clock: rounded up to a whole millisecond in `now`, rounded down in `passed`, and exact in `nanos`.
///
/// The engine counts whole milliseconds. Leases, waits and sessions start at `now`, and their deadlines are compared
/// with `passed`. If both used the same rounding, a lease could end up to one millisecond early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// Reading rounded up to a whole millisecond.
    pub now: Time,
    /// Reading rounded down to a whole millisecond.
    pub passed: Time,
    /// Exact reading, for measured durations.
    pub nanos: Nanos,
}

impl Moment {
    /// Returns the moment of a reading in seconds and nanoseconds. `nanos` must be below one second.
    #[inline]
    pub fn of(seconds: u64, nanos: u32) -> Self {
        let passed_ms = seconds * 1000 + u64::from(nanos / 1_000_000);
        let is_between = !nanos.is_multiple_of(1_000_000);
        let now_ms = passed_ms + u64::from(is_between);
        let nanos = Nanos::new(seconds * 1_000_000_000 + u64::from(nanos));
        Self { now: Time::from_millis(now_ms), passed: Time::from_millis(passed_ms), nanos }
    }
}

/// Conversion of a time in whole milliseconds. Nothing needs rounding, so all three readings of the moment (rounded up,
/// rounded down, exact) are this time.
impl From<Time> for Moment {
    #[inline]
    fn from(time: Time) -> Self {
        Self { now: time, passed: time, nanos: time.into() }
    }
}

/// Source of the time. A simulator passes its own clock.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the milliseconds since boot, including suspended time, rounded up: the start of a lease or wait.
    fn now(&self) -> Time;
    /// Returns one reading of the clock in three forms. Leases start at the reading rounded up to a whole millisecond,
    /// and deadlines are compared with the reading rounded down. So no lease ends early. The third form is the exact
    /// reading. By default, all three are [`Clock::now`].
    #[inline]
    fn moment(&self) -> Moment {
        self.now().into()
    }
    /// Returns the nanoseconds since boot, for rates and measured durations.
    fn nanos(&self) -> u64;
    /// Returns the microseconds since 1970, for instants in requests and for display.
    fn unix_micros(&self) -> i64;
}

/// The boot-time clock of the machine. It continues while the machine is suspended, so leases expire on time.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Returns the id of the machine's current boot, which the boot-time clock counts from.
    ///
    /// # Errors
    /// Returns an error if `/proc` has no valid boot id.
    pub fn boot_id() -> std::io::Result<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Uuid::try_parse(text.trim()).map(Uuid::into_bytes).map_err(std::io::Error::other)
    }
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Time {
        self.moment().now
    }

    #[inline]
    fn moment(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment::of(now.tv_sec as u64, now.tv_nsec as u32)
    }

    #[inline]
    fn nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn unix_micros(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND_NS: u64 = 1_000_000;

    fn at(nanos: u64) -> Moment {
        Moment::of(nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32)
    }

    #[test]
    fn a_moment_is_rounded_down_and_up_to_whole_milliseconds() {
        let milliseconds = |moment: Moment| (moment.passed.as_millis(), moment.now.as_millis());
        assert_eq!(milliseconds(at(0)), (0, 0));
        assert_eq!(milliseconds(at(1)), (0, 1));
        assert_eq!(milliseconds(at(5 * MILLISECOND_NS)), (5, 5));
        assert_eq!(milliseconds(at(5 * MILLISECOND_NS + 999_999)), (5, 6));
        assert_eq!(milliseconds(at(1_999_999_999)), (1_999, 2_000));
    }

    #[test]
    fn a_deadline_passes_at_most_one_millisecond_late_and_never_early() {
        const LEASE_MS: u64 = 10;
        for begin in (0..3 * MILLISECOND_NS).step_by(9_973) {
            let deadline = at(begin).now.after_ms(LEASE_MS);
            let end = (begin..).step_by(1_009).find(|end| at(*end).passed >= deadline).unwrap();
            let lease = end - begin;
            assert!(lease >= LEASE_MS * MILLISECOND_NS, "begun at {begin} ns, {lease} ns long");
            assert!(lease < (LEASE_MS + 1) * MILLISECOND_NS + 1_009, "begun at {begin} ns, {lease} ns long");
        }
    }
}
