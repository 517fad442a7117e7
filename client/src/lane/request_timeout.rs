//! Time limit for the response to a request other than an acquire.
//!
//! All requests of callers other than acquires have the same time limit, so one timer of the lane serves them. The
//! timer is set for the first request; when it fires, it is set for the next unanswered one. A response that arrives in
//! time touches no timer.

use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::lane::timers::TimerKey;
use crate::request::reply::Awaited;

impl Lane {
    /// Starts the time limit of the caller that waits for this reply. The limit holds with and without a connection.
    pub(crate) fn expect_answer(&mut self, reply: &mut dyn Awaited, now: BootTime) {
        let at = now.after(self.options.request_timeout);
        reply.set_answer_by(at);
        if self.answer_timer == BootTime::NEVER {
            self.set_answer_timer(at);
        }
    }

    /// Handles the timer of unanswered requests: ends the wait of each caller whose time limit has passed.
    pub(super) fn answer_due(&mut self, now: BootTime) {
        // The timer fired and is no longer in `timers`, so forget its instant.
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
            // The time limit of each of these callers of `close` has passed, so let it return. The lane still sends the
            // remaining releases.
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
