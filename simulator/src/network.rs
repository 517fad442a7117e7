//! Byte streams that are late, cut up, held back, full, or broken.

use crate::world::{Event, World};
use std::collections::VecDeque;

/// How long bytes take that arrive soon, at most.
const HASTE_US: u64 = 200;

/// All connections that there ever were, by number.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) connections: Vec<Connection>,
}

/// One connection: a stream in each direction, and what each side knows of its end.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Who opened it.
    pub(crate) client: usize,
    /// It is with a front end.
    pub(crate) is_front: bool,
    /// The worker that it is with, or on its way to.
    pub(crate) thread: usize,
    pub(crate) to_server: Pipe,
    pub(crate) to_client: Pipe,
    /// When the first of the bytes had arrived that the server read last.
    pub(crate) read_since_us: u64,
    /// When its first worker got it. Until then no worker can read it.
    pub(crate) accepted_us: u64,
    /// It was broken then. Nothing sent later arrives.
    pub(crate) cut_us: Option<u64>,
    /// The server can learn that it was cut.
    pub(crate) server_noticed: bool,
    /// The client can learn that it was cut.
    pub(crate) client_noticed: bool,
    /// The server has seen its end, or ended it.
    pub(crate) server_done: bool,
    /// The client has seen its end, or ended it.
    pub(crate) client_done: bool,
}

/// The bytes of one direction: some on their way, some arrived and not read yet. It takes no more than fits.
#[derive(Debug)]
pub(crate) struct Pipe {
    capacity: usize,
    flight: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<(u64, Vec<u8>)>,
    /// Bytes on their way and unread.
    len: usize,
    written_count: u64,
    arrived_count: u64,
    last_arrival_us: u64,
    /// Nothing arrives before.
    held_until_us: u64,
    /// The sender has closed it: its end comes behind its last byte.
    closed: bool,
    /// The sender could not send all and wants to hear when there is room.
    pub(crate) wants_room: bool,
}

/// What a reader found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

impl Connection {
    fn pipe(&mut self, to_server: bool) -> &mut Pipe {
        if to_server { &mut self.to_server } else { &mut self.to_client }
    }

    /// From when on a worker could read the bytes that the server read last.
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

    /// How many bytes were ever sent.
    pub(crate) fn written_count(&self) -> u64 {
        self.written_count
    }

    /// When the first byte arrived that was not read yet.
    pub(crate) fn unread_since_us(&self) -> Option<u64> {
        self.arrived.front().map(|(at_us, _)| *at_us)
    }

    /// How many bytes arrived and were not read yet.
    pub(crate) fn unread_len(&self) -> u64 {
        self.arrived.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Whether there is something to read, be it the end.
    pub(crate) fn is_readable(&self) -> bool {
        !self.arrived.is_empty() || self.is_at_end()
    }

    fn is_at_end(&self) -> bool {
        self.closed && self.flight.is_empty() && self.arrived.is_empty()
    }

    /// At most so many bytes of those that arrived.
    pub(crate) fn read(&mut self, len_max: usize) -> Found {
        let Some((mut newest_us, mut bytes)) = self.arrived.pop_front() else {
            return if self.is_at_end() { Found::End } else { Found::Nothing };
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
        Found::Bytes(bytes)
    }

    fn arrive(&mut self, now_us: u64) {
        while let Some((_, bytes)) = self.flight.pop_front_if(|(at_us, _)| *at_us <= now_us) {
            self.arrived_count += bytes.len() as u64;
            self.arrived.push_back((now_us, bytes));
        }
    }

    /// What has not arrived never will; what was not read is thrown away too, where the seed says so.
    fn cut(&mut self, unread_too: bool) {
        self.flight.clear();
        if unread_too {
            self.arrived.clear();
        }
        self.len = self.arrived.iter().map(|(_, bytes)| bytes.len()).sum();
    }
}

impl World {
    /// A new connection of a client, to a worker.
    pub(crate) fn connect(&mut self, client: usize, thread: usize, is_front: bool) -> usize {
        let number = self.network.connections.len();
        let mut pipe = || {
            let small = self.random.percent(self.settings.small_buffer_percent);
            Pipe::new(if small { self.random.spread(24, 600) as usize } else { 64 << 10 })
        };
        let (to_server, to_client) = (pipe(), pipe());
        self.network.connections.push(Connection {
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

    /// Sends what fits, cut into pieces that arrive in order. Says how much that was.
    pub(crate) fn send(&mut self, connection: usize, to_server: bool, bytes: &[u8]) -> usize {
        let link = &mut self.network.connections[connection];
        let is_cut = link.cut_us.is_some();
        let pipe = link.pipe(to_server);
        let len = bytes.len().min(pipe.capacity - pipe.len.min(pipe.capacity));
        pipe.wants_room = len < bytes.len();
        pipe.written_count += len as u64;
        if is_cut {
            // It goes nowhere, but the sender does not know yet.
            return bytes.len();
        }
        pipe.len += len;
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let whole = !self.random.percent(self.settings.fragment_percent);
            let piece_len =
                if whole { rest.len() } else { self.random.between(1, rest.len().min(40) as u64) as usize };
            let (piece, behind) = rest.split_at(piece_len);
            rest = behind;
            let delay_us = self.delay_us();
            let link = &mut self.network.connections[connection];
            let pipe = link.pipe(to_server);
            let at_us = (self.now_us + delay_us).max(pipe.last_arrival_us).max(pipe.held_until_us);
            pipe.last_arrival_us = at_us;
            pipe.flight.push_back((at_us, piece.to_vec()));
            self.at(at_us, arrival(connection, to_server));
        }
        len
    }

    fn delay_us(&mut self) -> u64 {
        let settings = &self.settings;
        if self.is_hasty {
            return self.edge_random.between(20, HASTE_US);
        }
        if !self.calm && self.random.percent(settings.late_percent) {
            return self.random.spread(1_000, settings.late_max_us);
        }
        self.random.between(20, settings.latency_us)
    }

    /// Bytes arrive.
    pub(crate) fn arrive(&mut self, connection: usize, to_server: bool) {
        let now_us = self.now_us;
        let link = &mut self.network.connections[connection];
        link.pipe(to_server).arrive(now_us);
        if to_server && link.cut_us.is_none() {
            self.auditor.arrived(connection, link.to_server.arrived_count, self.settings.server_ms(now_us));
        }
    }

    /// The sender closes its direction; what it sent before still arrives.
    pub(crate) fn close(&mut self, connection: usize, to_server: bool) {
        let link = &mut self.network.connections[connection];
        if link.cut_us.is_some() {
            return;
        }
        let pipe = link.pipe(to_server);
        pipe.closed = true;
        let at_us = pipe.last_arrival_us;
        self.at(at_us, arrival(connection, to_server));
    }

    /// Breaks a connection, perhaps in the middle of a frame. Each side learns it in its own time.
    pub(crate) fn cut(&mut self, connection: usize) {
        let now_us = self.now_us;
        if self.network.connections[connection].cut_us.is_some() {
            return;
        }
        let unread_too = self.random.percent(50);
        let link = &mut self.network.connections[connection];
        link.cut_us = Some(now_us);
        link.to_server.cut(unread_too);
        link.to_client.cut(unread_too);
        let client = link.client;
        self.note_lost(connection);
        self.trace.note(now_us, 1, connection as u64, || {
            format!("network   cuts connection {connection} of client {client}")
        });
        for event in [Event::ServerNotices(connection), Event::ClientNotices(connection)] {
            let late = !self.calm && self.random.percent(self.settings.late_notice_percent);
            let delay_us = if late { self.random.spread(1_000, 3_000_000) } else { self.random.below(300) };
            self.after(delay_us, event);
        }
    }

    /// Nothing arrives in one direction for a while.
    pub(crate) fn hold_back(&mut self, connection: usize, to_server: bool, for_us: u64) {
        let until_us = self.now_us + for_us;
        let link = &mut self.network.connections[connection];
        let pipe = link.pipe(to_server);
        pipe.held_until_us = pipe.held_until_us.max(until_us);
        let has_pieces = !pipe.flight.is_empty();
        for (at_us, _) in &mut pipe.flight {
            *at_us = (*at_us).max(until_us);
        }
        pipe.last_arrival_us = pipe.last_arrival_us.max(until_us);
        if has_pieces {
            self.at(until_us, arrival(connection, to_server));
        }
        self.trace.note(self.now_us, 2, connection as u64, || {
            let direction = if to_server { "to the server" } else { "to the client" };
            format!("network   holds back connection {connection} {direction} for {} ms", for_us / 1000)
        });
    }
}

/// What happens when bytes get to the end of a stream.
fn arrival(connection: usize, to_server: bool) -> Event {
    if to_server { Event::ArriveAtServer(connection) } else { Event::ArriveAtClient(connection) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_read_leaves_has_the_time_of_its_own_arrival() {
        let mut pipe = Pipe { len: 9, ..Pipe::new(100) };
        pipe.flight.extend([(1_000, vec![1; 3]), (2_000, vec![2; 3]), (3_000, vec![3; 3])]);
        [1_000, 2_000, 3_000].into_iter().for_each(|at_us| pipe.arrive(at_us));
        assert_eq!(pipe.unread_since_us(), Some(1_000));
        assert_eq!(pipe.read(5), Found::Bytes(vec![1, 1, 1, 2, 2]));
        assert_eq!(pipe.unread_since_us(), Some(2_000));
        assert_eq!(pipe.read(5), Found::Bytes(vec![2, 3, 3, 3]));
        assert_eq!(pipe.unread_since_us(), None);
    }
}
