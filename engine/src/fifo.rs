//! Queue that copies little when it grows.

use std::collections::{LinkedList, VecDeque};

/// Largest number of values in one chunk. Copying a chunk takes some microseconds.
const CHUNK_LEN: usize = 1024;

/// Queue in chunks of fixed size. A single buffer would be copied each time it doubles. With a million values, one such
/// copy delays a request for milliseconds.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    /// Chunk (a buffer of at most [`CHUNK_LEN`] values) with the oldest values; newer values may follow in `behind`.
    /// Empty only if the queue is empty. If its last value is removed and `behind` is empty, the buffer is kept, so a
    /// short queue uses one buffer again and again.
    front: VecDeque<T>,
    /// Chunks behind `front`. Each has [`CHUNK_LEN`] values, except the last one, which has at least one.
    behind: LinkedList<VecDeque<T>>,
    /// Number of values in all chunks.
    count: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { front: VecDeque::new(), behind: LinkedList::new(), count: 0 }
    }
}

impl<T> Fifo<T> {
    /// Whether there are no values.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of values.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the oldest value.
    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.front.front()
    }

    /// Returns the oldest value for modification.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.front.front_mut()
    }

    /// Adds a value behind all others.
    #[inline]
    pub(crate) fn push_back(&mut self, value: T) {
        self.count += 1;
        let last = self.behind.back_mut().unwrap_or(&mut self.front);
        if last.len() < CHUNK_LEN {
            last.push_back(value);
        } else {
            self.behind.push_back(VecDeque::from([value]));
        }
    }

    /// Removes and returns the oldest value.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let value = self.front.pop_front()?;
        self.count -= 1;
        if self.front.is_empty()
            && let Some(next) = self.behind.pop_front()
        {
            self.front = next;
        }
        Some(value)
    }

    /// Returns all values, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.front.iter().chain(self.behind.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the capacity of the largest buffer.
    fn room_max(fifo: &Fifo<u32>) -> usize {
        fifo.behind.iter().map(VecDeque::capacity).max().unwrap_or(0).max(fifo.front.capacity())
    }

    #[test]
    fn values_are_popped_in_push_order() {
        let mut fifo = Fifo::default();
        let mut model = VecDeque::new();
        let mut random = 1_u64;
        // Phases with mostly pushes and phases with mostly pops alternate, each long enough to use several chunks.
        for step in 0..200_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let is_push = (random >> 33) % 16 < if step / 20_000 % 2 == 0 { 11 } else { 5 };
            if is_push {
                fifo.push_back(step);
                model.push_back(step);
            } else {
                assert_eq!(fifo.pop_front(), model.pop_front());
            }
            assert_eq!(fifo.front(), model.front());
            assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
            if step % 1024 == 0 {
                assert!(fifo.iter().eq(&model));
            }
        }
        assert!(model.iter().all(|value| fifo.pop_front() == Some(*value)));
        assert_eq!((fifo.pop_front(), fifo.behind.len()), (None, 0));
    }

    #[test]
    fn no_buffer_outgrows_a_chunk() {
        let mut fifo = Fifo::default();
        for value in 0..1_000_000 {
            fifo.push_back(value);
        }
        assert!(room_max(&fifo) <= CHUNK_LEN, "room for {}", room_max(&fifo));
        assert!(fifo.behind.len() <= 1_000_000 / CHUNK_LEN, "{} chunks", fifo.behind.len());
    }

    #[test]
    fn a_short_queue_keeps_its_buffer() {
        let mut fifo = Fifo::default();
        fifo.push_back(0);
        let room = room_max(&fifo);
        for value in 1..10_000 {
            fifo.push_back(value);
            assert_eq!(fifo.pop_front(), Some(value - 1));
            assert_eq!((room_max(&fifo), fifo.behind.len()), (room, 0));
        }
    }
}
