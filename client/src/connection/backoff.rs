//! Pauses between attempts to connect.

use std::time::Duration;

use crate::clock::BootTime;

/// First pause of a [`Backoff`], before it is shortened. Also the pause after a connection that broke soon after it
/// opened. Also the pause between two checks whether another connection of the client has opened the session.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause of a [`Backoff`].
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Pauses that double, beginning with 20 ms, up to 1 s. Each is shortened by up to a half, so that clients of one
/// server do not reconnect at the same times.
#[derive(Debug, Default)]
pub struct Backoff {
    pauses: u32,
}

impl Backoff {
    /// Returns the next pause. The number `now / 64 ns` modulo 512 selects by how much it is shortened: from nothing up
    /// to almost a half.
    pub fn next(&mut self, now: BootTime) -> Duration {
        let pause = (FIRST_PAUSE * 2_u32.saturating_pow(self.pauses)).min(LONGEST_PAUSE);
        self.pauses = (self.pauses + 1).min(16);
        // The clients of one server must not reconnect at the same times, so each shortens its pauses differently. The
        // last digits of the clock are random enough to select by how much.
        let part = (now.as_nanos() / 64 % 512) as u32;
        pause - pause * part / 1024
    }

    /// Returns whether `next` has not been called yet.
    pub fn is_fresh(&self) -> bool {
        self.pauses == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_one_second_with_jitter() {
        for nanos in [0, 64 * 511, 123_456_789] {
            let mut backoff = Backoff::default();
            for nominal_ms in [20, 40, 80, 160, 320, 640, 1_000, 1_000] {
                let nominal = Duration::from_millis(nominal_ms);
                let pause = backoff.next(BootTime::from_nanos(nanos));
                assert!(nominal / 2 <= pause && pause <= nominal, "{pause:?} of {nominal:?}");
            }
        }
    }
}
