//! Time of one load, in nanoseconds since its start.

use std::time::Instant;

/// Start of a load.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts the clock now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the nanoseconds since the start; never 0.
    #[inline]
    pub fn now_ns(self) -> u64 {
        crate::units::as_ns(self.start.elapsed()).max(1)
    }
    /// Returns the nanoseconds from the start to this instant; 0 if the instant is before the start.
    pub fn ns_at(self, instant: Instant) -> u64 {
        crate::units::as_ns(instant.saturating_duration_since(self.start))
    }
}
