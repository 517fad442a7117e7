//! Places for a few connections beyond the limit.

use crate::limits::RESERVED_CONNECTION_COUNT_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the connections of a server that the port for HTTP accepted although the server was full.
#[derive(Debug, Default)]
pub(super) struct Reserve(Arc<AtomicUsize>);

/// The place of one connection in the reserve, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved(Arc<AtomicUsize>);

impl Reserve {
    /// Returns the number of places that are taken.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a place. Returns `None` if all are taken.
    pub(super) fn take(&self) -> Option<Reserved> {
        let take = |count| (count < RESERVED_CONNECTION_COUNT_MAX).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Reserved(Arc::clone(&self.0)))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_limited_and_its_places_are_given_back() {
        let reserve = Reserve::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| reserve.take()).take(1_000).collect();
        assert_eq!(taken.len(), RESERVED_CONNECTION_COUNT_MAX);
        taken.pop();
        assert!(reserve.take().is_some());
        assert_eq!(reserve.count(), RESERVED_CONNECTION_COUNT_MAX - 1);
    }
}
