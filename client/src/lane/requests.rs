//! Requests of callers: submitting, abandoning, releasing and closing.

use std::time::Duration;

use waymaker_protocol::{ErrorCode, LockId};

use super::holds::LeaseEnd;
use super::timers::{TimerKey, Timers};
use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline};
use crate::error::Error;
use crate::hold::GuardId;
use crate::loss::LossReason;
use crate::request::claim::Wait;
use crate::request::job::{AcquireJob, Job};
use crate::request::reply::Reply;

/// Time after the end of its wait within which the response to an acquire may arrive. The server measures the wait from
/// the arrival of the request, and its response takes time too.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// Sets the timer of an acquire; [`BootTime::NEVER`] disarms it.
pub(super) fn arm_wait(job: &mut AcquireJob, at: BootTime, timers: &mut Timers) {
    if job.timer != at {
        timers.replace(TimerKey::Wait(job.token), job.timer, at);
        job.timer = at;
    }
}

impl Lane {
    /// Queues a request of a caller, and starts its time limit. Fails it instead if the lane is closing, or if it is an
    /// extend below the minimum lease.
    pub(crate) fn submit(&mut self, mut job: Job, now: BootTime) {
        match &mut job {
            Job::Acquire(job) if matches!(self.closing, Closing::Open) => {
                job.claim.name_if_multi_key(self.welcome.session_id, self.welcome.lane, job.token);
                let at = match job.wait {
                    Wait::Try => now.after(self.options.request_timeout),
                    // Without a connection, or with too many requests in flight, the request may never be sent. If it
                    // is still unsent when the caller's wait ends, the timer fails it then.
                    Wait::Until(at) if !self.connected || !self.window.has_room_for_acquire() => at,
                    Wait::Until(at) => at.after(ANSWER_PATIENCE),
                    Wait::Forever => BootTime::NEVER,
                };
                arm_wait(job, at, &mut self.timers);
            }
            Job::Watch(job) if matches!(self.closing, Closing::Open) => self.watches.insert(job),
            _ if !matches!(self.closing, Closing::Open) => return job.fail(Error::Closed),
            Job::Extend { id, lease_ms, .. } => {
                if *lease_ms < self.welcome.lease_min_ms {
                    let min = self.welcome.lease_min_ms;
                    let message = format!("{lease_ms} ms; the minimum is {min} ms");
                    let min = u64::from(min);
                    return job.fail(Error::refused(ErrorCode::BadInput, "lease_ms", min, message));
                }
                self.shorten(*id, *lease_ms, now);
                self.window.lease_moves(*id);
            }
            _ => {}
        }
        if let (false, Some(reply)) = (matches!(job, Job::Acquire(_)), job.reply()) {
            self.expect_answer(reply, now);
        }
        self.window.push(job);
    }

    /// Lowers the local deadline of a hold until all pending extends of callers have a response: to the deadline that a
    /// lease of `lease_ms` from now would give, if that is earlier. The extend may shorten the lease, and the server
    /// may serve it at any time from now on. Has no effect on a hold on the session's lease.
    fn shorten(&mut self, id: LockId, lease_ms: u32, now: BootTime) {
        let lease = Duration::from_millis(u64::from(lease_ms));
        if let Some(entry) = self.holds.get_mut(id)
            && let LeaseEnd::Own(_) = entry.lease_end
        {
            let stamp_ms = 0;
            let report = LeaseReport { stamp_ms, remaining: lease, lease };
            let bound = deadline(Anchor { sent: now, stamp_ms }, report, now);
            entry.extends_pending += 1;
            entry.extends_bound = entry.extends_bound.min(bound);
            self.holds.rearm(id, &mut self.timers);
        }
    }

    /// Releases the hold of a guard. Fails with the unused reply if this guard is not the owner of the hold any more;
    /// the hold then stays as it is.
    pub(crate) fn release(
        &mut self,
        guard: GuardId,
        mut reply: Reply<bool>,
        now: BootTime,
    ) -> Result<(), Reply<bool>> {
        let Some(take_up_number) = self.holds.let_go(guard, &mut self.timers) else { return Err(reply) };
        self.expect_answer(&mut reply, now);
        let (id, is_own) = (guard.hold, take_up_number.is_some());
        self.window.push(Job::Release { id, key: None, by_guard: true, take_up_number, is_own, reply });
        Ok(())
    }

    /// Releases a granted hold for which the driver makes no guard.
    pub(crate) fn give_back(&mut self, guard: GuardId) {
        if let Some(take_up_number) = self.holds.let_go(guard, &mut self.timers) {
            self.release_unasked(guard.hold, take_up_number);
        }
    }

    /// Queues a request that moves the end of the lease of a guard's hold. Fails with the unused reply if this guard is
    /// not the owner of the hold any more.
    pub(crate) fn extend(
        &mut self,
        guard: GuardId,
        lease_ms: u32,
        reply: Reply<Duration>,
        now: BootTime,
    ) -> Result<(), Reply<Duration>> {
        let Some(entry) = self.holds.owned(guard) else { return Err(reply) };
        let is_own = entry.may_be_taken_up();
        self.submit(Job::Extend { id: guard.hold, lease_ms, is_own, reply }, now);
        Ok(())
    }

    /// Applies the report that a newer acquire has taken up a hold: its guard is lost, and an unsent release by it is
    /// dropped. An older acquire whose grant of the hold is being confirmed fails. With a `number`, this concerns only
    /// the grant to the acquire of this lane with this request number.
    pub(super) fn superseded(&mut self, id: LockId, number: Option<u32>) {
        self.holds.supersede(id, number, &mut self.timers);
        self.window.supersede(id, number);
    }

    /// Withdraws the acquire with this token, whose future was dropped.
    pub(crate) fn abandon(&mut self, token: u64) {
        if let Some(mut job) = self.window.take_unsent_acquire(token) {
            arm_wait(&mut job, BootTime::NEVER, &mut self.timers);
            // `settle_strangers` releases holds of this lane that have no guard. It may have kept one, because this
            // acquire could have been granted it. Let it decide again without the acquire.
            return self.settle_strangers();
        }
        if let Some((number, job)) = self.window.sent_acquire(token) {
            job.reply = Reply::Nobody;
            if let Some(acquire_number) = number {
                let key = job.claim.cancel_key();
                self.window.push(Job::Cancel { acquire_number, key });
            }
        }
    }

    /// Begins to close the lane: fails all acquires that have no grant yet, cancels the sent ones, ends the watches,
    /// and releases all guarded and overdue holds.
    pub(crate) fn close(&mut self, mut reply: Reply<()>) {
        match &mut self.closing {
            Closing::Open => {}
            Closing::Draining { replies, .. } => return replies.push(reply),
            Closing::Finished => return reply.answer(Ok(())),
        }
        self.closing = Closing::Draining { replies: vec![reply], goodbye_sent: false };
        for mut job in self.window.take_unsent_acquires().map(Job::Acquire) {
            job.fail(Error::Closed);
        }
        for (_, pending) in self.window.pending_mut() {
            if let Job::Acquire(_) = pending.job {
                pending.job.fail(Error::Closed);
            }
        }
        self.cancel_abandoned();
        self.end_watches();
        for id in self.holds.ids() {
            let take_up_number = self.holds.get_mut(id).and_then(|entry| entry.take_up_number);
            self.holds.lose(id, LossReason::ClientClosed, &mut self.timers);
            self.release_unasked(id, take_up_number);
        }
        for (id, overdue) in self.holds.take_overdue() {
            self.release_unasked(id, overdue.take_up_number);
        }
        if !self.connected && (self.window.is_empty() || self.outage_end.is_none()) {
            // Finish without a goodbye, the request that ends the session: the session ends when its lease expires. If
            // the window is empty, no request needs another connection. If `outage_end` is `None`, callers no longer
            // wait for a connection: the outage has lasted too long, or the server rejects this client.
            self.finish();
        }
    }

    /// Removes this connection from the session at the first call. Returns `true` if it was the last connection; later
    /// calls return `false`.
    pub(super) fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.left, true) && self.session.leave()
    }

    /// Leaves the session, and answers the callers of `close`.
    pub(super) fn finish(&mut self) {
        self.leave();
        if let Closing::Draining { replies, .. } = std::mem::replace(&mut self.closing, Closing::Finished) {
            for mut reply in replies {
                reply.answer(Ok(()));
            }
        }
    }

    /// Removes the guard of a hold and keeps the hold on the server. If the guard still counts as held, the comparison
    /// with the server's list after an outage (`reconcile`) does not release the hold.
    pub(crate) fn forget(&mut self, guard: GuardId) {
        let is_owner = self.holds.owned(guard).is_some();
        self.holds.let_go(guard, &mut self.timers);
        if is_owner {
            self.reconciliation.forgotten.insert(guard.hold);
        }
    }

    /// Releases a hold of this lane that has no guard. No caller waits for the response.
    pub(super) fn release_unasked(&mut self, id: LockId, take_up_number: Option<u32>) {
        let (is_own, reply) = (take_up_number.is_some(), Reply::Nobody);
        self.window.push(Job::Release { id, key: None, by_guard: true, take_up_number, is_own, reply });
    }
}
