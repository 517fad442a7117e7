//! The clock that leases are measured with, and the one timer that waits on it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// An instant in nanoseconds since the machine booted, the time it was suspended included.
///
/// `std::time::Instant` stands still while the machine sleeps; a lease on a server does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// Later than every instant that will come.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant so many nanoseconds after the boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `duration` later, at most [`BootTime::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `duration` earlier, at least the boot.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where a client reads the time. [`BootClock`] is the real one; a test hands in its own and lets time pass as it
/// likes.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It never goes back.
    fn now(&self) -> BootTime;

    /// A timer on this clock, not armed. Called inside a tokio runtime.
    fn timer(&self) -> std::io::Result<Box<dyn Timer>>;
}

/// Waits for one instant of its clock.
pub trait Timer: Send {
    /// Waits for `at` from here on, instead of whatever it waited for; [`BootTime::NEVER`] disarms it.
    fn arm(&mut self, at: BootTime);

    /// Ready once the instant has come. Fires once for each time it was armed.
    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// `CLOCK_BOOTTIME`, with timers that fire right after the machine wakes up.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// This clock, ready to hand in.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for BootClock {
    fn now(&self) -> BootTime {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
        BootTime(tv_sec as u64 * 1_000_000_000 + tv_nsec as u64)
    }

    fn timer(&self) -> std::io::Result<Box<dyn Timer>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe on behalf of types whose descriptor may change; an owned one cannot"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Box::new(BootTimer { descriptor }))
    }
}

/// A timer of the kernel. A sleep of tokio would be late by as long as the machine was suspended.
struct BootTimer {
    descriptor: AsyncFd<OwnedFd>,
}

impl Timer for BootTimer {
    fn arm(&mut self, at: BootTime) {
        const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = match at {
            BootTime::NEVER => NONE,
            // All zero would disarm the timer instead of firing it at once.
            BootTime(nanos) => {
                let nanos = nanos.max(1);
                Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
            }
        };
        let timer = Itimerspec { it_interval: NONE, it_value: value };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)
            .expect("an open timer takes every valid time");
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut ready) = ready!(self.descriptor.poll_read_ready(context)) else {
                // The runtime is shutting down; the task goes with it.
                return Poll::Pending;
            };
            let read = ready.try_io(|descriptor| Ok(rustix::io::read(descriptor, &mut [0_u8; 8])?));
            if let Ok(Ok(_)) = read {
                return Poll::Ready(());
            }
        }
    }
}

impl fmt::Display for BootTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} after the boot", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fired(timer: &mut dyn Timer) {
        std::future::poll_fn(|context| timer.poll_fired(context)).await;
    }

    #[tokio::test]
    async fn a_timer_fires_at_its_instant_and_not_before() {
        let mut timer = BootClock.timer().unwrap();
        for delay in [0, 5] {
            let at = BootClock.now().after(Duration::from_millis(delay));
            timer.arm(at);
            fired(&mut *timer).await;
            assert!(BootClock.now() >= at);
        }
    }

    #[tokio::test]
    async fn a_timer_armed_in_the_past_fires_at_once() {
        let mut timer = BootClock.timer().unwrap();
        timer.arm(BootTime::from_nanos(0));
        fired(&mut *timer).await;
    }

    #[tokio::test]
    async fn a_timer_that_was_disarmed_stays_silent() {
        let mut timer = BootClock.timer().unwrap();
        timer.arm(BootClock.now().after(Duration::from_millis(1)));
        timer.arm(BootTime::NEVER);
        assert!(tokio::time::timeout(Duration::from_millis(20), fired(&mut *timer)).await.is_err());
    }
}
