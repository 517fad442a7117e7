//! Instants as the engine sees them.

/// Milliseconds on a clock that never goes back (the machine's boot-time clock in a server, a counter in a test). The
/// engine compares instants and never reads a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The first instant.
    pub const ZERO: Self = Self(0);
    /// An instant that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant so many milliseconds after zero.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since zero.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `millis` later; `NEVER` stays.
    #[inline]
    #[must_use]
    pub const fn after_ms(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to here; 0 if it is not earlier.
    #[inline]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds from `earlier` to here as they stand in an answer: at most `u32::MAX`, which says "without end".
    #[inline]
    pub const fn remaining_ms_since(self, earlier: Self) -> u32 {
        let millis = self.ms_since(earlier);
        if millis > u32::MAX as u64 { u32::MAX } else { millis as u32 }
    }
}

/// Nanoseconds on the clock of [`Time`]. Durations are measured with them; every decision uses [`Time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

pub(crate) const NANOS_PER_MS: u64 = 1_000_000;

impl Nanos {
    /// The first instant.
    pub const ZERO: Self = Self(0);

    /// The instant this number of nanoseconds after zero.
    #[inline]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds from `earlier` to here; 0 if it is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns this instant, or the nearest instant that rounds up to `time`.
    #[inline]
    pub(crate) fn within(self, time: Time) -> Self {
        let last = Self::from(time);
        self.clamp(Self((last.0 + 1).saturating_sub(NANOS_PER_MS)), last)
    }

    /// The first whole millisecond that is not before this instant.
    #[inline]
    pub const fn round_up(self) -> Time {
        Time(self.0.div_ceil(NANOS_PER_MS))
    }
}

impl From<Time> for Nanos {
    #[inline]
    fn from(time: Time) -> Self {
        Self(time.0.saturating_mul(NANOS_PER_MS))
    }
}

/// One reading of the clock, as decisions and as measurements use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    /// The first whole millisecond that is not before the reading.
    pub time: Time,
    /// The reading itself.
    pub nanos: Nanos,
}

impl Reading {
    /// Returns the reading this many milliseconds later.
    #[inline]
    #[must_use]
    pub const fn after_ms(self, millis: u64) -> Self {
        let nanos = self.nanos.0.saturating_add(millis.saturating_mul(NANOS_PER_MS));
        Self { time: self.time.after_ms(millis), nanos: Nanos(nanos) }
    }
}

/// A reading of a clock that knows only whole milliseconds.
impl From<Time> for Reading {
    #[inline]
    fn from(time: Time) -> Self {
        Self { time, nanos: time.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_rounded_up_to_whole_milliseconds() {
        let rounded = |nanos| Nanos::new(nanos).round_up().as_millis();
        assert_eq!([rounded(0), rounded(1), rounded(1_000_000), rounded(1_000_001)], [0, 1, 1, 2]);
        assert_eq!(Nanos::from(Time::from_millis(7)).round_up(), Time::from_millis(7));
    }
}
