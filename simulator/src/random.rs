//! The random source of a run.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random numbers that depend only on a seed. All random choices of a run come from such sources.
#[derive(Debug)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder does not matter here.
        self.any() % bound.max(1)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns a number from `low` to `high`, such that each order of magnitude is equally likely.
    pub(crate) fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = (low.max(1).ilog2(), high.max(1).ilog2());
        let magnitude = 1 << self.between(u64::from(from), u64::from(to));
        self.between(magnitude, 2 * magnitude - 1).clamp(low, high)
    }

    pub(crate) fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns true with a probability of `share` percent.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len() as u64) as usize]) }
    }
}
