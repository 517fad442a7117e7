//! Durations in options, in whole milliseconds.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// A number of milliseconds that fits the fields of frames and log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds(u32);

impl Milliseconds {
    /// Returns this number of milliseconds.
    ///
    /// # Panics
    /// Panics if the number is above 2^32 - 1.
    pub const fn new(ms: u64) -> Self {
        assert!(ms <= u32::MAX as u64, "the time is at most 49.7 days");
        Self(ms as u32)
    }

    /// Returns the number of milliseconds.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of milliseconds as a u64, the type of differences between times.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0 as u64
    }
}

impl From<Milliseconds> for Duration {
    fn from(time: Milliseconds) -> Self {
        Self::from_millis(time.as_u64())
    }
}

impl Display for Milliseconds {
    /// Writes the time in the form of an option, such as `1m 30s`.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        humantime::format_duration((*self).into()).fmt(formatter)
    }
}
