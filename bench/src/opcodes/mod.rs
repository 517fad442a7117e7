//! The most expensive poll of a worker that one connection can cause with each request of the binary protocol.
//!
//! A connection sends one kind of request without end, in its most expensive form, to a server with much state. A
//! poll serves the connection like the driver does: it reads until the time budget of the connection is used up.

mod requests;
mod stock;

pub use requests::{Load, loads};
pub use stock::{Server, Stock};

use crate::cost::Cost;
use std::time::{Duration, Instant};
use waymaker_protocol::{Hello, NamespaceKind};
use waymaker_server::limits::{READ_LEN_MAX, TURN_US};
use waymaker_server::mail::ConnectionKey;
use waymaker_server::worker::{Budget, Next};

/// Maximum number of reads in one poll, as in the driver.
const READS_PER_TURN: u32 = 64;

/// Costs of one kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The most expensive poll.
    pub poll: Cost,
    /// Number of responses of that poll.
    pub poll_response_count: u32,
    /// The most expensive poll that serves a single request.
    pub request: Cost,
}

/// Time budget of one connection, measured as in the driver.
#[derive(Default)]
struct Turn {
    since: Option<Instant>,
    read_count: u32,
}

impl Turn {
    fn may_read_on(&mut self) -> bool {
        self.read_count < READS_PER_TURN && !self.is_spent()
    }
}

impl Budget for Turn {
    fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn is_spent(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_micros(TURN_US)
    }
}

/// A stream of requests that is read in parts.
struct Stream<'a> {
    load: &'a Load,
    number: u32,
    bytes: Vec<u8>,
    read_len: usize,
}

impl<'a> Stream<'a> {
    fn new(load: &'a Load, number: u32) -> Self {
        Self { load, number, bytes: Vec::new(), read_len: 0 }
    }

    /// Generates enough requests for one poll.
    fn fill(&mut self) {
        self.bytes.drain(..self.read_len);
        self.read_len = 0;
        while self.bytes.len() < self.load.bytes_per_poll {
            self.number += 1;
            (self.load.encode)(self.number, &mut self.bytes);
        }
    }

    fn read(&mut self) -> &[u8] {
        let begin = self.read_len;
        self.read_len = self.bytes.len().min(begin + READ_LEN_MAX);
        &self.bytes[begin..self.read_len]
    }
}

impl Server {
    /// Measures `poll_count` polls of a connection that sends requests without end, and as many single requests.
    pub fn measure(&mut self, load: &Load, poll_count: u32) -> Costs {
        let mut costs = Costs { poll: Cost::ZERO, poll_response_count: 0, request: Cost::ZERO };
        let mut key = self.connect_for(load);
        let mut stream = Stream::new(load, self.numbers());
        for _ in 0..poll_count {
            stream.fill();
            let poll = Cost::of(|| self.poll(key, &mut stream));
            let response_count = self.settle_connection(key);
            if poll.processor_ns > costs.poll.processor_ns {
                (costs.poll, costs.poll_response_count) = (poll, response_count);
            }
            if !self.is_open(key) {
                key = self.connect_for(load);
                stream = Stream::new(load, self.numbers());
            }
        }
        self.close(key);
        let mut key = self.connect_for(load);
        let mut number = self.numbers();
        let mut bytes = Vec::new();
        for _ in 0..poll_count {
            number += 1;
            bytes.clear();
            (load.encode)(number, &mut bytes);
            for part in bytes.chunks(READ_LEN_MAX) {
                let now = self.now();
                let mut turn = Turn::default();
                let request = Cost::of(|| {
                    self.worker.handle_bytes_within(&mut turn, key, part, now);
                });
                if request.processor_ns > costs.request.processor_ns {
                    costs.request = request;
                }
            }
            self.settle_connection(key);
            if !self.is_open(key) {
                key = self.connect_for(load);
            }
        }
        self.close(key);
        costs
    }

    fn connect_for(&mut self, load: &Load) -> ConnectionKey {
        self.open(&Hello { session: load.session, ..stock::hello(load.kind, load.namespace) })
    }

    /// Serves a connection until its time budget is used up, as the driver does.
    fn poll(&mut self, key: ConnectionKey, stream: &mut Stream<'_>) {
        let mut turn = Turn::default();
        loop {
            let now = self.now();
            let next = if self.worker.has_input(key) {
                self.worker.handle_set_aside(&mut turn, key, now)
            } else if stream.read_len == stream.bytes.len() {
                return;
            } else {
                turn.read_count += 1;
                self.worker.handle_bytes_within(&mut turn, key, stream.read(), now)
            };
            debug_assert_eq!(next, Next::Continue);
            if !self.worker.wants_read(key) || !turn.may_read_on() {
                return;
            }
        }
    }
}

/// All kinds of namespaces; each has a namespace with its name.
pub const KINDS: [NamespaceKind; 6] = [
    NamespaceKind::Flat,
    NamespaceKind::Tree,
    NamespaceKind::Pool,
    NamespaceKind::Limit,
    NamespaceKind::Registry,
    NamespaceKind::Lazy,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use waymaker_protocol::message::opcode;
    use waymaker_protocol::{Request, next_frame};

    #[test]
    fn measures_every_request_of_the_protocol_in_a_valid_form() {
        let mut server = Server::with_stock(&Stock::SMALL);
        let mut opcodes = BTreeSet::new();
        for load in loads(&mut server) {
            // Some loads begin with another request that prepares their own.
            for number in 1..=2 {
                let mut bytes = Vec::new();
                (load.encode)(number, &mut bytes);
                let frame = next_frame(&bytes, usize::MAX).expect("a header").expect("a whole frame");
                if Request::decode(frame).is_ok() {
                    opcodes.insert(frame.opcode());
                } else {
                    assert!(load.is_malformed, "{} does not decode", load.name);
                }
            }
        }
        // HELLO and GOODBYE are the first and the last request of a connection. PONG has no response, and costs as
        // much as KEEP_ALIVE.
        for opcode in opcode::KEEP_ALIVE..opcode::ANSWER {
            let bytes = [8, 0, 0, 0, 1, 0, 0, 0, opcode, 0, 0, 0];
            let frame = next_frame(&bytes, usize::MAX).expect("a header").expect("a whole frame");
            let is_known = !matches!(Request::decode(frame), Err(error) if error.field() == "opcode");
            if is_known && !matches!(opcode, opcode::GOODBYE | opcode::PONG) {
                assert!(opcodes.contains(&opcode), "opcode {opcode:#x} is not measured");
            }
        }
    }

    #[test]
    fn every_load_gets_responses() {
        let mut server = Server::with_stock(&Stock::SMALL);
        for load in loads(&mut server) {
            let before = server.response_count();
            server.measure(&load, 2);
            assert!(server.response_count() > before, "{} has no response", load.name);
        }
    }
}
