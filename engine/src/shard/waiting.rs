//! Waiting claims: the limits of their waits, and the table that finds them by their requests.

use super::{Shard, ticket_of};
use crate::claim::{OrderKey, State};
use crate::effect::Refusal;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::Ticket;
use crate::time::Time;

impl Shard {
    /// Checks that one more claim of a lane may wait for a key. Returns the number of waiters including it.
    pub(super) fn has_room_for_waiter(&self, lane: LaneIx, entry: KeyIx) -> Result<u32, Refusal> {
        self.may_have_waiter(lane)?;
        let limit = self.limits.waiter_count_per_key_max;
        let waiter_count = if entry.is_none() { 0 } else { self.waiter_count(entry) };
        if entry.is_none() || waiter_count < limit {
            return Ok(waiter_count + 1);
        }
        Err(Refusal::Overloaded { limit: "waiters per key", value: u64::from(limit) })
    }

    /// Returns the queue position of a claim that arrives now. A priority counts as an earlier arrival, up to a limit,
    /// so that no waiter starves.
    pub(super) fn order_of_newcomer(&self, priority: u32) -> OrderKey {
        let boost_ms = priority.saturating_mul(self.limits.priority_step_ms);
        let boost_ms = boost_ms.min(self.limits.priority_boost_max_ms);
        let arrival_ms = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        OrderKey { rank: arrival_ms - i64::from(boost_ms), arrival: self.arrivals }
    }

    /// Counts an arrival and returns its number. Two events count: an acquired claim gets options in its `Detail` (each
    /// claim that waits or is reserved does), and an acquire takes over a claim that is not held yet. A lane notes the
    /// count when its connection is lost. So the waiters of the lost connection can be told from those of the next one.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals - 1
    }

    /// Makes a claim in a queue findable by its ticket, and limits its wait to `wait_ms`; `u32::MAX` sets no limit.
    pub(super) fn wait_until(&mut self, claim: ClaimIx, wait_ms: u32) {
        self.time_wait(claim, wait_ms);
        self.remember_waiting(claim);
    }

    /// Limits the wait of a claim to `wait_ms` from now; `u32::MAX` sets no limit.
    pub(super) fn time_wait(&mut self, claim: ClaimIx, wait_ms: u32) {
        let deadline = self.wait_end(wait_ms);
        if deadline != Time::NEVER {
            self.claims[claim].deadline = deadline;
            self.wheel.set(&mut self.claims, claim, deadline);
        }
    }

    /// Returns the end of a wait that begins now; `NEVER` if `wait_ms` is `u32::MAX`.
    pub(super) fn wait_end(&self, wait_ms: u32) -> Time {
        if wait_ms == u32::MAX { Time::NEVER } else { self.now.after_ms(u64::from(wait_ms)) }
    }

    pub(super) fn remember_waiting(&mut self, claim: ClaimIx) {
        let hash = self.ticket_hash(self.ticket(claim));
        let Self { waiting, claims, details, lanes, hasher, .. } = self;
        waiting.insert(hash, claim, |other| hasher.hash_one(ticket_of(claims, details, lanes, other)));
    }

    pub(super) fn ticket_hash(&self, ticket: Ticket) -> u64 {
        self.hasher.hash_one(ticket)
    }

    /// Returns the claim of this request, if it still waits or its fence is not durable yet.
    pub(super) fn find_waiting(&self, ticket: Ticket) -> Option<ClaimIx> {
        self.waiting.find(self.ticket_hash(ticket), |claim| self.ticket(claim) == ticket)
    }

    pub(super) fn forget_waiting(&mut self, claim: ClaimIx) {
        if self.claims[claim].state() == State::Unknown {
            // The log failed, so the outcome of the acquire is unknown. `lose_reserved` has already removed the ticket
            // of the claim from the table `waiting`.
            return;
        }
        let hash = self.ticket_hash(self.ticket(claim));
        self.waiting.remove(hash, claim);
    }
}
