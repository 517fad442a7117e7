//! Durability of claims: their records in the log, their counters in a cluster, and answers that wait for both.

mod contents;
mod records;
mod reserve;
mod restore;

use super::Shard;
use crate::claim::flag;
use crate::effect::{Answer, Effects, LogState, QuorumState, Refusal, WhenDurable};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::{Scope, Ticket};

impl Shard {
    /// Sets the state of the log, and the number of the shard's last durable record. Called at the beginning of a turn.
    #[inline]
    pub fn set_log_state(&mut self, state: LogState, durable: u64) {
        self.log_state = state;
        self.durable = durable;
    }

    /// Sets the state of the cluster that keeps the counters of scope Quorum. Called at the beginning of a turn.
    #[inline]
    pub fn set_quorum_state(&mut self, state: QuorumState) {
        self.quorum_state = state;
    }

    /// Whether the fence of this claim must be durable, in the log or in a cluster, before any client learns of it.
    #[inline]
    pub(super) fn must_be_reserved(&self, claim: ClaimIx) -> bool {
        let claim = &self.claims[claim];
        claim.has(flag::DURABLE)
            || self.keys.entries[claim.entry].has(entry::flag::LOCAL | entry::flag::QUORUM)
    }

    /// Whether the counter of this claim's fence is in a cluster.
    pub(super) fn is_counted(&self, claim: ClaimIx) -> bool {
        self.scope_of(claim) == Scope::Quorum
    }

    /// Returns the scope of a claim's fence, also before the claim has a fence.
    fn scope_of(&self, claim: ClaimIx) -> Scope {
        let claim = &self.claims[claim];
        let of_key = self.keys.entries[claim.entry].scope();
        if self.details.get(claim.detail).is_some_and(|detail| detail.wants_quorum) {
            Scope::Quorum
        } else if claim.has(flag::DURABLE) {
            of_key.max(Scope::Local)
        } else {
            of_key
        }
    }

    /// Returns the scope of a claim at a key: the requested scope or the scope of the key, whichever is higher. `entry`
    /// is `NONE` if the key is unknown.
    #[inline]
    pub(super) fn raised_scope(&self, entry: KeyIx, scope: Scope) -> Scope {
        self.keys.entries.get(entry).map_or(scope, |entry| entry.scope().max(scope))
    }

    /// Whether a claim with this requested scope is reserved before it is held.
    pub(super) fn is_reserved_first(&self, entry: KeyIx, scope: Scope) -> bool {
        self.raised_scope(entry, scope) != Scope::Ephemeral
    }

    /// Checks that log and cluster accept a grant of this claim.
    #[inline]
    pub(super) fn may_count_claim(&self, claim: ClaimIx) -> Result<(), Refusal> {
        if self.must_be_reserved(claim) { self.may_count_in(self.scope_of(claim)) } else { Ok(()) }
    }

    /// Checks that log and cluster accept a grant of this requested scope at a key. `entry` is `NONE` if the key is
    /// unknown.
    pub(super) fn may_count(&self, entry: KeyIx, scope: Scope) -> Result<(), Refusal> {
        self.may_count_in(self.raised_scope(entry, scope))
    }

    /// Checks that log and cluster accept a grant of this scope.
    #[inline]
    pub(super) fn may_count_in(&self, scope: Scope) -> Result<(), Refusal> {
        if scope == Scope::Ephemeral { Ok(()) } else { self.may_count_durably(scope) }
    }

    #[cold]
    fn may_count_durably(&self, scope: Scope) -> Result<(), Refusal> {
        match self.quorum_state {
            QuorumState::Absent if scope == Scope::Quorum => return Err(Refusal::ScopeUnavailable(scope)),
            QuorumState::Unavailable if scope == Scope::Quorum => return Err(Refusal::QuorumUnavailable),
            _ => {}
        }
        match self.log_state {
            LogState::Ready => Ok(()),
            // A server without a log may still grant in scope Quorum: the cluster alone keeps the counter, and its
            // holds end with the process.
            LogState::Absent if scope == Scope::Quorum => Ok(()),
            LogState::NoSpace => Err(Refusal::NoSpace),
            LogState::Slow => Err(Refusal::LogStalled),
            LogState::Absent => Err(Refusal::ScopeUnavailable(Scope::Local)),
        }
    }

    /// Answers once all records that this shard has made so far are durable.
    pub(super) fn answer_durably(&self, ticket: Ticket, answer: Answer, effects: &mut impl Effects) {
        if self.recorded > self.durable {
            effects.when_durable(WhenDurable::Answer(ticket, answer));
        } else {
            effects.answer(ticket, answer);
        }
    }
}

/// Answers an acquire: as a waiter if it waited, otherwise as a request that is still in flight.
pub(super) fn answer_acquire(ticket: Ticket, waited: bool, answer: Answer, effects: &mut impl Effects) {
    if waited {
        effects.answer_waiter(ticket, answer);
    } else {
        effects.answer_acquire(ticket, answer);
    }
}
