//! One connection of the binary protocol.

use super::read_barrier::{Place, ReadBarrier};
use super::turn::{Stopwatch, Turn};
use crate::clock::Moment;
use crate::mail::ConnectionKey;
use crate::worker::{Client, MovedConnection, Next, Spent, Worker};

/// Interface of a connection to its driver: the socket, the clock, and the work of the thread.
pub trait ConnectionIo {
    /// Reads bytes that have arrived. Reads the clock afterwards, so that the time is not before the arrival of the
    /// bytes.
    fn read(&mut self) -> Read<'_>;
    /// Writes as many bytes as the socket accepts. If the socket accepts none, the connection has another turn once it
    /// accepts more.
    fn write(&mut self, bytes: &[u8]) -> Write;
    /// Reads the clock.
    fn now(&self) -> Moment;
    /// Notes that the worker knows the connection by another key from now on.
    fn rebind(&mut self, old: ConnectionKey, new: ConnectionKey);
    /// Does the work that the worker requires after it has served bytes, such as waking other workers.
    fn follow_up(&mut self, worker: &mut Worker);
}

/// Result of a read.
#[derive(Debug)]
pub enum Read<'a> {
    /// No bytes have arrived. The connection has another turn when some arrive.
    Nothing,
    /// At least one byte, and the moment by which the bytes were read.
    Bytes(&'a [u8], Moment),
    /// The client sends no more bytes.
    End,
    /// The connection is broken.
    Failed,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Number of bytes that the socket accepted, at least one.
    Written(usize),
    /// The socket accepts no bytes now.
    Full,
    /// The connection is broken.
    Failed,
}

/// A connection of one worker.
///
/// In its turns, the connection reads bytes and hands them to the worker. A flusher writes the answers after the turns
/// of all connections. The connection itself writes only in three cases. A turn begins by writing the output that
/// waits, usually answers that the flusher could not write. It writes if unwritten answers are so long that the worker
/// accepts no more requests. And it writes the last answers to a client that stopped sending. It does not read while
/// too many bytes of answers are unwritten.
#[derive(Debug)]
pub struct Connection {
    key: ConnectionKey,
    /// Place in the read barrier, because of which the worker's reads of all sockets wait for this connection. `Some`
    /// if the time or the reads of its last turn were used up, or if it came from another worker. `None` once a turn
    /// has read all bytes or cannot continue until the client reads its answers.
    place: Option<Place>,
}

/// Reason for which a connection ends at its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client left, or the connection failed.
    Lost,
    /// The server closes the connection: it has written the last answer, or the client left too many answers unread. Or
    /// the worker has given the lane to another connection.
    Close,
    /// The connection continues at the worker with this number.
    Move(u16),
}

/// End of a turn of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// All bytes that arrived are served, or the connection cannot continue before more answers are written.
    CaughtUp,
    /// The time or the number of reads of the turn is used up, and the connection may have more requests.
    GaveWay,
    /// The connection has ended at this worker.
    Over(End),
}

/// A connection that a worker begins to serve.
#[derive(Debug)]
pub struct Newcomer<'a> {
    /// Name of the peer. It is the owner of the claims until the client sets another owner.
    pub peer: &'a [u8],
    /// State of a connection that comes from another worker.
    pub moved: Option<MovedConnection>,
    /// Identity and other facts of the client. If the connection comes from another worker, the client in `moved` is
    /// used instead.
    pub client: Client,
    /// Whether the connection has one of the places that a full server reserves for operators.
    pub is_reserved: bool,
}

impl<'a> Newcomer<'a> {
    /// Returns a connection of a client without an identity, unless `moved` contains the identity. The connection has
    /// none of the places that a full server reserves for operators.
    pub fn new(peer: &'a [u8], moved: Option<MovedConnection>) -> Self {
        Self { peer, moved, client: Client::default(), is_reserved: false }
    }
}

impl Connection {
    /// Begins to serve a connection, which may come from another worker.
    pub fn begin(
        worker: &mut Worker,
        barrier: &mut ReadBarrier,
        newcomer: Newcomer<'_>,
        now: Moment,
    ) -> Self {
        let Newcomer { peer, moved, client, is_reserved } = newcomer;
        let Some(MovedConnection { input, client, ticket }) = moved else {
            let key = worker.handle_open(peer, now);
            worker.note_client(key, client);
            worker.note_reserved(key, is_reserved);
            return Self { key, place: None };
        };
        let place = Some(barrier.arrive(ticket));
        let key = worker.handle_moved(peer, now);
        worker.note_client(key, client);
        worker.note_reserved(key, is_reserved);
        // With the used-up budget `Spent`, this call serves the HELLO and at most one batch of the requests behind it.
        // The first turn of the connection serves the remaining input.
        let key = match worker.handle_bytes_within(&mut Spent, key, &input, now) {
            Next::Rebound(key) => key,
            Next::Continue | Next::Move(_) => key,
        };
        Self { key, place }
    }

    /// Returns the key by which the worker knows the connection.
    #[inline]
    pub fn key(&self) -> ConnectionKey {
        self.key
    }

    /// Begins a turn. `unread_len` returns the number of unread bytes in the socket. A sweep (the read of all sockets
    /// before leases expire) may wait until they are served.
    #[inline]
    pub fn begin_turn(&self, barrier: &mut ReadBarrier, unread_len: impl FnOnce() -> u64) {
        barrier.begin_reading(self.place.as_ref(), unread_len);
    }

    /// Whether the connection has a place (an entry) in the read barrier, because it may have unread bytes. A sweep
    /// (the read of all sockets before leases expire) waits until it has served them, within a time limit. So the
    /// caller must report the end of each turn with [`Connection::end_turn`], which frees the place once the connection
    /// has caught up.
    #[inline]
    pub fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// Runs one turn: writes the output that waits, serves the requests that earlier turns read and left unserved, and
    /// reads and serves more.
    pub fn run<W: Stopwatch>(
        &mut self,
        worker: &mut Worker,
        turn: &mut Turn<W>,
        io: &mut impl ConnectionIo,
    ) -> TurnEnd {
        if let Some(end) = self.write_on(worker, io) {
            return TurnEnd::Over(end);
        }
        loop {
            if !worker.wants_read(self.key) {
                // The worker accepts no more requests, because too many bytes of answers are unwritten or the
                // connection is about to close. So write them now, without waiting for the flusher, which runs after
                // the turns of all connections.
                if let Some(end) = self.write_on(worker, io) {
                    return TurnEnd::Over(end);
                }
                if !worker.wants_read(self.key) {
                    return TurnEnd::CaughtUp;
                }
            }
            let mut may_have_more = true;
            let next = if worker.has_input(self.key) {
                worker.handle_set_aside(turn, self.key, io.now())
            } else {
                match io.read() {
                    Read::Nothing => return TurnEnd::CaughtUp,
                    Read::Failed => return TurnEnd::Over(End::Lost),
                    Read::End => {
                        // The client may have closed only its sending side and may still read. So write its last
                        // answers before the connection ends.
                        let end = self.write_on(worker, io);
                        return TurnEnd::Over(end.unwrap_or(End::Lost));
                    }
                    Read::Bytes(bytes, now) => {
                        may_have_more = turn.note_read(bytes.len());
                        worker.handle_bytes_within(turn, self.key, bytes, now)
                    }
                }
            };
            match next {
                Next::Continue => {}
                Next::Rebound(key) => {
                    io.rebind(self.key, key);
                    self.key = key;
                }
                Next::Move(worker) => return TurnEnd::Over(End::Move(worker)),
            }
            io.follow_up(worker);
            if (may_have_more || worker.has_input(self.key)) && !turn.may_read_on() {
                return TurnEnd::GaveWay;
            }
        }
    }

    /// Reports the end of a turn to the read barrier. A sweep (the read of all sockets before leases expire) then waits
    /// for the connection only while it may have unread bytes. A connection that has ended keeps its place (its entry
    /// in the barrier) until [`Connection::finish`].
    pub fn end_turn<W: Stopwatch>(
        &mut self,
        worker: &mut Worker,
        barrier: &mut ReadBarrier,
        turn: &mut Turn<W>,
        end: TurnEnd,
    ) {
        match end {
            TurnEnd::CaughtUp => barrier.catch_up(&mut self.place),
            TurnEnd::GaveWay => {
                let is_served = !worker.has_input(self.key);
                barrier.give_way(&mut self.place, turn.report(is_served));
            }
            TurnEnd::Over(_) => {}
        }
        settle(worker, barrier);
    }

    /// Writes all output that the socket accepts, without the flusher. Returns the reason if the connection must end,
    /// and `None` otherwise.
    fn write_on(&self, worker: &mut Worker, io: &mut impl ConnectionIo) -> Option<End> {
        loop {
            let Some(output) = worker.output(self.key) else { return Some(End::Close) };
            if output.is_empty() {
                return None;
            }
            match io.write(output) {
                Write::Written(len) => worker.wrote(self.key, len),
                Write::Full => return None,
                Write::Failed => return Some(End::Lost),
            }
        }
    }

    /// Ends the connection at this worker, and frees its place in the read barrier. If the connection moves, returns
    /// its state for the other worker; otherwise `None`.
    pub fn finish(
        mut self,
        worker: &mut Worker,
        barrier: &mut ReadBarrier,
        end: End,
        now: Moment,
    ) -> Option<MovedConnection> {
        barrier.catch_up(&mut self.place);
        settle(worker, barrier);
        if let End::Move(_) = end {
            return Some(worker.take_moving(self.key));
        }
        worker.handle_lost(self.key, now);
        None
    }
}

/// Writes the answers of one connection after the turns of all connections. Returns whether the connection must have a
/// turn: to end, to read again because the unwritten answers had stopped its reads, or to wait until its socket accepts
/// more.
pub fn flush(worker: &mut Worker, key: ConnectionKey, mut write: impl FnMut(&[u8]) -> Write) -> bool {
    let is_paused = !worker.wants_read(key);
    loop {
        let Some(output) = worker.output(key) else { return true };
        if output.is_empty() {
            break;
        }
        match write(output) {
            Write::Written(len) => worker.wrote(key, len),
            Write::Full | Write::Failed => return true,
        }
    }
    is_paused || worker.output(key).is_none()
}

/// Handles the connections that came from other workers and for whose earlier bytes no sweep waits any more. They have
/// served the bytes that were unread on arrival, have ended, or have used up their time. Tells the former worker of
/// each such connection, because it publishes the end of a sweep only then.
pub fn settle(worker: &mut Worker, barrier: &mut ReadBarrier) {
    while let Some(ticket) = barrier.poll_settled() {
        worker.handle_settled(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::turn::MachineStopwatch;
    use crate::node::Node;
    use crate::worker::test_node::test_node;
    use std::sync::Arc;
    use waymaker_engine::Time;
    use waymaker_protocol::{Hello, KeepAlive, Request, VERSION};

    const EVENTS_PER_POLL: usize = 8;
    const BEGIN: Time = Time::from_millis(1_000);

    /// A socket whose client has sent the bytes in `unread`. The socket accepts every answer.
    #[derive(Default)]
    struct Socket {
        unread: Vec<u8>,
        read: Vec<u8>,
    }

    impl ConnectionIo for Socket {
        fn read(&mut self) -> Read<'_> {
            self.read = std::mem::take(&mut self.unread);
            if self.read.is_empty() { Read::Nothing } else { Read::Bytes(&self.read, BEGIN.into()) }
        }

        fn write(&mut self, bytes: &[u8]) -> Write {
            Write::Written(bytes.len())
        }

        fn now(&self) -> Moment {
            BEGIN.into()
        }

        fn rebind(&mut self, _: ConnectionKey, _: ConnectionKey) {}

        fn follow_up(&mut self, _: &mut Worker) {}
    }

    /// Two workers, a connection that moves from the first to the second, and its socket.
    struct Rig {
        node: Arc<Node>,
        workers: [Worker; 2],
        barrier: ReadBarrier,
        socket: Socket,
        moved: MovedConnection,
    }

    /// Returns the bytes of a HELLO that selects the second worker, followed by `count` requests.
    fn hello_and_requests(count: u32) -> Vec<u8> {
        let (version_min, version_max, namespace) = (VERSION, VERSION, b"default");
        let hello = Hello { version_min, version_max, worker: 1, namespace, ..Hello::default() };
        let mut bytes = Vec::new();
        Request::Hello(hello).encode(1, &mut bytes);
        (0..count).for_each(|number| Request::KeepAlive(KeepAlive).encode(2 + number, &mut bytes));
        bytes
    }

    fn rig() -> Rig {
        let node = test_node(2, BEGIN);
        let mut workers = [0, 1].map(|index| Worker::new(Arc::clone(&node), index, BEGIN));
        let mut barrier = ReadBarrier::new(EVENTS_PER_POLL);
        let mut socket = Socket { unread: hello_and_requests(4), ..Socket::default() };
        let mut connection =
            Connection::begin(&mut workers[0], &mut barrier, Newcomer::new(b"peer", None), BEGIN.into());
        let end = connection.run(&mut workers[0], &mut Turn::<MachineStopwatch>::default(), &mut socket);
        assert_eq!(end, TurnEnd::Over(End::Move(1)));
        let moved = connection.finish(&mut workers[0], &mut barrier, End::Move(1), BEGIN.into());
        Rig { node, workers, barrier, socket, moved: moved.expect("the connection moves") }
    }

    impl Rig {
        /// Tells the first worker that all bytes that had arrived in its sockets by `at` were read. Returns the instant
        /// that the first worker has then published to all workers: it has served all bytes that arrived at it before.
        fn drain_first(&mut self, at: Time) -> Time {
            self.workers[0].handle_drained(at, at);
            self.node.drained_by(0)
        }

        /// Lets the first worker handle its mail. Returns the instant that this worker has published: all bytes that
        /// arrived before it are served.
        fn drained_after_mail(&mut self, now: Time) -> Time {
            self.workers[0].handle_mail(now);
            self.node.drained_by(0)
        }
    }

    #[test]
    fn a_worker_is_drained_once_requests_of_a_moved_connection_are_served() {
        let Rig { node, workers: [mut first, mut second], mut socket, moved, .. } = rig();
        let at = BEGIN.after_ms(5);
        first.handle_drained(at, at);
        assert!(node.drained_by(0) < at, "requests that moved on are not served");
        assert!(!first.wants_drain(), "no other sweep begins before");
        let mut barrier = ReadBarrier::new(EVENTS_PER_POLL);
        let mut connection =
            Connection::begin(&mut second, &mut barrier, Newcomer::new(b"peer", Some(moved)), at.into());
        first.handle_mail(at);
        assert!(node.drained_by(0) < at, "only the HELLO is served");
        connection.begin_turn(&mut barrier, || 0);
        let mut turn = Turn::<MachineStopwatch>::default();
        let end = connection.run(&mut second, &mut turn, &mut socket);
        assert_eq!(end, TurnEnd::CaughtUp);
        connection.end_turn(&mut second, &mut barrier, &mut turn, end);
        first.handle_mail(at);
        assert_eq!(node.drained_by(0), at);
    }

    #[test]
    fn a_worker_is_drained_once_a_moved_connection_has_ended() {
        let Rig { node, mut workers, mut barrier, moved, .. } = rig();
        let at = BEGIN.after_ms(5);
        workers[0].handle_drained(at, at);
        assert!(node.drained_by(0) < at);
        let connection =
            Connection::begin(&mut workers[1], &mut barrier, Newcomer::new(b"peer", Some(moved)), at.into());
        connection.finish(&mut workers[1], &mut barrier, End::Lost, at.into());
        workers[0].handle_mail(at);
        assert_eq!(node.drained_by(0), at);
    }

    #[test]
    fn a_worker_does_not_wait_for_connections_that_moved_after_its_sweep() {
        let mut rig = rig();
        let (first, later) = (BEGIN.after_ms(5), BEGIN.after_ms(9));
        let ticket = rig.moved.ticket;
        assert!(rig.drain_first(first) < first);
        // Another connection moves.
        rig.socket.unread = hello_and_requests(0);
        let mut other = Connection::begin(
            &mut rig.workers[0],
            &mut rig.barrier,
            Newcomer::new(b"other", None),
            later.into(),
        );
        let end = other.run(&mut rig.workers[0], &mut Turn::<MachineStopwatch>::default(), &mut rig.socket);
        assert_eq!(end, TurnEnd::Over(End::Move(1)));
        let moved = other.finish(&mut rig.workers[0], &mut rig.barrier, End::Move(1), later.into());
        let other_ticket = moved.expect("it moves").ticket;
        assert_ne!(ticket, other_ticket);
        rig.workers[1].handle_settled(ticket);
        assert_eq!(rig.drained_after_mail(later), first);
        assert!(rig.drain_first(later) < later, "the other one is not served");
        rig.workers[1].handle_settled(other_ticket);
        assert_eq!(rig.drained_after_mail(later), later);
    }

    /// Opens a connection and lets the worker handle a HELLO and this number of KEEP_ALIVE requests from it. If too
    /// many bytes of answers are unwritten, the worker leaves the remaining requests unserved.
    fn asked(worker: &mut Worker, count: u32) -> ConnectionKey {
        let key = worker.handle_open(b"peer", BEGIN);
        worker.handle_bytes(key, &hello_and_requests(count), BEGIN);
        key
    }

    #[test]
    fn a_connection_paused_by_unwritten_answers_resumes_once_they_are_written() {
        let mut worker = Worker::new(test_node(2, BEGIN), 1, BEGIN);
        let all = |bytes: &[u8]| Write::Written(bytes.len());
        let paused = asked(&mut worker, 20_000);
        assert!(!worker.wants_read(paused), "many answers wait");
        assert!(flush(&mut worker, paused, |_| Write::Full), "it waits until its socket takes more");
        assert!(flush(&mut worker, paused, all), "it has requests that were not served");
        assert!(worker.wants_read(paused));
        let other = asked(&mut worker, 1);
        assert!(worker.wants_read(other));
        assert!(!flush(&mut worker, other, all), "it has nothing to do until its client asks again");
    }
}
