//! The grant rule.
//!
//! A waiter is granted when it conflicts with no holder and everyone in front of it was granted. So a reader never
//! overtakes a waiting writer, and readers at the head are granted together.

use super::{Shard, Work};
use crate::claim::{Claim, flag};
use crate::effect::{Answer, ClaimId, Contention, Effects, Grant, Refusal, remaining_ms};
use crate::entry;
use crate::lane::LaneState;
use crate::planted;
use crate::queue::Queue;
use crate::slab::NONE;
use crate::time::Time;
use std::sync::Arc;

impl Grant {
    #[inline]
    fn of(claim: &Claim, shard: u16, slot: u32, now: Time) -> Self {
        Self {
            id: ClaimId::new(shard, slot, claim.generation, claim.secret),
            fence: claim.fence,
            remaining_ms: remaining_ms(claim.deadline, now),
            clamped: claim.has(flag::CLAMPED),
            waited: false,
            repeated: false,
            session_lease: claim.has(flag::SESSION_LEASE),
        }
    }
}

impl Shard {
    /// Makes a claim the one holder of its free key.
    #[inline]
    pub(super) fn hold_alone(&mut self, claim: u32, lease_ms: u32) -> Grant {
        let entry = self.claims[claim].entry;
        debug_assert!(self.keys.entries[entry].head == NONE);
        self.keys.entries[entry].head = claim;
        self.keys.leave_idle();
        self.start_lease(claim, lease_ms)
    }

    /// Makes a claim that stands nowhere a holder of its key, which is open to it.
    pub(super) fn hold(&mut self, claim: u32, lease_ms: u32) -> Grant {
        let entry = self.claims[claim].entry;
        if self.keys.entries[entry].head == NONE {
            return self.hold_alone(claim, lease_ms);
        }
        let queue = self.queue_of(entry);
        debug_assert!(self.queues[queue].is_open_to(self.claims[claim].has(flag::SHARED), &self.claims));
        self.queues[queue].holders.push_back(&mut self.claims, claim);
        self.start_lease(claim, lease_ms)
    }

    /// The next fence and the lease: a claim is held from here on.
    #[inline]
    fn start_lease(&mut self, index: u32, lease_ms: u32) -> Grant {
        let now = self.now;
        let claim = &mut self.claims[index];
        let entry = &mut self.keys.entries[claim.entry];
        if !(planted!(SharedFenceIsNotRaised) && claim.has(flag::SHARED)) {
            entry.fence += 1;
        }
        claim.fence = entry.fence - u64::from(planted!(FenceBeforeIncrement));
        claim.flags |= flag::HELD;
        claim.since = now;
        let session_lease = claim.has(flag::SESSION_LEASE);
        let lease_ms = if planted!(LeaseEndsEarly) { lease_ms - 1 } else { lease_ms };
        let deadline = if session_lease { Time::NEVER } else { now.after_ms(u64::from(lease_ms)) };
        claim.deadline = deadline;
        let grant = Grant::of(claim, self.number, index, now);
        if planted!(LeaseEndsEarly) && !session_lease {
            self.wheel.set(&mut self.claims, index, deadline);
            return Grant { remaining_ms: grant.remaining_ms + 1, ..grant };
        }
        if !session_lease {
            self.wheel.set(&mut self.claims, index, deadline);
        }
        grant
    }

    #[inline]
    pub(super) fn grant_of(&self, index: u32) -> Grant {
        Grant::of(&self.claims[index], self.number, index, self.now)
    }

    /// The queue of a key, made from its one holder if it has none.
    pub(super) fn queue_of(&mut self, entry_index: u32) -> u32 {
        let entry = &mut self.keys.entries[entry_index];
        if entry.has(entry::flag::QUEUED) {
            return entry.head;
        }
        let queue = self.queues.allocate();
        self.queues[queue] = Queue::default();
        if entry.head == NONE {
            self.keys.leave_idle();
        } else {
            self.queues[queue].holders.push_back(&mut self.claims, entry.head);
        }
        let entry = &mut self.keys.entries[entry_index];
        entry.head = queue;
        entry.flags |= entry::flag::QUEUED;
        queue
    }

    /// Grants from the head of the queue up to the first waiter that is not clear, as far as the budget goes.
    pub(super) fn grant_from_head(&mut self, entry: u32, effects: &mut impl Effects) {
        if !self.keys.entries[entry].has(entry::flag::QUEUED) {
            return;
        }
        let queue = self.keys.entries[entry].head;
        loop {
            let first = self.queues[queue].first_waiter();
            if first == NONE {
                break;
            }
            let first =
                if planted!(TailIsServed) { self.queues[queue].last_waiter(&self.claims) } else { first };
            if !self.queues[queue].is_open_to(self.claims[first].has(flag::SHARED), &self.claims) {
                break;
            }
            if self.budget == 0 {
                if !self.queues[queue].granting {
                    self.queues[queue].granting = true;
                    self.work.push_back(Work::Grant(entry));
                }
                return;
            }
            self.budget -= 1;
            let is_over = self.ending_waits && self.claims[first].has(flag::WAIT_OVER);
            self.leave_queue(first);
            if self.lanes.lanes[self.claims[first].lane].state != LaneState::Open {
                // Whoever asked is gone: a hold that nobody knows of must not begin.
                self.answer_lost(first, effects);
                self.free_claim(first);
            } else if is_over || self.stopping {
                let refusal = if is_over {
                    Refusal::Timeout(Box::new(self.contention_with(entry, self.queues[queue].holders.first)))
                } else {
                    Refusal::Shutdown
                };
                effects.answer_waiter(self.ticket(first), Answer::Refused(refusal));
                self.free_claim(first);
            } else {
                self.grant_waiter(queue, first, effects);
            }
            if planted!(OneReaderIsWoken) {
                break;
            }
        }
        self.simplify(entry);
    }

    fn grant_waiter(&mut self, queue: u32, claim: u32, effects: &mut impl Effects) {
        let ticket = self.ticket(claim);
        self.queues[queue].holders.push_back(&mut self.claims, claim);
        let detail = &self.details[self.claims[claim].detail];
        let (lease_ms, hangs_on_lane) = (
            detail.lease_ms,
            detail.release_after_ms.is_some() || self.claims[claim].has(flag::SESSION_LEASE),
        );
        let needed = hangs_on_lane || detail.outlives_wait();
        if !hangs_on_lane {
            self.lanes.unlink(&mut self.claims, &mut self.details, claim);
        }
        if !needed {
            self.drop_detail(claim);
        }
        let grant = self.start_lease(claim, lease_ms);
        effects.answer_waiter(ticket, Answer::Granted(Grant { waited: true, ..grant }));
    }

    /// Takes a waiter out of its queue, off its timer and out of the table of tickets. It stands nowhere then, but still
    /// hangs on its lane.
    pub(super) fn leave_queue(&mut self, claim: u32) {
        self.forget_waiting(claim);
        self.wheel.clear(&mut self.claims, claim);
        let queue = self.keys.entries[self.claims[claim].entry].head;
        self.queues[queue].remove_waiter(&mut self.claims, &self.details, claim);
        self.claims[claim].flags &= !flag::WAIT_OVER;
        self.claims[claim].deadline = Time::NEVER;
    }

    /// A queue that one claim, or none, can stand for goes away.
    pub(super) fn simplify(&mut self, entry_index: u32) {
        let entry = &mut self.keys.entries[entry_index];
        if !entry.has(entry::flag::QUEUED) {
            return;
        }
        let queue = entry.head;
        if self.queues[queue].waiter_count() > 0 || self.queues[queue].holders.count > 1 {
            return;
        }
        let holder = self.queues[queue].holders.first;
        entry.flags &= !entry::flag::QUEUED;
        entry.head = holder;
        self.queues.release(queue);
        if holder == NONE {
            self.keys.become_idle(entry_index);
        }
    }

    /// Takes a holder off its key, and lets the next ones in.
    #[inline]
    pub(super) fn end_hold(&mut self, claim: u32, effects: &mut impl Effects) {
        self.wheel.clear(&mut self.claims, claim);
        let entry = self.claims[claim].entry;
        if self.keys.entries[entry].has(entry::flag::QUEUED) {
            let queue = self.keys.entries[entry].head;
            self.queues[queue].holders.remove(&mut self.claims, claim);
            self.free_claim(claim);
            if planted!(ReleaseWakesNobody) {
                return self.simplify(entry);
            }
            self.grant_from_head(entry, effects);
        } else {
            self.keys.become_idle(entry);
            self.free_claim(claim);
        }
    }

    /// Ends a claim that waits, and lets in whom it kept out.
    pub(super) fn end_wait(&mut self, claim: u32, effects: &mut impl Effects) {
        let entry = self.claims[claim].entry;
        let queue = self.keys.entries[entry].head;
        let was_first = self.queues[queue].first_waiter() == claim;
        self.leave_queue(claim);
        self.free_claim(claim);
        if was_first {
            self.grant_from_head(entry, effects);
        } else {
            self.simplify(entry);
        }
    }

    /// Who stands in front of a claim of this mode: the holder it conflicts with, else the waiter at the head.
    pub(super) fn contention(&self, entry_index: u32, shared: bool) -> Contention {
        let entry = &self.keys.entries[entry_index];
        let in_front = if entry.has(entry::flag::QUEUED) {
            let queue = &self.queues[entry.head];
            let conflicts = !queue.is_open_to(shared, &self.claims);
            if conflicts { queue.holders.first } else { queue.first_waiter() }
        } else {
            entry.head
        };
        self.contention_with(entry_index, in_front)
    }

    /// What is said of the claim in front, or of nobody where it is `NONE`.
    fn contention_with(&self, entry: u32, in_front: u32) -> Contention {
        let waiter_count = self.waiter_count(entry);
        if in_front == NONE {
            let owner = Arc::from([]);
            return Contention {
                held: false,
                shared: false,
                age_ms: 0,
                remaining_ms: 0,
                waiter_count,
                owner,
            };
        }
        let claim = &self.claims[in_front];
        Contention {
            held: claim.has(flag::HELD),
            shared: claim.has(flag::SHARED),
            age_ms: self.now.ms_since(claim.since),
            remaining_ms: self.shown_remaining_ms(in_front),
            waiter_count,
            owner: Arc::clone(self.owner_of(in_front)),
        }
    }

    /// What is left of a lease or a wait, for display: of a session's lease, what is certain.
    pub(super) fn shown_remaining_ms(&self, claim: u32) -> u32 {
        let claim = &self.claims[claim];
        let by_session =
            claim.has(flag::HELD) && claim.has(flag::SESSION_LEASE) && !claim.has(flag::RELEASING);
        let end = if by_session { self.lanes.lanes[claim.lane].session_end } else { claim.deadline };
        remaining_ms(end, self.now)
    }
}
