//! Grants, from their arrival until their holds are handed over to the caller. The lane delivers a grant at once, first
//! confirms with the server that its holds still exist, or sends the acquire again.

use std::time::Duration;

use waymaker_protocol::{ErrorAnswer, LockId};

use super::answers::lost_by;
use super::event::{Event, GuardedHold};
use super::holds::{Entry, LeaseEnd, Renewal, renew_at};
use super::requests::arm_wait;
use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::deadline::{LeaseReport, deadline, margin};
use crate::error::Error;
use crate::hold::GuardId;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;
use crate::request::claim::Lease;
use crate::request::grant::{Grant, GrantedHold};
use crate::request::job::{AcquireJob, ConfirmJob, Job};

/// Minimum `release_after` in milliseconds that the local deadline takes into account. For a shorter one, keep-alives
/// are too rare to move the deadline forward in time.
pub(crate) const RELEASE_AFTER_BELIEVED_MIN_MS: u32 = 1_000;

/// Maximum number of late grants of one acquire, whose local deadlines have passed when they arrive. The lane tries to
/// confirm each of them. The next late grant fails the acquire: the round trip takes longer than the lease, and further
/// attempts would only block the key.
pub(super) const GRANTS_LATE_MAX: u32 = 3;

/// Local deadline of a hold, and the report that determines it.
#[derive(Clone, Copy)]
struct Place {
    deadline: BootTime,
    report: LeaseReport,
}

impl Lane {
    /// Decides what to do with a grant. If the lane has already released one of its holds, sends the acquire again.
    /// Does the same if the acquire has a request id of its caller and was sent on an earlier connection. If a hold may
    /// have ended since the server granted it, or if a local deadline has passed, first confirms the holds with the
    /// server. Otherwise, delivers them to the caller. `carried` says that the acquire was sent on an earlier
    /// connection.
    pub(super) fn granted(&mut self, mut job: Box<AcquireJob>, grant: Grant, carried: bool, now: BootTime) {
        if let Some(gone) = grant.holds.iter().map(|hold| hold.id).find(|id| self.was_given_back(*id)) {
            self.release_grant(&grant, Some(gone));
            return self.ask_again(job);
        }
        if grant.repeated {
            // A guard of this client may own the hold that the request id has found. Supersede it: from here on, the
            // lane accepts no request of this older guard, and drops its unsent release. Requests of that guard may
            // already be sent. The server serves them before the confirmation, the request by which the lane later asks
            // whether the hold still exists.
            for hold in grant.holds.iter() {
                self.superseded(hold.id, None);
                self.reconciliation.forgotten.remove(&hold.id);
            }
        }
        if carried && job.claim.may_be_taken_up() {
            // The acquire was sent before an outage, and another client may have taken up the hold since. Only the
            // response to a new acquire shows who owns it. `note_strangers` lets the lane release the hold if the
            // caller leaves before that response.
            self.note_strangers(&grant);
            return self.ask_again(job);
        }
        // If the server decided the grant before this connection, or if the request id has found an older claim, the
        // hold may have ended since. The event that reports its end may have been lost, or gone to another lane. So
        // confirm the hold with the server.
        let decided_before = grant.repeated || carried && grant.stamp_ms <= self.welcome.stamp_ms;
        if decided_before {
            return self.confirm(ConfirmJob::new(grant, job));
        }
        match self.places(&job, &grant, now) {
            None if job.late_grant_count < GRANTS_LATE_MAX => {
                job.late_grant_count += 1;
                self.confirm(ConfirmJob::new(grant, job));
            }
            places => self.deliver(job, grant, places),
        }
    }

    /// Returns the deadlines of the holds of a grant, or `None` if one of the deadlines has passed.
    fn places(&mut self, job: &AcquireJob, grant: &Grant, now: BootTime) -> Option<OneOrMore<Place>> {
        let mut place = |hold| Some(self.place(job, hold, now)).filter(|place| now < place.deadline);
        match &grant.holds {
            OneOrMore::One(hold) => place(hold).map(OneOrMore::One),
            OneOrMore::More(holds) => holds.iter().map(place).collect::<Option<_>>().map(OneOrMore::More),
        }
    }

    /// Queues the request that confirms a hold of a grant. It goes behind all queued releases. So if an older guard
    /// releases the same hold, the server refuses the confirmation.
    fn confirm(&mut self, job: ConfirmJob) {
        self.window.push(Job::Confirm(Box::new(job)));
    }

    /// Sends an acquire again under a new number, unless its caller has gone. The holds of its earlier grant must
    /// already be released, or `reconcile` must release them.
    pub(super) fn ask_again(&mut self, mut job: Box<AcquireJob>) {
        if job.reply.has_caller() {
            self.window.push(Job::Acquire(job));
        } else {
            job.reply.taken_back();
        }
    }

    /// Handles the response that one hold of a grant still exists. Confirms the next hold, or delivers the grant after
    /// the last one. Exceptions: if a newer acquire has taken up the holds, ignores the response. If the server has
    /// reported the end of any hold of the grant since its confirmation began, releases the other holds and sends the
    /// acquire again. If the lease has moved since the request, confirms the same hold again.
    pub(super) fn confirmed(&mut self, mut job: ConfirmJob, remaining_ms: u32, stamp_ms: u64, now: BootTime) {
        if job.is_superseded {
            return;
        }
        if job.ended.is_some() {
            self.release_grant(&job.grant, job.ended);
            return self.ask_again(job.acquire);
        }
        if std::mem::take(&mut job.is_stale) {
            return self.confirm(job);
        }
        let index = job.index;
        let hold = &mut job.grant.holds[index];
        (hold.remaining_ms, hold.stamp_ms) = (remaining_ms, stamp_ms);
        if index + 1 < job.grant.holds.len() {
            self.confirm(ConfirmJob { index: index + 1, ..job });
        } else {
            let places = self.places(&job.acquire, &job.grant, now);
            self.deliver(job.acquire, job.grant, places);
        }
    }

    /// Handles the refusal to confirm one hold of a grant. Releases all holds of the grant, except this hold if the
    /// refusal means that it has ended or was taken up. If it has ended, sends the acquire again; in all other cases,
    /// fails the acquire. Ignores the refusal if a newer acquire has taken up the holds.
    pub(super) fn not_confirmed(&mut self, mut job: ConfirmJob, error: &ErrorAnswer<'_>) {
        if job.is_superseded {
            return;
        }
        let loss = lost_by(error.code);
        self.release_grant(&job.grant, loss.map(|_| job.id()));
        match loss {
            Some(LossReason::Superseded) => {
                arm_wait(&mut job.acquire, BootTime::NEVER, &mut self.timers);
                job.acquire.reply.answer(Err(Error::Lost(LossReason::Superseded)));
            }
            Some(_) => self.ask_again(job.acquire),
            None => {
                arm_wait(&mut job.acquire, BootTime::NEVER, &mut self.timers);
                job.acquire.reply.answer(Err((*error).into()));
            }
        }
    }

    /// Releases all holds of a grant, except `but`.
    fn release_grant(&mut self, grant: &Grant, but: Option<LockId>) {
        for hold in grant.holds.iter().filter(|hold| Some(hold.id) != but) {
            self.release_unasked(hold.id, grant.take_up_number);
        }
    }

    /// Returns the local deadline of a granted hold, and the report of its lease that determines the deadline. A hold
    /// on the session's lease has the session's deadline. So for such a hold, first moves that deadline forward by the
    /// stamp of the grant.
    fn place(&mut self, job: &AcquireJob, hold: &GrantedHold, now: BootTime) -> Place {
        let remaining = Duration::from_millis(u64::from(hold.remaining_ms));
        match job.claim.lease {
            Lease::Own { ms } => {
                let asked_ms = if ms == 0 { self.welcome.lease_default_ms } else { ms };
                let asked = Duration::from_millis(u64::from(asked_ms.min(self.welcome.lease_max_ms)));
                // For a claim found again by its request id, `remaining` is less than its whole lease. So compute the
                // margin from the requested lease.
                let report = LeaseReport { stamp_ms: hold.stamp_ms, remaining, lease: asked.max(remaining) };
                Place { deadline: deadline(self.anchor, report, now), report }
            }
            Lease::Without => {
                let report = LeaseReport { stamp_ms: hold.stamp_ms, remaining, lease: remaining };
                Place { deadline: deadline(self.anchor, report, now), report }
            }
            Lease::Session => {
                let report = self.session_report(hold.stamp_ms, remaining);
                self.move_deadline(report, now);
                Place { deadline: self.holds.session_deadline, report }
            }
        }
    }

    /// Hands the holds over to the caller, to make guards of them. Releases them instead if no caller is left, if the
    /// lane is closing, or if `places` is `None` because a local deadline has passed.
    fn deliver(&mut self, mut job: Box<AcquireJob>, grant: Grant, places: Option<OneOrMore<Place>>) {
        arm_wait(&mut job, BootTime::NEVER, &mut self.timers);
        if !matches!(self.closing, Closing::Open) || !job.reply.has_caller() {
            self.release_grant(&grant, None);
            return job.reply.taken_back();
        }
        let Some(places) = places else {
            // A local deadline had passed when the grant or its confirmation arrived: the round trip takes longer than
            // the lease.
            self.release_grant(&grant, None);
            return job.reply.answer(Err(Error::Lost(LossReason::LocalDeadline)));
        };
        let grace = job.claim.release_after_ms.filter(|ms| *ms >= RELEASE_AFTER_BELIEVED_MIN_MS).map(|ms| {
            let grace = Duration::from_millis(u64::from(ms));
            grace.saturating_sub(margin(grace))
        });
        let Grant { clamped, take_up_number, holds, .. } = grant;
        let mut guard = |hold, place| self.guard(&job, hold, place, clamped, take_up_number, grace);
        let holds = match (holds, places) {
            (OneOrMore::One(hold), OneOrMore::One(place)) => OneOrMore::One(guard(hold, place)),
            (holds, places) => {
                let placed = holds.into_vec().into_iter().zip(places.into_vec());
                OneOrMore::More(placed.map(|(hold, place)| guard(hold, place)).collect())
            }
        };
        // The interval of keep-alives depends on the shortest `grace` of all holds. If the new holds change it,
        // schedule the next keep-alive anew.
        if self.holds.grace_min() != self.keep_alive_grace && matches!(self.keep_alive, Renewal::Due(_)) {
            self.schedule_keep_alive(self.keep_alive_sent);
        }
        let AcquireJob { on_loss, reply: grantee, .. } = *job;
        self.holds.events.push_back(Event::Granted { grantee, on_loss, holds });
    }

    /// Adds one hold of a grant to the table of guarded holds, and sets its timer. Returns the key, fence, lease and
    /// deadlines, from which the driver makes the guard.
    fn guard(
        &mut self,
        job: &AcquireJob,
        granted: GrantedHold,
        place: Place,
        clamped: bool,
        take_up_number: Option<u32>,
        grace: Option<Duration>,
    ) -> GuardedHold {
        let Place { deadline, report } = place;
        let GrantedHold { id, fence, remaining_ms, stamp_ms, key, shared } = granted;
        let (lease_end, lease_ms) = match job.claim.lease {
            Lease::Own { .. } | Lease::Without => (LeaseEnd::Own(deadline), remaining_ms),
            Lease::Session => (LeaseEnd::Session, self.welcome.session_lease_ms),
        };
        self.guard_number += 1;
        let guard = GuardId { hold: id, number: self.guard_number };
        let mut entry = Entry::new(guard, lease_end, report.lease, stamp_ms);
        entry.grace = grace;
        entry.take_up_number = take_up_number;
        entry.renew_ms = job.renews_itself();
        if entry.renew_ms.is_some() {
            entry.renewal = Renewal::Due(renew_at(deadline, report));
        }
        let (until, is_on_session) = (entry.bound(), entry.is_on_session());
        self.holds.insert(entry, &mut self.timers);
        GuardedHold { guard, key, fence, shared, clamped, lease_ms, until, is_on_session, grace }
    }
}
