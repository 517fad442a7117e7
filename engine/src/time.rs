//! Instants: in milliseconds for decisions, in nanoseconds for measurements.

pub use waymaker_log::Time;

/// Instant in nanoseconds on the clock of [`Time`]. It only serves to measure durations; leases and waits end by
/// [`Time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

pub(crate) const NANOS_PER_MS: u64 = 1_000_000;

impl Nanos {
    /// First instant.
    pub const ZERO: Self = Self(0);

    /// Returns the instant `nanos` nanoseconds after zero.
    #[inline]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds from `earlier` to this instant; 0 if `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the instant nearest to this one that [`Self::round_up`] rounds to `time`.
    #[inline]
    pub(crate) fn within(self, time: Time) -> Self {
        let last = Self::from(time);
        self.clamp(Self((last.0 + 1).saturating_sub(NANOS_PER_MS)), last)
    }

    /// Returns the first whole millisecond that is not before this instant.
    #[inline]
    pub const fn round_up(self) -> Time {
        Time::from_millis(self.0.div_ceil(NANOS_PER_MS))
    }
}

impl From<Time> for Nanos {
    #[inline]
    fn from(time: Time) -> Self {
        Self(time.as_millis().saturating_mul(NANOS_PER_MS))
    }
}

/// Reading of the clock, for decisions and for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    /// First whole millisecond that is not before the reading.
    pub time: Time,
    /// Exact time of the reading.
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

/// Makes the reading of a clock that counts whole milliseconds.
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
