//! From a grant to a guard in the hands of the caller.

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::Granted;

use super::holds::{Entry, Renewal, renew_at};
use super::{Closing, Session};
use crate::claim::Lease;
use crate::clock::BootTime;
use crate::deadline::{LeaseReport, deadline, margin};
use crate::error::Error;
use crate::hold::{ConnectionTie, Hold, HoldLease, SharedInstant};
use crate::job::{AcquireJob, ConfirmJob, Job, answer};
use crate::lock::Lock;
use crate::loss::{Loss, LossReason};

/// A hold that outlives its connection by less than this is believed in as if it outlived it for ever: no keep-alive
/// could be frequent enough.
const RELEASE_AFTER_BELIEVED_MIN_MS: u32 = 1_000;

impl Session {
    pub(super) fn granted(&mut self, job: AcquireJob, granted: Granted, carried: bool, now: BootTime) {
        // One that a request id has found again may have been lost meanwhile, and its events gone elsewhere.
        let decided_before = granted.repeated || carried && granted.stamp_ms <= self.welcome.stamp_ms;
        let over = self.place(&job, granted, now).0 <= now;
        if decided_before || over {
            self.window.push_front(Job::Confirm(Box::new(ConfirmJob { granted, acquire: job })));
        } else {
            self.deliver(job, granted, now);
        }
    }

    /// The local deadline of a grant, and what it was worked out from.
    fn place(&mut self, job: &AcquireJob, granted: Granted, now: BootTime) -> (BootTime, LeaseReport) {
        let remaining = Duration::from_millis(u64::from(granted.remaining_ms));
        match job.claim.lease {
            Lease::Own { ms } => {
                let asked_ms = if ms == 0 { self.welcome.lease_default_ms } else { ms };
                let asked = Duration::from_millis(u64::from(asked_ms.min(self.welcome.lease_max_ms)));
                // A claim found again by its request id has less left than its lease.
                let report =
                    LeaseReport { stamp_ms: granted.stamp_ms, remaining, lease: asked.max(remaining) };
                (deadline(self.anchor, report, now), report)
            }
            Lease::Session => {
                let report = self.session_report(granted.stamp_ms, remaining);
                self.move_deadline(report, now);
                (self.deadline.get(), report)
            }
        }
    }

    /// Makes the guard and hands it over.
    pub(super) fn deliver(&mut self, job: AcquireJob, granted: Granted, now: BootTime) {
        let (deadline, report) = self.place(&job, granted, now);
        let shared = match self.closing {
            Closing::Open => self.shared.upgrade(),
            _ => None,
        };
        let (Some(shared), Some(reply)) = (shared, job.reply) else {
            return self.release_unasked(granted.id);
        };
        if deadline <= now {
            // The round trip takes longer than the lease lasts.
            self.release_unasked(granted.id);
            return answer(Some(reply), Err(Error::Lost(LossReason::LocalDeadline)));
        }
        let renew_ms = match job.claim.lease {
            Lease::Own { ms } if job.renew => Some(ms),
            _ => None,
        };
        let lease = match job.claim.lease {
            Lease::Own { .. } => HoldLease::Own(SharedInstant::new(deadline)),
            Lease::Session => HoldLease::Session(Arc::clone(&self.deadline)),
        };
        let release_after_ms = job.claim.release_after_ms.filter(|ms| *ms >= RELEASE_AFTER_BELIEVED_MIN_MS);
        let tie = release_after_ms.map(|ms| {
            let grace = Duration::from_millis(u64::from(ms));
            ConnectionTie { alive: Arc::clone(&self.alive), grace: grace.saturating_sub(margin(grace)) }
        });
        let hold = Arc::new(Hold {
            key: job.claim.key,
            id: granted.id,
            fence: granted.fence,
            shared: job.claim.shared,
            clamped: granted.clamped,
            lease,
            tie,
            cap: SharedInstant::new(BootTime::NEVER),
            loss: Loss::default(),
        });
        let mut entry = Entry::new(Arc::clone(&hold), report.lease, granted.stamp_ms);
        entry.on_loss = job.on_loss;
        entry.renew_ms = renew_ms;
        if renew_ms.is_some() {
            entry.renewal = Renewal::Due(renew_at(deadline, report));
        }
        self.holds.insert(entry, &mut self.timers);
        if let Renewal::Due(_) = self.keep_alive {
            self.schedule_keep_alive(self.keep_alive_sent);
        }
        // If the caller has gone in the meantime, this drops the guard, and the guard sends its release.
        answer(Some(reply), Ok(Lock { hold, shared, armed: true }));
    }
}
