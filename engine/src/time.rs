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
