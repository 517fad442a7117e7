//! Records of one type, found by number.

/// Stands where there is no record.
pub const NONE: u32 = u32::MAX;

const CHUNK_BITS: u32 = 12;
const CHUNK_LEN: u32 = 1 << CHUNK_BITS;

/// A record that can lie in a free list while it is not in use.
pub(crate) trait Record: Default {
    /// Where the number of the next free record is kept.
    fn free_link(&mut self) -> &mut u32;
}

/// Records in chunks that never move: growing costs one chunk, never a copy of what is there.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    /// Number of the first record never used.
    fresh: u32,
    free: u32,
    live_count: u32,
}

impl<T: Record> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), fresh: 0, free: NONE, live_count: 0 }
    }
}

impl<T: Record> Slab<T> {
    /// A record to fill in. It holds whatever the last user left.
    #[inline]
    pub(crate) fn allocate(&mut self) -> u32 {
        self.live_count += 1;
        if self.free != NONE {
            let index = self.free;
            self.free = *self[index].free_link();
            return index;
        }
        self.allocate_fresh()
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
        let free = self.free;
        *self[index].free_link() = free;
        self.free = index;
        self.live_count -= 1;
    }

    /// The record, if there ever was one of this number.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get((index >> CHUNK_BITS) as usize)?.get((index & (CHUNK_LEN - 1)) as usize)
    }

    /// How many records are in use.
    #[inline]
    pub(crate) fn live_count(&self) -> u32 {
        self.live_count
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
