//! Events that tell a lane about its claims.

use super::Shard;
use crate::effect::{Effects, Event, RevokeReason, WhenDurable};
use crate::handle::ClaimIx;
use crate::ids::Ticket;
use crate::lane::LaneState;

impl Shard {
    /// Sends the lane of a waiter the event that its request is queued.
    pub(super) fn queued_event(&self, claim: ClaimIx, position: usize, effects: &mut impl Effects) {
        let Ticket { lane, number } = self.ticket(claim);
        let ticket = self.details[self.claims[claim].detail].order.arrival;
        let position = position as u32;
        effects.event(lane, Event::Queued { number, id: self.id(claim), position, ticket });
    }

    /// Notifies the lane of a hold, if the lane is open, that the hold ends, and why, although this lane does not
    /// release it.
    pub(super) fn revoke_event(&self, claim: ClaimIx, reason: RevokeReason, effects: &mut impl Effects) {
        self.tell_holder(claim, Event::Revoked { id: self.id(claim), reason }, effects);
    }

    /// Sends an event to the lane of a hold if the lane is open. If the acquire that took the hold over is not answered
    /// yet, the event waits for the log, so that it arrives after that answer.
    pub(super) fn tell_holder(&self, claim: ClaimIx, event: Event, effects: &mut impl Effects) {
        let lane = &self.lanes.lanes[self.claims[claim].lane];
        if lane.state != LaneState::Open {
            return;
        }
        if self.is_move_pending(claim) {
            effects.when_durable(WhenDurable::Tell(lane.address, event));
        } else {
            effects.event(lane.address, event);
        }
    }
}
