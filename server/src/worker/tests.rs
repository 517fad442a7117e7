//! Workers without a driver, at times that the test chooses.

mod connection_ends;
mod counts;
mod durable;
mod kinds;
mod leases;
mod namespaces;
mod repetition;
mod requests_in_flight;
mod rights;
mod session_ends;
mod several_turns;
mod silence;
mod spans;
mod vacancy;

use crate::limits::{HOUSEKEEPING_MS, LANES_PER_SESSION_MAX};
use crate::mail::{ConnectionKey, Mail};
use crate::node::Node;
use crate::worker::test_node::test_node;
use crate::worker::{Next, Worker};
use std::sync::Arc;
use waymaker_engine::Time;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireTerms, Capabilities, ErrorCode, Granted, Hello, Items, KeyItem,
    NamespaceKind, Request, Response, SessionRequest, VERSION, Welcome, next_frame,
};

/// Workers of one node, which run when the test calls them. The first worker has all connections.
struct Rig {
    node: Arc<Node>,
    workers: Vec<Worker>,
    now: Time,
}

impl Rig {
    fn new(worker_count: usize) -> Self {
        let now = Time::from_millis(1_000);
        Self::of(test_node(worker_count, now), now)
    }

    /// Returns the workers of this node.
    fn of(node: Arc<Node>, now: Time) -> Self {
        let worker = |index| Worker::new(Arc::clone(&node), index as u16, now);
        let workers = (0..node.worker_count()).map(worker).collect();
        Self { node, workers, now }
    }

    /// Opens a connection to a namespace of kind flat.
    fn connect(&mut self, session: SessionRequest) -> (ConnectionKey, Welcome) {
        self.connect_to(NamespaceKind::Flat, session)
    }

    fn connect_to(&mut self, kind: NamespaceKind, session: SessionRequest) -> (ConnectionKey, Welcome) {
        self.connect_saying(None, kind, session)
    }

    /// Opens a connection without a session, for a client with these capabilities.
    fn connect_capable(&mut self, capabilities: Capabilities) -> ConnectionKey {
        self.connect_saying(Some(capabilities), NamespaceKind::Flat, SessionRequest::None).0
    }

    fn connect_saying(
        &mut self,
        capabilities: Option<Capabilities>,
        kind: NamespaceKind,
        session: SessionRequest,
    ) -> (ConnectionKey, Welcome) {
        let key = self.workers[0].handle_open(b"peer", self.now);
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            kind,
            session,
            worker: ANY_WORKER,
            namespace: kind.name().as_bytes(),
            capabilities,
            ..Hello::default()
        };
        let next = self.say(key, &frame(1, &Request::Hello(hello)));
        let key = if let Next::Rebound(key) = next { key } else { key };
        match self.hear(key)[..] {
            [(1, Heard::Welcome(welcome))] => (key, welcome),
            ref other => panic!("expected a welcome, got {other:?}"),
        }
    }

    /// Opens a session with the maximum number of connections.
    fn crowd(&mut self, session: SessionRequest) -> Vec<ConnectionKey> {
        let (first, welcome) = self.connect(session);
        let join = SessionRequest::Join { id: welcome.session_id };
        let others = (1..LANES_PER_SESSION_MAX).map(|_| self.connect(join).0);
        std::iter::once(first).chain(others).collect()
    }

    /// Sends a HELLO for this namespace on a new connection, and returns the answer.
    fn greet(&mut self, namespace: &[u8], kind: NamespaceKind) -> (ConnectionKey, Heard) {
        let key = self.workers[0].handle_open(b"peer", self.now);
        let (version_min, version_max, worker) = (VERSION, VERSION, ANY_WORKER);
        let hello = Hello { version_min, version_max, kind, worker, namespace, ..Hello::default() };
        let answers = self.ask(key, 1, &Request::Hello(hello));
        let [(1, answer)] = &answers[..] else { panic!("{answers:?}") };
        (key, answer.clone())
    }

    /// Opens a connection to this namespace.
    fn open(&mut self, namespace: &[u8], kind: NamespaceKind) -> ConnectionKey {
        let (key, answer) = self.greet(namespace, kind);
        assert!(matches!(answer, Heard::Welcome(_)), "{answer:?}");
        key
    }

    /// Ends the connection, and resumes its lane on another one.
    fn reconnect(&mut self, key: ConnectionKey, welcome: &Welcome) -> ConnectionKey {
        self.workers[0].handle_lost(key, self.now);
        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        self.connect(resume).0
    }

    /// Sends a request, and returns the frames that come back at once.
    fn ask(&mut self, key: ConnectionKey, number: u32, request: &Request<'_>) -> Vec<(u32, Heard)> {
        self.say(key, &frame(number, request));
        self.hear(key)
    }

    /// Returns the frames in the output of a connection that stays open.
    fn hear(&mut self, key: ConnectionKey) -> Vec<(u32, Heard)> {
        let output = self.take_output(key).expect("the connection is open");
        heard(&output)
    }

    /// Gives the turn of this key's shard to the second worker, which continues it when the mail is passed to
    /// `give_back`.
    fn hold_turn(&self, name: &[u8]) -> Mail {
        let shard = self.node.shard_of_key(name);
        let turn = self.node.shards[usize::from(shard)].enter().expect("nobody has it");
        Mail::Turn { shard, pass: turn.pass_on() }
    }

    /// Lets the second worker continue this turn: it serves the batches that were left and gives the turn back. Both
    /// workers handle mail until none is left. If the batches cost more than one worker may serve at once, the workers
    /// pass the turn to each other until all batches are served.
    fn give_back(&mut self, turn: Mail) {
        self.node.mailboxes[1].post(turn);
        while self.workers[1].handle_mail(self.now) | self.workers[0].handle_mail(self.now) {}
    }

    fn say(&mut self, key: ConnectionKey, bytes: &[u8]) -> Next {
        self.workers[0].handle_bytes(key, bytes, self.now)
    }

    /// Takes the output of a connection. Returns `None` if the connection must be closed.
    fn take_output(&mut self, key: ConnectionKey) -> Option<Vec<u8>> {
        let output = self.workers[0].output(key)?.to_vec();
        self.workers[0].wrote(key, output.len());
        Some(output)
    }

    /// Lets time pass in steps of at most `HOUSEKEEPING_MS`. After each step, the first worker does its periodic work,
    /// as in a server: for example, it closes stalled connections.
    fn pass_ms(&mut self, millis: u64) {
        for begin_ms in (0..millis).step_by(HOUSEKEEPING_MS as usize) {
            self.stand_still_ms((millis - begin_ms).min(HOUSEKEEPING_MS));
        }
    }

    /// Lets time pass in which the server does not run. Then the first worker does its housekeeping before it reads its
    /// connections.
    fn stand_still_ms(&mut self, millis: u64) {
        self.now = self.now.after_ms(millis);
        self.workers[0].housekeep(self.now);
    }
}

fn frame(number: u32, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(number, &mut bytes);
    bytes
}

/// Content of a frame, as far as tests need it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Welcome(Welcome),
    Granted(Granted),
    Refused(ErrorCode),
    Other(u8),
}

/// Returns the number and the content of each frame.
fn heard(mut bytes: &[u8]) -> Vec<(u32, Heard)> {
    let mut all = Vec::new();
    while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("frames") {
        let heard = match Response::decode(frame).expect("a response") {
            Response::Welcome(welcome) => Heard::Welcome(welcome),
            Response::Granted(granted) => Heard::Granted(granted),
            Response::Error(error) => Heard::Refused(error.code),
            _ => Heard::Other(frame.opcode()),
        };
        all.push((frame.number(), heard));
        bytes = &bytes[frame.len()..];
    }
    all
}

fn acquire(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

/// Returns a request without a wait for the keys `a` and `b`.
fn both_keys(buffer: &mut Vec<u8>) -> AcquireKeys<'_> {
    let items = [KeyItem { key: b"a", shared: false }, KeyItem { key: b"b", shared: false }];
    AcquireKeys { items: Items::new(items, buffer).expect("two keys"), ..AcquireKeys::default() }
}
