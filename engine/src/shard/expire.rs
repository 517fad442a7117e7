//! Expiry of leases and waits.
//!
//! At each instant, leases expire first, then the waiters behind them are granted, and then waits end. So the next
//! waiter of a key still gets the key if its wait ends in the millisecond in which the lease before it expires.

use super::Shard;
use crate::claim::{Claim, Detail, State, flag};
use crate::effect::{Answer, Effects, Event, Refusal};
use crate::handle::{ClaimIx, KeyIx};
use crate::measure::{LossReason, Measure};
use crate::steps::WorkNumber;
use crate::time::Time;
use crate::wheel::Popped;

/// Claim whose wait ended while earlier grants of its key were not finished. One of those grants may be for the claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateWait {
    claim: ClaimIx,
    /// Secret of the claim, which distinguishes it from a later claim in the same slot.
    secret: u64,
    /// Number of the item of follow-up work that continues the unfinished grants of the claim's key. These grants began
    /// before the wait of the claim ended. They are finished once the key has no work item of this number any more.
    grants: WorkNumber,
}

impl Shard {
    /// Processes the timers of claims that were due by `drained`, the time up to which every worker is known to have
    /// read its sockets. Most of these timers end a hold or a wait. Each timer takes one step of the limited follow-up
    /// work of this turn. If no step is left, a later turn continues.
    pub(super) fn expire(&mut self, drained: Time, effects: &mut impl Effects) {
        // Waits end after all other timers of their instant, even if that takes more than one turn.
        if !self.wheel.is_within_instant() && !self.end_waits(effects) {
            return;
        }
        while self.steps.take() {
            match self.wheel.pop(&mut self.claims, drained) {
                Popped::Timer { timer, at } => self.timer_fired(timer, at, effects),
                Popped::Moved => {}
                Popped::EndOfInstant => {
                    if !self.end_waits(effects) {
                        return;
                    }
                }
                Popped::Nothing => return,
            }
        }
    }

    fn timer_fired(&mut self, claim: ClaimIx, at: Time, effects: &mut impl Effects) {
        let deadline = self.claims[claim].deadline;
        self.cause = at.into();
        if deadline > at {
            self.wheel.set(&mut self.claims, claim, deadline);
        } else {
            self.end_of_state(claim, at, effects);
        }
    }

    /// Handles the deadline of a claim. A hold ends, but a lazy registration first becomes overdue, and a hold that
    /// lost its connection may get a later deadline. Such a hold counts as expired if its own lease ends first. A
    /// waiting or reserved claim is added to `waits_over`. Its wait ends after all other timers of this instant.
    fn end_of_state(&mut self, claim: ClaimIx, at: Time, effects: &mut impl Effects) {
        match self.claims[claim].state() {
            State::Free => return debug_assert!(false, "a free record has a timer"),
            State::Waiting | State::Stub | State::Reserved | State::Unknown => {
                self.claims[claim].flags |= flag::WAIT_OVER;
                return self.waits_over.push_back(claim);
            }
            State::Held if self.is_lazy(claim) => return self.become_overdue(claim),
            State::Held => self.tell_expired(claim, effects),
            State::Releasing => {
                if !self.is_released_at(claim, at) {
                    return;
                }
                let Detail { lease_end, release_end, .. } = self.details[self.claims[claim].detail];
                if lease_end <= release_end {
                    self.tell_expired(claim, effects);
                } else {
                    // The lane has no connection that could be told.
                    effects.measure(Measure::Lost(LossReason::ConnectionLost));
                }
            }
            State::Overdue => {}
        }
        self.measure_hold(claim, effects);
        self.end_hold(claim, effects);
    }

    /// Reports to the client and to the metrics that the lease of a hold expired.
    fn tell_expired(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        effects.measure(Measure::Lost(LossReason::Expired));
        self.tell_holder(claim, Event::Expired { id: self.id(claim) }, effects);
        self.counters_of(self.namespace_of(claim)).expired += 1;
        if self.claims[claim].is_registration() {
            self.tell_registration_expired(claim, effects);
        }
    }

    /// Ends the waits whose timers fired at the instant that was just processed. Leaves a wait to `end_late_waits` if
    /// unfinished grants of its key may still be for the claim. Each wait takes one step of the limited follow-up work
    /// of this turn. Returns false if no step was left, so that a later turn must continue.
    fn end_waits(&mut self, effects: &mut impl Effects) -> bool {
        if !std::mem::replace(&mut self.ending_waits, true) {
            self.granting_before = self.work.last_number();
        }
        while let Some(claim) = self.waits_over.front().copied() {
            if !self.steps.take() {
                return false;
            }
            self.waits_over.pop_front();
            // If the claim was granted or cancelled since its timer fired, or its record was reused, `WAIT_OVER` is no
            // longer set.
            if self.claims[claim].has(flag::WAIT_OVER) {
                let Claim { entry, secret, .. } = self.claims[claim];
                if self.is_granting_since_before(entry) {
                    // The key became free before the wait ended, so the claim may still get the key. The claim stays in
                    // `late_waits` until the grants of its key are finished, and waits for other keys can end now.
                    let grants = self.grants_left(entry);
                    self.late_waits.push_back(LateWait { claim, secret, grants });
                } else {
                    self.end_wait_in_vain(claim, effects);
                }
            }
        }
        self.ending_waits = false;
        true
    }

    /// Ends the waits in `late_waits`. They timed out while grants of their keys, begun before, were left to later
    /// turns. Each wait ends once these grants are finished, unless one of them was for its claim. Each wait takes one
    /// step of the limited follow-up work of this turn; if none is left, a later turn continues.
    pub(super) fn end_late_waits(&mut self, effects: &mut impl Effects) {
        for _ in 0..self.late_waits.len() {
            if !self.steps.take() {
                return;
            }
            let Some(late) = self.late_waits.pop_front() else { return };
            let Claim { entry, secret, .. } = self.claims[late.claim];
            if secret != late.secret || !self.claims[late.claim].has(flag::WAIT_OVER) {
                // The claim was granted or given up.
            } else if self.grants_left(entry) == late.grants {
                self.late_waits.push_back(late);
            } else {
                self.end_wait_in_vain(late.claim, effects);
            }
        }
    }

    fn end_wait_in_vain(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        let refusal = Refusal::Timeout(Box::new(self.contention_at_end(claim)));
        self.answer_reserved(claim, Answer::Refused(refusal), effects);
        self.counters_of(self.namespace_of(claim)).timeouts += 1;
        self.end_wait(claim, effects);
    }

    /// Whether unfinished grants of this key began before the shard began to end the waits of the present instant.
    /// Grants are unfinished if a turn used up its steps and left the rest to a later turn. Such grants may still be
    /// for a claim whose wait is over.
    fn is_granting_since_before(&self, entry: KeyIx) -> bool {
        (1..=self.granting_before).contains(&self.grants_left(entry))
    }

    /// Whether a waiter may not be granted because its wait ended.
    pub(super) fn is_wait_over(&self, claim: ClaimIx) -> bool {
        let claim = &self.claims[claim];
        self.ending_waits && claim.has(flag::WAIT_OVER) && !self.is_granting_since_before(claim.entry)
    }
}
