//! The simulated network: connections are byte streams that can be delayed, fragmented, held back, full or
//! cut.

use crate::event::Event;
use crate::surroundings::Surroundings;
use std::collections::VecDeque;

/// Longest delay of bytes while `Network::is_hasty` is set.
const HASTE_US: u64 = 200;

/// All connections of the run, by number.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// True if bytes that are sent now arrive soon.
    pub(crate) is_hasty: bool,
    pub(crate) connections: Vec<Connection>,
}

/// One connection: a stream in each direction, and what each side knows about the end of the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Number of the client that opened the connection.
    pub(crate) client: usize,
    /// True if the connection is with a front end (gRPC or WebSocket).
    pub(crate) is_front: bool,
    /// The worker that serves the connection, or to which it is being moved.
    pub(crate) thread: usize,
    pub(crate) to_server: Pipe,
    pub(crate) to_client: Pipe,
    /// Arrival time of the first of the bytes that the server has read last.
    pub(crate) read_since_us: u64,
    /// Time at which the first worker got the connection. Until then no worker can read it.
    pub(crate) accepted_us: u64,
    /// Time at which the connection was cut. Bytes that are sent later do not arrive.
    pub(crate) cut_us: Option<u64>,
    /// True if the server can learn that the connection was cut.
    pub(crate) server_noticed: bool,
    /// True if the client can learn that the connection was cut.
    pub(crate) client_noticed: bool,
    /// True if the server has seen the end of the connection or has closed it.
    pub(crate) server_done: bool,
    /// True if the client has seen the end of the connection or has closed it.
    pub(crate) client_done: bool,
}

/// The bytes of one direction, some in flight and some arrived but unread. A write takes only as many bytes
/// as fit.
#[derive(Debug)]
pub(crate) struct Pipe {
    capacity: usize,
    flight: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<(u64, Vec<u8>)>,
    /// Number of bytes in flight and unread.
    len: usize,
    written_count: u64,
    arrived_count: u64,
    last_arrival_us: u64,
    /// Time before which no bytes arrive.
    held_until_us: u64,
    /// True if the sender has closed the stream. The end follows the last byte.
    closed: bool,
    /// True if the sender could not send everything and waits for room.
    pub(crate) wants_room: bool,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

impl Connection {
    fn pipe(&mut self, to_server: bool) -> &mut Pipe {
        if to_server { &mut self.to_server } else { &mut self.to_client }
    }

    /// Returns the time from which a worker could read the bytes that the server has read last.
    pub(crate) fn readable_since_us(&self) -> u64 {
        self.read_since_us.max(self.accepted_us)
    }
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
            len: 0,
            written_count: 0,
            arrived_count: 0,
            last_arrival_us: 0,
            held_until_us: 0,
            closed: false,
            wants_room: false,
        }
    }

    /// Returns the number of bytes that were ever sent.
    pub(crate) fn written_count(&self) -> u64 {
        self.written_count
    }

    /// Returns the arrival time of the first unread byte.
    pub(crate) fn unread_since_us(&self) -> Option<u64> {
        self.arrived.front().map(|(at_us, _)| *at_us)
    }

    /// Returns the number of bytes that have arrived and are unread.
    pub(crate) fn unread_len(&self) -> u64 {
        self.arrived.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Returns whether a read finds bytes or the end of the stream.
    pub(crate) fn is_readable(&self) -> bool {
        !self.arrived.is_empty() || self.is_at_end()
    }

    fn is_at_end(&self) -> bool {
        self.closed && self.flight.is_empty() && self.arrived.is_empty()
    }

    /// Reads at most `len_max` of the bytes that have arrived.
    pub(crate) fn read(&mut self, len_max: usize) -> ReadResult {
        let Some((mut newest_us, mut bytes)) = self.arrived.pop_front() else {
            return if self.is_at_end() { ReadResult::End } else { ReadResult::Nothing };
        };
        while bytes.len() < len_max
            && let Some((at_us, more)) = self.arrived.pop_front()
        {
            newest_us = at_us;
            bytes.extend_from_slice(&more);
        }
        if bytes.len() > len_max {
            let rest = bytes.split_off(len_max);
            self.arrived.push_front((newest_us, rest));
        }
        self.len -= bytes.len();
        ReadResult::Bytes(bytes)
    }

    fn arrive(&mut self, now_us: u64) {
        while let Some((_, bytes)) = self.flight.pop_front_if(|(at_us, _)| *at_us <= now_us) {
            self.arrived_count += bytes.len() as u64;
            self.arrived.push_back((now_us, bytes));
        }
    }

    /// Cuts the stream: bytes in flight are lost, and unread bytes too if `unread_too` is set.
    fn cut(&mut self, unread_too: bool) {
        self.flight.clear();
        if unread_too {
            self.arrived.clear();
        }
        self.len = self.arrived.iter().map(|(_, bytes)| bytes.len()).sum();
    }
}

impl Network {
    /// Opens a connection of a client to a worker.
    pub(crate) fn connect(
        &mut self,
        around: &mut Surroundings<'_>,
        client: usize,
        thread: usize,
        is_front: bool,
    ) -> usize {
        let number = self.connections.len();
        let mut pipe = || {
            let small = around.random.percent(around.settings.small_buffer_percent);
            Pipe::new(if small { around.random.spread(24, 600) as usize } else { 64 << 10 })
        };
        let (to_server, to_client) = (pipe(), pipe());
        self.connections.push(Connection {
            client,
            is_front,
            thread,
            to_server,
            to_client,
            read_since_us: 0,
            accepted_us: 0,
            cut_us: None,
            server_noticed: false,
            client_noticed: false,
            server_done: false,
            client_done: false,
        });
        number
    }

    /// Sends as many bytes as fit, fragmented into pieces that arrive in order. Returns the number of bytes.
    pub(crate) fn send(
        &mut self,
        around: &mut Surroundings<'_>,
        connection: usize,
        to_server: bool,
        bytes: &[u8],
    ) -> usize {
        let link = &mut self.connections[connection];
        let is_cut = link.cut_us.is_some();
        let pipe = link.pipe(to_server);
        let len = bytes.len().min(pipe.capacity - pipe.len.min(pipe.capacity));
        pipe.wants_room = len < bytes.len();
        pipe.written_count += len as u64;
        if is_cut {
            // The bytes are lost, but the sender does not know yet.
            return bytes.len();
        }
        pipe.len += len;
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let whole = !around.random.percent(around.settings.fragment_percent);
            let piece_len =
                if whole { rest.len() } else { around.random.between(1, rest.len().min(40) as u64) as usize };
            let (piece, behind) = rest.split_at(piece_len);
            rest = behind;
            let delay_us = self.delay_us(around);
            let link = &mut self.connections[connection];
            let pipe = link.pipe(to_server);
            let at_us = (around.now_us + delay_us).max(pipe.last_arrival_us).max(pipe.held_until_us);
            pipe.last_arrival_us = at_us;
            pipe.flight.push_back((at_us, piece.to_vec()));
            around.at(at_us, arrival(connection, to_server));
        }
        len
    }

    fn delay_us(&self, around: &mut Surroundings<'_>) -> u64 {
        let settings = around.settings;
        if self.is_hasty {
            return around.edge_random.between(20, HASTE_US);
        }
        if !around.calm && around.random.percent(settings.late_percent) {
            return around.random.spread(1_000, settings.late_max_us);
        }
        around.random.between(20, settings.latency_us)
    }

    /// Lets the bytes arrive whose time has come. Returns the number of bytes that have arrived since the
    /// connection was opened; `None` if it was cut.
    pub(crate) fn arrive(&mut self, now_us: u64, connection: usize, to_server: bool) -> Option<u64> {
        let link = &mut self.connections[connection];
        let is_whole = link.cut_us.is_none();
        let pipe = link.pipe(to_server);
        pipe.arrive(now_us);
        is_whole.then_some(pipe.arrived_count)
    }

    /// Closes one direction of a connection. Bytes that were sent before still arrive.
    pub(crate) fn close(&mut self, around: &mut Surroundings<'_>, connection: usize, to_server: bool) {
        let link = &mut self.connections[connection];
        if link.cut_us.is_some() {
            return;
        }
        let pipe = link.pipe(to_server);
        pipe.closed = true;
        let at_us = pipe.last_arrival_us;
        around.at(at_us, arrival(connection, to_server));
    }

    /// Cuts a connection, possibly in the middle of a frame. Each side learns of it at a time of its own.
    /// Returns false if the connection was cut before.
    pub(crate) fn cut(&mut self, around: &mut Surroundings<'_>, connection: usize) -> bool {
        let now_us = around.now_us;
        if self.connections[connection].cut_us.is_some() {
            return false;
        }
        let unread_too = around.random.percent(50);
        let link = &mut self.connections[connection];
        link.cut_us = Some(now_us);
        link.to_server.cut(unread_too);
        link.to_client.cut(unread_too);
        let client = link.client;
        around.trace.note(now_us, 1, connection as u64, || {
            format!("network   cuts connection {connection} of client {client}")
        });
        for event in [Event::ServerNotices(connection), Event::ClientNotices(connection)] {
            let late = !around.calm && around.random.percent(around.settings.late_notice_percent);
            let delay_us =
                if late { around.random.spread(1_000, 3_000_000) } else { around.random.below(300) };
            around.after(delay_us, event);
        }
        true
    }

    /// Lets nothing arrive in one direction for a while.
    pub(crate) fn hold_back(
        &mut self,
        around: &mut Surroundings<'_>,
        connection: usize,
        to_server: bool,
        for_us: u64,
    ) {
        let until_us = around.now_us + for_us;
        let link = &mut self.connections[connection];
        let pipe = link.pipe(to_server);
        pipe.held_until_us = pipe.held_until_us.max(until_us);
        let has_pieces = !pipe.flight.is_empty();
        for (at_us, _) in &mut pipe.flight {
            *at_us = (*at_us).max(until_us);
        }
        pipe.last_arrival_us = pipe.last_arrival_us.max(until_us);
        if has_pieces {
            around.at(until_us, arrival(connection, to_server));
        }
        around.trace.note(around.now_us, 2, connection as u64, || {
            let direction = if to_server { "to the server" } else { "to the client" };
            format!("network   holds back connection {connection} {direction} for {} ms", for_us / 1000)
        });
    }
}

/// Returns the event that happens when bytes reach the end of a stream.
fn arrival(connection: usize, to_server: bool) -> Event {
    if to_server { Event::ArriveAtServer(connection) } else { Event::ArriveAtClient(connection) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_read_leaves_keep_their_arrival_time() {
        let mut pipe = Pipe { len: 9, ..Pipe::new(100) };
        pipe.flight.extend([(1_000, vec![1; 3]), (2_000, vec![2; 3]), (3_000, vec![3; 3])]);
        [1_000, 2_000, 3_000].into_iter().for_each(|at_us| pipe.arrive(at_us));
        assert_eq!(pipe.unread_since_us(), Some(1_000));
        assert_eq!(pipe.read(5), ReadResult::Bytes(vec![1, 1, 1, 2, 2]));
        assert_eq!(pipe.unread_since_us(), Some(2_000));
        assert_eq!(pipe.read(5), ReadResult::Bytes(vec![2, 3, 3, 3]));
        assert_eq!(pipe.unread_since_us(), None);
    }
}
