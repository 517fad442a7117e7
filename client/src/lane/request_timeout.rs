//! How long callers wait for the answer to a request.
//!
//! All requests of a session have the same timeout, so one timer serves them: it is set for the first request and, when it fires, for
//! the next. A request that is answered in time touches no timer.

use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::lane::timers::TimerKey;
use crate::reply::Awaited;

impl Lane {
    /// The caller of this reply waits from now on. It waits no longer than the timeout in every state of the connection.
    pub(crate) fn expect_answer(&mut self, reply: &mut dyn Awaited, now: BootTime) {
        let at = now.after(self.options.request_timeout);
        reply.set_answer_by(at);
        if self.answer_timer == BootTime::NEVER {
            self.set_answer_timer(at);
        }
    }

    /// The timeout of a request may have passed.
    pub(super) fn answer_due(&mut self, now: BootTime) {
        // It fired, so it is out of the set.
        self.answer_timer = BootTime::NEVER;
        let (unsent, reason) = self.no_answer();
        let mut next = BootTime::NEVER;
        let mut is_due = |at: BootTime| {
            if at > now {
                next = next.min(at);
            }
            at <= now
        };
        for (_, pending) in self.window.pending_mut() {
            if is_due(pending.job.answer_by()) {
                pending.job.leave_uncertain(&reason);
            }
        }
        self.fail_unsent(&unsent, &reason, |job| is_due(job.answer_by()));
        if let Closing::Draining { replies, .. } = &mut self.closing {
            // The remaining holds are still released, and end with their leases at the latest.
            for reply in replies.iter_mut().filter(|reply| is_due(reply.answer_by())) {
                reply.answer(Ok(()));
            }
        }
        self.set_answer_timer(next);
    }

    fn set_answer_timer(&mut self, at: BootTime) {
        self.timers.replace(TimerKey::Answer, self.answer_timer, at);
        self.answer_timer = at;
    }
}
