//! Decides when everything that had arrived before some instant was served, so that leases may end.
//!
//! A renewal that reached this machine before the end of a lease counts, however late a worker reads it. So before leases end, a
//! worker *sweeps*: every connection reads its socket until it is empty. A connection whose turn ends before that *gives way*, and has a
//! place here until it has caught up. Connections without a place have read everything, or cannot go on because their client does not
//! take its answers.
//!
//! When a sweep begins, a connection with a place owes the bytes that are unread at that time. The sweep does not wait for later bytes.
//! It also stops waiting for a connection that has used too much of the worker's time. The renewals behind requests that
//! expensive come too late. They belong to the client that sent those requests, while all other clients wait for the sweep.
//!
//! A connection of a front end also gives way between reading requests and serving them, so that other connections read meanwhile.
//!
//! A connection that gave way runs again in the next round of tasks, because it wakes itself. So each sweep ends.

use std::time::Duration;

/// The connections of one worker that gave way.
#[derive(Debug, Default)]
pub(crate) struct ReadBarrier {
    places: Vec<Debt>,
    free: Vec<u32>,
    /// Connections that the present sweep waits for.
    owing_count: u32,
}

/// The place of a connection that gave way. It must be given back by [`ReadBarrier::catch_up`].
#[derive(Debug)]
pub(crate) struct Place(u32);

#[derive(Clone, Copy, Debug)]
enum Debt {
    /// No sweep waits for the connection.
    None,
    /// A sweep waits for the connection, which has used this time since the sweep began. `unread_len` is the number of bytes that
    /// were unread then; it is unknown until the connection reads again.
    Owed { unread_len: Option<u64>, spent: Duration },
}

impl Debt {
    /// Debt of a connection when a sweep begins.
    const AT_BEGIN: Self = Self::Owed { unread_len: None, spent: Duration::ZERO };
}

/// Report of one turn of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnReport {
    /// Bytes that were read from the socket.
    pub(crate) read_len: u64,
    /// Requests that are served at its end.
    pub(crate) served: Served,
    /// Length of the turn.
    pub(crate) spent: Duration,
    /// Length of all turns for which one sweep waits.
    pub(crate) spent_max: Duration,
}

/// Requests of a connection that are served at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// All that were read.
    All,
    /// All that earlier turns read. Requests that this turn read are left.
    Earlier,
    /// Some that earlier turns read are left too.
    Part,
}

impl ReadBarrier {
    /// A connection is about to read for the first time in its turn. `unread_len` returns the bytes in its socket, and is called only
    /// for a sweep.
    pub(crate) fn begin_reading(&mut self, place: Option<&Place>, unread_len: impl FnOnce() -> u64) {
        let Some(Place(place)) = place else { return };
        if let Debt::Owed { unread_len: owed @ None, .. } = &mut self.places[*place as usize] {
            *owed = Some(unread_len());
        }
    }

    /// The turn of a connection is over although it may have more to read.
    pub(crate) fn give_way(&mut self, place: &mut Option<Place>, turn: TurnReport) {
        let Some(Place(place)) = place else {
            *place = Some(self.enter());
            return;
        };
        let debt = &mut self.places[*place as usize];
        let Debt::Owed { unread_len, spent } = debt else { return };
        let earlier_read_all = *unread_len == Some(0);
        *unread_len = unread_len.map(|len| len.saturating_sub(turn.read_len));
        *spent += turn.spent;
        let is_paid = match turn.served {
            Served::All => *unread_len == Some(0),
            Served::Earlier => earlier_read_all,
            Served::Part => false,
        };
        if is_paid || *spent >= turn.spent_max {
            *debt = Debt::None;
            self.owing_count -= 1;
        }
    }

    /// A connection has read its socket empty, is over, or cannot go on until its client takes answers.
    pub(crate) fn catch_up(&mut self, place: &mut Option<Place>) {
        let Some(Place(place)) = place.take() else { return };
        if !matches!(self.places[place as usize], Debt::None) {
            self.owing_count -= 1;
        }
        self.places[place as usize] = Debt::None;
        self.free.push(place);
    }

    /// Begins a sweep: from here on [`ReadBarrier::is_sweeping`] until each connection with a place has served the bytes that are unread now.
    pub(crate) fn begin_sweep(&mut self) {
        self.places.fill(Debt::AT_BEGIN);
        for free in &self.free {
            self.places[*free as usize] = Debt::None;
        }
        self.owing_count = (self.places.len() - self.free.len()) as u32;
    }

    /// Whether some connection owes bytes.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.owing_count > 0
    }

    fn enter(&mut self) -> Place {
        Place(self.free.pop().unwrap_or_else(|| {
            self.places.push(Debt::None);
            self.places.len() as u32 - 1
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENT_MAX: Duration = Duration::from_millis(5);

    fn read(read_len: u64) -> TurnReport {
        TurnReport { read_len, served: Served::All, spent: Duration::ZERO, spent_max: SPENT_MAX }
    }

    /// A barrier with one connection that gave way, and a sweep that begins when `unread_len` bytes are unread.
    fn sweeping(unread_len: u64) -> (ReadBarrier, Option<Place>) {
        let (mut barrier, mut place) = (ReadBarrier::default(), None);
        barrier.give_way(&mut place, read(1));
        barrier.begin_sweep();
        assert!(barrier.is_sweeping());
        barrier.begin_reading(place.as_ref(), || unread_len);
        (barrier, place)
    }

    #[test]
    fn a_sweep_waits_for_nobody_that_has_read_everything() {
        let (mut barrier, mut place) = (ReadBarrier::default(), None);
        barrier.give_way(&mut place, read(1));
        barrier.catch_up(&mut place);
        barrier.begin_sweep();
        assert!(!barrier.is_sweeping());
    }

    #[test]
    fn bytes_that_were_unread_when_the_sweep_began_are_waited_for_and_later_ones_are_not() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.give_way(&mut place, read(60));
        assert!(barrier.is_sweeping());
        barrier.begin_reading(place.as_ref(), || panic!("asked once for each sweep"));
        barrier.give_way(&mut place, read(40));
        assert!(!barrier.is_sweeping(), "there is more to read, and it came later");
    }

    #[test]
    fn bytes_that_were_read_and_not_served_are_waited_for() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.give_way(&mut place, TurnReport { served: Served::Part, ..read(100) });
        assert!(barrier.is_sweeping());
        barrier.begin_reading(place.as_ref(), || panic!("asked once for each sweep"));
        barrier.give_way(&mut place, read(0));
        assert!(!barrier.is_sweeping());
    }

    #[test]
    fn bytes_that_one_turn_reads_and_the_next_serves_are_waited_for() {
        let (mut barrier, mut place) = sweeping(100);
        let turn = |read_len| TurnReport { served: Served::Earlier, ..read(read_len) };
        barrier.give_way(&mut place, turn(60));
        barrier.give_way(&mut place, turn(40));
        assert!(barrier.is_sweeping(), "the last 40 bytes are not served");
        barrier.give_way(&mut place, turn(7));
        assert!(!barrier.is_sweeping(), "the 7 bytes came later");
    }

    #[test]
    fn a_connection_that_catches_up_owes_nothing() {
        let (mut barrier, mut place) = sweeping(100);
        barrier.catch_up(&mut place);
        assert!(!barrier.is_sweeping());
        assert!(place.is_none());
    }

    #[test]
    fn a_connection_that_uses_too_much_time_is_not_waited_for() {
        let (mut barrier, mut place) = sweeping(u64::MAX);
        let turn = TurnReport { spent: SPENT_MAX / 2, ..read(1) };
        barrier.give_way(&mut place, turn);
        assert!(barrier.is_sweeping());
        barrier.give_way(&mut place, turn);
        assert!(!barrier.is_sweeping());
        barrier.begin_sweep();
        assert!(barrier.is_sweeping(), "each sweep allows it that time anew");
    }

    /// A connection that goes on with requests that it has read does not look into its socket.
    #[test]
    fn a_connection_that_uses_too_much_time_without_reading_is_not_waited_for() {
        let (mut barrier, mut place) = (ReadBarrier::default(), None);
        barrier.give_way(&mut place, read(1));
        barrier.begin_sweep();
        let turn = TurnReport { spent: SPENT_MAX / 2, served: Served::Part, ..read(0) };
        barrier.give_way(&mut place, turn);
        assert!(barrier.is_sweeping());
        barrier.give_way(&mut place, turn);
        assert!(!barrier.is_sweeping());
    }

    #[test]
    fn a_connection_that_gives_way_during_a_sweep_is_not_waited_for() {
        let (mut barrier, mut place) = sweeping(100);
        let mut late = None;
        barrier.give_way(&mut late, read(1));
        barrier.catch_up(&mut place);
        assert!(!barrier.is_sweeping());
    }

    /// The place of the connection that caught up is used again.
    #[test]
    fn a_place_that_is_used_again_owes_nothing() {
        let (mut barrier, mut first) = sweeping(100);
        let mut other = None;
        barrier.give_way(&mut other, read(1));
        barrier.begin_sweep();
        barrier.catch_up(&mut first);
        let mut later = None;
        barrier.give_way(&mut later, read(1));
        barrier.begin_reading(later.as_ref(), || panic!("no sweep waits for it"));
        barrier.give_way(&mut later, TurnReport { spent: SPENT_MAX, ..read(1) });
        assert!(barrier.is_sweeping(), "the other one has not read");
        barrier.catch_up(&mut other);
        assert!(!barrier.is_sweeping());
    }

    #[test]
    fn a_place_that_was_free_when_a_sweep_began_owes_nothing() {
        let (mut barrier, mut first) = sweeping(100);
        let mut other = None;
        barrier.give_way(&mut other, read(1));
        barrier.catch_up(&mut first);
        barrier.begin_sweep();
        let mut later = None;
        barrier.give_way(&mut later, read(1));
        barrier.give_way(&mut later, TurnReport { spent: SPENT_MAX, ..read(1) });
        assert!(barrier.is_sweeping(), "the other one has not read");
        barrier.catch_up(&mut other);
        assert!(!barrier.is_sweeping());
    }

    #[test]
    fn a_connection_that_owes_nothing_and_catches_up_pays_for_no_other() {
        let (mut barrier, mut place) = sweeping(100);
        let mut late = None;
        barrier.give_way(&mut late, read(1));
        barrier.catch_up(&mut late);
        assert!(barrier.is_sweeping());
        barrier.give_way(&mut place, read(100));
        assert!(!barrier.is_sweeping());
        barrier.catch_up(&mut place);
        barrier.begin_sweep();
        assert!(!barrier.is_sweeping());
    }
}
