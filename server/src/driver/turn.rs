//! The turn of one connection of the binary protocol.

use super::read_barrier::{Served, TurnReport};
use crate::limits::{READ_LEN_MAX, SWEEP_TURNS_US, TURN_US};
use crate::worker::Budget;
use std::time::{Duration, Instant};

/// Reads in one turn. The runtime would refuse more of them, as if the socket were empty.
const READS_PER_TURN: u32 = 64;

/// Time and bytes that a connection has used in its turn. The clock is not read for a connection with few requests.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When the turn was first measured.
    since: Option<Instant>,
    read_len: u64,
    read_count: u32,
}

impl Turn {
    /// Notes that bytes were read. Returns whether the socket may have more.
    #[inline]
    pub(super) fn note_read(&mut self, len: usize) -> bool {
        self.read_len += len as u64;
        self.read_count += 1;
        // A read that leaves room in the buffer has emptied the socket, unless the socket is encrypted. So a socket that has bytes again in
        // the same turn may have more of them.
        len == READ_LEN_MAX || self.read_count > 1
    }

    /// Whether the connection may read again in this turn, after a read that may have left more.
    pub(super) fn may_read_on(&mut self) -> bool {
        self.read_count < READS_PER_TURN && !self.is_spent()
    }

    /// Ends the turn.
    pub(super) fn report(&self, is_served: bool) -> TurnReport {
        let spent = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        TurnReport {
            read_len: self.read_len,
            served: if is_served { Served::All } else { Served::Part },
            spent,
            spent_max: Duration::from_micros(SWEEP_TURNS_US),
        }
    }
}

impl Budget for Turn {
    #[inline]
    fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    #[inline]
    fn is_spent(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_micros(TURN_US)
    }
}

#[cfg(test)]
impl Turn {
    /// Returns a turn whose time is over.
    pub(super) fn spent() -> Self {
        let since = Instant::now().checked_sub(Duration::from_micros(TURN_US));
        Self { since: Some(since.expect("the machine has run for longer")), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes that the runtime allows a task, until it says that all sockets are empty and full. A connection would take that for
    /// the end of what its client has sent.
    const RUNTIME_OPERATIONS_PER_POLL: u32 = 128;

    #[test]
    fn a_turn_ends_after_fewer_reads_than_the_runtime_allows_however_short_they_are() {
        let mut turn = Turn::default();
        for _ in 0..RUNTIME_OPERATIONS_PER_POLL / 2 {
            turn.note_read(1);
        }
        assert!(!turn.may_read_on());
    }
}
