//! Decides when all bytes that had arrived before some instant were served, so that leases may end.
//!
//! A renewal that reached this machine before the end of a lease usually counts, however late a worker reads it. So
//! before leases end, a worker *sweeps*: every connection reads its socket until it is empty. A connection whose turn
//! ends before its socket is empty *gives way*. It has a [`Place`] in the barrier until it has caught up. A connection
//! without a place read all its bytes in its last turn, or has not had a turn yet. Or it cannot continue because its
//! client does not read its answers.
//!
//! A sweep first lets new connections register their sockets, if there are any. Then it asks the operating system which
//! sockets have bytes, and each of these connections has one turn. Then each connection with a place gets a debt: the
//! bytes that are unread when it next reads. The sweep waits until the connection has read and served these bytes, but
//! not for later bytes. It also stops waiting for a connection whose turns took [`TurnReport::spent_max`] (a few
//! milliseconds) or more in all. Renewals behind expensive requests may then come too late. They belong to the client
//! that sent those requests, while all other clients wait for the sweep.
//!
//! A connection of a front end also gives way between reading its requests and serving them, so that other connections
//! read in between.
//!
//! A connection may end its turn before it has read and served everything. It then has another turn in a later round of
//! tasks (one poll of each ready task). So each connection at some time serves the bytes for which a sweep waits, and
//! each sweep ends.
//!
//! A connection that came from another worker also has a debt: the bytes that are unread at its first turn on this
//! worker. The worker that it left also sweeps: it reads all its sockets before leases expire. It publishes the end of
//! its sweep only after these bytes are served, or after this worker stops waiting for them. This worker tells it when:
//! see [`MoveTicket`].

use crate::worker::MoveTicket;
use std::time::Duration;
use waymaker_engine::Time;

/// Read barrier of one worker: it decides when leases may expire. It has an entry for each connection that may have
/// unread bytes, because its turn ended early or because it came from another worker. It also has the state of the
/// present sweep (the read of all sockets before leases expire).
#[derive(Debug)]
pub struct ReadBarrier {
    places: Vec<Debt>,
    free: Vec<u32>,
    /// Number of places whose connections owe bytes.
    owing_count: u32,
    sweep: Option<Sweep>,
    /// Whether the worker has taken new connections since the last sweep began. Their sockets may not be registered
    /// with the operating system yet, which reports only registered sockets.
    has_newcomers: bool,
    /// Maximum number of sockets in one answer of the operating system.
    events_per_poll: usize,
    /// Moves to this worker whose connections no longer owe the bytes that were unread when they arrived: these are
    /// served, or the connection has ended or used up its time. The workers that sent the connections do not know it
    /// yet.
    settled: Vec<MoveTicket>,
}

/// Place (entry) in the read barrier of a connection that may have unread bytes: its turn ended early, or it came from
/// another worker. Before leases expire, the worker reads all sockets (a sweep) and waits for each connection with a
/// place. So the connection must return the place to [`ReadBarrier::catch_up`]. If it drops the place instead, the
/// worker waits for ever, and no lease expires.
#[derive(Debug)]
pub struct Place(u32);

/// Debt of one connection with a place (an entry in the barrier): bytes that it must serve before a sweep ends. A sweep
/// is the read of all sockets of a worker before leases expire: here the present sweep of this worker, or a sweep of
/// the worker that the connection left. By default, the connection owes nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    owed: Option<Owed>,
    /// Move that brought the connection to this worker. `None` once the connection no longer owes the bytes that were
    /// unread when it arrived. Until then, the worker that it left does not publish its next read of all sockets, so
    /// leases wait.
    moved: Option<MoveTicket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// Number of bytes that the connection must still read before leases may expire. The worker begins the debt when it
    /// reads all sockets (a sweep), or when the connection arrives from another worker. `None` until the connection
    /// then reads for the first time. At this read, all unread bytes become the debt.
    unread_len: Option<u64>,
    /// Time that the turns of the connection took while leases waited for its unread bytes: since the present sweep
    /// began to wait for them, or since the connection arrived from another worker.
    spent: Duration,
}

/// A sweep in progress.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    /// Instant of the sweep: all bytes that arrived before must be served.
    at: Time,
    step: SweepStep,
}

#[derive(Clone, Copy, Debug)]
enum SweepStep {
    /// The worker first polls each ready task once. Connections that it has just taken then register their sockets with
    /// the operating system, which can report only registered sockets in the next step.
    TakeOver,
    /// Ask the operating system which sockets have bytes.
    Ask,
    /// Ask the operating system this many times more: its first answer may not contain all sockets that have bytes.
    AskOn(usize),
    /// The worker waits for the connections with a place (an entry, because they may have unread bytes). The step ends
    /// when none of them owes the bytes that were unread at its first read in this step. They are served, or the
    /// connection has ended or used up its time.
    Pay,
}

/// Next step of the driver in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepNext {
    /// The driver asks the operating system once which sockets have bytes, and runs the connections that are ready.
    /// Afterwards it calls [`ReadBarrier::poll_sweep`] again.
    Round,
    /// The sweep is complete: all bytes that arrived before this instant were served. Exceptions are connections that
    /// took too much time, and those whose clients do not read their answers.
    Complete(Time),
}

/// Report of one turn of a connection.
#[derive(Clone, Copy, Debug)]
pub struct TurnReport {
    /// Number of bytes that were read from the socket.
    pub read_len: u64,
    /// Class of requests that are served at the end of the turn. The barrier needs it, because bytes that were read may
    /// still wait to be served.
    pub served: Served,
    /// Length of the turn; 0 if it was not measured.
    pub spent: Duration,
    /// Time that the turns of the connection may take in all while a sweep waits for its unread bytes. A sweep is the
    /// worker's read of all sockets before leases expire. After this time, the sweep no longer waits for the bytes.
    pub spent_max: Duration,
}

/// Requests of a connection that are served at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// All requests that this turn and earlier turns read.
    All,
    /// All requests that earlier turns read. Requests that this turn read are left.
    Earlier,
    /// Perhaps not even all requests that earlier turns read.
    Part,
}

impl ReadBarrier {
    /// Returns the barrier of a worker without connections. The operating system names at most `events_per_poll`
    /// sockets at once.
    pub fn new(events_per_poll: usize) -> Self {
        let (places, free, settled) = (Vec::new(), Vec::new(), Vec::new());
        Self { places, free, owing_count: 0, sweep: None, has_newcomers: false, events_per_poll, settled }
    }

    /// Gives a place (an entry in the barrier) to a connection that came from another worker. The bytes that are unread
    /// when it first reads on this worker must be served before leases expire. A sweep (a worker's read of all sockets)
    /// waits for them.
    pub fn arrive(&mut self, ticket: MoveTicket) -> Place {
        self.owing_count += 1;
        self.enter(Debt { owed: Some(Owed::default()), moved: Some(ticket) })
    }

    /// Must be called when a connection is about to read for the first time in its turn. A sweep (a worker's read of
    /// all sockets before leases expire) may wait for the connection without knowing how many bytes are unread. If so,
    /// calls `unread_len`, which returns the number of unread bytes in the socket, and stores the result. Otherwise
    /// `unread_len` is not called.
    pub fn begin_reading(&mut self, place: Option<&Place>, unread_len: impl FnOnce() -> u64) {
        let Some(Place(place)) = place else { return };
        if let Some(Owed { unread_len: owed @ None, .. }) = &mut self.places[*place as usize].owed {
            *owed = Some(unread_len());
        }
    }

    /// Must be called when the turn of a connection is over although it may have more to read or to serve. Gives the
    /// connection a place (an entry in the barrier) if it has none. A debt is the number of unread bytes that a
    /// connection must serve before leases may expire. If the connection has a debt already, subtracts the bytes that
    /// the turn read. Ends the debt if all its bytes are served, or if the turns since its beginning took too much
    /// time.
    pub fn give_way(&mut self, place: &mut Option<Place>, turn: TurnReport) {
        let Some(Place(place)) = place else {
            *place = Some(self.enter(Debt::default()));
            return;
        };
        let place = *place;
        let Some(Owed { unread_len, spent }) = &mut self.places[place as usize].owed else { return };
        let earlier_read_all = *unread_len == Some(0);
        *unread_len = unread_len.map(|len| len.saturating_sub(turn.read_len));
        *spent += turn.spent;
        let is_paid = match turn.served {
            Served::All => *unread_len == Some(0),
            Served::Earlier => earlier_read_all,
            Served::Part => false,
        };
        if is_paid || *spent >= turn.spent_max {
            self.pay(place);
        }
    }

    /// Frees the place (the entry in the barrier) of a connection, if it has one. Leases then may expire without
    /// waiting for this connection. It has read its socket empty, has ended, or cannot continue until its client reads
    /// answers.
    pub fn catch_up(&mut self, place: &mut Option<Place>) {
        let Some(Place(place)) = place.take() else { return };
        self.pay(place);
        self.free.push(place);
    }

    /// Returns a move to this worker whose connection no longer owes the bytes that were unread when it arrived.
    /// Returns each move once. The caller must inform the worker that sent the connection.
    #[inline]
    pub fn poll_settled(&mut self) -> Option<MoveTicket> {
        self.settled.pop()
    }

    /// Records that the worker has taken a new connection. The operating system does not know its socket before its
    /// first turn. So the next sweep (the read of all sockets before leases expire) first lets each ready task run
    /// once.
    pub fn note_newcomer(&mut self) {
        self.has_newcomers = true;
    }

    /// Begins a sweep at this instant: the worker reads all sockets, so that leases that were due by then may expire.
    /// Before the call, the worker must have started to serve all connections that were handed to it.
    pub fn begin_sweep(&mut self, at: Time) {
        // Connections that the worker took since the last call may not have had a turn yet. If there are any, begin
        // with a step in which each ready task runs once. Only a turn registers a socket with the operating system,
        // which the next step asks.
        let step = if std::mem::take(&mut self.has_newcomers) { SweepStep::TakeOver } else { SweepStep::Ask };
        self.sweep = Some(Sweep { at, step });
    }

    /// Returns what the driver must do next in the present sweep (the read of all sockets before leases expire): run
    /// another round of tasks, or end the sweep. The worker has `connection_count` connections.
    ///
    /// # Panics
    /// If there is no sweep.
    pub fn poll_sweep(&mut self, connection_count: usize) -> SweepNext {
        let mut sweep = self.sweep.take().expect("a sweep has started");
        loop {
            sweep.step = match sweep.step {
                SweepStep::TakeOver => SweepStep::Ask,
                SweepStep::Ask => SweepStep::AskOn(connection_count / self.events_per_poll),
                SweepStep::AskOn(0) => {
                    self.begin_debts();
                    SweepStep::Pay
                }
                SweepStep::AskOn(count) => SweepStep::AskOn(count - 1),
                SweepStep::Pay if self.owing_count == 0 => return SweepNext::Complete(sweep.at),
                SweepStep::Pay => SweepStep::Pay,
            };
            if !matches!(sweep.step, SweepStep::Pay) || self.owing_count > 0 {
                self.sweep = Some(sweep);
                return SweepNext::Round;
            }
        }
    }

    /// Whether a sweep is in progress.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Whether any connection owes bytes.
    #[cfg(test)]
    pub(crate) fn is_owed(&self) -> bool {
        self.owing_count > 0
    }

    /// Gives each connection with a place (an entry in the barrier) a debt: the bytes that are unread when it next
    /// reads. A sweep (the read of all sockets before leases expire) waits for them, within a time limit.
    pub(crate) fn begin_debts(&mut self) {
        self.places.iter_mut().for_each(|debt| debt.owed = Some(Owed::default()));
        for free in &self.free {
            self.places[*free as usize] = Debt::default();
        }
        self.owing_count = (self.places.len() - self.free.len()) as u32;
    }

    fn pay(&mut self, place: u32) {
        let debt = std::mem::take(&mut self.places[place as usize]);
        if debt.owed.is_some() {
            self.owing_count -= 1;
        }
        self.settled.extend(debt.moved);
    }

    fn enter(&mut self, debt: Debt) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Debt::default());
            self.places.len() as u32 - 1
        });
        self.places[place as usize] = debt;
        Place(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENT_MAX: Duration = Duration::from_millis(5);

    fn read(read_len: u64) -> TurnReport {
        TurnReport { read_len, served: Served::All, spent: Duration::ZERO, spent_max: SPENT_MAX }
    }

    /// Returns a barrier with one connection that ended its turn early and then has `unread_len` unread bytes. A sweep
    /// (the read of all sockets before leases expire) waits for these bytes.
    fn sweeping(unread_len: u64) -> (ReadBarrier, Option<Place>) {
        let (mut barrier, mut place) = (ReadBarrier::new(1), None);
        barrier.give_way(&mut place, read(1));
        barrier.begin_debts();
        assert!(barrier.is_owed());
        barrier.begin_reading(place.as_ref(), || unread_len);
        (barrier, place)
    }

    /// Only the first turn of a connection registers its socket. So the barrier lets new connections run before it asks
    /// for sockets that have bytes.
    #[test]
    fn the_first_sweep_after_a_new_connection_polls_the_system_once_more() {
        let mut barrier = ReadBarrier::new(1);
        let rounds = |barrier: &mut ReadBarrier| {
            barrier.begin_sweep(Time::ZERO);
            (0..).take_while(|_| barrier.poll_sweep(0) == SweepNext::Round).count()
        };
        let count = rounds(&mut barrier);
        barrier.note_newcomer();
        assert_eq!(rounds(&mut barrier), count + 1);
        assert_eq!(rounds(&mut barrier), count);
    }

    #[test]
    fn a_sweep_does_not_wait_for_a_connection_that_has_read_everything() {
        let (mut barrier, mut place) = (ReadBarrier::new(1), None);
        barrier.give_way(&mut place, read(1));
        barrier.catch_up(&mut place);
        barrier.begin_debts();
        assert!(!barrier.is_owed());
    }

    #[test]
    fn a_sweep_waits_only_for_bytes_unread_at_its_start() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.give_way(&mut place, read(60));
        assert!(barrier.is_owed());
        barrier.begin_reading(place.as_ref(), || panic!("asked once for each sweep"));
        barrier.give_way(&mut place, read(40));
        assert!(!barrier.is_owed(), "there is more to read, and it came later");
    }

    #[test]
    fn a_sweep_waits_for_bytes_read_but_not_served() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.give_way(&mut place, TurnReport { served: Served::Part, ..read(100) });
        assert!(barrier.is_owed());
        barrier.begin_reading(place.as_ref(), || panic!("asked once for each sweep"));
        barrier.give_way(&mut place, read(0));
        assert!(!barrier.is_owed());
    }

    #[test]
    fn a_sweep_waits_for_bytes_served_in_the_turn_after_their_read() {
        let (mut barrier, mut place) = sweeping(100);
        let turn = |read_len| TurnReport { served: Served::Earlier, ..read(read_len) };
        barrier.give_way(&mut place, turn(60));
        barrier.give_way(&mut place, turn(40));
        assert!(barrier.is_owed(), "the last 40 bytes are not served");
        barrier.give_way(&mut place, turn(7));
        assert!(!barrier.is_owed(), "the 7 bytes came later");
    }

    #[test]
    fn a_sweep_does_not_wait_for_a_connection_that_caught_up() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.catch_up(&mut place);
        assert!(!barrier.is_owed());
        assert!(place.is_none());
    }

    #[test]
    fn a_sweep_does_not_wait_for_a_connection_beyond_its_time_limit() {
        let (mut barrier, mut place) = sweeping(u64::MAX);
        let turn = TurnReport { spent: SPENT_MAX / 2, ..read(1) };
        barrier.give_way(&mut place, turn);
        assert!(barrier.is_owed());
        barrier.give_way(&mut place, turn);
        assert!(!barrier.is_owed());
        barrier.begin_debts();
        assert!(barrier.is_owed(), "each sweep allows it that time anew");
    }

    /// A sweep (the read of all sockets before leases expire) waits for the unread bytes of each connection, which
    /// `begin_reading` measures. A front-end connection that only serves requests from an earlier read does not call
    /// `begin_reading`, so their number is unknown. The time of its turns counts nevertheless, and ends the wait.
    #[test]
    fn a_sweep_does_not_wait_for_a_slow_connection_without_reads() {
        let (mut barrier, mut place) = (ReadBarrier::new(1), None);
        barrier.give_way(&mut place, read(1));
        barrier.begin_debts();
        let turn = TurnReport { spent: SPENT_MAX / 2, served: Served::Part, ..read(0) };
        barrier.give_way(&mut place, turn);
        assert!(barrier.is_owed());
        barrier.give_way(&mut place, turn);
        assert!(!barrier.is_owed());
    }

    #[test]
    fn a_sweep_does_not_wait_for_connections_that_yield_after_its_start() {
        let (mut barrier, mut place) = sweeping(100);
        let mut late = None;
        barrier.give_way(&mut late, read(1));
        barrier.catch_up(&mut place);
        assert!(!barrier.is_owed());
    }

    /// The first connection has served its bytes and frees its place (its entry in the barrier). A later connection
    /// reuses this place. The sweep (the read of all sockets before leases expire) began before, so it must not wait
    /// for the later connection.
    #[test]
    fn a_sweep_does_not_wait_for_the_user_of_a_reused_place() {
        let (mut barrier, mut first) = sweeping(100);
        let mut other = None;
        barrier.give_way(&mut other, read(1));
        barrier.begin_debts();
        barrier.catch_up(&mut first);
        let mut later = None;
        barrier.give_way(&mut later, read(1));
        barrier.begin_reading(later.as_ref(), || panic!("no sweep waits for it"));
        barrier.give_way(&mut later, TurnReport { spent: SPENT_MAX, ..read(1) });
        assert!(barrier.is_owed(), "the other one has not read");
        barrier.catch_up(&mut other);
        assert!(!barrier.is_owed());
    }

    #[test]
    fn a_sweep_does_not_wait_for_a_place_free_at_its_start() {
        let (mut barrier, mut first) = sweeping(100);
        let mut other = None;
        barrier.give_way(&mut other, read(1));
        barrier.catch_up(&mut first);
        barrier.begin_debts();
        let mut later = None;
        barrier.give_way(&mut later, read(1));
        barrier.give_way(&mut later, TurnReport { spent: SPENT_MAX, ..read(1) });
        assert!(barrier.is_owed(), "the other one has not read");
        barrier.catch_up(&mut other);
        assert!(!barrier.is_owed());
    }

    #[test]
    fn a_connection_outside_a_sweep_settles_no_debt_of_others() {
        let (mut barrier, mut place) = sweeping(100);
        let mut late = None;
        barrier.give_way(&mut late, read(1));
        barrier.catch_up(&mut late);
        assert!(barrier.is_owed());
        barrier.give_way(&mut place, read(100));
        assert!(!barrier.is_owed());
        barrier.catch_up(&mut place);
        barrier.begin_debts();
        assert!(!barrier.is_owed());
    }
}
