//! The one place that reads a clock.

use waymaker_engine::{Nanos, Time};

/// One reading of a clock, in whole milliseconds on both sides of it.
///
/// The engine counts whole milliseconds. A lease that began with the millisecond before would end early, and a deadline
/// that counts as passed in the millisecond before it comes would as well. So `now` is what leases, waits and sessions
/// begin at, and `passed` is what their deadlines are compared with. Then none ends before its whole length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// The first whole millisecond that is not before the reading.
    pub now: Time,
    /// The last whole millisecond that is not after the reading.
    pub passed: Time,
    /// The reading itself, for measured durations.
    pub nanos: Nanos,
}

impl Moment {
    /// The moment of a reading in seconds and nanoseconds, the latter below one second.
    #[inline]
    pub fn of(seconds: u64, nanos: u32) -> Self {
        let passed_ms = seconds * 1000 + u64::from(nanos / 1_000_000);
        let is_between = !nanos.is_multiple_of(1_000_000);
        let now_ms = passed_ms + u64::from(is_between);
        let nanos = Nanos::new(seconds * 1_000_000_000 + u64::from(nanos));
        Self { now: Time::from_millis(now_ms), passed: Time::from_millis(passed_ms), nanos }
    }
}

/// A clock that knows whole milliseconds alone.
impl From<Time> for Moment {
    #[inline]
    fn from(time: Time) -> Self {
        Self { now: time, passed: time, nanos: time.into() }
    }
}

/// Where workers get the time from. A simulator hands in another.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Milliseconds since boot, suspended time included, rounded up: when something begins.
    fn now(&self) -> Time;
    /// The same reading, rounded both ways.
    #[inline]
    fn moment(&self) -> Moment {
        self.now().into()
    }
    /// The same in nanoseconds, for rates.
    fn nanos(&self) -> u64;
    /// Microseconds since 1970: for instants that clients name, and for display.
    fn unix_micros(&self) -> i64;
}

/// The machine's boot-time clock. It goes on while the machine is suspended, so leases run out as they should.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Names the boot of the machine from which its time counts.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn boot_id() -> std::io::Result<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
        let number = u128::from_str_radix(&digits, 16).map_err(std::io::Error::other)?;
        Ok(number.to_be_bytes())
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
