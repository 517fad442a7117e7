//! What callers ask for, give up, and close.

use std::time::Duration;

use waymaker_protocol::{ErrorCode, LockId};

use super::timers::TimerKey;
use super::{Closing, Session};
use crate::claim::Wait;
use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline};
use crate::error::Error;
use crate::hold::HoldLease;
use crate::job::Job;
use crate::loss::LossReason;
use crate::reply::Reply;

impl Session {
    pub(super) fn submit(&mut self, mut job: Job, now: BootTime) {
        match &mut job {
            Job::Acquire(job) if matches!(self.closing, Closing::Open) => {
                job.claim.name_if_several(self.welcome.session_id, self.welcome.lane, job.token);
                // Should it never be sent, its caller must learn so in time.
                if let Wait::Until(at) = job.wait
                    && (!self.connected || !self.window.has_room_for_acquire())
                {
                    self.timers.replace(TimerKey::Wait(job.token), BootTime::NEVER, at);
                }
            }
            Job::Watch(job) if matches!(self.closing, Closing::Open) => self.watches.insert(job),
            Job::Release { id, by_guard: true, .. } => drop(self.holds.remove(*id, &mut self.timers)),
            _ if !matches!(self.closing, Closing::Open) => return job.fail(Error::Closed),
            Job::Extend { id, lease_ms, .. } => {
                if *lease_ms < self.welcome.lease_min_ms {
                    let min = self.welcome.lease_min_ms;
                    let message = format!("{lease_ms} ms, the shortest is {min} ms");
                    let min = u64::from(min);
                    return job.fail(Error::refused(ErrorCode::BadInput, "lease_ms", min, message));
                }
                self.shorten(*id, *lease_ms, now);
            }
            _ => {}
        }
        self.window.push(job);
    }

    /// The server may shorten the lease before its answer arrives here, but not before the request was sent.
    fn shorten(&mut self, id: LockId, lease_ms: u32, now: BootTime) {
        let lease = Duration::from_millis(u64::from(lease_ms));
        if let Some(entry) = self.holds.get_mut(id)
            && let HoldLease::Own(own) = &entry.hold.lease
        {
            let stamp_ms = 0;
            let report = LeaseReport { stamp_ms, remaining: lease, lease };
            let bound = deadline(Anchor { sent: now, stamp_ms }, report, now);
            own.set(own.get().min(bound));
            entry.extends_pending += 1;
            entry.extends_bound = entry.extends_bound.min(bound);
            self.holds.rearm(id, &mut self.timers);
        }
    }

    pub(super) fn abandon(&mut self, token: u64) {
        if self.window.take_unsent_acquire(token).is_some() {
            return;
        }
        if let Some((acquire_number, job)) = self.window.sent_acquire(token) {
            job.reply = Reply::Nobody;
            let key = job.claim.cancel_key();
            self.window.push(Job::Cancel { acquire_number, key });
        }
    }

    pub(super) fn close(&mut self, mut reply: Reply<()>) {
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
            self.holds.lose(id, LossReason::ClientClosed, &mut self.timers);
            self.release_unasked(id);
        }
        if !self.connected && (self.window.is_empty() || self.outage_end.is_none()) {
            // Not worth a connection, or there has been none for long: the session ends by its lease.
            self.finish();
        }
    }

    /// Takes this connection out of the session, once. True if no other one is left.
    pub(super) fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.left, true) && self.common.leave()
    }

    pub(super) fn finish(&mut self) {
        self.leave();
        if let Closing::Draining { replies, .. } = std::mem::replace(&mut self.closing, Closing::Finished) {
            for mut reply in replies {
                reply.answer(Ok(()));
            }
        }
    }

    /// The guard of this hold lets it live.
    pub(super) fn forget(&mut self, id: LockId) {
        if self.holds.remove(id, &mut self.timers).is_some() {
            self.reconciliation.forgotten.insert(id);
        }
    }

    /// Gives back what nobody holds.
    pub(super) fn release_unasked(&mut self, id: LockId) {
        self.window.push(Job::Release { id, key: None, by_guard: true, reply: Reply::Nobody });
    }
}
