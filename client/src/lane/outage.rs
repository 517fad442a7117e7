//! Handling of requests during and after an outage.

use std::collections::BTreeMap;

use waymaker_protocol::ErrorCode;

use super::requests::{ANSWER_PATIENCE, arm_wait};
use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::error::{Error, Unavailable};
use crate::request::claim::Wait;
use crate::request::job::Job;
use crate::request::reply::Awaited;

/// Reason of an uncertain outcome while the lane is connected.
const SILENCE: &str = "the server did not respond in time";

impl Lane {
    /// Cancels sent acquires whose callers have gone or got an error, unless a cancellation of the acquire was already
    /// sent: that one is repeated under its own number.
    pub(super) fn cancel_abandoned(&mut self) {
        let mut abandoned = BTreeMap::new();
        let mut cancelled = Vec::new();
        for (number, pending) in self.window.pending_mut() {
            match &pending.job {
                Job::Acquire(job) if !job.reply.has_caller() => {
                    abandoned.insert(number, job.claim.cancel_key());
                }
                Job::Cancel { acquire_number, .. } => cancelled.push(*acquire_number),
                _ => {}
            }
        }
        for acquire_number in cancelled {
            abandoned.remove(&acquire_number);
        }
        for (acquire_number, key) in abandoned {
            self.window.push(Job::Cancel { acquire_number, key });
        }
    }

    /// Sends each acquire with a request id again whose grant was being confirmed when the connection broke. Another
    /// client may have taken up the holds during the outage, and a confirmation with STATUS would not show this.
    pub(super) fn ask_again_for_unconfirmed(&mut self) {
        let is_it = |job: &Job| matches!(job, Job::Confirm(job) if job.acquire.claim.may_be_taken_up());
        for job in self.window.take_prompt(is_it) {
            if let Job::Confirm(job) = job {
                self.ask_again(job.acquire);
            }
        }
    }

    /// Called when a new session has begun: queues the unanswered requests of the old session again. Drops those that
    /// refer to the old session or connection, such as cancellations, renewals and keep-alives.
    pub(super) fn begin_anew(&mut self) {
        // Drop the releases of holds with a request id. Another client may have taken up the hold by now, and no event
        // reports this for a lane of the old session. A hold that is not released ends with its lease.
        let is_it = |job: &Job| matches!(job, Job::Release { is_own: true, .. });
        for mut job in self.window.take_prompt(is_it) {
            job.leave_uncertain("the session expired");
        }
        // Drop the lane's own renewals and status requests (`Check`): `ask_for_all` queues new ones for all holds. Drop
        // cancellations, because they contain request numbers of the old session.
        self.window.restart(self.welcome.in_flight_max, |job| {
            !matches!(
                job,
                Job::Cancel { .. }
                    | Job::Renew { .. }
                    | Job::Check { .. }
                    | Job::Holds { .. }
                    | Job::KeepAlive
                    | Job::Goodbye
            )
        });
    }

    /// Called when an acquire has no response at its time limit. Fails an acquire that was not sent. For a sent one,
    /// may first set the timer once more, `ANSWER_PATIENCE` after the end of its wait. After that, the caller gets
    /// [`Error::Uncertain`], and the lane cancels the acquire.
    pub(super) fn wait_over(&mut self, token: u64, now: BootTime) {
        let (unsent, reason) = self.no_answer();
        if let Some(job) = self.window.take_unsent_acquire(token) {
            return Job::Acquire(job).fail_unsent(&unsent, &reason);
        }
        let Some((number, job)) = self.window.sent_acquire(token) else { return };
        job.timer = BootTime::NEVER;
        if let (true, Wait::Until(at)) = (self.connected, job.wait) {
            let answer_by = at.after(ANSWER_PATIENCE);
            if now < answer_by {
                // The timer was set to the end of the wait, because the acquire was unsent or the lane was
                // disconnected. The acquire has been sent since, so give the server some more time: it measures the
                // wait from the arrival of the request.
                return arm_wait(job, answer_by, &mut self.timers);
            }
        }
        if job.reply.has_caller() {
            job.reply.leave_uncertain(&reason);
            if let (true, Some(acquire_number)) = (self.connected, number) {
                let key = job.claim.cancel_key();
                self.window.push(Job::Cancel { acquire_number, key });
            }
        }
    }

    /// Reports to all waiting callers that the outage has lasted too long, or that the server rejects this client. If
    /// the connection is restored later, the lane still repeats the sent requests, to learn of grants and release them.
    pub(super) fn tell_outage(&mut self) {
        let reason = self.outage_reason();
        for (_, pending) in self.window.pending_mut() {
            pending.job.leave_uncertain(&reason);
        }
        let cause = self.outage_cause.clone();
        for mut job in self.window.take_unsent_acquires().map(Job::Acquire) {
            job.fail_unsent(&cause, &reason);
        }
        self.fail_unsent(&cause, &reason, |_| true);
        if let Closing::Draining { .. } = self.closing {
            self.finish();
        }
    }

    /// Fails the unsent requests, other than acquires, for which `is_it` returns true. Releases and confirmations are
    /// still sent, because other clients may wait for the keys.
    pub(super) fn fail_unsent(
        &mut self,
        cause: &Error,
        reason: &str,
        mut is_it: impl FnMut(&mut Job) -> bool,
    ) {
        let mut extended = Vec::new();
        self.window.retain_unsent(|job| {
            if !is_it(job) {
                return true;
            }
            job.fail_unsent(cause, reason);
            if let Job::Extend { id, .. } = job {
                extended.push(*id);
            }
            job.matters_unawaited()
        });
        for id in extended {
            self.extend_dropped(id);
        }
    }

    /// Returns the error for an unsent request whose time limit has passed, and the reason for a sent one, whose
    /// outcome is unknown.
    pub(super) fn no_answer(&self) -> (Error, String) {
        if self.connected {
            let message = "too many requests of this client are already waiting for the connection";
            (Error::refused(ErrorCode::Overloaded, "in_flight_max", 0, message), SILENCE.to_owned())
        } else {
            (self.outage_cause.clone(), self.outage_reason())
        }
    }

    fn outage_reason(&self) -> String {
        match &self.outage_cause {
            Error::Unavailable(Unavailable::Disconnected { reason }) => reason.clone(),
            error => error.to_string(),
        }
    }
}
