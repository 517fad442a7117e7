//! The timer of the task.

use std::future::poll_fn;

use crate::clock::{BootTime, Timer};

/// The only timer of the task. Setting the kernel's timer costs a system call, so the alarm only moves it earlier,
/// never later. An early alarm finds nothing due.
pub(super) struct Alarm {
    timer: Box<dyn Timer>,
    armed: BootTime,
}

impl Alarm {
    pub(super) fn new(timer: Box<dyn Timer>) -> Self {
        Self { timer, armed: BootTime::NEVER }
    }

    /// Waits until `at` or somewhat earlier. Dropping the future is safe.
    pub(super) async fn reach(&mut self, at: BootTime) {
        if at < self.armed {
            self.timer.arm(at);
            self.armed = at;
        }
        poll_fn(|context| self.timer.poll_fired(context)).await;
        self.armed = BootTime::NEVER;
    }
}
