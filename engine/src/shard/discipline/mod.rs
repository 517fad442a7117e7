//! Disciplines: the rules by which the claims of one kind of object wait, are granted and end.
//!
//! A key record stands for a key, for a tree namespace as a whole, or for a pool. For each kind, a module implements
//! the trait `Discipline`, which decides for example which waiters are granted when a hold ends. The functions here
//! call the implementation for the kind of a record. Other code distinguishes the kinds only in the restore, in
//! leftover work, in the list of contended keys, and in checks for tests.

mod flat;
mod pool;
mod tree;

pub use pool::AcquirePermits;
pub(super) use pool::PoolSpace;
pub use tree::AcquireSet;
pub(super) use tree::TreeSpace;

use super::Shard;
use crate::access::{Access, Rights};
use crate::claim::Detail;
use crate::effect::{Contention, Effects, KeyStatus, Refusal, Verified};
use crate::entry::Kind;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::Fence;
use flat::Flat;
use pool::Permits;
use tree::Paths;
use waymaker_log::Item;

/// Rules of one kind of object. `entry` is a key record of this kind, and `claim` a claim of such a record.
trait Discipline {
    /// Cost of a comparison of rights with all keys of a claim, in units of one visited claim.
    const COST_OF_COMPARED_RIGHTS: u32 = 0;

    /// Ends a hold of a record with a queue, tree or pool. Grants the waiters that it blocked, in this turn or a later
    /// one.
    fn end_hold(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects);

    /// Ends a wait. Grants the waiters that it blocked, in this turn or a later one.
    fn end_wait(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects);

    /// Grants the waiters of the record `entry` that may be granted after a change of the frozen prefixes, in this turn
    /// or in a later one. After a change, the shard visits all its waiting claims, in any order, and calls this
    /// function with the key record of each. So a record with several waiters is passed several times.
    fn thaw(shard: &mut Shard, entry: KeyIx, effects: &mut impl Effects);

    /// Adds 1 to the count of reserved holders of the key if `is_reserved`, otherwise subtracts 1. Only pools, and keys
    /// with a queue, have this count. A reserved holder is a granted claim that is not held yet, because its fence is
    /// not durable. Responses about a key or pool do not show such claims as holders.
    fn count_reserved(shard: &mut Shard, claim: ClaimIx, is_reserved: bool);

    /// Returns the number of waiters.
    fn waiter_count(shard: &Shard, entry: KeyIx) -> u32;

    /// Returns the number of waiters before this one. Counts up to `POSITION_COUNT_MAX` waiters of a pool, or of a key
    /// if this waiter is not its last one. For a set of paths, returns the number of all other waiting sets.
    fn position_of(shard: &Shard, claim: ClaimIx) -> usize;

    /// Returns the claim that blocks a waiter, or `NONE`.
    fn blocker_of(shard: &Shard, claim: ClaimIx) -> ClaimIx;

    /// Moves the number of further paths of a set (all but its first) from the count of one lane to that of another.
    /// Lanes keep no such count for other kinds of claims.
    fn change_lane(_shard: &mut Shard, _claim: ClaimIx, _from: LaneIx, _to: LaneIx) {}

    /// Returns the key of a claim for display.
    fn shown_key(shard: &Shard, claim: ClaimIx) -> Vec<u8>;

    /// Whether a key of a claim begins with a prefix. Adds the cost of the comparisons to `looked`, in units of one
    /// visited claim.
    fn has_prefix(shard: &Shard, claim: ClaimIx, prefix: &[u8], looked: &mut u32) -> bool;

    /// Whether a client has this right for the key of a claim, or for all paths of a set. A set with more than
    /// `COMPARED_PATH_COUNT_MAX` paths counts as not covered.
    fn is_covered(shard: &Shard, claim: ClaimIx, access: &Access, right: Rights) -> bool;

    /// Returns the holders and waiters of a key, as a lane may see them.
    fn status(shard: &Shard, lane: LaneIx, entry: KeyIx, key: &[u8]) -> KeyStatus;

    /// Returns whether a fence is the newest of a key, and whether it is still held. At a path, each held fence counts
    /// as the newest.
    ///
    /// # Errors
    /// Returns an error if too many claims would have to be visited.
    fn verified(shard: &Shard, entry: KeyIx, key: &[u8], fence: Fence) -> Result<Verified, Refusal>;

    /// Passes the key, permits or paths of a claim to `put`, in the form in which a log record contains them.
    fn with_item(shard: &Shard, claim: ClaimIx, detail: &Detail, put: impl FnOnce(Item<'_>));

    /// Checks all invariants of a record, and counts in `placed` how often each claim was found. For tests.
    fn verify(shard: &Shard, entry: KeyIx, placed: &mut [u32]);
}

/// Evaluates an expression with `$discipline` as the discipline of a key record.
macro_rules! with_discipline {
    ($shard:ident, $entry:expr, $discipline:ident => $value:expr) => {
        match $shard.keys.entries[$entry].kind() {
            Kind::Flat => {
                type $discipline = Flat;
                $value
            }
            Kind::Tree => {
                type $discipline = Paths;
                $value
            }
            Kind::Pool => {
                type $discipline = Permits;
                $value
            }
        }
    };
}

impl Shard {
    /// Ends the hold of a claim whose key record has a queue, tree or pool. Grants the waiters that it blocked, in this
    /// turn or a later one.
    #[inline(never)]
    pub(super) fn end_contended_hold(&mut self, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        with_discipline!(self, entry, D => D::end_hold(self, entry, claim, effects));
    }

    /// Ends a waiting or reserved claim. Grants the waiters that it blocked, in this turn or a later one.
    pub(super) fn end_wait(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_reserved() {
            return self.end_reserved(claim, effects);
        }
        let entry = self.claims[claim].entry;
        with_discipline!(self, entry, D => D::end_wait(self, entry, claim, effects));
    }

    /// Grants the waiters of a key record that may be granted after a change of the frozen prefixes, in this turn or in
    /// a later one.
    pub(super) fn thaw_waiters(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        with_discipline!(self, entry, D => D::thaw(self, entry, effects));
    }

    /// Adds 1 to the count of reserved holders of the key of a claim if `is_reserved`, otherwise subtracts 1. Only
    /// pools, and keys with a queue, have this count. A reserved holder is a granted claim that is not held yet,
    /// because its fence is not durable.
    pub(super) fn count_reserved(&mut self, claim: ClaimIx, is_reserved: bool) {
        with_discipline!(self, self.claims[claim].entry, D => D::count_reserved(self, claim, is_reserved));
    }

    /// Returns the number of waiters of a key.
    pub(super) fn waiter_count(&self, entry: KeyIx) -> u32 {
        with_discipline!(self, entry, D => D::waiter_count(self, entry))
    }

    /// Returns the number of waiters before this one. Counts up to `POSITION_COUNT_MAX` waiters of a pool, or of a key
    /// if this waiter is not its last one. For a set of paths, returns the number of all other waiting sets.
    pub(super) fn position_of(&self, claim: ClaimIx) -> usize {
        with_discipline!(self, self.claims[claim].entry, D => D::position_of(self, claim))
    }

    /// Returns the contention of a waiter: the data about the claim that blocks it, as far as its client may know them.
    pub(super) fn contention_of_waiter(&self, claim: ClaimIx) -> Contention {
        let entry = self.claims[claim].entry;
        // `blocker` is `NONE` in three cases. An operator has frozen the key, and only that prevents the grant. Or a
        // multi-key claim waits only for its other keys. Or nothing blocks the waiter any more, but its wait ends
        // before a later turn makes the grant.
        let blocker = with_discipline!(self, entry, D => D::blocker_of(self, claim));
        self.contention_with(self.claims[claim].lane, entry, blocker)
    }

    /// Moves the number of further paths of a set (all but its first) from the count of one lane to that of another.
    /// Lanes keep no such count for other kinds of claims.
    pub(super) fn move_amounts(&mut self, claim: ClaimIx, from: LaneIx, to: LaneIx) {
        with_discipline!(self, self.claims[claim].entry, D => D::change_lane(self, claim, from, to));
    }

    /// Returns the key of a claim for display.
    pub(super) fn shown_key(&self, claim: ClaimIx) -> Vec<u8> {
        with_discipline!(self, self.claims[claim].entry, D => D::shown_key(self, claim))
    }

    /// Whether a key of a claim begins with a prefix. Adds the cost of the comparisons to `looked`, in units of one
    /// visited claim.
    pub(super) fn has_key_prefix(&self, claim: ClaimIx, prefix: &[u8], looked: &mut u32) -> bool {
        with_discipline!(self, self.claims[claim].entry, D => D::has_prefix(self, claim, prefix, looked))
    }

    /// Whether a client with this access has this right for the key of a claim, or for all paths if the claim is for a
    /// set. A set with more than `COMPARED_PATH_COUNT_MAX` paths counts as not covered. For a multi-key claim, only the
    /// key of this claim counts; each other key has a claim of its own.
    pub(super) fn is_covered(&self, claim: ClaimIx, access: &Access, right: Rights) -> bool {
        with_discipline!(self, self.claims[claim].entry, D => D::is_covered(self, claim, access, right))
    }

    /// Returns the cost of a comparison of rights with all keys of a claim, in units of one visited claim.
    pub(super) fn cost_of_compared_rights(&self, claim: ClaimIx) -> u32 {
        with_discipline!(self, self.claims[claim].entry, D => D::COST_OF_COMPARED_RIGHTS)
    }

    /// Returns the holders and waiters of a key, as a lane may see them.
    pub(super) fn status_of_key(&self, lane: LaneIx, entry: KeyIx, key: &[u8]) -> KeyStatus {
        with_discipline!(self, entry, D => D::status(self, lane, entry, key))
    }

    /// Returns whether a fence is the newest of a known key, and whether it is still held. At a path, each held fence
    /// counts as the newest.
    ///
    /// # Errors
    /// Returns an error if too many claims would have to be visited.
    pub(super) fn verified_of_key(
        &self,
        entry: KeyIx,
        key: &[u8],
        fence: Fence,
    ) -> Result<Verified, Refusal> {
        with_discipline!(self, entry, D => D::verified(self, entry, key, fence))
    }

    /// Returns whether a fence is still the newest of a key, and whether `holder` holds it. `holder` is the newest
    /// holder of the key, or `NONE`.
    fn verified_of_newest(&self, entry: KeyIx, fence: Fence, holder: ClaimIx) -> Verified {
        let newest_fence = self.keys.entries[entry].fence;
        let newest = newest_fence == fence && fence > Fence::NONE;
        let held =
            newest && holder.is_some() && self.claims[holder].fence == fence && self.claims[holder].is_held();
        Verified { newest_fence, newest, held }
    }

    /// Passes the key, permits or paths of a claim to `put`, in the form in which a log record contains them.
    pub(super) fn with_item(&self, claim: ClaimIx, detail: &Detail, put: impl FnOnce(Item<'_>)) {
        with_discipline!(self, self.claims[claim].entry, D => D::with_item(self, claim, detail, put));
    }

    /// Checks all invariants of a key record, and counts in `placed` how often each of its claims was found. For tests.
    pub(super) fn verify_claims_of(&self, entry: KeyIx, placed: &mut [u32]) {
        with_discipline!(self, entry, D => D::verify(self, entry, placed));
    }
}
