//! How long to wait before asking again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// Pauses that double, each somewhere between half of its length and all, so that many clients of a server that comes
/// back do not ask at once.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    count: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.count.min(16)).min(LONGEST);
        self.count += 1;
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Nothing has been asked again yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.count == 0
    }

    pub(super) fn reset(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_and_vary() {
        let mut backoff = Backoff::default();
        for nominal_ms in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            let (pause, nominal) = (backoff.next(), Duration::from_millis(nominal_ms));
            assert!(nominal / 2 <= pause && pause <= nominal, "{pause:?} of {nominal:?}");
        }
        backoff.reset();
        assert!(backoff.is_fresh() && backoff.next() <= FIRST);
    }
}
