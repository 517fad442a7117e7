//! Amount of follow-up work in a turn.

/// Number of an item of follow-up work, unique in its shard and never 0. The queue, pool, tree or lane that the item
/// continues keeps the number of the item. If that record is gone or is used again, it no longer has the number, and
/// the item has no effect.
pub(crate) type WorkNumber = u64;

/// Remaining steps of follow-up work in a turn.
///
/// A request is decided in a bounded number of steps, but its consequences may concern any number of claims. A loop
/// over such claims, waiters or paths takes a step for each of them, except for a limited number that it processes at
/// once. If no step is left, the loop leaves the rest to a later turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    left: u32,
    /// Number of calls of [`Steps::take`], including those that found no step left.
    asked: u32,
}

impl Steps {
    pub(crate) fn new(count: u32) -> Self {
        Self { left: count, asked: 0 }
    }

    pub(crate) fn add(&mut self, count: u32) {
        self.left += count;
    }

    /// Takes a step. Returns whether one was left.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        self.asked += 1;
        is_left
    }

    /// Takes `count` steps, or as many as are left, for work that is done in any case.
    #[inline]
    pub(crate) fn charge(&mut self, count: u32) {
        self.left = self.left.saturating_sub(count);
    }

    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Returns the number of calls of [`Steps::take`] in this turn, including those that found no step left. Each call
    /// requests one step of follow-up work. A loop ends at the first call that finds none. So the number exceeds the
    /// limit of a turn by at most one for each loop.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }
}
