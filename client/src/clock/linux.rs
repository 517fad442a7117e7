//! The clock of Linux: `CLOCK_BOOTTIME` and its timers.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::{BootTime, Timer};

pub(super) fn now() -> BootTime {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    BootTime(tv_sec as u64 * 1_000_000_000 + tv_nsec as u64)
}

/// A kernel timer. After a suspension it fires at once if its instant has passed. A sleep of tokio would be late by
/// the length of the suspension.
pub(super) struct SystemTimer {
    descriptor: AsyncFd<OwnedFd>,
}

impl SystemTimer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe on behalf of types whose descriptor may change; an owned one cannot"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self { descriptor })
    }
}

impl Timer for SystemTimer {
    fn arm(&mut self, at: BootTime) {
        const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = match at {
            BootTime::NEVER => NONE,
            // The kernel disarms a timer that is set to 0. So set 1 ns instead of 0: that instant has passed too, and
            // the timer fires at once.
            BootTime(nanos) => {
                let nanos = nanos.max(1);
                Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
            }
        };
        let timer = Itimerspec { it_interval: NONE, it_value: value };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)
            .expect("an open timer accepts every valid time");
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut ready) = ready!(self.descriptor.poll_read_ready(context)) else {
                // The runtime is shutting down. It drops this task, so the timer need never fire.
                return Poll::Pending;
            };
            let read = ready.try_io(|descriptor| Ok(rustix::io::read(descriptor, &mut [0_u8; 8])?));
            if let Ok(Ok(_)) = read {
                return Poll::Ready(());
            }
        }
    }
}
