//! What ends by time, and work that is left over from earlier turns.
//!
//! At one instant leases end first, then the waiters behind them are granted, then waits end: a waiter whose wait ends
//! in the millisecond in which its key becomes free gets the key.

use super::{Shard, Work};
use crate::claim::flag;
use crate::effect::{Answer, Effects, Event, Refusal, RevokeReason};
use crate::entry::{self, Kind};
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

    /// Goes on with what earlier turns left over. Items that are not finished go to the end of the line.
    pub(super) fn run_work(&mut self, effects: &mut impl Effects) {
        for _ in 0..self.work.len() {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let Some(work) = self.work.pop_front() else { return };
            match work {
                Work::Grant(entry) => {
                    let record = &self.keys.entries[entry];
                    if record.kind() == Kind::Pool {
                        self.go_on_with_pool(entry, effects);
                    } else if record.has(entry::flag::QUEUED) {
                        self.queues[record.head].granting = false;
                        self.grant_from_head(entry, effects);
                    }
                }
                Work::Tree(entry) => self.go_on_settling(entry, effects),
                Work::Resize(entry) => self.go_on_with_pool(entry, effects),
                Work::Lane(_) if planted!(WorkIsDropped) => {}
                Work::Lane(lane) => self.settle_lane(lane, effects),
                Work::RefuseWaiters(from) => self.refuse_waiters(from, effects),
                Work::Thaw(from) => self.go_on_thawing(from, effects),
                Work::Folded => self.record_folded(effects),
                Work::ThawSets(entry, from) => self.go_on_thawing_sets(entry, from, effects),
            }
        }
    }

    fn refuse_waiters(&mut self, from: u32, effects: &mut impl Effects) {
        for claim in from..self.claims.end() {
            if self.budget == 0 {
                return self.work.push_back(Work::RefuseWaiters(claim));
            }
            self.budget -= 1;
            if self.claims[claim].has(flag::LIVE)
                && !self.claims[claim].has(flag::HELD)
                && !self.is_far(claim)
            {
                effects.answer_waiter(self.ticket(claim), Answer::Refused(Refusal::Shutdown));
                self.end_wait(claim, effects);
            }
        }
    }
}
