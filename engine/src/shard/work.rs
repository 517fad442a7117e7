//! Work that a turn leaves to later ones.

use super::Shard;
use crate::claim::flag;
use crate::effect::{Answer, Effects, LaneAddress, Refusal};
use crate::entry::{self, Kind};
use crate::planted;
use std::collections::VecDeque;

/// Tells an item of work from all others of its shard. The record that the item is for keeps it, so an item that outlived its
/// record is known by it. Never 0.
pub(super) type WorkNumber = u64;

/// Follow-up work too long for one turn. Each item is looked at again from scratch, so an item without a reason does nothing.
/// Records are used again, so an item names also which use of its record it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Go on with this key, or pool: grant the waiters at the head, and refuse those for which a pool became too small.
    Grant(u32, WorkNumber),
    /// Go on looking which sets of this tree have become clear. Trees stay for ever.
    Tree(u32),
    /// Go on with the claims that hang on this lane, which was detached, attached or closed.
    Lane(u32, LaneAddress),
    /// Refuse the waiters among the claims from this slot on: the server is stopping.
    RefuseWaiters(u32),
    /// Look again at the waiters among the claims from this slot on: a prefix was thawed.
    Thaw(u32),
    /// Record which counters were folded into the floor.
    Folded,
    /// Look again at the sets that wait in the tree of this entry, from this arrival on: it was thawed.
    ThawSets(u32, u64),
}

/// The items of work that are left over, in the order in which turns go on with them.
#[derive(Debug, Default)]
pub(super) struct WorkList {
    items: VecDeque<Work>,
    last_number: WorkNumber,
}

impl WorkList {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn push(&mut self, work: Work) {
        self.items.push_back(work);
    }

    /// Leaves the grants of a key or a pool to later turns, unless they are left to them already. `number` is kept by the
    /// queue or the pool; 0 stands for no item.
    pub(super) fn push_grant(&mut self, entry: u32, number: &mut WorkNumber) {
        if *number == 0 {
            self.last_number += 1;
            *number = self.last_number;
            self.push(Work::Grant(entry, *number));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Work> {
        self.items.iter()
    }
}

impl Shard {
    /// Goes on with what earlier turns left over. Items that are not finished go to the end of the line.
    pub(super) fn run_work(&mut self, effects: &mut impl Effects) {
        for _ in 0..self.work.items.len() {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let Some(work) = self.work.items.pop_front() else { return };
            match work {
                Work::Grant(entry, number) => self.go_on_granting(entry, number, effects),
                Work::Tree(entry) => self.go_on_settling(entry, effects),
                Work::Lane(..) if planted!(WorkIsDropped) => {}
                Work::Lane(lane, address) => self.go_on_with_lane(lane, address, effects),
                Work::RefuseWaiters(from) => self.refuse_waiters(from, effects),
                Work::Thaw(from) => self.go_on_thawing(from, effects),
                Work::Folded => self.record_folded(effects),
                Work::ThawSets(entry, from) => self.go_on_thawing_sets(entry, from, effects),
            }
        }
    }

    /// Goes on granting where the budget ended, if that is still the same queue or pool.
    fn go_on_granting(&mut self, entry: u32, number: WorkNumber, effects: &mut impl Effects) {
        let record = &self.keys.entries[entry];
        let head = record.head;
        match record.kind() {
            Kind::Pool if self.pools[head].working == number => {
                self.pools[head].working = 0;
                self.go_on_with_pool(entry, effects);
            }
            Kind::Flat if record.has(entry::flag::QUEUED) && self.queues[head].granting == number => {
                self.queues[head].granting = 0;
                self.grant_from_head(entry, effects);
            }
            _ => {}
        }
    }

    fn refuse_waiters(&mut self, from: u32, effects: &mut impl Effects) {
        for claim in from..self.claims.end() {
            if self.budget == 0 {
                return self.work.push(Work::RefuseWaiters(claim));
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
