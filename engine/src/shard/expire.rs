//! What ends by time.
//!
//! At one instant leases end first, then the waiters behind them are granted, then waits end: a waiter whose wait ends
//! in the millisecond in which its key becomes free gets the key.

use super::Shard;
use crate::claim::flag;
use crate::effect::{Answer, Effects, Event, Refusal, RevokeReason};
use crate::planted;
use crate::time::Time;
use crate::wheel::Popped;

impl Shard {
    /// Ends what was due by `drained`, within the budget.
    pub(super) fn expire(&mut self, drained: Time, effects: &mut impl Effects) {
        // Waits end after everything else of their instant, also where that takes more than one turn.
        if !self.wheel.is_within_instant() && !self.end_waits(effects) {
            return;
        }
        while self.budget > 0 {
            self.budget -= 1;
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

    fn timer_fired(&mut self, claim: u32, at: Time, effects: &mut impl Effects) {
        let deadline = self.claims[claim].deadline;
        if deadline > at {
            self.wheel.set(&mut self.claims, claim, deadline);
        } else if self.claims[claim].is_held() {
            if self.claims[claim].has(flag::RELEASING) {
                if !self.is_released_at(claim, at) {
                    return;
                }
                self.revoke_event(claim, RevokeReason::ConnectionLost, effects);
            } else if self.claims[claim].has(flag::LAZY) {
                if !self.claims[claim].has(flag::OVERDUE) {
                    return self.become_overdue(claim);
                }
            } else {
                self.tell_holder(claim, Event::Expired { id: self.id(claim) }, effects);
                self.counters_of(self.namespace_of(claim)).expired += 1;
                if self.claims[claim].has(flag::REGISTERED) {
                    self.tell_registration_expired(claim, effects);
                }
            }
            self.end_hold(claim, effects);
        } else {
            self.claims[claim].flags |= flag::WAIT_OVER;
            self.waits_over.push_back(claim);
        }
    }

    /// Ends the waits that were over at the instant just worked off. False if the budget did not suffice.
    fn end_waits(&mut self, effects: &mut impl Effects) -> bool {
        self.ending_waits = true;
        while let Some(claim) = self.waits_over.front().copied() {
            if self.budget == 0 {
                return false;
            }
            self.budget -= 1;
            self.waits_over.pop_front();
            // Granted, cancelled or even used again meanwhile: then the flag is gone.
            if self.claims[claim].has(flag::WAIT_OVER) {
                let refusal = Refusal::Timeout(Box::new(self.contention_at_end(claim)));
                if !planted!(TimeoutIsNotSaid) {
                    self.answer_reserved(claim, Answer::Refused(refusal), effects);
                }
                self.counters_of(self.namespace_of(claim)).timeouts += 1;
                self.end_wait(claim, effects);
            }
        }
        self.ending_waits = false;
        true
    }
}
