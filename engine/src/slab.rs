//! Records of one type, found by number.

use crate::prefetch::prefetch;

/// Stands where there is no record.
pub const NONE: u32 = u32::MAX;

const CHUNK_BITS: u32 = 12;
const CHUNK_LEN: u32 = 1 << CHUNK_BITS;

/// Records in chunks that never move: growing costs one chunk, never a copy of what is there.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    /// Number of the first record never used.
    fresh: u32,
    /// Records that were given back. Kept apart from the records, so that the next ones can be brought near.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), fresh: 0, free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// A record to fill in. It holds whatever the last user left.
    #[inline]
    pub(crate) fn allocate(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => self.allocate_fresh(),
        }
    }

    #[cold]
    fn allocate_fresh(&mut self) -> u32 {
        let index = self.fresh;
        if index & (CHUNK_LEN - 1) == 0 {
            self.chunks.push((0..CHUNK_LEN).map(|_| T::default()).collect());
        }
        self.fresh += 1;
        index
    }

    /// Gives a record back.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Brings near the record that will be allocated after `ahead` others.
    #[inline]
    pub(crate) fn prefetch_free(&self, ahead: usize) {
        if let Some(place) = self.free.len().checked_sub(ahead + 1) {
            self.prefetch(self.free[place]);
        }
    }

    /// Brings a record near, if there is one of this number.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(record) = self.get(index) {
            prefetch(record);
        }
    }

    /// The record, if there ever was one of this number.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get((index >> CHUNK_BITS) as usize)?.get((index & (CHUNK_LEN - 1)) as usize)
    }

    /// How many records are in use.
    #[inline]
    pub(crate) fn live_count(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Records have numbers below this.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.fresh
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.chunks[(index >> CHUNK_BITS) as usize][(index & (CHUNK_LEN - 1)) as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> CHUNK_BITS) as usize][(index & (CHUNK_LEN - 1)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn records_keep_their_numbers_and_what_is_in_them(
            // Some(n): give the n-th back; None: take a number of new ones, enough to need several chunks.
            steps in prop::collection::vec(prop::option::weighted(0.5, 0..10_000_usize), 1..200),
            many in 1..200_u32,
        ) {
            let mut slab = Slab::<u32>::default();
            let mut live = BTreeMap::new();
            let mut value = 0;
            for step in steps {
                if let Some(index) = step {
                    if let Some(number) = live.keys().nth(index % (live.len().max(1))).copied() {
                        live.remove(&number);
                        slab.release(number);
                    }
                } else {
                    for _ in 0..many {
                        value += 1;
                        let number = slab.allocate();
                        slab[number] = value;
                        prop_assert!(live.insert(number, value).is_none(), "{number} is in use");
                    }
                }
                prop_assert_eq!(slab.live_count() as usize, live.len());
            }
            prop_assert!(slab.end() <= value, "records are used again");
            for (number, value) in live {
                prop_assert_eq!(slab[number], value);
                prop_assert!(number < slab.end() && slab.get(number).is_some());
            }
            prop_assert!(slab.get(u32::MAX).is_none());
        }
    }
}
