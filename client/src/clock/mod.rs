//! The clock that leases are measured with, and its timers.
//!
//! The system clock has two implementations behind one interface: `linux` uses kernel timers that fire right after a
//! suspended machine wakes up. `portable` works on every other system. Both count the time that the machine is
//! suspended.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use portable as system;

/// Instant in nanoseconds since the machine booted, including the time during which it was suspended. On systems other
/// than Linux and Apple's, [`BootClock`] counts from its first use in this process instead.
///
/// On most systems, `std::time::Instant` stands still while the machine sleeps, but a lease on a server continues to
/// run. So an `Instant` would show the end of a lease too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// An instant that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the instant that is this number of nanoseconds after the boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the instant `duration` later, at most [`BootTime::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the instant `duration` earlier, at least the boot.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Clock of a client. [`BootClock`] is the clock of the machine; a test can provide its own clock and control its time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. It must never decrease.
    fn now(&self) -> BootTime;

    /// Returns a disarmed timer on this clock. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if the system has no timer left.
    fn timer(&self) -> std::io::Result<Box<dyn Timer>>;
}

/// Timer that waits for one instant of its clock.
pub trait Timer: Send {
    /// Arms the timer for the instant `at`, which replaces any instant set before; [`BootTime::NEVER`] disarms the
    /// timer.
    fn arm(&mut self, at: BootTime);

    /// Becomes ready when the instant has come, at most once for each time that the timer is armed.
    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// The clock of this machine. It keeps counting while the machine is suspended.
///
/// On Linux this is `CLOCK_BOOTTIME` with timers of the kernel. On other systems a timer may fire up to 100 ms late
/// after the machine wakes up, and on systems other than Linux and Apple's a step of the wall clock to a later time
/// makes leases end earlier for this client, never later.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Returns this clock in the form that [`ClientBuilder::clock`](crate::ClientBuilder::clock) takes.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for BootClock {
    fn now(&self) -> BootTime {
        system::now()
    }

    fn timer(&self) -> std::io::Result<Box<dyn Timer>> {
        Ok(Box::new(system::SystemTimer::new()?))
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

    /// One implementation of the system clock: a function that reads it, and a timer on it.
    type Form = (fn() -> BootTime, Box<dyn Timer>);

    /// Returns every implementation of the clock that works on this system.
    fn forms() -> Vec<Form> {
        let mut forms: Vec<Form> = vec![(portable::now, Box::new(portable::SystemTimer::new().unwrap()))];
        #[cfg(target_os = "linux")]
        forms.push((linux::now, Box::new(linux::SystemTimer::new().unwrap())));
        forms
    }

    async fn fired(timer: &mut dyn Timer) {
        std::future::poll_fn(|context| timer.poll_fired(context)).await;
    }

    #[tokio::test]
    async fn a_timer_fires_at_its_instant_and_not_before() {
        for (now, mut timer) in forms() {
            // The delay of 250 ms exceeds `SLEEP_MAX`, the longest single sleep of the portable timer.
            for delay_ms in [0, 5, 250] {
                let at = now().after(Duration::from_millis(delay_ms));
                timer.arm(at);
                fired(&mut *timer).await;
                assert!(now() >= at);
            }
        }
    }

    #[tokio::test]
    async fn a_timer_armed_in_the_past_fires_at_once() {
        for (_, mut timer) in forms() {
            timer.arm(BootTime::from_nanos(0));
            fired(&mut *timer).await;
        }
    }

    #[tokio::test]
    async fn a_disarmed_timer_does_not_fire() {
        for (now, mut timer) in forms() {
            timer.arm(now().after(Duration::from_millis(1)));
            timer.arm(BootTime::NEVER);
            assert!(tokio::time::timeout(Duration::from_millis(20), fired(&mut *timer)).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_timer_fires_once_each_time_it_is_armed() {
        for (now, mut timer) in forms() {
            timer.arm(now());
            fired(&mut *timer).await;
            assert!(tokio::time::timeout(Duration::from_millis(20), fired(&mut *timer)).await.is_err());
        }
    }
}
