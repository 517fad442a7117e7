//! Releases, cancellations and renewals of claims.

use super::{Caller, Shard};
use crate::access::{Access, Rights};
use crate::claim::{LeaseKind, State};
use crate::effect::{
    Answer, CancelReason, ClaimAct, Effects, Event, ForceReleased, Refusal, RevokeReason, WhenDurable,
    remaining_ms,
};
use crate::handle::ClaimIx;
use crate::ids::{ClaimId, Fence};
use crate::lane::{Lane, LaneState};
use crate::measure::{LossReason, Measure};
use crate::time::{Nanos, Time};
use std::sync::Arc;

impl Shard {
    /// Ends the claim with this id, held or waiting. The caller must have the identity that acquired the claim, or the
    /// right to release claims of others. If another lane has the claim, that lane is notified.
    #[inline(always)]
    pub fn release(&mut self, caller: &Caller, id: ClaimId, key: Option<&[u8]>, effects: &mut impl Effects) {
        let claim = match self.claim_of(id, caller.namespace, key) {
            Ok(claim) => claim,
            Err(refusal) => return effects.answer(caller.ticket, Answer::Refused(refusal)),
        };
        let is_own = self.claims[claim].lane == caller.lane;
        if !is_own && let Err(refusal) = self.check_release(caller, claim, effects) {
            return effects.answer(caller.ticket, Answer::Refused(refusal));
        }
        if !self.claims[claim].is_plain_hold() {
            return self.release_with_care(caller, claim, effects);
        }
        effects.released(caller.ticket);
        if !is_own {
            self.tell_released_elsewhere(caller, claim, effects);
        }
        self.measure_end(claim, effects);
        self.end_ephemeral_hold(claim, effects);
    }

    /// Ends the claim with this id if the caller's lane has it. So a release that was sent before another lane took
    /// over the claim has no effect.
    #[inline(never)]
    pub fn release_own(
        &mut self,
        caller: &Caller,
        id: ClaimId,
        key: Option<&[u8]>,
        effects: &mut impl Effects,
    ) {
        match self.check_own(caller, id, key) {
            Ok(()) => self.release(caller, id, key, effects),
            Err(refusal) => effects.answer(caller.ticket, Answer::Refused(refusal)),
        }
    }

    /// If another lane has the claim, refuses the request: with `Superseded` if the caller may know of the claim,
    /// otherwise as if the claim did not exist.
    fn check_own(&self, caller: &Caller, id: ClaimId, key: Option<&[u8]>) -> Result<(), Refusal> {
        let claim = self.claim_of(id, caller.namespace, key)?;
        if self.claims[claim].lane == caller.lane {
            return Ok(());
        }
        self.check_access(caller, claim, Rights::RELEASE_OTHERS)?;
        Err(Refusal::Cancelled(CancelReason::Superseded))
    }

    /// Releases a claim that waits, is reserved or overdue, is in the durable log, or is a registration.
    #[inline(never)]
    fn release_with_care(&mut self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_held() {
            self.release_durable(caller, claim, effects);
        } else {
            self.release_waiter(caller, claim, effects);
        }
    }

    /// Releases a hold that is in the durable log, or a registration. In two cases the response waits until the log is
    /// durable. First, the hold has no lease, or it is a recorded registration, whose lease may last years: if a crash
    /// lost the release, the hold would not end soon. Second, another acquire took over the hold and is not answered
    /// yet, because its answer must come first. Other releases are answered at once: if a crash loses one, the hold
    /// still ends with its lease or its session.
    fn release_durable(&mut self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].lane != caller.lane {
            self.tell_released_elsewhere(caller, claim, effects);
        }
        let waits = match self.claims[claim].lease() {
            LeaseKind::Endless => true,
            LeaseKind::Registered => self.claims[claim].is_recorded(),
            LeaseKind::Timed | LeaseKind::Session => false,
        };
        let waits = waits || self.is_move_pending(claim);
        self.measure_hold(claim, effects);
        self.end_hold(claim, effects);
        if waits {
            self.answer_durably(caller.ticket, Answer::Released { was_waiting: false }, effects);
        } else {
            effects.released(caller.ticket);
        }
    }

    /// Notifies the lane of a hold that another lane releases it. The metrics count the hold as lost, unless both lanes
    /// have the same owner and identity.
    fn tell_released_elsewhere(&self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        let lanes = [self.claims[claim].lane, caller.lane].map(|lane| &self.lanes.lanes[lane]);
        let [holder, releaser] =
            lanes.map(|lane| (&lane.owner, lane.access.as_deref().map(Access::identity)));
        if holder != releaser {
            effects.measure(Measure::Lost(LossReason::ReleasedElsewhere));
        }
        self.revoke_event(claim, RevokeReason::ReleasedElsewhere, effects);
    }

    fn release_waiter(&mut self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        if self.is_far(claim) {
            return effects.answer(caller.ticket, Answer::Refused(Refusal::NotFound));
        }
        effects.answer(caller.ticket, Answer::Released { was_waiting: true });
        self.give_up(claim, CancelReason::Asked, effects);
    }

    /// Sets the end of a lease to `lease_ms` milliseconds from now (0 for the default), later or earlier than before. A
    /// lease above the maximum is shortened to it. For a claim that waits for permits, sets the length of its future
    /// lease; a claim for permits that is already reserved keeps its length. Refuses any other claim that is not held,
    /// and a hold without a lease of its own.
    pub fn extend(
        &mut self,
        caller: &Caller,
        id: ClaimId,
        key: Option<&[u8]>,
        lease_ms: u32,
        effects: &mut impl Effects,
    ) {
        let lease = self.checked_lease(self.lease_in(caller.namespace, lease_ms));
        let found = lease.and_then(|lease| {
            let claim = self.claim_of(id, caller.namespace, key)?;
            self.check_access(caller, claim, Rights::RELEASE_OTHERS)?;
            Ok((lease, claim))
        });
        let ((lease_ms, clamped), claim) = match found {
            Ok(found) => found,
            Err(refusal) => return effects.answer(caller.ticket, Answer::Refused(refusal)),
        };
        let before = self.claims[claim].deadline;
        let remaining_ms = match self.move_lease(claim, lease_ms) {
            Ok(remaining_ms) => remaining_ms,
            Err(refusal) => return effects.answer(caller.ticket, Answer::Refused(refusal)),
        };
        if self.claims[claim].is_held() {
            self.measure_renewal(before, effects);
        }
        let is_local = self.claims[claim].is_recorded() && self.claims[claim].is_held();
        let waits = is_local && self.record_extended(claim, before, remaining_ms, effects);
        self.tell_lease_moved(caller, claim, remaining_ms, waits, effects);
        let answer = Answer::Extended { remaining_ms, clamped };
        if waits {
            self.answer_durably(caller.ticket, answer, effects);
        } else {
            effects.answer(caller.ticket, answer);
        }
    }

    /// Sets the end of a lease like [`Shard::extend`], if the caller's lane has the claim.
    pub fn extend_own(
        &mut self,
        caller: &Caller,
        id: ClaimId,
        key: Option<&[u8]>,
        lease_ms: u32,
        effects: &mut impl Effects,
    ) {
        match self.check_own(caller, id, key) {
            Ok(()) => self.extend(caller, id, key, lease_ms, effects),
            Err(refusal) => effects.answer(caller.ticket, Answer::Refused(refusal)),
        }
    }

    /// Reports to the metrics how much of a lease was left when it was renewed.
    #[inline]
    pub(super) fn measure_renewal(&self, deadline: Time, effects: &mut impl Effects) {
        if deadline != Time::NEVER {
            effects.measure(Measure::Renewed { slack_nanos: Nanos::from(deadline).since(self.nanos) });
        }
    }

    /// Records the present lease of a hold. Returns whether the answer must wait until the record is durable. A longer
    /// lease may be promised only then; a shorter one may be lost in a crash.
    #[inline(never)]
    fn record_extended(
        &mut self,
        claim: ClaimIx,
        before: Time,
        remaining_ms: u32,
        effects: &mut impl Effects,
    ) -> bool {
        let end = self.now.after_ms(u64::from(remaining_ms));
        // The record of the previous lease may not be durable yet. A crash would then restore an even older lease,
        // which may end before the new one. So in this case, the answer waits for the record of the new lease, even if
        // the new lease ends before the previous one.
        let is_shorter = end <= before && self.recorded <= self.durable;
        self.record_lease(claim, end, remaining_ms, effects);
        if !is_shorter {
            self.lengthened = self.recorded;
        }
        !is_shorter
    }

    /// If another lane changed a lease, notifies the holder, which may still rely on a longer lease. If necessary, the
    /// event waits until the lease is durable. Reports the act to the audit log if another identity acquired the claim.
    fn tell_lease_moved(
        &self,
        caller: &Caller,
        claim: ClaimIx,
        remaining_ms: u32,
        waits: bool,
        effects: &mut impl Effects,
    ) {
        let holder = self.claims[claim].lane;
        let Lane { state, address, .. } = self.lanes.lanes[holder];
        if holder == caller.lane {
            return;
        }
        self.report_act(caller.lane, claim, ClaimAct::Extend { lease_ms: remaining_ms }, effects);
        if state != LaneState::Open {
            return;
        }
        let event = Event::LeaseMoved { id: self.id(claim), remaining_ms };
        if waits {
            effects.when_durable(WhenDurable::Tell(address, event));
        } else {
            self.tell_holder(claim, event, effects);
        }
    }

    fn move_lease(&mut self, index: ClaimIx, lease_ms: u32) -> Result<u32, Refusal> {
        let claim = &mut self.claims[index];
        let waits = !claim.is_held();
        if waits && self.details[claim.detail].permits().is_none() {
            return Err(Refusal::NotHeld);
        }
        let refused = match claim.lease() {
            LeaseKind::Timed => None,
            LeaseKind::Session => Some("this hold lasts as long as its session and has no lease to extend"),
            LeaseKind::Endless => Some("this hold has no lease to extend"),
            LeaseKind::Registered => Some("a registration is renewed by its owner and key, not by an id"),
        };
        if let Some(message) = refused {
            return Err(Refusal::bad_input("id", 0, message));
        }
        if waits {
            // A waiter for permits may be renewed like a hold: its future lease gets the new length. If the claim is
            // reserved, the log already has its lease with the old length. That lease will begin, so the renewal
            // changes nothing and the answer shows the old length.
            let is_recorded = claim.is_reserved();
            let detail = &mut self.details[claim.detail];
            if !is_recorded {
                detail.lease_ms = lease_ms;
            }
            return Ok(detail.lease_ms);
        }
        let end = self.now.after_ms(u64::from(lease_ms));
        let mut deadline = end;
        if claim.detail.is_some() {
            let detail = &mut self.details[claim.detail];
            // The next log record of the hold contains this length. After a reboot of the machine, a restored lease
            // begins anew with the recorded length, so it must be the length of the latest renewal.
            detail.lease_ms = lease_ms;
            if claim.state() == State::Releasing {
                // The connection of the hold is lost. The renewal moves the end of the lease, but the hold still ends
                // at `release_end` (`release_after_ms` after the loss), if that is earlier.
                detail.lease_end = end;
                deadline = end.min(detail.release_end);
            }
        }
        if deadline < claim.deadline {
            self.set_deadline(index, deadline);
        } else {
            // The timer stays in its slot, and moves to the new deadline when it fires. So a renewal costs one store.
            claim.deadline = deadline;
        }
        Ok(remaining_ms(end, self.now))
    }

    /// Changes a deadline and its timer.
    pub(super) fn set_deadline(&mut self, claim: ClaimIx, deadline: Time) {
        self.wheel.clear(&mut self.claims, claim);
        self.claims[claim].deadline = deadline;
        if deadline != Time::NEVER {
            self.wheel.set(&mut self.claims, claim, deadline);
        }
    }

    /// Cancels the acquire with this number of the caller's lane, if it still waits or its fence is not durable yet.
    pub fn cancel(&mut self, caller: &Caller, acquire_number: u32, effects: &mut impl Effects) {
        let mut acquire = caller.ticket;
        acquire.number = acquire_number;
        let claim = self.find_waiting(acquire);
        effects.answer(caller.ticket, Answer::Cancelled { was_waiting: claim.is_some() });
        if let Some(claim) = claim {
            self.give_up(claim, CancelReason::Asked, effects);
        }
    }

    /// Ends a waiting or reserved claim and answers its acquire.
    fn give_up(&mut self, claim: ClaimIx, reason: CancelReason, effects: &mut impl Effects) {
        self.answer_reserved(claim, Answer::Refused(Refusal::Cancelled(reason)), effects);
        self.end_wait(claim, effects);
    }

    /// Ends the claim with this id, held or waiting, on behalf of an operator. The lane of a hold gets an event with
    /// the reason. The acquire of a waiter is refused as ended by an operator.
    pub fn force_release(&mut self, caller: &Caller, id: ClaimId, reason: &[u8], effects: &mut impl Effects) {
        let claim = match self.claim_of(id, caller.namespace, None) {
            Ok(claim) => claim,
            Err(refusal) => return effects.answer(caller.ticket, Answer::Refused(refusal)),
        };
        if self.is_far(claim) || !self.has_right(caller.lane, claim, Rights::FORCE_RELEASE) {
            return effects.answer(caller.ticket, Answer::Refused(Refusal::NotFound));
        }
        let was_waiting = !self.claims[claim].is_held();
        let released = ForceReleased {
            id,
            was_waiting,
            // The claim waits, or is reserved and its grant is not durable yet. Clients do not know the fence of such a
            // claim, so the answer does not show it.
            fence: if was_waiting { Fence::NONE } else { self.claims[claim].fence },
            key: self.shown_key(claim),
            owner: Arc::clone(self.owner_of(claim)),
            by: Arc::clone(&self.lanes.lanes[caller.lane].owner),
            reason: Arc::from(reason),
        };
        let answer = Answer::ForceReleased(Box::new(released));
        if was_waiting {
            effects.answer(caller.ticket, answer);
            return self.give_up(claim, CancelReason::Forced, effects);
        }
        self.counters_of(caller.namespace).revoked += 1;
        effects.measure(Measure::Lost(LossReason::Forced));
        self.measure_hold(claim, effects);
        if !self.claims[claim].is_recorded() {
            effects.answer(caller.ticket, answer);
            self.revoke_event(claim, RevokeReason::Forced(Arc::from(reason)), effects);
            return self.end_hold(claim, effects);
        }
        self.revoke_event(claim, RevokeReason::Forced(Arc::from(reason)), effects);
        self.end_hold(claim, effects);
        self.answer_durably(caller.ticket, answer, effects);
    }
}
