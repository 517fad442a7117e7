//! The turn of one connection of the binary protocol.

use super::read_barrier::{Served, TurnReport};
use crate::limits::{READ_LEN_MAX, SWEEP_TURNS_US, TURN_US};
use crate::worker::Budget;
use std::time::{Duration, Instant};

/// Maximum number of reads in one turn. The runtime allows a task 128 reads and writes in one poll. After that it
/// reports every socket as empty, even if bytes are unread. So a turn must end earlier.
const READS_PER_TURN: u32 = 64;

/// Measures how long a turn takes.
pub trait Stopwatch {
    /// Starts the stopwatch, unless it is running.
    fn start(&mut self);
    /// Starts the stopwatch unless it is running, and returns the time since its start.
    fn elapsed(&mut self) -> Duration;
    /// Starts the stopwatch again from 0.
    fn restart(&mut self);
    /// Returns the time since the start of the stopwatch; 0 if it is not running. Does not start it.
    fn elapsed_if_started(&mut self) -> Duration;
}

/// A stopwatch that reads the clock of the machine.
#[derive(Debug, Default)]
pub struct MachineStopwatch(Option<Instant>);

impl Stopwatch for MachineStopwatch {
    #[inline]
    fn start(&mut self) {
        self.0.get_or_insert_with(Instant::now);
    }

    #[inline]
    fn elapsed(&mut self) -> Duration {
        self.0.get_or_insert_with(Instant::now).elapsed()
    }

    fn restart(&mut self) {
        self.0 = Some(Instant::now());
    }

    fn elapsed_if_started(&mut self) -> Duration {
        self.0.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Time and bytes that a connection has used in its turn. The clock is read only if the connection needs a second read
/// or a second batch of frames.
#[derive(Debug, Default)]
pub struct Turn<W = MachineStopwatch> {
    stopwatch: W,
    read_len: u64,
    read_count: u32,
}

impl<W: Stopwatch> Turn<W> {
    /// Begins a turn whose time this stopwatch measures.
    pub fn new(stopwatch: W) -> Self {
        Self { stopwatch, read_len: 0, read_count: 0 }
    }

    /// Counts a read of `len` bytes: a turn has a maximum number of reads, and its report contains the bytes. Returns
    /// whether the socket may have more bytes.
    #[inline]
    pub(super) fn note_read(&mut self, len: usize) -> bool {
        self.read_len += len as u64;
        self.read_count += 1;
        // A read that leaves room in the buffer has usually emptied the socket. But an encrypted connection returns one
        // record at a time. So from the second read of a turn on, assume that the socket may have more bytes.
        len == READ_LEN_MAX || self.read_count > 1
    }

    /// Whether the connection may read or serve more in this turn: neither the reads nor the time of a turn are used
    /// up.
    pub(super) fn may_read_on(&mut self) -> bool {
        self.read_count < READS_PER_TURN && !self.is_spent()
    }

    /// Returns the report of the turn for `ReadBarrier::give_way`. `is_served` tells whether all requests that were
    /// read are served.
    pub(crate) fn report(&mut self, is_served: bool) -> TurnReport {
        TurnReport {
            read_len: self.read_len,
            served: if is_served { Served::All } else { Served::Part },
            spent: self.stopwatch.elapsed_if_started(),
            spent_max: Duration::from_micros(SWEEP_TURNS_US),
        }
    }
}

impl<W: Stopwatch> Budget for Turn<W> {
    #[inline]
    fn begin(&mut self) {
        self.stopwatch.start();
    }

    #[inline]
    fn is_spent(&mut self) -> bool {
        self.stopwatch.elapsed() >= Duration::from_micros(TURN_US)
    }
}

#[cfg(test)]
impl MachineStopwatch {
    /// Returns a stopwatch that was started this long ago.
    pub(crate) fn started_earlier(by: Duration) -> Self {
        Self(Some(Instant::now().checked_sub(by).expect("the machine was booted before that")))
    }
}

#[cfg(test)]
impl Turn {
    /// Returns a turn whose time is used up.
    pub(crate) fn spent() -> Self {
        let stopwatch = MachineStopwatch::started_earlier(Duration::from_micros(TURN_US));
        Self { stopwatch, ..Self::default() }
    }

    /// Returns a turn that has read `read_len` bytes and takes no time.
    pub(crate) fn timeless(read_len: u64) -> Self {
        Self { read_len, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of reads and writes of a task in one poll that the runtime allows. After that it reports that sockets
    /// have no bytes to read and no room for output. A connection would then believe that it has read all bytes of its
    /// client.
    const RUNTIME_OPERATIONS_PER_POLL: u32 = 128;

    #[test]
    fn short_reads_end_a_turn_before_the_read_limit_of_the_runtime() {
        let mut turn = Turn::<MachineStopwatch>::default();
        for _ in 0..RUNTIME_OPERATIONS_PER_POLL / 2 {
            turn.note_read(1);
        }
        assert!(!turn.may_read_on());
    }
}
