//! Chance that a seed repeats.

/// A small generator, so that a seed means the same for ever.
pub(crate) struct Random(u64);

impl Random {
    /// Returns a generator. Neighbouring seeds give different numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `count`.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// Returns whether an event happens that happens once in `count` times.
    pub(crate) fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
