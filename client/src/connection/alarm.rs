//! The timer of a connection task.

use std::future::poll_fn;

use crate::clock::{BootTime, Timer};

/// The only timer of a connection task. Setting the kernel's timer costs a system call, so the alarm only moves it
/// earlier, never later. It may therefore fire too early; the task then finds nothing due and waits again.
pub(super) struct Alarm {
    timer: Box<dyn Timer>,
    /// Instant for which the timer is armed; `NEVER` if the timer is not armed.
    armed: BootTime,
}

impl Alarm {
    pub(super) fn new(timer: Box<dyn Timer>) -> Self {
        Self { timer, armed: BootTime::NEVER }
    }

    /// Waits until `at`, or until an earlier instant for which the timer is still armed. Dropping the future leaves the
    /// timer armed.
    pub(super) async fn reach(&mut self, at: BootTime) {
        if at < self.armed {
            self.timer.arm(at);
            self.armed = at;
        }
        poll_fn(|context| self.timer.poll_fired(context)).await;
        self.armed = BootTime::NEVER;
    }
}
