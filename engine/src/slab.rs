//! Records of one type, found by handle.

use crate::growing::{make_room, set_aside};
use crate::handle::Handle;
use crate::prefetch::prefetch;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of records for which a slab without a given capacity reserves address space.
const RECORD_COUNT_MAX: u32 = 1 << 24;

/// Records with fixed numbers. A slab with a given capacity reserves address space for that number of records at once.
/// It uses memory only as records arrive, so growth copies nothing. A slab without a given capacity copies its records
/// when it grows. Once it has some thousand records, it also reserves address space. If the system refuses to reserve
/// address space, growth copies the records.
#[derive(Debug)]
pub(crate) struct Slab<Ix, T> {
    records: Vec<T>,
    /// Handles of released records. They are in a list of their own, not in the records, so the next records to be
    /// allocated are known without reading any record. So these records can be prefetched.
    free: Vec<Ix>,
    /// Number of records for which the slab reserves address space, at once or when it has grown.
    count_max: u32,
    /// Number of accesses to records plus number of copied cache lines, in builds with debug assertions.
    #[cfg(debug_assertions)]
    touched: AtomicU64,
}

impl<Ix, T> Default for Slab<Ix, T> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            free: Vec::new(),
            count_max: RECORD_COUNT_MAX,
            #[cfg(debug_assertions)]
            touched: AtomicU64::new(0),
        }
    }
}

#[cfg(debug_assertions)]
impl<Ix, T> Slab<Ix, T> {
    /// Returns the number of accesses to records since the slab was created, plus the number of copied cache lines.
    /// Tests limit it for requests and turns, so they find every walk over many records.
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }
}

impl<Ix: Handle, T> Slab<Ix, T> {
    /// Returns a slab with reserved address space for `capacity` records. It can get more, but then growth copies.
    pub(crate) fn with_capacity(capacity: u32) -> Self {
        let mut slab = Self { count_max: capacity, ..Self::default() };
        slab.set_aside();
        slab
    }

    /// Reserves address space for all records and for the list of free records. If very many records end at once,
    /// growth of that list would otherwise delay all requests for milliseconds.
    fn set_aside(&mut self) {
        let count_max = self.count_max as usize;
        set_aside(&mut self.records, count_max);
        set_aside(&mut self.free, count_max);
    }

    /// Returns the handle of an unused record to fill in. A record that was used before still has its old values.
    #[inline]
    pub(crate) fn allocate(&mut self) -> Ix
    where
        T: Default,
    {
        match self.free.pop() {
            Some(index) => index,
            None => self.add(T::default()),
        }
    }

    /// Adds a record behind all others.
    #[inline]
    pub(crate) fn add(&mut self, record: T) -> Ix {
        if self.records.len() == self.records.capacity() {
            self.grow();
        }
        self.records.push(record);
        Ix::new(self.end() - 1)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        #[cfg(debug_assertions)]
        {
            // Growth copies all records. Tests limit `touched` to find walks over many records, so each copied cache
            // line counts in it as one access.
            *self.touched.get_mut() += (self.records.len() * size_of::<T>() / 64) as u64;
        }
        make_room(&mut self.records, self.count_max as usize);
        // The list of free records can be as long as the list of records.
        let room = self.records.capacity();
        set_aside(&mut self.free, room);
    }

    /// Makes a record available for later use. It keeps its values until then.
    #[inline]
    pub(crate) fn release(&mut self, index: Ix) {
        self.free.push(index);
    }

    /// Prefetches the record that will be allocated after `ahead` others.
    #[inline]
    pub(crate) fn prefetch_free(&self, ahead: usize) {
        if let Some(place) = self.free.len().checked_sub(ahead + 1) {
            self.prefetch(self.free[place]);
        }
    }

    /// Prefetches a record, if it exists.
    #[inline]
    pub(crate) fn prefetch(&self, index: Ix) {
        if let Some(record) = self.get(index) {
            prefetch(record);
        }
    }

    /// Returns the record with this number, in use or not, if it exists.
    #[inline]
    pub(crate) fn get(&self, index: Ix) -> Option<&T> {
        self.touch();
        self.records.get(index.number() as usize)
    }

    /// Returns the number of records in use.
    #[inline]
    pub(crate) fn live_count(&self) -> u32 {
        self.end() - self.free.len() as u32
    }

    /// Returns the memory in bytes of all records that were ever in use, and of the list of free records.
    pub(crate) fn len_bytes(&self) -> usize {
        self.records.len() * size_of::<T>() + self.free.len() * size_of::<Ix>()
    }

    /// Returns the number of records that were ever in use. Their handles have lower numbers.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.records.len() as u32
    }

    /// Returns the handle after this one, or the first handle if this is the last one. So a search that continues with
    /// the next handle goes round all records.
    #[inline]
    pub(crate) fn after(&self, index: Ix) -> Ix {
        let next = index.number() + 1;
        Ix::new(if next < self.end() { next } else { 0 })
    }

    /// Returns all records that were ever in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.records.iter()
    }

    /// Returns the handles of all records that were ever in use.
    pub(crate) fn handles(&self) -> impl Iterator<Item = Ix> + Clone + use<Ix, T> {
        self.handles_from(Ix::new(0))
    }

    /// Returns the handles of all records from this one on that were ever in use.
    pub(crate) fn handles_from(&self, from: Ix) -> impl Iterator<Item = Ix> + Clone + use<Ix, T> {
        (from.number()..self.end()).map(Ix::new)
    }
}

impl<Ix, T> Slab<Ix, T> {
    #[inline(always)]
    fn touch(&self) {
        #[cfg(debug_assertions)]
        // Counts one access to a record. A load and a store suffice, because no two threads use a slab at once. An
        // atomic addition would slow down all tests with debug assertions.
        self.touched.store(self.touched.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl<Ix: Handle, T> std::ops::Index<Ix> for Slab<Ix, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: Ix) -> &T {
        self.touch();
        &self.records[index.number() as usize]
    }
}

impl<Ix: Handle, T> std::ops::IndexMut<Ix> for Slab<Ix, T> {
    #[inline]
    fn index_mut(&mut self, index: Ix) -> &mut T {
        self.touch();
        &mut self.records[index.number() as usize]
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
        fn records_keep_their_numbers_and_values(
            // Some(n) releases the n-th record; None allocates `many` new ones, enough to grow several times.
            steps in prop::collection::vec(prop::option::weighted(0.5, 0..10_000_usize), 1..200),
            many in 1..200_u32,
        ) {
            let mut slab = Slab::<u32, u32>::default();
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
