//! Claims that a newer request takes over, from the same lane or another lane.

use super::durability::answer_acquire;
use super::quota::MovedClaims;
use super::{AcquireTerms, Caller, Shard};
use crate::claim::{MOVED_BESIDE_RECORDS, State, flag};
use crate::effect::{Answer, CancelReason, ClaimAct, Effects, Event, Grant, Refusal, WhenDurable};
use crate::handle::{ClaimIx, LaneIx};

impl Shard {
    /// Serves a repeated request id: the new request takes the claim over. If the claim is held, the grant is the
    /// answer. If it waits or is reserved, its answer goes to the new request later.
    pub(super) fn acquire_again(
        &mut self,
        caller: &Caller,
        shared: bool,
        terms: &AcquireTerms<'_>,
        claim: ClaimIx,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        self.check_repeated(claim, shared, terms.session_lease)?;
        self.may_move_to(claim, caller.lane, &mut MovedClaims::default())?;
        if self.claims[claim].is_held() {
            let is_recorded = self.move_hold(claim, caller.lane, caller.ticket.number, effects);
            let grant = Grant { repeated: true, ..self.grant_of(claim) };
            if is_recorded {
                effects.when_durable(WhenDurable::Answer(caller.ticket, Answer::Granted(grant)));
                return Ok(None);
            }
            return Ok(Some(grant));
        }
        self.supersede(claim, caller, false, effects);
        if terms.notify_queued && !self.claims[claim].is_reserved() {
            self.queued_event(claim, self.position_of(claim), effects);
        }
        Ok(None)
    }

    /// Refuses a repeated request that may not have the claim of its request id. The claim must have the same mode and
    /// kind of lease. Its outcome must not be unknown, as it is if the log failed before its fence was durable. Until
    /// the instant `grants_from`, every repeated request is refused, because the restored log may lack records. A lost
    /// record may have ended the claim and granted the key to another client.
    pub(super) fn check_repeated(
        &mut self,
        claim: ClaimIx,
        shared: bool,
        session_lease: bool,
    ) -> Result<(), Refusal> {
        self.may_grant()?;
        if self.claims[claim].state() == State::Unknown {
            // The log failed before the fence of the claim was durable. The older request was refused as unknown, too,
            // and the outcome stays unknown until the process ends.
            return Err(Refusal::Unknown);
        }
        let wrong = |message| Err(Refusal::bad_input("request_id", 0, message));
        if self.claims[claim].has(flag::SHARED) != shared {
            return wrong("the request id belongs to a claim of the other mode (read or write)");
        }
        if self.claims[claim].has_session_lease() != session_lease {
            return wrong(
                "the request id belongs to a claim with the other kind of lease (its own or its session's)",
            );
        }
        Ok(())
    }

    /// Moves a waiter to a newer acquire and refuses the older one. If the claim is in the log, the move is recorded.
    /// `are_others_recorded` tells whether claims of the request's other keys are in the log. If any of its claims is,
    /// the refusal and the grant wait until these records are durable. Before that, a crash could still grant the claim
    /// to the older acquire.
    pub(super) fn supersede(
        &mut self,
        claim: ClaimIx,
        caller: &Caller,
        are_others_recorded: bool,
        effects: &mut impl Effects,
    ) {
        let (before, waited) = (self.ticket(claim), self.has_waited(claim));
        // The table of waiting claims finds a claim by its ticket (lane and number of its acquire). The claim gets the
        // ticket of the newer acquire below, so its entry under the older ticket must be removed first.
        self.forget_waiting(claim);
        let is_recorded =
            self.move_reserved(claim, caller.lane, caller.ticket.number, effects) || are_others_recorded;
        self.detail_mut(claim).asked = self.next_arrival();
        self.remember_waiting(claim);
        let superseded = Answer::Refused(Refusal::Cancelled(CancelReason::Superseded));
        if !is_recorded {
            answer_acquire(before, waited, superseded, effects);
        } else if waited {
            effects.when_durable(WhenDurable::AnswerWaiter(before, superseded));
        } else {
            effects.when_durable(WhenDurable::Answer(before, superseded));
        }
        effects.waits(caller.ticket);
    }

    /// Moves a claim that is not held yet to the lane of a newer request. Returns whether the claim is in the log; if
    /// so, the move was recorded too.
    pub(super) fn move_reserved(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        number: u32,
        effects: &mut impl Effects,
    ) -> bool {
        self.move_to_lane(claim, lane, ClaimAct::TakeOver, effects);
        let detail = self.detail_mut(claim);
        (detail.number, detail.waited) = (number, true);
        self.record_move(claim, effects)
    }

    /// Records the request that a claim has moved to, if the claim is in the log. Returns whether it is.
    fn record_move(&mut self, claim: ClaimIx, effects: &mut impl Effects) -> bool {
        let is_recorded = self.claims[claim].is_recorded();
        if is_recorded {
            self.record_hold(claim, effects);
            self.detail_mut(claim).moved_record = self.recorded;
        }
        is_recorded
    }

    /// Marks a hold without a log record whose multi-key claim another request has taken over. The log has records of
    /// this takeover only for other keys. As long as the mark is in `Detail::moved_record`, each event about the hold
    /// waits for the log. So no client learns of its new lane before the answer to that request.
    pub(super) fn note_moved_beside_records(&mut self, claim: ClaimIx) {
        if !self.claims[claim].is_recorded() {
            self.detail_mut(claim).moved_record = MOVED_BESIDE_RECORDS;
        }
    }

    /// Moves a claim to the lane of the request that takes it over, or that renews its registration. Reports the act to
    /// the audit log if another identity acquired the claim.
    pub(super) fn move_to_lane(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        act: ClaimAct,
        effects: &mut impl Effects,
    ) {
        let from = self.claims[claim].lane;
        if from == lane {
            return;
        }
        // The report to the audit log depends on the owner and the identity that the claim has in its former lane. So
        // it must precede the move.
        self.report_act(lane, claim, act, effects);
        let linked = self.claims[claim].has(flag::LINKED);
        self.lanes.unlink(&mut self.claims, &mut self.details, claim);
        self.set_lane(claim, lane);
        // Only a hold from before a restart has an identity of its own. Without it, the claim has the identity of its
        // new lane.
        if self.claims[claim].detail.is_some() {
            let detail = self.claims[claim].detail;
            self.details[detail].identity = None;
        }
        self.lanes.lanes[lane].claim_count += 1;
        self.move_amounts(claim, from, lane);
        self.lanes.drop_claim(from);
        if linked {
            self.lanes.link(&mut self.claims, &mut self.details, claim);
            self.stop_releasing(claim);
        }
    }

    /// Moves a hold to the lane that requested it again under this number, and notifies the former lane. Does nothing
    /// if the same lane repeats the same number. Returns whether the move was recorded. If so, the answer must wait
    /// until the record is durable, because the log has the session and the request number of a hold.
    pub(super) fn move_hold(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        number: u32,
        effects: &mut impl Effects,
    ) -> bool {
        let before = std::mem::replace(&mut self.detail_mut(claim).number, number);
        if self.claims[claim].lane == lane && before == number {
            return false;
        }
        // The event tells the former lane that its older acquire no longer has the hold. `tell_holder` sends it to the
        // present lane of the claim, so it must precede the move.
        self.taken_up_event(claim, before, effects);
        self.move_to_lane(claim, lane, ClaimAct::TakeOver, effects);
        let detail = self.detail_mut(claim);
        (detail.waited, detail.repeated) = (false, true);
        self.record_move(claim, effects)
    }

    /// Notifies the lane of a hold that the acquire with this number no longer has it.
    fn taken_up_event(&self, claim: ClaimIx, number: u32, effects: &mut impl Effects) {
        self.tell_holder(claim, Event::TakenUp { number, id: self.id(claim) }, effects);
    }

    /// Whether the answer to the request that took a hold over may still wait for the log.
    pub(super) fn is_move_pending(&self, claim: ClaimIx) -> bool {
        let detail = self.details.get(self.claims[claim].detail);
        detail.is_some_and(|detail| detail.moved_record > self.durable)
    }
}
