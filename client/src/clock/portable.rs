//! The clock of systems without `CLOCK_BOOTTIME`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::{BootTime, Timer};

/// Maximum length of a single sleep. The sleeps of tokio may not count the time of a suspension, so a timer reads the
/// clock again this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Reads Darwin's monotonic clock, which counts the time of a suspension.
#[cfg(target_vendor = "apple")]
pub(super) fn now() -> BootTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    BootTime(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Reads the monotonic clock and the wall clock, and adds suspensions that only the wall clock counts.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn now() -> BootTime {
    use std::sync::{Mutex, OnceLock};
    use std::time::{Instant, SystemTime};

    static START: OnceLock<Instant> = OnceLock::new();
    static ELAPSED: Mutex<Elapsed> = Mutex::new(Elapsed::ZERO);

    let start = START.get_or_init(Instant::now);
    let mut elapsed = ELAPSED.lock().expect("no holder of this mutex panics");
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    elapsed.advance(start.elapsed(), wall)
}

/// Minimum difference between the two clocks that counts as a suspension. Smaller differences come from reading the
/// clocks one after the other, and from corrections of the wall clock.
#[cfg(any(test, not(target_vendor = "apple")))]
const SUSPENSION_MIN: Duration = Duration::from_millis(100);

/// Counts time from readings of two clocks: a monotonic clock that may stand still during a suspension, and a wall
/// clock that counts suspensions and may be set.
///
/// A lock must not count as held after its lease. So the time between two readings is the advance of the wall clock if
/// it exceeds the monotonic clock's by at least `SUSPENSION_MIN`. If the wall clock is set forward, `Elapsed` advances
/// with it: guards then report a loss too early, which is safe. If the wall clock is set back, the monotonic clock
/// counts.
#[cfg(any(test, not(target_vendor = "apple")))]
struct Elapsed {
    nanos: u64,
    monotonic: Duration,
    /// `None` before the first reading.
    wall: Option<Duration>,
}

#[cfg(any(test, not(target_vendor = "apple")))]
impl Elapsed {
    const ZERO: Self = Self { nanos: 0, monotonic: Duration::ZERO, wall: None };

    /// Adds the time since the previous reading.
    fn advance(&mut self, monotonic: Duration, wall: Duration) -> BootTime {
        let by_monotonic = monotonic.saturating_sub(self.monotonic);
        let by_wall = wall.saturating_sub(self.wall.unwrap_or(wall));
        let is_suspension = by_wall >= by_monotonic + SUSPENSION_MIN;
        let added = if is_suspension { by_wall } else { by_monotonic };
        self.nanos = self.nanos.saturating_add(u64::try_from(added.as_nanos()).unwrap_or(u64::MAX));
        self.monotonic = self.monotonic.max(monotonic);
        self.wall = Some(wall);
        BootTime(self.nanos)
    }
}

/// A timer made of short sleeps.
pub(super) struct SystemTimer {
    at: BootTime,
    /// The current sleep; `None` until the timer is polled.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl SystemTimer {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { at: BootTime::NEVER, sleep: None })
    }
}

impl Timer for SystemTimer {
    fn arm(&mut self, at: BootTime) {
        *self = Self { at, sleep: None };
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.at == BootTime::NEVER {
            return Poll::Pending;
        }
        loop {
            let now = now();
            if now >= self.at {
                *self = Self { at: BootTime::NEVER, sleep: None };
                return Poll::Ready(());
            }
            let pause = self.at.since(now).min(SLEEP_MAX);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(pause)));
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_S: u64 = 1_800_000_000;

    /// Returns the seconds that [`Elapsed`] shows after each reading. A reading has the seconds of the monotonic clock
    /// and of the wall clock.
    fn counted(readings: &[(u64, u64)]) -> Vec<u64> {
        let mut elapsed = Elapsed::ZERO;
        let seconds = |(monotonic, wall): &(u64, u64)| {
            let (monotonic, wall) = (Duration::from_secs(*monotonic), Duration::from_secs(START_S + wall));
            elapsed.advance(monotonic, wall).as_nanos() / 1_000_000_000
        };
        readings.iter().map(seconds).collect()
    }

    #[test]
    fn a_suspension_counts_if_only_the_wall_clock_counts_it() {
        assert_eq!(counted(&[(0, 0), (10, 10), (11, 61)]), [0, 10, 61]);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_does_not_stop_the_clock() {
        assert_eq!(counted(&[(0, 0), (20, 3_620), (50, 50), (60, 60)]), [0, 3_620, 3_650, 3_660]);
    }

    #[test]
    fn a_suspension_after_a_wall_clock_that_was_set_back_counts() {
        assert_eq!(counted(&[(0, 100), (10, 50), (11, 101)]), [0, 10, 61]);
    }

    #[test]
    fn small_differences_between_the_clocks_do_not_add_up() {
        let mut elapsed = Elapsed::ZERO;
        elapsed.advance(Duration::ZERO, Duration::ZERO);
        for step in 1..=1_000 {
            // Every second reading of the wall clock is 50 ms late.
            let jitter = Duration::from_millis(if step % 2 == 0 { 50 } else { 0 });
            let time = Duration::from_millis(100 * step);
            let now = elapsed.advance(time, time + jitter);
            assert_eq!(u128::from(now.as_nanos()), time.as_nanos());
        }
    }
}
