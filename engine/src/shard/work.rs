//! Work that a turn leaves to later ones.

use super::Shard;
use crate::effect::{Answer, Effects, Refusal};
use crate::entry::Occupancy;
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::steps::Steps;
use crate::steps::WorkNumber;
use crate::time::Time;

/// Follow-up work that is too long for one turn. When a turn continues a work item, it checks again whether there is
/// anything to do, so an outdated item does nothing. Queues, lanes and other records are reused, so some items also
/// have a number that their record must still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Continue with this key or pool: grant the first waiters, and refuse waiters that exceed a lowered capacity.
    Grant(KeyIx, WorkNumber),
    /// Continue with this tree: remove the paths of ended claims, mark the paths of granted claims as held, and grant
    /// waiting sets that nothing blocks any more. Then add the paths of large sets to the tree.
    Tree(KeyIx, WorkNumber),
    /// Continue to apply the new state of this lane (open, detached or closed) to the claims that are linked to it. For
    /// example, the waiters of a lost connection end.
    Lane(LaneIx, WorkNumber),
    /// Refuse the waiters among the claims from this slot on, because the server is stopping.
    RefuseWaiters(ClaimIx),
    /// Visit all waiters of the shard and grant those that may be granted now, because the list of frozen prefixes has
    /// changed. Keys that begin with a frozen prefix are not granted until an operator thaws it.
    Thaw,
    /// Check the sets that wait in this tree again, because the tree was thawed.
    ThawSets(KeyIx),
    /// Continue to count the segments of this tree for its statistics.
    TreeStatistics(KeyIx),
    /// Continue to remove the idle keys and the full buckets of unused namespaces. The number is the next slot to
    /// visit: first the slots of the table of key records, then those of the table of buckets.
    Forget(u32),
}

/// Kinds of work items, each with its own share of the steps of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Grants,
    Others,
}

/// Leftover items of work: one list for each kind, in the order in which turns continue with its items.
#[derive(Debug, Default)]
pub(super) struct WorkList {
    grants: Fifo<Work>,
    others: Fifo<Work>,
    last_number: WorkNumber,
    /// Key record and work item number of the grants that the turn is continuing now. If these grants must be left to a
    /// later turn again, their new work item gets the same number.
    resumed: Option<(KeyIx, WorkNumber)>,
}

impl WorkList {
    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.others.is_empty()
    }

    pub(super) fn push(&mut self, work: Work) {
        match work {
            Work::Grant(..) | Work::Tree(..) => self.grants.push_back(work),
            _ => self.others.push_back(work),
        }
    }

    fn of(&mut self, kind: Kind) -> &mut Fifo<Work> {
        match kind {
            Kind::Grants => &mut self.grants,
            Kind::Others => &mut self.others,
        }
    }

    /// Leaves the grants of a key or a pool to a later turn: queues a work item, unless one is queued. `number` is the
    /// field of the queue or pool that has the number of the queued item, or 0. This function sets it.
    pub(super) fn push_grant(&mut self, entry: KeyIx, number: &mut WorkNumber) {
        if *number == 0 {
            *number = self.number_for(entry);
            self.push(Work::Grant(entry, *number));
        }
    }

    /// Leaves the work of a tree to a later turn: queues a work item, unless one is queued. Work that continues keeps
    /// the number of its item, because waits that are over end only when the grants of that number are finished. If the
    /// only work left is to add the paths of large sets (`only_enters`), the item gets a new number. This work grants
    /// no set that already waits, so waits that are over need not last until it is finished.
    pub(super) fn push_tree(&mut self, entry: KeyIx, only_enters: bool, number: &mut WorkNumber) {
        if *number == 0 {
            *number = if only_enters { self.new_number() } else { self.number_for(entry) };
            self.push(Work::Tree(entry, *number));
        }
    }

    /// Leaves the rest of [`Shard::settle_lane`], which applies the state of a lane to its linked claims, to a later
    /// turn. Queues a work item, unless one is queued, and stores its number in `number`, a field of the lane.
    pub(super) fn push_lane(&mut self, lane: LaneIx, number: &mut WorkNumber) {
        if *number == 0 {
            *number = self.new_number();
            self.push(Work::Lane(lane, *number));
        }
    }

    fn number_for(&mut self, entry: KeyIx) -> WorkNumber {
        match self.resumed {
            Some((resumed, number)) if resumed == entry => number,
            _ => self.new_number(),
        }
    }

    fn new_number(&mut self) -> WorkNumber {
        self.last_number += 1;
        self.last_number
    }

    /// Returns the number of the newest numbered item of work that was left over; 0 if there was none yet.
    pub(super) fn last_number(&self) -> WorkNumber {
        self.last_number
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Work> {
        self.grants.iter().chain(self.others.iter())
    }
}

impl Shard {
    /// Does the follow-up work of a turn. Each kind of work has a share of the steps that no other kind can use up. So
    /// clients that cause much work of one kind delay neither leases and waits nor the grants of other clients. Unused
    /// steps go to the next kind.
    #[inline(never)]
    pub(super) fn follow_up(&mut self, drained: Time, effects: &mut impl Effects) {
        self.record_folded(effects);
        let all = self.limits.work_per_turn;
        let quarter = all / 4;
        self.steps = Steps::new(quarter);
        self.run_work(Kind::Grants, effects);
        self.steps.add(quarter);
        self.run_work(Kind::Others, effects);
        self.steps.add(all - 2 * quarter);
        self.end_late_waits(effects);
        let cause = self.cause;
        self.expire(drained, effects);
        self.cause = cause;
        self.run_work(Kind::Grants, effects);
        self.run_work(Kind::Others, effects);
    }

    /// Continues with the present work items of this kind, which earlier turns or this one left over. Unfinished items
    /// go to the end of the queue.
    fn run_work(&mut self, kind: Kind, effects: &mut impl Effects) {
        for _ in 0..self.work.of(kind).len() {
            let left = self.steps.left();
            if left == 0 {
                return;
            }
            let Some(work) = self.work.of(kind).pop_front() else { return };
            self.run_item(work, effects);
            if self.steps.left() == left {
                // Every item takes at least one step, even if it finds nothing to do. So the steps bound the number of
                // items in a turn.
                self.steps.take();
            }
        }
    }

    fn run_item(&mut self, work: Work, effects: &mut impl Effects) {
        match work {
            Work::Grant(entry, number) | Work::Tree(entry, number) => {
                self.work.resumed = Some((entry, number));
                self.go_on_granting(entry, number, effects);
                self.work.resumed = None;
            }
            Work::Lane(lane, number) => self.go_on_with_lane(lane, number, effects),
            Work::RefuseWaiters(from) => self.refuse_waiters(from, effects),
            Work::Thaw => self.go_on_thawing(effects),
            Work::ThawSets(entry) => self.go_on_thawing_sets(entry, effects),
            Work::TreeStatistics(entry) => self.go_on_with_statistics(entry, effects),
            Work::Forget(from) => self.go_on_forgetting(from, effects),
        }
    }

    /// Returns the work item number of the unfinished grants of a key, including grants that this turn is continuing; 0
    /// if there are none.
    pub(super) fn grants_left(&self, entry: KeyIx) -> WorkNumber {
        if let Some((resumed, number)) = self.work.resumed
            && resumed == entry
        {
            return number;
        }
        let record = &self.keys.entries[entry];
        match record.occupancy() {
            Occupancy::Free | Occupancy::Held(_) => 0,
            Occupancy::Queued(queue) => self.queues[queue].granting,
            Occupancy::Pool(pool) => self.pools[pool].working,
            Occupancy::Tree(tree) => self.trees[tree].settling,
        }
    }

    /// Continues the grants of a key record if its queue, pool or tree is still the one for which an earlier turn left
    /// the grants over.
    fn go_on_granting(&mut self, entry: KeyIx, number: WorkNumber, effects: &mut impl Effects) {
        match self.keys.entries[entry].occupancy() {
            Occupancy::Pool(pool) if self.pools[pool].working == number => {
                self.pools[pool].working = 0;
                self.go_on_with_pool(entry, effects);
            }
            Occupancy::Queued(queue) if self.queues[queue].granting == number => {
                let queue = &mut self.queues[queue];
                queue.granting = 0;
                let freed_at = std::mem::take(&mut queue.freed_at);
                self.grant_from_head(entry, freed_at, effects);
            }
            Occupancy::Tree(tree) if self.trees[tree].settling == number => {
                self.trees[tree].settling = 0;
                self.go_on_with_tree(entry, effects);
            }
            _ => {}
        }
    }

    /// Returns the number of steps of follow-up work that this turn requested. For tests.
    pub fn steps_asked(&self) -> u32 {
        self.steps.asked()
    }

    fn refuse_waiters(&mut self, from: ClaimIx, effects: &mut impl Effects) {
        for claim in self.claims.handles_from(from) {
            if !self.steps.take() {
                return self.work.push(Work::RefuseWaiters(claim));
            }
            if self.claims[claim].is_waiting() && !self.is_far(claim) {
                effects.answer_waiter(self.ticket(claim), Answer::Refused(Refusal::Shutdown));
                self.end_wait(claim, effects);
            }
        }
    }
}
