//! Giving a claim back, giving it up, and renewing it.

use super::{Caller, Shard};
use crate::access::{Access, Rights};
use crate::claim::flag;
use crate::effect::{
    Answer, CancelReason, ClaimAct, Effects, Event, ForceReleased, Refusal, RevokeReason, WhenDurable,
    remaining_ms,
};
use crate::handle::ClaimIx;
use crate::ids::ClaimId;
use crate::lane::{Lane, LaneState};
use crate::measure::{LossReason, Measure};
use crate::time::{Nanos, Time};
use std::sync::Arc;

impl Shard {
    /// Ends the claim with this id, held or waiting. The caller must have the identity that took the claim, or the right to release claims
    /// of others. If another lane has the claim, that lane is notified.
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
        let kinds = flag::HELD | flag::LOCAL | flag::RESERVED | flag::REGISTERED;
        if self.claims[claim].flags & kinds != flag::HELD {
            return self.release_with_care(caller, claim, effects);
        }
        effects.released(caller.ticket);
        if !is_own {
            self.tell_released_elsewhere(caller, claim, effects);
        }
        self.measure_end(claim, effects);
        self.end_ephemeral_hold(claim, effects);
    }

    /// Ends the claim with this id if the caller's lane has it. A release that was sent before another lane took the claim up
    /// leaves the claim alone.
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

    /// Refuses a request about a claim that another lane has.
    fn check_own(&self, caller: &Caller, id: ClaimId, key: Option<&[u8]>) -> Result<(), Refusal> {
        let claim = self.claim_of(id, caller.namespace, key)?;
        if self.claims[claim].lane == caller.lane {
            return Ok(());
        }
        self.check_access(caller, claim, Rights::RELEASE_OTHERS)?;
        Err(Refusal::Cancelled(CancelReason::Superseded))
    }

    /// Everything but the release of a hold that is neither in the durable log nor a registration.
    #[inline(never)]
    fn release_with_care(&mut self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_held() {
            self.release_durable(caller, claim, effects);
        } else {
            self.release_waiter(caller, claim, effects);
        }
    }

    /// Releases a hold that is in the durable log. The release of a hold without a lease must not be forgotten, and the
    /// release of a hold that moved must not be answered before the request that has it; others are answered at once, since
    /// the lease ends the hold if its release is lost.
    fn release_durable(&mut self, caller: &Caller, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].lane != caller.lane {
            self.tell_released_elsewhere(caller, claim, effects);
        }
        let waits = self.claims[claim].has(flag::ENDLESS) || self.is_move_pending(claim);
        self.measure_hold(claim, effects);
        self.end_hold(claim, effects);
        if waits {
            self.answer_durably(caller.ticket, Answer::Released { was_waiting: false }, effects);
        } else {
            effects.released(caller.ticket);
        }
    }

    /// Tells the lane of a hold that another lane releases it. A client may have several lanes, and loses nothing then.
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

    /// Sets the end of a lease to now + `lease_ms` (0: the default), later or earlier than it was.
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
        let is_local = self.claims[claim].has(flag::LOCAL) && self.claims[claim].is_held();
        let waits = is_local && self.record_extended(claim, before, remaining_ms, effects);
        self.tell_lease_moved(caller, claim, remaining_ms, waits, effects);
        let answer = Answer::Extended { remaining_ms, clamped };
        if waits {
            self.answer_durably(caller.ticket, answer, effects);
        } else {
            effects.answer(caller.ticket, answer);
        }
    }

    /// Sets the end of a lease as [`Shard::extend`] does, if the caller's lane has the claim.
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

    /// Measures how much of a lease remained when it was renewed.
    #[inline]
    pub(super) fn measure_renewal(&self, deadline: Time, effects: &mut impl Effects) {
        if deadline != Time::NEVER {
            effects.measure(Measure::Renewed { slack_nanos: Nanos::from(deadline).since(self.nanos) });
        }
    }

    /// Records the lease that a hold has now. Whether whoever hears of it has to wait for that: a longer lease is promised
    /// once it is durable; that it became shorter may be forgotten.
    #[inline(never)]
    fn record_extended(
        &mut self,
        claim: ClaimIx,
        before: Time,
        remaining_ms: u32,
        effects: &mut impl Effects,
    ) -> bool {
        let end = self.now.after_ms(u64::from(remaining_ms));
        // The lease that it had may be one that is not durable itself.
        let is_shorter = end <= before && self.recorded <= self.durable;
        self.record_lease(claim, end, remaining_ms, effects);
        if !is_shorter {
            self.lengthened = self.recorded;
        }
        !is_shorter
    }

    /// A holder that believes in a longer lease than it has must learn of it; of a longer one once that is durable, where it
    /// has to be. If another identity took the claim, the act is reported.
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
        if claim.has(flag::SESSION_LEASE | flag::ENDLESS | flag::REGISTERED) {
            let message = if claim.has(flag::SESSION_LEASE) {
                "this hold lasts as long as its session and has no lease to extend"
            } else if claim.has(flag::ENDLESS) {
                "this hold has no lease to extend"
            } else {
                "a registration is renewed by its owner and key, not by an id"
            };
            return Err(Refusal::bad_input("id", 0, message));
        }
        if waits {
            // Who waits for permits keeps itself alive in the same way as who holds some. The lease of one that is reserved
            // is on its way to the log already, and begins as it stands there.
            let is_recorded = claim.has(flag::RESERVED);
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
            // The log may have to write the hold once more, and a reboot begins the lease that stands there anew.
            detail.lease_ms = lease_ms;
            if claim.has(flag::RELEASING) {
                // The lease moves, the lost connection still ends the hold in time.
                detail.lease_end = end;
                deadline = end.min(detail.release_end);
            }
        }
        if deadline < claim.deadline {
            self.set_deadline(index, deadline);
        } else {
            // The timer stays where it is and is put off when it fires: a renewal costs one store.
            claim.deadline = deadline;
        }
        Ok(remaining_ms(end, self.now))
    }

    /// Moves a deadline, timer and all.
    pub(super) fn set_deadline(&mut self, claim: ClaimIx, deadline: Time) {
        self.wheel.clear(&mut self.claims, claim);
        self.claims[claim].deadline = deadline;
        if deadline != Time::NEVER {
            self.wheel.set(&mut self.claims, claim, deadline);
        }
    }

    /// Gives up the acquire with this number of the caller's lane if it still waits.
    pub fn cancel(&mut self, caller: &Caller, acquire_number: u32, effects: &mut impl Effects) {
        let mut acquire = caller.ticket;
        acquire.number = acquire_number;
        let claim = self.find_waiting(acquire);
        effects.answer(caller.ticket, Answer::Cancelled { was_waiting: claim.is_some() });
        if let Some(claim) = claim {
            self.give_up(claim, CancelReason::Asked, effects);
        }
    }

    /// Ends a claim that waits and answers its acquire.
    fn give_up(&mut self, claim: ClaimIx, reason: CancelReason, effects: &mut impl Effects) {
        self.answer_reserved(claim, Answer::Refused(Refusal::Cancelled(reason)), effects);
        self.end_wait(claim, effects);
    }

    /// Ends the claim with this id, held or waiting, on behalf of an operator. Its lane is told, with the reason.
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
            // That of a claim whose grant is not durable yet nobody has been told.
            fence: if was_waiting { 0 } else { self.claims[claim].fence },
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
        if !self.claims[claim].has(flag::LOCAL) {
            effects.answer(caller.ticket, answer);
            self.revoke_event(claim, RevokeReason::Forced(Arc::from(reason)), effects);
            return self.end_hold(claim, effects);
        }
        self.revoke_event(claim, RevokeReason::Forced(Arc::from(reason)), effects);
        self.end_hold(claim, effects);
        self.answer_durably(caller.ticket, answer, effects);
    }
}
