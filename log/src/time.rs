//! Instants, in milliseconds.

/// Instant in milliseconds on a monotonic clock. In a server, this is the boot-time clock of the machine; in a test, a
/// counter. This crate and the engine only calculate with instants that they are given, and never read a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// First instant.
    pub const ZERO: Self = Self(0);
    /// Instant that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the instant `millis` milliseconds after zero.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since zero.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the instant `millis` milliseconds later, at most `NEVER`. `NEVER` stays the same.
    #[inline]
    #[must_use]
    pub const fn after_ms(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to this instant; 0 if `earlier` is not earlier.
    #[inline]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the milliseconds from `earlier` to this instant, as a response states them. Values above `u32::MAX`
    /// become `u32::MAX`, which means "without end".
    #[inline]
    pub const fn remaining_ms_since(self, earlier: Self) -> u32 {
        let millis = self.ms_since(earlier);
        if millis > u32::MAX as u64 { u32::MAX } else { millis as u32 }
    }
}
