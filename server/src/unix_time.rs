//! The time of day of server instants, for display.

use crate::clock::Clock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Maximum difference between the displayed and the current time of day, in milliseconds. Above it the offset changes.
const TOLERANCE_MS: u64 = 100;
/// Maximum number of attempts to read the server's clock and the time of day within 1 ms of each other.
const READINGS_MAX: usize = 5;

/// Converts instants of the server's clock into milliseconds since 1970.
///
/// `offset_ms` is kept between calls, so that an instant is always displayed as the same time. It changes only if the
/// machine's time of day was set or has drifted by more than `TOLERANCE_MS`.
#[derive(Debug)]
pub struct UnixTime {
    offset_ms: AtomicI64,
}

impl UnixTime {
    /// Returns the conversion for the current offset of the clocks.
    pub fn new(clock: &dyn Clock) -> Self {
        Self { offset_ms: AtomicI64::new(offset_ms(clock)) }
    }

    /// Measures the time of day minus the time of the server's clock again. If the result differs by more than
    /// `TOLERANCE_MS` from the stored offset, stores it as the new offset. Must be called regularly.
    pub fn look(&self, clock: &dyn Clock) {
        let offset_ms = offset_ms(clock);
        if offset_ms.abs_diff(self.offset_ms.load(Ordering::Relaxed)) > TOLERANCE_MS {
            self.offset_ms.store(offset_ms, Ordering::Relaxed);
        }
    }

    /// Returns the time of day at this instant of the server's clock, in milliseconds since 1970.
    pub fn unix_ms(&self, stamp_ms: u64) -> i64 {
        let stamp_ms = i64::try_from(stamp_ms).unwrap_or(i64::MAX);
        stamp_ms.saturating_add(self.offset_ms.load(Ordering::Relaxed))
    }
}

/// Returns the time of day minus the time of the server's clock, in milliseconds.
///
/// The server's clock and the time of day cannot be read at the same instant. If the thread is interrupted between the
/// two readings, the difference is wrong by the time of the interruption. So the function reads several pairs and uses
/// the pair whose readings were closest together.
fn offset_ms(clock: &dyn Clock) -> i64 {
    let mut closest = (u64::MAX, 0);
    for _ in 0..READINGS_MAX {
        let before_ms = clock.now().as_millis();
        let unix_ms = clock.unix_micros().div_euclid(1000);
        let apart_ms = clock.now().as_millis().saturating_sub(before_ms);
        if apart_ms < closest.0 {
            closest = (apart_ms, unix_ms.saturating_sub(i64::try_from(before_ms).unwrap_or(i64::MAX)));
        }
        if apart_ms <= 1 {
            break;
        }
    }
    closest.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64};
    use waymaker_engine::Time;

    /// A machine whose clock always shows 5 s since boot. `boot_unix_ms` is the time of day at boot.
    #[derive(Debug)]
    struct Machine {
        boot_unix_ms: AtomicI64,
    }

    impl Clock for Machine {
        fn now(&self) -> Time {
            Time::from_millis(5_000)
        }

        fn nanos(&self) -> u64 {
            5_000_000_000
        }

        fn unix_micros(&self) -> i64 {
            (self.boot_unix_ms.load(Ordering::Relaxed) + 5_000) * 1000
        }
    }

    /// A machine that does not run this thread for a while before its first reading of the time of day.
    #[derive(Debug, Default)]
    struct Busy {
        now_ms: AtomicU64,
    }

    impl Clock for Busy {
        fn now(&self) -> Time {
            Time::from_millis(self.now_ms.load(Ordering::Relaxed))
        }

        fn nanos(&self) -> u64 {
            self.now().as_millis() * 1_000_000
        }

        fn unix_micros(&self) -> i64 {
            let _ = self.now_ms.compare_exchange(0, 600, Ordering::Relaxed, Ordering::Relaxed);
            (self.now_ms.load(Ordering::Relaxed) as i64 + 1_000) * 1000
        }
    }

    #[test]
    fn a_pause_between_reading_both_clocks_does_not_shift_the_time() {
        assert_eq!(UnixTime::new(&Busy::default()).unix_ms(3_000), 4_000);
    }

    #[test]
    fn an_instant_keeps_its_unix_time_until_the_clock_is_set() {
        let machine = Machine { boot_unix_ms: AtomicI64::new(1_000) };
        let unix_time = UnixTime::new(&machine);
        assert_eq!(unix_time.unix_ms(3_000), 4_000);
        machine.boot_unix_ms.store(1_050, Ordering::Relaxed);
        unix_time.look(&machine);
        assert_eq!(unix_time.unix_ms(3_000), 4_000);
        machine.boot_unix_ms.store(3_601_000, Ordering::Relaxed);
        unix_time.look(&machine);
        assert_eq!(unix_time.unix_ms(3_000), 3_604_000);
    }
}
