//! Grants and removals of sets of paths. Both take steps from the budget that limits the follow-up work of a turn. If
//! no step is left, a later turn continues.

use crate::claim::Claim;
use crate::effect::{Answer, Effects};
use crate::handle::{ClaimIx, KeyIx, TreeIx};
use crate::measure::FreedAt;
use crate::shard::Shard;
use crate::shard::work::Work;
use crate::tree::{Enters, Verdict};

impl Shard {
    /// Grants the waiting sets that nothing blocks any more, within the budget of steps. Sets that are still being
    /// added to the tree are left to [`Self::go_on_with_tree`]. Otherwise the end of one lease or wait could use up the
    /// steps of other work.
    pub(super) fn settle_tree(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        if self.trees[space].tree.is_settled() {
            // The hold that ended blocked no waiter.
            self.trees[space].freed_at = FreedAt::NEVER;
        } else {
            self.settle_what_is_due(entry, space, Enters::Later, effects);
        }
    }

    /// Continues the work on a tree in a later turn: adds the paths of large sets, and grants the sets that nothing
    /// blocks any more. If the tree is frozen, the sets that are added must wait.
    pub(in crate::shard) fn go_on_with_tree(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        let enters = if self.is_entry_frozen(entry) { Enters::AndWaits } else { Enters::AndHolds };
        self.settle_what_is_due(entry, space, enters, effects);
    }

    #[inline(never)]
    fn settle_what_is_due(
        &mut self,
        entry: KeyIx,
        space: TreeIx,
        enters: Enters,
        effects: &mut impl Effects,
    ) {
        while let Some(verdict) = self.trees[space].tree.next_verdict(enters, &mut self.steps) {
            match verdict {
                Verdict::Clear(claim) => self.grant_set_if_clear(claim, effects),
                Verdict::Refused(claim, blocker) => self.refuse_set(claim, blocker, effects),
            }
        }
        if self.trees[space].tree.is_settled() {
            self.trees[space].freed_at = FreedAt::NEVER;
        } else {
            self.leave_tree(entry);
        }
        self.note_nodes(space);
    }

    /// Leaves a tree to later turns.
    pub(super) fn leave_tree(&mut self, entry: KeyIx) {
        let space = &mut self.trees[self.keys.entries[entry].tree()];
        self.work.push_tree(entry, space.tree.only_enters(), &mut space.settling);
    }

    /// Grants a waiting set if nothing blocks any of its paths and its tree is not frozen. If another reason prevents
    /// the grant, such as the loss of its connection, removes the set instead.
    fn grant_set_if_clear(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_among_holders() {
            // The set was granted in an earlier step, but its tree has not marked all paths as held yet.
            return;
        }
        let (entry, first_item) = (self.claims[claim].entry, self.claims[claim].position.first_item());
        let space = self.keys.entries[entry].tree();
        if self.is_entry_frozen(entry) || !self.trees[space].tree.is_claim_clear(first_item) {
            return;
        }
        if !self.may_begin(claim, effects) {
            return self.drop_waiting_set(claim);
        }
        self.stop_waiting(claim);
        self.trees[space].waiter_count -= 1;
        self.trees[space].holder_count += 1;
        self.trees[space].tree.grant(first_item, &mut self.steps);
        self.begin_hold(claim, self.trees[space].freed_at, effects);
    }

    /// Refuses a set that was added to its tree over several turns, because another set blocks it and it may not wait.
    /// If its connection was lost, any answer names that as the reason.
    fn refuse_set(&mut self, claim: ClaimIx, blocker: Option<ClaimIx>, effects: &mut impl Effects) {
        let Claim { entry, lane, .. } = self.claims[claim];
        let space = self.keys.entries[entry].tree();
        let (ticket, listens) = (self.ticket(claim), self.is_asker_there(claim));
        if !listens {
            self.answer_lost(claim, effects);
        }
        self.drop_waiting_set(claim);
        self.trees[space].set_count -= 1;
        if listens {
            let refusal = self.refusal_of_try(lane, entry, blocker);
            effects.answer_waiter(ticket, Answer::Refused(refusal));
        }
    }

    pub(super) fn drop_waiting_set(&mut self, claim: ClaimIx) {
        let space = self.keys.entries[self.claims[claim].entry].tree();
        self.stop_waiting(claim);
        self.trees[space].waiter_count -= 1;
        self.trees[space].tree.remove_waiting(self.claims[claim].position.first_item(), &mut self.steps);
        self.free_set(claim);
    }

    /// Releases the record of the claim of a set that was removed from its tree.
    #[inline]
    pub(super) fn free_set(&mut self, claim: ClaimIx) {
        let Claim { lane, position, .. } = self.claims[claim];
        if position.more_path_count() > 0 {
            self.lanes.lanes[lane].path_count -= position.more_path_count();
        }
        self.free_claim(claim);
    }

    /// After a thaw of a tree, grants the waiting sets that nothing blocks, in order of arrival and within the budget
    /// of steps.
    pub(in crate::shard) fn go_on_thawing_sets(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        while let Some((arrival, claim)) = self.trees[space].tree.first_clear(self.trees[space].thaw.next) {
            if !self.steps.take() {
                return self.work.push(Work::ThawSets(entry));
            }
            self.grant_set_if_clear(claim, effects);
            self.trees[space].thaw.next = arrival + 1;
        }
        if self.trees[space].thaw.end() {
            self.work.push(Work::ThawSets(entry));
        }
        // `grant_set_if_clear` may have removed a set instead, for example because its connection was lost. The sets
        // that the removed set blocked may now be granted. If a large set was granted, its tree may still have to mark
        // some of its paths as held. `settle_tree` continues both.
        self.settle_tree(entry, effects);
    }
}
