//! A counter that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with a single writing thread. Adding costs a load and a store, not an atomic addition, so two writers
/// would lose counts.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
