//! Statistics of a tree namespace.

use super::work::Work;
use super::{Caller, Shard};
use crate::effect::{Answer, Effects};
use crate::handle::KeyIx;
use crate::steps::Steps;

/// Statistics of a tree namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatistics {
    /// Sets whose acquire was not refused.
    pub set_count: u64,
    /// Sets that wait.
    pub waiting_set_count: u64,
    /// Sets that are held.
    pub held_set_count: u64,
    /// Paths of waiting sets. Paths that another path of the same set covers do not count.
    pub waiting_path_count: u64,
    /// Paths of sets that are held, counted likewise.
    pub held_path_count: u64,
    /// Distinct paths of all of them.
    pub distinct_path_count: u64,
    /// Segments of all of them, and one for the namespace itself.
    pub segment_count: u64,
    /// Distinct segments, and one for the namespace itself.
    pub distinct_segment_count: u64,
}

/// Number of steps that a question for statistics does itself, so that the statistics of a small tree are answered at once.
const COUNTED_AT_ONCE: u32 = 32;

impl Shard {
    /// Tells the counters of a tree namespace. Its distinct segments are counted from the first question on. Questions to a tree
    /// with very many nodes are answered some turns later, once all segments are counted.
    pub fn tree_statistics(&mut self, caller: &Caller, effects: &mut impl Effects) {
        let entry = self.tree_entry(caller.namespace);
        if let Some(statistics) = self.statistics_of_tree(entry, &mut Steps::new(COUNTED_AT_ONCE)) {
            return effects.answer(caller.ticket, Answer::TreeStatistics(Box::new(statistics)));
        }
        let asked = &mut self.trees[self.keys.entries[entry].tree()].statistics_asked;
        // Bounded by the requests in flight of all lanes.
        asked.push_back(caller.ticket);
        if asked.len() == 1 {
            self.work.push(Work::TreeStatistics(entry));
        }
    }

    /// Goes on counting the segments of a tree, and then answers the questions for its statistics.
    pub(super) fn go_on_with_statistics(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        let mut steps = self.steps;
        let statistics = self.statistics_of_tree(entry, &mut steps);
        self.steps = steps;
        if let Some(statistics) = statistics {
            while self.steps.take() {
                let Some(ticket) = self.trees[space].statistics_asked.pop_front() else { return };
                effects.answer(ticket, Answer::TreeStatistics(Box::new(statistics)));
            }
        }
        if !self.trees[space].statistics_asked.is_empty() {
            self.work.push(Work::TreeStatistics(entry));
        }
    }

    /// Returns the statistics of the tree of an entry, once all its segments are counted.
    fn statistics_of_tree(&mut self, entry: KeyIx, steps: &mut Steps) -> Option<TreeStatistics> {
        let space = &mut self.trees[self.keys.entries[entry].tree()];
        let distinct_segment_count = space.tree.count_distinct_segments(steps)?;
        let counters = space.tree.counters();
        Some(TreeStatistics {
            set_count: space.set_count,
            waiting_set_count: u64::from(space.waiter_count),
            held_set_count: u64::from(space.holder_count),
            waiting_path_count: u64::from(counters.pending_item_count),
            held_path_count: u64::from(counters.held_item_count),
            distinct_path_count: u64::from(counters.path_count),
            segment_count: counters.segment_count,
            distinct_segment_count,
        })
    }
}
