//! The clock of systems without `CLOCK_BOOTTIME`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::{BootTime, Timer};

/// The longest single sleep. The sleeps of tokio may not count the time of a suspension, so a timer reads the clock again
/// this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Reads Darwin's monotonic clock, which counts the time of a suspension.
#[cfg(target_vendor = "apple")]
pub(super) fn now() -> BootTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    BootTime(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Reads both the monotonic clock and the wall clock, and counts the faster one.
///
/// The monotonic clock of a system may stand still during a suspension, and the wall clock may be set back. A lease must not
/// be believed longer than it lasts, so the larger elapsed time counts. If the wall clock is set to a later time, this clock
/// steps with it: guards then report a loss too early, which is safe.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn now() -> BootTime {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Instant, SystemTime};

    static START: OnceLock<(Instant, SystemTime)> = OnceLock::new();
    /// The latest time that a caller was given: a wall clock that is set back must not take this clock back.
    static LATEST_NANOS: AtomicU64 = AtomicU64::new(0);

    let (instant, wall) = START.get_or_init(|| (Instant::now(), SystemTime::now()));
    let elapsed = instant.elapsed().max(wall.elapsed().unwrap_or_default());
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    BootTime(LATEST_NANOS.fetch_max(nanos, Ordering::Relaxed).max(nanos))
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
