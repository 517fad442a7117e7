//! Effects of lost, resumed and closed connections and sessions on claims.

use super::Shard;
use super::WorkNumber;
use crate::claim::{Claim, State};
use crate::effect::{Answer, CancelReason, Effects, Refusal};
use crate::handle::{ClaimIx, LaneIx};
use crate::ids::LaneAddress;
use crate::lane::LaneState;
use crate::measure::{LossReason, Measure};
use crate::time::Time;
use std::sync::Arc;
use waymaker_log::SessionTag;

impl Shard {
    /// Returns the number of a lane in this shard. Adds a record for the lane if there is none. The number stays valid
    /// until the lane is closed and its last claim ends.
    pub fn lane(&mut self, address: LaneAddress, owner: &Arc<[u8]>, namespace: u16) -> LaneIx {
        let lane = self.lanes.open(address, owner, namespace);
        if self.has_terms() {
            self.account_for(lane);
        }
        let record = &mut self.lanes.lanes[lane];
        if std::mem::take(&mut record.is_restored) {
            record.owner = Arc::clone(owner);
        }
        lane
    }

    /// Sets the session of this lane, which the records of its holds in the durable log contain.
    pub fn note_session(&mut self, lane: LaneIx, session: SessionTag) {
        self.lanes.lanes[lane].session = Some(session);
    }

    /// Notes that the session of this lane lives at least until `session_end`, which responses show as the end of its
    /// leases.
    #[inline]
    pub fn note_session_end(&mut self, lane: LaneIx, session_end: Time) {
        self.lanes.lanes[lane].session_end = session_end;
    }

    /// Notes that the connection of this lane was lost; a client may resume its session. The watches and waiters of the
    /// lane end, and so do holds with `release_after_ms`, that long after the loss unless the lane is resumed before.
    pub fn detach_lane(&mut self, address: LaneAddress, effects: &mut impl Effects) {
        self.change_lane(address, LaneState::Detached, effects);
    }

    /// Notes that the lane was resumed, so the loss of its connection no longer ends its holds.
    pub fn attach_lane(&mut self, address: LaneAddress, effects: &mut impl Effects) {
        self.change_lane(address, LaneState::Open, effects);
    }

    /// Notes that the lane ended for good. Its watches and waiters end, and so do holds with `release_after_ms`, at the
    /// latest that long after the loss of the connection. If the session ended, holds on its lease end too.
    pub fn close_lane(&mut self, address: LaneAddress, session_ended: bool, effects: &mut impl Effects) {
        if let Some(lane) = self.lanes.find(address) {
            self.lanes.lanes[lane].session_ended = session_ended;
        }
        self.change_lane(address, LaneState::Closed, effects);
    }

    /// Whether the lane has any claims: holds, waiters or registrations.
    pub fn has_claims(&self, address: LaneAddress) -> bool {
        self.lanes.find(address).is_some_and(|lane| self.lanes.lanes[lane].claim_count > 0)
    }

    /// Whether the present state of the lane (open, detached or closed) was applied to all its linked claims. For
    /// example, the waiters of a detached lane end. If a lane with many claims changes its state, later turns apply the
    /// state to the rest of the claims.
    pub fn is_settled(&self, address: LaneAddress) -> bool {
        self.lanes.find(address).is_none_or(|lane| self.lanes.lanes[lane].unsettled.first.is_none())
    }

    fn change_lane(&mut self, address: LaneAddress, state: LaneState, effects: &mut impl Effects) {
        let Some(lane) = self.lanes.find(address) else { return };
        if state != LaneState::Open {
            self.unwatch_all(lane);
        }
        let record = &mut self.lanes.lanes[lane];
        if record.state == LaneState::Open {
            record.lost_at = self.now;
        }
        if state == LaneState::Detached {
            record.lost_arrivals = self.arrivals;
        }
        record.set_state(state);
        self.lanes.unsettle(&self.claims, &mut self.details, lane);
        self.settle_lane(lane, effects);
    }

    /// Adapts the linked claims of a lane to its state, within the budget of steps: ends waiters of a lost connection
    /// and holds of an ended session, and begins or stops to release holds with `release_after_ms`.
    pub(super) fn settle_lane(&mut self, lane: LaneIx, effects: &mut impl Effects) {
        let (state, session_ended) = (self.lanes.lanes[lane].state, self.lanes.lanes[lane].session_ended);
        // While this function runs, it counts as one more claim of the lane. So the record of the lane stays when the
        // last claim of the lane ends.
        self.lanes.lanes[lane].claim_count += 1;
        while self.lanes.lanes[lane].unsettled.first.is_some() {
            if !self.steps.take() {
                self.work.push_lane(lane, &mut self.lanes.lanes[lane].settling);
                break;
            }
            let claim = self.lanes.lanes[lane].unsettled.first;
            self.lanes.settle(&mut self.claims, &mut self.details, claim);
            self.settle_claim(claim, state, session_ended, effects);
        }
        self.lanes.drop_claim(lane);
    }

    /// Continues [`Shard::settle_lane`] after an earlier turn had no steps left for it. `number` is the number of the
    /// work item that this turn left. Does nothing if the lane has another number now, because its record was freed and
    /// may be used for another lane.
    pub(super) fn go_on_with_lane(&mut self, lane: LaneIx, number: WorkNumber, effects: &mut impl Effects) {
        let record = &mut self.lanes.lanes[lane];
        if record.settling == number {
            record.settling = 0;
            self.settle_lane(lane, effects);
        }
    }

    fn settle_claim(
        &mut self,
        claim: ClaimIx,
        state: LaneState,
        session_ended: bool,
        effects: &mut impl Effects,
    ) {
        if !self.claims[claim].is_held() {
            if !self.is_asker_there(claim) {
                self.answer_lost(claim, effects);
                self.end_wait(claim, effects);
            }
            return;
        }
        if self.claims[claim].has_session_lease() && session_ended {
            effects.measure(Measure::Lost(LossReason::SessionEnded));
            self.measure_hold(claim, effects);
            return self.end_hold(claim, effects);
        }
        match (state, self.details[self.claims[claim].detail].release_after_ms) {
            (LaneState::Open, _) => self.stop_releasing(claim),
            (_, Some(release_after_ms)) => self.start_releasing(claim, release_after_ms, effects),
            (_, None) => {}
        }
    }

    /// Whether the connection that sent the acquire of a waiting claim is still open.
    #[inline]
    pub(super) fn is_asker_there(&self, claim: ClaimIx) -> bool {
        let Claim { lane, detail, .. } = self.claims[claim];
        let lane = &self.lanes.lanes[lane];
        lane.state == LaneState::Open && self.details[detail].asked >= lane.lost_arrivals
    }

    /// Refuses the acquire of a waiter as cancelled, because its connection was lost. If the lane is closed, sends no
    /// answer. Otherwise a client has resumed the lane or may still resume it, and can request the answer.
    pub(super) fn answer_lost(&self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.lanes.lanes[self.claims[claim].lane].state != LaneState::Closed {
            let refusal = Refusal::Cancelled(CancelReason::ConnectionLost);
            self.answer_reserved(claim, Answer::Refused(refusal), effects);
        }
    }

    fn start_releasing(&mut self, index: ClaimIx, release_after_ms: u32, effects: &mut impl Effects) {
        if release_after_ms == 0 {
            effects.measure(Measure::Lost(LossReason::ConnectionLost));
            self.measure_hold(index, effects);
            return self.end_hold(index, effects);
        }
        if self.claims[index].state() != State::Releasing {
            self.claims[index].set_state(State::Releasing);
            let lease_end = self.claims[index].deadline;
            self.detail_mut(index).lease_end = lease_end;
        }
        self.time_release(index);
    }

    /// Sets the end of a hold with `release_after_ms`: the end of its lease or, if its lane has no connection,
    /// `release_after_ms` after the loss if that is earlier.
    fn time_release(&mut self, index: ClaimIx) {
        let lane = &self.lanes.lanes[self.claims[index].lane];
        let lost_at = if lane.state == LaneState::Open { Time::NEVER } else { lane.lost_at };
        let detail = self.detail_mut(index);
        detail.release_end = lost_at.after_ms(u64::from(detail.release_after_ms.unwrap_or(u32::MAX)));
        let deadline = detail.release_end.min(detail.lease_end);
        if deadline != self.claims[index].deadline {
            self.set_deadline(index, deadline);
        }
    }

    /// Whether a hold with `release_after_ms` whose timer fired at `at` ends. If its lane was resumed, or resumed and
    /// lost again, after the timer was set, sets the timer again.
    pub(super) fn is_released_at(&mut self, index: ClaimIx, at: Time) -> bool {
        self.time_release(index);
        let is_over = self.claims[index].deadline <= at;
        if !is_over && !self.claims[index].wheel.is_set() {
            let deadline = self.claims[index].deadline;
            self.set_deadline(index, deadline);
        }
        is_over
    }

    pub(super) fn stop_releasing(&mut self, index: ClaimIx) {
        if self.claims[index].state() == State::Releasing {
            self.claims[index].set_state(State::Held);
            let lease_end = self.detail_mut(index).lease_end;
            self.set_deadline(index, lease_end);
        }
    }
}
