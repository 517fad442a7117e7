//! Statistics of a tree namespace.

use crate::effect::{Answer, Effects, TreeStatistics};
use crate::handle::KeyIx;
use crate::shard::work::Work;
use crate::shard::{Caller, Shard};
use crate::steps::Steps;

/// Number of steps that a request for statistics may take before it is left to follow-up work. Small trees need no
/// more.
const COUNTED_AT_ONCE: u32 = 32;

impl Shard {
    /// Answers with the counters of a tree namespace. Creates the tree if the namespace has none. The first request
    /// begins to count its distinct segments; from then on the tree keeps that count. If the tree has very many nodes,
    /// the answer comes some turns later, when all segments are counted.
    pub fn tree_statistics(&mut self, caller: &Caller, effects: &mut impl Effects) {
        let entry = self.tree_entry(caller.namespace);
        if let Some(statistics) = self.statistics_of_tree(entry, &mut Steps::new(COUNTED_AT_ONCE)) {
            return effects.answer(caller.ticket, Answer::TreeStatistics(Box::new(statistics)));
        }
        let asked = &mut self.trees[self.keys.entries[entry].tree()].statistics_asked;
        // Each request in `statistics_asked` counts as a request in flight of its lane. So the limits of the lanes for
        // requests in flight also bound `statistics_asked`.
        asked.push_back(caller.ticket);
        if asked.len() == 1 {
            self.work.push(Work::TreeStatistics(entry));
        }
    }

    /// Continues counting the segments of a tree, and then answers the requests for its statistics.
    pub(in crate::shard) fn go_on_with_statistics(&mut self, entry: KeyIx, effects: &mut impl Effects) {
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

    /// Returns the statistics of a tree, or `None` if counting its segments takes more steps than are left.
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
