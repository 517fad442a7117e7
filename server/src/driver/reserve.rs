//! Places for connections that the Unix socket and the HTTP port accept although the server is full: it has reached its
//! connection limit, or its memory use is at least 5 % above the limit. These connections serve health checks, metrics
//! and local operators.

use crate::limits::RESERVED_CONNECTION_COUNT_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the open connections that the Unix socket, or the HTTP port, accepted although the server was full.
#[derive(Debug, Default)]
pub(super) struct Reserve(Arc<AtomicUsize>);

/// Place of one connection in a [`Reserve`]. When the value is dropped, the place is free again.
#[derive(Debug)]
pub(crate) struct Reserved(Arc<AtomicUsize>);

impl Reserve {
    /// Returns the number of occupied places.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes one of the places of this reserve. The acceptor calls this for a new connection if the server is full.
    /// Returns `None` if all places are occupied.
    pub(super) fn take(&self) -> Option<Reserved> {
        let take = |count| (count < RESERVED_CONNECTION_COUNT_MAX).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Reserved(Arc::clone(&self.0)))
    }
}

/// Places for connections of a full server: some for the HTTP port, and some for the Unix socket. Each has its own
/// places, so a flood of connections on one takes no place from the other.
#[derive(Debug, Default)]
pub(super) struct Reserves {
    /// Places of the HTTP port, which serves health checks and metrics. They matter most when the server is full.
    pub(super) http: Reserve,
    /// Places of the Unix socket. If the server is full, local operators can still connect through this socket and end
    /// the cause of the overload.
    pub(super) unix: Reserve,
}

impl Reserves {
    /// Returns the number of occupied places.
    pub(super) fn count(&self) -> usize {
        self.http.count() + self.unix.count()
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
    fn the_connection_reserve_is_limited_and_its_places_are_returned() {
        let reserve = Reserve::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| reserve.take()).take(1_000).collect();
        assert_eq!(taken.len(), RESERVED_CONNECTION_COUNT_MAX);
        taken.pop();
        assert!(reserve.take().is_some());
        assert_eq!(reserve.count(), RESERVED_CONNECTION_COUNT_MAX - 1);
    }
}
