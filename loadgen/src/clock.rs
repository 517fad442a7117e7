//! Time of one load, as nanoseconds since it began.

use std::time::Instant;

/// The beginning of a load.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Begins now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since then; never 0.
    #[inline]
    pub fn now_ns(self) -> u64 {
        crate::units::as_ns(self.start.elapsed()).max(1)
    }
    /// The same for another instant; 0 before the beginning.
    pub fn ns_at(self, instant: Instant) -> u64 {
        crate::units::as_ns(instant.saturating_duration_since(self.start))
    }
}
