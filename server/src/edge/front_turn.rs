//! The turn of one connection of a front end.
//!
//! A connection of a front end is one task. The task runs both the protocol library (HTTP or WebSocket), which reads
//! and writes the socket, and the requests that the library has begun. A turn is one poll of this task, and the other
//! connections of the worker wait while it lasts. When the poll ends, either all bytes that were read have reached the
//! worker, or the connection has a place in the [`ReadBarrier`].

use super::read_barrier::{Place, ReadBarrier, Served, TurnReport};
use super::turn::{MachineStopwatch, Stopwatch};
use crate::limits::{FRONT_BATCH_LEN, FRONT_READ_LEN_MAX, FRONT_SWEEP_TURNS_US, FRONT_TURN_LEN, TURN_US};
use std::task::Waker;
use std::time::Duration;

/// Progress of a connection in its present turn.
#[derive(Debug, Default)]
pub struct FrontTurn<W = MachineStopwatch> {
    stopwatch: W,
    /// Whether the time of the turn was used up when it was last measured.
    was_spent: bool,
    /// Number of bytes that this turn has read from the socket.
    read_len: usize,
    /// Whether the next turn must read: the socket may have more bytes, or the protocol library has yet to learn that
    /// the client closed the connection.
    reads_later: bool,
    /// Whether requests that were read are left for the next turn.
    serves_later: bool,
    /// Whether the requests that this turn read are served only in the next turn, so that other connections read first.
    /// [`Self::let_others_read`] decides this.
    lets_others_read: bool,
    /// Number of the turn. The first turn is 1, and each later turn adds 1.
    number: u64,
    /// Wakers of requests that wait for the next turn, because they take long, because the turn was over, or because it
    /// began its maximum number of requests. The beginning of the next turn wakes them.
    parted: Vec<Waker>,
    /// Place in the read barrier, because of which a sweep of the worker waits for this connection. `Some` from the end
    /// of a turn that left something to read or to serve, until a turn leaves nothing.
    place: Option<Place>,
}

/// State of the worker's other connections, without the connection whose turn it is.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// Whether the worker has other connections.
    pub are_there: bool,
    /// Whether any other connection ended its turn before it had read and served everything, and waits for its next
    /// turn.
    pub have_given_way: bool,
}

/// End of a turn of a connection of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontTurnEnd {
    /// All bytes that were read are served, and no read was refused.
    CaughtUp,
    /// The connection has another turn as soon as the runtime has polled the other tasks that are ready.
    NextRound,
    /// The connection has another turn after the connections that have waited longer in the queue of
    /// [`LateQueue`](super::late::LateQueue).
    GaveWay,
}

impl<W: Stopwatch> FrontTurn<W> {
    /// Begins a turn, and wakes the requests that continue in it.
    pub fn begin(&mut self) {
        self.stopwatch.restart();
        (self.was_spent, self.read_len) = (false, 0);
        (self.reads_later, self.serves_later, self.lets_others_read) = (false, false, false);
        self.number += 1;
        self.parted.drain(..).for_each(Waker::wake);
    }

    /// Whether the time of the turn is used up. Reads the clock, unless the time was used up before.
    pub fn is_spent(&mut self) -> bool {
        self.was_spent =
            self.was_spent || self.stopwatch.elapsed_if_started() >= Duration::from_micros(TURN_US);
        self.was_spent
    }

    /// Whether [`Self::is_spent`] has found the time of this turn used up. Does not read the clock.
    pub fn was_spent(&self) -> bool {
        self.was_spent
    }

    /// Returns the maximum number of bytes that the connection may read now. The result is 0 if this turn may read no
    /// more although the socket has bytes; the next turn must then read. `unread_len` returns the number of unread
    /// bytes in the socket.
    pub fn may_read(&mut self, barrier: &mut ReadBarrier, unread_len: impl Fn() -> u64) -> usize {
        if self.read_len == 0 {
            barrier.begin_reading(self.place.as_ref(), &unread_len);
        }
        let rest_len = FRONT_TURN_LEN.saturating_sub(self.read_len);
        let len = if self.is_spent() { 0 } else { rest_len.min(FRONT_READ_LEN_MAX) };
        if len == 0 && unread_len() == 0 {
            // This turn may read no more, but the socket is empty, so the next turn has nothing to read. Allow one more
            // read: the runtime reports the arrival of further bytes only after a read that found the socket empty.
            return FRONT_READ_LEN_MAX;
        }
        self.reads_later |= len == 0;
        len
    }

    /// Notes that bytes were read.
    pub fn note_read(&mut self, len: usize) {
        self.read_len += len;
    }

    /// Notes that the client has closed the connection. Returns true if this turn has read bytes. If so, the caller
    /// must tell the protocol library of the end only in the next turn: the library drops all requests when the
    /// connection ends, and the requests that this turn read have not run yet.
    pub fn end_later(&mut self) -> bool {
        let has_read = self.read_len > 0;
        self.reads_later |= has_read;
        has_read
    }

    /// Whether [`Self::serve_later`] was called in this turn: requests wait for the next turn.
    pub fn serves_later(&self) -> bool {
        self.serves_later
    }

    /// Notes that requests wait for the next turn.
    pub fn serve_later(&mut self) {
        self.serves_later = true;
    }

    /// Decides whether the requests that this turn read wait for the next turn. The other connections then read their
    /// requests first. Many connections take far less time if all of them read first, and then all of them serve.
    ///
    /// Returns true if the worker has other connections and these should read first. Returns false if the turn read at
    /// least [`FRONT_BATCH_LEN`] bytes, because its requests are a large batch already. Returns false if the socket may
    /// have more bytes. Returns false as well if another connection waits for its next turn because its last one ended
    /// early. Such a connection may take a whole turn in the next round, which would delay the requests.
    pub fn let_others_read(&mut self, others: Others) -> bool {
        self.lets_others_read = self.read_len < FRONT_BATCH_LEN
            && !self.reads_later
            && others.are_there
            && !others.have_given_way;
        self.lets_others_read
    }

    /// Returns the class of requests that this turn leaves served: all that were read, only those of earlier turns, or
    /// perhaps not even all of these. The report to the read barrier contains it.
    pub(crate) fn served(&self) -> Served {
        match (self.serves_later, self.lets_others_read) {
            (true, _) => Served::Part,
            (false, true) => Served::Earlier,
            (false, false) => Served::All,
        }
    }

    /// Ends a turn after which the connection stays open. If something is left to read or to serve, the connection
    /// keeps or gets a place (an entry) in the read barrier. A sweep (the read of all sockets before leases expire)
    /// then waits for the connection. Otherwise the connection frees its place.
    pub fn end(&mut self, barrier: &mut ReadBarrier) -> FrontTurnEnd {
        let is_left = self.reads_later || self.serves_later || !self.parted.is_empty();
        if !is_left && !self.lets_others_read {
            self.leave(barrier);
            return FrontTurnEnd::CaughtUp;
        }
        let turn = self.report();
        barrier.give_way(&mut self.place, turn);
        if is_left { FrontTurnEnd::GaveWay } else { FrontTurnEnd::NextRound }
    }

    /// Frees the connection's place in the read barrier, so that no sweep (read of all sockets of the worker) waits for
    /// it. The connection has ended, or has served all bytes that it read.
    pub fn leave(&mut self, barrier: &mut ReadBarrier) {
        barrier.catch_up(&mut self.place);
    }

    /// Whether the connection has a place (an entry) in the read barrier. If so, a sweep (the read of all sockets
    /// before leases expire) waits until the connection has served its unread bytes.
    pub fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// Returns the stopwatch that measures the turn.
    pub fn stopwatch_mut(&mut self) -> &mut W {
        &mut self.stopwatch
    }

    /// Returns the number of the turn.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Registers the waker of a request that waits for the next turn. [`Self::begin`] wakes it in the next turn.
    pub fn wake_in_next_turn(&mut self, waker: Waker) {
        self.parted.push(waker);
    }

    /// Uses up the time of the turn.
    #[cfg(test)]
    pub(crate) fn use_up(&mut self) {
        self.was_spent = true;
    }

    fn report(&mut self) -> TurnReport {
        TurnReport {
            read_len: self.read_len as u64,
            served: self.served(),
            spent: self.stopwatch.elapsed_if_started(),
            spent_max: Duration::from_micros(FRONT_SWEEP_TURNS_US),
        }
    }
}

#[cfg(test)]
impl FrontTurn {
    /// Stops the stopwatch of this turn until the next turn begins. The turn then takes no time, so a test gets the
    /// same result on a slow machine.
    pub(crate) fn stop_clock(&mut self) {
        self.stopwatch = MachineStopwatch::default();
    }

    /// Sets the beginning of the turn to an earlier time.
    pub(crate) fn begin_earlier(&mut self, by: Duration) {
        self.stopwatch = MachineStopwatch::started_earlier(by);
    }

    /// Returns the number of registered wakers: those of requests that wait for the next turn.
    pub(crate) fn parted_count(&self) -> usize {
        self.parted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::test_local::Wakes;
    use std::sync::Arc;

    const EVENTS_PER_POLL: usize = 8;

    /// Begins the next turn of a connection. The clock of the turn is stopped, so the turn takes no time.
    fn begin(turn: &mut FrontTurn) {
        turn.begin();
        turn.stop_clock();
    }

    #[test]
    fn a_split_request_is_woken_once_in_the_next_turn() {
        let (mut turn, mut barrier) = (FrontTurn::default(), ReadBarrier::new(EVENTS_PER_POLL));
        let wakes = Arc::<Wakes>::default();
        begin(&mut turn);
        turn.wake_in_next_turn(Waker::from(Arc::clone(&wakes)));
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::GaveWay);
        assert!(turn.has_place());
        begin(&mut turn);
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::CaughtUp);
        assert!(!turn.has_place());
        begin(&mut turn);
        assert_eq!(wakes.count(), 1);
    }

    #[test]
    fn a_connection_that_may_have_unread_bytes_gets_another_turn() {
        let (mut turn, mut barrier) = (FrontTurn::default(), ReadBarrier::new(EVENTS_PER_POLL));
        begin(&mut turn);
        turn.use_up();
        assert_eq!(turn.may_read(&mut barrier, || 1), 0);
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::GaveWay);
        begin(&mut turn);
        turn.note_read(FRONT_TURN_LEN);
        assert_eq!(turn.may_read(&mut barrier, || 1), 0, "it has read as much as a turn may");
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::GaveWay);
        begin(&mut turn);
        turn.note_read(1);
        assert!(turn.end_later(), "the library drops requests that have not run");
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::GaveWay);
        begin(&mut turn);
        assert!(!turn.end_later());
        assert_eq!(turn.may_read(&mut barrier, || 0), FRONT_READ_LEN_MAX);
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::CaughtUp);
    }

    #[test]
    fn requests_that_let_others_read_run_in_the_next_round_of_tasks() {
        let (mut turn, mut barrier) = (FrontTurn::default(), ReadBarrier::new(EVENTS_PER_POLL));
        let others = Others { are_there: true, have_given_way: false };
        for (read_len, others, lets_read) in [
            (1, others, true),
            (FRONT_BATCH_LEN, others, false),
            (1, Others { are_there: false, ..others }, false),
            (1, Others { have_given_way: true, ..others }, false),
        ] {
            begin(&mut turn);
            turn.note_read(read_len);
            assert_eq!(turn.let_others_read(others), lets_read, "{read_len} {others:?}");
            let end = if lets_read { FrontTurnEnd::NextRound } else { FrontTurnEnd::CaughtUp };
            assert_eq!(turn.end(&mut barrier), end);
        }
        begin(&mut turn);
        turn.note_read(1);
        assert!(turn.let_others_read(others));
        turn.serve_later();
        assert_eq!(turn.end(&mut barrier), FrontTurnEnd::GaveWay, "requests of earlier turns are left");
    }
}
