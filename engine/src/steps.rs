//! How much follow-up work a turn does.

/// Number of an item of follow-up work, different for each item of a shard. The record that the item is for keeps the number, so an item
/// that outlived its record has no effect. Never 0.
pub(crate) type WorkNumber = u64;

/// Steps of follow-up work that are left in a turn.
///
/// A request is decided in a bounded number of steps. What follows from it may concern as many claims as there are: each loop
/// over claims, items or waiters takes a step for each of them, and leaves the rest to a later turn when none is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    left: u32,
    /// Steps that were taken, or asked for in vain.
    asked: u32,
}

impl Steps {
    pub(crate) fn new(count: u32) -> Self {
        Self { left: count, asked: 0 }
    }

    pub(crate) fn add(&mut self, count: u32) {
        self.left += count;
    }

    /// Takes a step, if one is left.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        self.asked += 1;
        is_left
    }

    /// Takes up to so many steps for work that was done already.
    #[inline]
    pub(crate) fn charge(&mut self, count: u32) {
        self.left = self.left.saturating_sub(count);
    }

    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Returns the number of steps that were asked for, also in vain. A caller that gets none stops.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }
}
