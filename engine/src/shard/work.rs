//! Work that a turn leaves to later ones.

use super::Shard;
use crate::claim::flag;
use crate::effect::{Answer, Effects, Refusal};
use crate::entry::Occupancy;
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::steps::Steps;
use crate::steps::WorkNumber;
use crate::time::Time;

/// Follow-up work too long for one turn. Each item is looked at again from scratch, so an item without a reason does nothing.
/// Records are used again, so an item names also which use of its record it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Go on with this key, or pool: grant the waiters at the head, and refuse those for which a pool became too small.
    Grant(KeyIx, WorkNumber),
    /// Go on looking which sets of this tree have become clear.
    Tree(KeyIx, WorkNumber),
    /// Go on with the claims that hang on this lane, which was detached, attached or closed.
    Lane(LaneIx, WorkNumber),
    /// Refuse the waiters among the claims from this slot on: the server is stopping.
    RefuseWaiters(ClaimIx),
    /// Look again at the waiters among the claims: a prefix was thawed.
    Thaw,
    /// Look again at the sets that wait in the tree of this entry: it was thawed.
    ThawSets(KeyIx),
    /// Go on counting the segments of the tree of this entry, for its statistics.
    TreeStatistics(KeyIx),
    /// Continue to forget the idle keys of namespaces, from this slot on.
    Forget(u32),
}

/// Kinds of items that have shares of the steps of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Grants,
    Others,
}

/// The items of work that are left over, in the order in which turns go on with them.
#[derive(Debug, Default)]
pub(super) struct WorkList {
    grants: Fifo<Work>,
    others: Fifo<Work>,
    last_number: WorkNumber,
    /// The entry and the number of the grants that a turn goes on with right now. What they leave keeps the number.
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

    /// Leaves the grants of a key or a pool to later turns, unless they are left to them already. `number` is kept by the
    /// queue or the pool; 0 stands for no item.
    pub(super) fn push_grant(&mut self, entry: KeyIx, number: &mut WorkNumber) {
        if *number == 0 {
            *number = self.number_for(entry);
            self.push(Work::Grant(entry, *number));
        }
    }

    /// The same for a tree. If the only work left is to enter sets, it gets a new number: that work grants no set that waits already, so
    /// no wait that is over has to last until it is done.
    pub(super) fn push_tree(&mut self, entry: KeyIx, only_enters: bool, number: &mut WorkNumber) {
        if *number == 0 {
            *number = if only_enters { self.new_number() } else { self.number_for(entry) };
            self.push(Work::Tree(entry, *number));
        }
    }

    /// The same for a lane.
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

    /// The number of the newest grants that were left over.
    pub(super) fn last_number(&self) -> WorkNumber {
        self.last_number
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Work> {
        self.grants.iter().chain(self.others.iter())
    }
}

impl Shard {
    /// The follow-up work of a turn. Each kind has a share of the steps that no other kind can use up, so clients that make much
    /// work of one kind delay neither the leases and waits nor the grants of others. Steps that a kind leaves over go to the
    /// next.
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

    /// Goes on with what earlier turns left over. Items that are not finished go to the end of the line.
    fn run_work(&mut self, kind: Kind, effects: &mut impl Effects) {
        for _ in 0..self.work.of(kind).len() {
            let left = self.steps.left();
            if left == 0 {
                return;
            }
            let Some(work) = self.work.of(kind).pop_front() else { return };
            self.run_item(work, effects);
            if self.steps.left() == left {
                // Also an item that found nothing to do takes a step.
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

    /// The number of the grants of an entry that are left over, or that this turn goes on with. 0 without any.
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

    /// Goes on granting where the budget ended, if that is still the same queue, pool or tree.
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

    /// How many steps of follow-up work this turn asked for. For tests.
    pub fn steps_asked(&self) -> u32 {
        self.steps.asked()
    }

    fn refuse_waiters(&mut self, from: ClaimIx, effects: &mut impl Effects) {
        for claim in self.claims.handles_from(from) {
            if !self.steps.take() {
                return self.work.push(Work::RefuseWaiters(claim));
            }
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
