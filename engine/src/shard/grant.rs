//! Beginnings and ends of holds, and the reasons why claims wait.
//!
//! The discipline of a key decides which claim is granted next. The steps of a grant are the same for all disciplines.

use super::Shard;
use crate::access::Rights;
use crate::claim::{Claim, Detail, LeaseKind, State, flag};
use crate::effect::{Answer, Contention, Effects, Grant, Refusal, remaining_ms};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::ClaimId;
use crate::measure::{FreedAt, Measure};
use crate::time::Time;
use std::sync::Arc;

impl Grant {
    #[inline]
    fn of(claim: &Claim, shard: u16, slot: ClaimIx, now: Time) -> Self {
        Self {
            id: ClaimId::new(shard, slot.number(), claim.generation, claim.secret),
            fence: claim.fence,
            remaining_ms: remaining_ms(claim.deadline, now),
            clamped: claim.has(flag::CLAMPED),
            waited: false,
            repeated: false,
            session_lease: claim.has_session_lease(),
        }
    }
}

impl Shard {
    /// Assigns the next fence and begins the lease, so that the claim is held. The time of the grant of a claim that
    /// waited must already be set. The end of a registration is set later.
    #[inline(always)]
    pub(super) fn start_lease(&mut self, index: ClaimIx, lease_ms: u32) -> Grant {
        let now = self.now;
        let claim = &mut self.claims[index];
        let entry = &mut self.keys.entries[claim.entry];
        entry.fence = entry.fence.next();
        claim.fence = entry.fence;
        claim.set_state(State::Held);
        let is_timed = claim.lease() == LeaseKind::Timed;
        let deadline = if is_timed { now.after_ms(u64::from(lease_ms)) } else { Time::NEVER };
        claim.deadline = deadline;
        let grant = Grant::of(claim, self.number, index, now);
        if is_timed {
            self.wheel.set(&mut self.claims, index, deadline);
        }
        grant
    }

    #[inline]
    pub(super) fn grant_of(&self, index: ClaimIx) -> Grant {
        Grant { id: self.id(index), ..Grant::of(&self.claims[index], self.number, index, self.now) }
    }

    /// Whether a waiter that no other claim blocks may be granted. If not, answers its acquire with a refusal, unless
    /// its lane is closed. The caller must then remove the waiter.
    #[inline]
    pub(super) fn may_begin(&mut self, claim: ClaimIx, effects: &mut impl Effects) -> bool {
        let listens = self.is_asker_there(claim);
        if listens && !self.is_wait_over(claim) && !self.stopping && self.may_count_claim(claim).is_ok() {
            return true;
        }
        self.answer_instead(claim, effects);
        false
    }

    /// Answers the acquire of a waiter that no other claim blocks, but that may not be granted. If its connection was
    /// lost, the answer is that of `answer_lost`. Otherwise, the answer is a refusal: the wait has timed out, the log
    /// or the cluster accepts no grant, or the server is stopping.
    #[cold]
    fn answer_instead(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if !self.is_asker_there(claim) {
            // The connection of the acquire was lost: a hold that no client knows must not begin.
            return self.answer_lost(claim, effects);
        }
        let refusal = if self.is_wait_over(claim) {
            self.counters_of(self.namespace_of(claim)).timeouts += 1;
            Refusal::Timeout(Box::new(self.contention_at_end(claim)))
        } else {
            self.may_count_claim(claim).err().unwrap_or(Refusal::Shutdown)
        };
        effects.answer_waiter(self.ticket(claim), Answer::Refused(refusal));
    }

    /// Begins the hold of a claim that waited and is now among the holders, and answers its acquire. If its fence must
    /// be durable first, reserves the claim instead; the answer then comes after the fence is durable.
    #[inline]
    pub(super) fn begin_hold(&mut self, claim: ClaimIx, freed_at: FreedAt, effects: &mut impl Effects) {
        if self.must_be_reserved(claim) {
            let detail = &mut self.details[self.claims[claim].detail];
            (detail.waited, detail.freed_at) = (true, freed_at);
            return self.reserve(claim, effects);
        }
        let ticket = self.ticket(claim);
        self.measure_grant(claim, freed_at, effects);
        let grant = self.start_lease_of_waiter(claim);
        effects.answer_waiter(ticket, Answer::Granted(Grant { waited: true, ..grant }));
        self.tell_held(claim, effects);
    }

    /// Reports to the metrics how long a claim waited that is granted now. If the end of a hold made room for it, also
    /// reports the time since then.
    #[inline]
    pub(super) fn measure_grant(&self, claim: ClaimIx, freed_at: FreedAt, effects: &mut impl Effects) {
        effects.measure(Measure::Waited { nanos: self.nanos.since(self.claims[claim].arrived()) });
        if let Some(handed_over) = freed_at.handed_over(self.nanos) {
            effects.measure(handed_over);
        }
    }

    /// Reports to the metrics how long a hold lasted that ends now, unless it is a registration.
    #[inline]
    pub(super) fn measure_hold(&self, claim: ClaimIx, effects: &mut impl Effects) {
        if !self.claims[claim].is_registration() {
            self.measure_end(claim, effects);
        }
    }

    /// Reports to the metrics how long a hold lasted that ends now and is not a registration.
    #[inline]
    pub(super) fn measure_end(&self, claim: ClaimIx, effects: &mut impl Effects) {
        effects.hold_ended(self.nanos.since(self.claims[claim].granted()));
    }

    /// Returns the time for which a claim has been held or waiting, in milliseconds; for a registration, the time since
    /// it was registered or last renewed.
    #[inline]
    pub(super) fn age_ms(&self, claim: &Claim) -> u64 {
        self.now.ms_since(claim.began().round_up())
    }

    /// Starts the lease of a claim that waited, and drops the data that only waiters need.
    #[inline]
    pub(super) fn start_lease_of_waiter(&mut self, claim: ClaimIx) -> Grant {
        let nanos = self.nanos;
        let record = &mut self.claims[claim];
        let arrived = record.set_granted(nanos);
        let detail = &mut self.details[record.detail];
        detail.waited_nanos = nanos.since(arrived);
        let lease_ms = detail.lease_ms;
        self.forget_wait(claim);
        self.start_lease(claim, lease_ms)
    }

    /// Drops the data that a claim needs only until its acquire is answered: its link to its lane, and its `Detail`
    /// (record of rare data). If the hold ends with its session or its connection, it is linked instead, or stays so.
    /// Through the links, the shard finds these holds when a lane changes its state. The `Detail` stays with the link,
    /// or if other data in it is still needed.
    #[inline]
    pub(super) fn forget_wait(&mut self, claim: ClaimIx) {
        let detail = &self.details[self.claims[claim].detail];
        if detail.release_after_ms.is_some() || self.claims[claim].has_session_lease() {
            self.lanes.link(&mut self.claims, &mut self.details, claim);
        } else {
            self.lanes.unlink(&mut self.claims, &mut self.details, claim);
        }
        self.drop_idle_detail(claim);
    }

    /// Removes a waiting or reserved claim from its timer, the table of tickets and the counts of waiters.
    #[inline]
    pub(super) fn stop_waiting(&mut self, claim: ClaimIx) {
        let is_far = self.is_far(claim);
        if !is_far {
            self.forget_waiting(claim);
        }
        self.wheel.clear(&mut self.claims, claim);
        self.claims[claim].flags &= !flag::WAIT_OVER;
        let counters = self.counters_of(self.namespace_of(claim));
        *if is_far { &mut counters.far_stub_count } else { &mut counters.waiting } -= 1;
        self.uncount_waiter(claim, is_far);
    }

    /// Removes a holder from its key, and grants the next waiters. If the log has the hold, records its end before.
    #[inline]
    pub(super) fn end_hold(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_recorded() {
            // The log must have the end before the next grant of the key, or a restart would find a conflict.
            self.record_end(claim, effects);
        }
        self.end_ephemeral_hold(claim, effects);
    }

    /// Removes a holder from its key, and grants the next waiters. If the durable log has a record of the hold, the
    /// caller must first have recorded its end, as `end_hold` does. Otherwise a restart would restore the hold.
    #[inline(always)]
    pub(super) fn end_ephemeral_hold(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        self.wheel.clear(&mut self.claims, claim);
        let entry = self.claims[claim].entry;
        if self.keys.entries[entry].has(entry::flag::QUEUED) {
            self.end_contended_hold(entry, claim, effects);
        } else {
            self.keys.become_idle(entry);
            self.free_claim(claim);
        }
    }

    /// Returns the contention for the refusal of a waiter whose wait ends: data about the claim that blocks it, and the
    /// number of other waiters. No claim blocks a reserved claim: it waits for the log or the cluster.
    pub(super) fn contention_at_end(&self, claim: ClaimIx) -> Contention {
        if self.claims[claim].is_reserved() {
            return self.contention_with(self.claims[claim].lane, self.claims[claim].entry, ClaimIx::NONE);
        }
        let mut contention = self.contention_of_waiter(claim);
        contention.waiter_count -= 1;
        contention
    }

    /// Returns the data about the blocking claim `in_front` that a lane may know, and the number of waiters of the key.
    /// `in_front` is `NONE` if there is no such claim.
    pub(super) fn contention_with(&self, lane: LaneIx, entry: KeyIx, in_front: ClaimIx) -> Contention {
        let waiter_count = self.waiter_count(entry);
        if in_front.is_none() {
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
            held: claim.is_held(),
            shared: claim.has(flag::SHARED),
            age_ms: self.age_ms(claim),
            remaining_ms: self.shown_remaining_ms(in_front),
            waiter_count,
            owner: self.owner_if(self.may(lane, in_front, Rights::INSPECT), in_front),
        }
    }

    /// Returns the remaining time of a lease or a wait in milliseconds, for display; `u32::MAX` without an end. For the
    /// lease of a session, this is a lower bound.
    pub(super) fn shown_remaining_ms(&self, index: ClaimIx) -> u32 {
        let claim = &self.claims[index];
        if self.is_lazy(index) {
            // The largest number means "without end", so even the longest lease must be below it.
            return self.lazy_remaining_ms(index).clamp(0, i64::from(u32::MAX - 1)) as u32;
        }
        let by_session = claim.state() == State::Held && claim.has_session_lease();
        let multi_key = self.details.get(claim.detail).and_then(Detail::multi_key);
        let end = match multi_key {
            Some(multi_key) if claim.is_stub() => multi_key.wait_end,
            _ if by_session => self.lanes.lanes[claim.lane].session_end,
            _ => claim.deadline,
        };
        let shown_ms = remaining_ms(end, self.now);
        // The largest number means "without end".
        if end == Time::NEVER { shown_ms } else { shown_ms.min(u32::MAX - 1) }
    }
}
