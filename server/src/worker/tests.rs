//! Workers without a driver, at times that the test chooses.

mod counts;
mod durable;
mod kinds;
mod rights;
mod session_ends;
mod spans;
mod vacancy;

use super::test_node::{test_node, test_node_with};
use super::{Next, Worker};
use crate::clock::Moment;
use crate::expiries::ExpiryCount;
use crate::limit_options::LimitOptions;
use crate::limits::{
    BATCH_COST_MAX, EVERYWHERE_IN_FLIGHT_MAX, FRAME_MS, HOUSEKEEPING_MS, LANES_PER_SESSION_MAX,
    LEFT_COST_MAX, NAMESPACE_COUNT_MAX, NAMESPACE_IDLE_MS, PING_MS, PINGS_MISSED_MAX, SERVED_COST_MAX,
    WRITE_MS,
};
use crate::mail::ConnectionKey;
use crate::mail::Mail;
use crate::memory::MemoryUse;
use crate::milliseconds::Milliseconds;
use crate::node::Node;
use std::sync::Arc;
use waymaker_engine::{Limits, Time};
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX, IN_FLIGHT_MAX, VALUE_LEN_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::acquire_keys::GRANTED_KEYS;
use waymaker_protocol::message::cancel::CANCELLED;
use waymaker_protocol::message::entries::LOOKED_UP;
use waymaker_protocol::message::force_release::FORCE_RELEASED;
use waymaker_protocol::message::goodbye::FAREWELL;
use waymaker_protocol::message::keep_alive::KEPT_ALIVE;
use waymaker_protocol::message::opcode;
use waymaker_protocol::message::registry::REGISTERED;
use waymaker_protocol::message::remove_namespace::NAMESPACE_REMOVED;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireSet, Bucket, Cancel, Capabilities, ErrorCode, ForceRelease, Freeze, Goodbye,
    Granted, Hello, Inspect, Items, KeepAlive, KeyItem, List, LookUp, NamespaceKind, Namespaces, PathItem,
    PathKey, Pong, Register, Release, RemoveNamespace, Request, Response, SessionRequest, SetCapacity,
    Throttle, VERSION, Watch, Welcome, next_frame,
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

    /// The second worker serves the batches that were left and gives the turn back, and the first worker reads its
    /// mail. If the batches cost too much, both pass the turn to each other.
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

    /// Lets time pass. The worker does its housekeeping as often as in a server.
    fn pass_ms(&mut self, millis: u64) {
        for begin_ms in (0..millis).step_by(HOUSEKEEPING_MS as usize) {
            self.stand_still_ms((millis - begin_ms).min(HOUSEKEEPING_MS));
        }
    }

    /// Lets time pass in which the server does not run. Then the worker does its housekeeping before it reads its
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

/// A client that sends more than one read takes leaves the beginning of a frame behind each time.
#[test]
fn a_connection_that_finishes_each_frame_in_time_is_never_late() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect(SessionRequest::None);
    let request = frame(2, &Request::KeepAlive(KeepAlive));
    let (begin, end) = request.split_at(5);
    rig.say(key, begin);
    for _ in 0..4 {
        rig.pass_ms(FRAME_MS / 2);
        rig.say(key, &[end, begin].concat());
        assert_eq!(rig.hear(key), [(2, Heard::Other(KEPT_ALIVE))]);
    }
    rig.pass_ms(FRAME_MS + 1);
    let last_words = rig.take_output(key).expect("it is told why");
    assert_eq!(heard(&last_words), [(0, Heard::Refused(ErrorCode::BadInput))], "one was not finished");
    assert!(rig.take_output(key).is_none(), "the connection is closed");
}

/// Each limit is a fraction of its default.
#[test]
fn stalled_connections_are_closed_after_the_times_that_are_set() {
    let (short, now) = (Milliseconds::new(1_000), Time::from_millis(1_000));
    let rig = || {
        let mut node = test_node(1, now);
        let set =
            LimitOptions { hello: short, frame: short, write: short, ping: short, ..LimitOptions::default() };
        Arc::get_mut(&mut node).expect("nobody shares it").set_limits(set);
        Rig::of(node, now)
    };
    let refused = |rig: &mut Rig, key| {
        let last_words = rig.take_output(key).expect("it is told why");
        assert_eq!(heard(&last_words).last(), Some(&(0, Heard::Refused(ErrorCode::BadInput))));
    };
    let mut greeting = rig();
    let key = greeting.workers[0].handle_open(b"peer", greeting.now);
    greeting.pass_ms(1_001);
    refused(&mut greeting, key);

    let mut reading = rig();
    let (key, _) = reading.connect(SessionRequest::None);
    reading.say(key, &frame(2, &Request::KeepAlive(KeepAlive))[..5]);
    reading.pass_ms(1_001);
    refused(&mut reading, key);

    let mut silent = rig();
    let key = silent.connect_capable(Capabilities::PING);
    silent.pass_ms(HOUSEKEEPING_MS);
    for _ in 0..PINGS_MISSED_MAX {
        silent.pass_ms(1_000);
        assert_eq!(silent.hear(key), [PING]);
    }
    silent.pass_ms(1_000 + HOUSEKEEPING_MS);
    refused(&mut silent, key);

    let mut writing = rig();
    let (key, _) = writing.connect(SessionRequest::None);
    writing.say(key, &frame(2, &Request::LookUp(LookUp { key: b"key" })));
    writing.workers[0].wrote(key, 5);
    writing.pass_ms(1_001);
    assert_eq!(writing.take_output(key), None);
}

/// While the server does not run, the rest of a frame may arrive, and the client may read its answers.
#[test]
fn a_server_that_stalled_serves_a_connection_before_it_drops_it() {
    let mut rig = Rig::new(1);
    let now = rig.now;
    let newcomer = rig.workers[0].handle_open(b"peer", now);
    let ((key, _), (reader, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let request = frame(2, &Request::KeepAlive(KeepAlive));
    let (begin, end) = request.split_at(5);
    rig.say(newcomer, begin);
    rig.say(key, begin);
    rig.say(reader, &request);
    rig.workers[0].wrote(reader, 5);
    rig.stand_still_ms(60_000);
    assert_eq!(rig.take_output(newcomer).as_deref(), Some(&[][..]), "HELLO may have come");
    rig.say(key, end);
    assert_eq!(rig.hear(key), [(2, Heard::Other(KEPT_ALIVE))], "the rest of the frame has come");
    assert!(rig.take_output(reader).is_some_and(|rest| !rest.is_empty()), "the client may read");
}

/// Returns the frames that a connection gets in 90 s of silence, and whether the connection is open after that.
fn hear_in_silence(rig: &mut Rig, key: ConnectionKey) -> (Vec<(u32, Heard)>, bool) {
    let mut all = Vec::new();
    for _ in 0..90_000 / HOUSEKEEPING_MS {
        rig.pass_ms(HOUSEKEEPING_MS);
        match rig.take_output(key) {
            Some(output) => all.extend(heard(&output)),
            None => return (all, false),
        }
    }
    (all, true)
}

const PING: (u32, Heard) = (0, Heard::Other(opcode::PING));

/// The kernel acknowledges bytes for a stopped process, so TCP never detects it.
#[test]
fn a_silent_client_that_answers_pings_is_pinged_and_closed() {
    let mut rig = Rig::new(1);
    let key = rig.connect_capable(Capabilities::PING);
    let (all, is_open) = hear_in_silence(&mut rig, key);
    assert_eq!(all, [PING, PING, PING, (0, Heard::Refused(ErrorCode::BadInput))]);
    assert!(!is_open);
}

#[test]
fn only_a_client_that_answers_pings_is_pinged() {
    let mut rig = Rig::new(1);
    let (plain, _) = rig.connect(SessionRequest::None);
    let capable = rig.connect_capable(Capabilities::OWN_CLAIM);
    for key in [plain, capable] {
        assert_eq!(hear_in_silence(&mut rig, key), (vec![], true));
    }
}

/// Any bytes are a sign of life: a pong, another request, and the beginning of a frame.
#[test]
fn a_client_that_sends_pongs_or_requests_stays_connected() {
    for sign in [frame(0, &Request::Pong(Pong)), frame(2, &Request::KeepAlive(KeepAlive))] {
        let mut rig = Rig::new(1);
        let key = rig.connect_capable(Capabilities::PING);
        for _ in 0..10 {
            rig.pass_ms(HOUSEKEEPING_MS);
            for _ in 0..2 {
                rig.pass_ms(PING_MS);
                assert_eq!(rig.hear(key), [PING]);
            }
            let (begin, end) = sign.split_at(5);
            rig.say(key, begin);
            rig.pass_ms(FRAME_MS / 2);
            assert_eq!(rig.hear(key), []);
            rig.say(key, end);
            rig.hear(key);
        }
    }
}

/// The capabilities of the present connection of a lane decide.
#[test]
fn a_resumed_lane_is_pinged_if_its_new_connection_supports_pings() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 1 << 20 });
    rig.workers[0].handle_lost(key, rig.now);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (key, _) = rig.connect_saying(Some(Capabilities::PING), NamespaceKind::Flat, resume);
    rig.pass_ms(HOUSEKEEPING_MS);
    rig.pass_ms(PING_MS);
    assert_eq!(rig.hear(key), [PING]);
    // A pong keeps the session alive like every other frame, and has no answer.
    assert_eq!(rig.ask(key, 0, &Request::Pong(Pong)), []);
}

/// The server stops reading while many answers wait, so it does not read the pongs of a client with a slow network.
#[test]
fn a_client_that_reads_its_answers_slowly_is_not_silent() {
    let mut rig = Rig::new(2);
    let (key, _) =
        rig.connect_saying(Some(Capabilities::PING), NamespaceKind::Registry, SessionRequest::None);
    let value = vec![b'v'; VALUE_LEN_MAX];
    let entry =
        Register { lease_ms: 600_000, key: b"key", owner: b"a", value: &value, ..Register::default() };
    rig.ask(key, 2, &Request::Register(entry));
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        rig.say(key, &frame(number, &Request::LookUp(LookUp { key: b"key" })));
    }
    rig.give_back(turn);
    for _ in 0..90_000 / HOUSEKEEPING_MS {
        rig.pass_ms(HOUSEKEEPING_MS);
        assert!(!rig.workers[0].wants_read(key), "it has many answers to take");
        rig.workers[0].wrote(key, 1);
    }
    rig.take_output(key).expect("the connection is open");
    assert!(rig.workers[0].wants_read(key), "it is read again");
    let (all, _) = hear_in_silence(&mut rig, key);
    assert_eq!(all[..3], [PING, PING, PING], "its silence begins when it is read again");
}

/// The answers come all at once, however fast the client reads.
#[test]
fn many_long_answers_of_another_worker_do_not_end_their_connection() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Registry, SessionRequest::None);
    let value = vec![b'v'; VALUE_LEN_MAX];
    let entry = Register {
        lease_ms: 60_000,
        absolute: false,
        ephemeral: false,
        key: b"key",
        owner: b"a",
        value: &value,
        type_name: b"",
        traceparent: None,
    };
    assert_eq!(rig.ask(key, 2, &Request::Register(entry)), [(2, Heard::Other(REGISTERED))]);
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &Request::LookUp(LookUp { key: b"key" })), []);
    }
    rig.give_back(turn);
    let heard = rig.hear(key);
    assert!(heard.iter().map(|(number, _)| *number).eq(0..IN_FLIGHT_MAX), "each is answered");
    let found = heard.iter().filter(|(_, heard)| *heard == Heard::Other(LOOKED_UP)).count();
    let refused = heard.iter().filter(|(_, heard)| *heard == Heard::Refused(ErrorCode::Overloaded)).count();
    assert_eq!((found + refused, found > 100), (heard.len(), true), "found {found}, refused {refused}");
}

#[test]
fn expired_registrations_are_counted_by_type() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect_to(NamespaceKind::Registry, SessionRequest::None);
    for (number, type_name, lease_ms) in [(2, &b"a"[..], 10), (3, b"b", 10), (4, b"b", 10), (5, b"b", 9_000)]
    {
        let name = [number as u8];
        let entry = Register { lease_ms, key: &name, owner: b"o", type_name, ..Register::default() };
        assert_eq!(rig.ask(key, number, &Request::Register(entry)), [(number, Heard::Other(REGISTERED))]);
    }
    assert_eq!(rig.node.expiries.read(), []);
    rig.now = rig.now.after_ms(10);
    rig.workers[0].handle_drained(rig.now, rig.now);
    let namespace = rig.node.expiries.read().first().map_or(0, |first| first.namespace);
    let counted = |type_name: &[u8], count| ExpiryCount { namespace, type_name: Box::from(type_name), count };
    assert_eq!(rig.node.expiries.read(), [counted(b"a", 1), counted(b"b", 2)]);
}

fn acquire(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire { key, wait_ms: WAIT_FOREVER_MS, ..Acquire::default() })
}

/// Returns a request without a wait for the keys `a` and `b`.
fn both_keys(buffer: &mut Vec<u8>) -> AcquireKeys<'_> {
    let items = [KeyItem { key: b"a", shared: false }, KeyItem { key: b"b", shared: false }];
    AcquireKeys { items: Items::new(items, buffer).expect("two keys"), ..AcquireKeys::default() }
}

/// The first attempt leaves its queue when its connection is lost. A client that repeated the request before that
/// still wants the lock.
#[test]
fn a_repeated_acquire_is_a_new_attempt_while_the_first_still_waits() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    let turn = rig.hold_turn(b"key");
    let key = rig.reconnect(key, &welcome);
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    rig.give_back(turn);
    assert_eq!(rig.hear(key), [], "it waits again");
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let heard = rig.hear(key);
    assert!(matches!(heard[..], [(2, Heard::Granted(Granted { fence: 2, waited: true, .. }))]), "{heard:?}");
}

/// Another worker has the turn, so the shard learns of the lost connection, the repetition and the cancellation at
/// once.
#[test]
fn a_repeated_acquire_that_is_cancelled_stops_waiting() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    let turn = rig.hold_turn(b"key");
    let key = rig.reconnect(key, &welcome);
    let cancel = Request::Cancel(Cancel { acquire_number: 2, key: b"key" });
    rig.say(key, &[frame(2, &acquire(b"key")), frame(3, &cancel)].concat());
    rig.give_back(turn);
    let (cancelled, is_over) = ((3, Heard::Other(CANCELLED)), (2, Heard::Refused(ErrorCode::Cancelled)));
    let heard = rig.hear(key);
    assert!(heard.contains(&cancelled) && heard.contains(&is_over), "{heard:?}");
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(rig.hear(key), [], "the acquire does not wait");
}

/// A request that is refused because of a limit has no effect, so the session keeps nothing of it.
#[test]
fn a_refused_request_is_served_if_the_next_connection_repeats_it() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let turn = rig.hold_turn(b"key");
    let last = 2 + EVERYWHERE_IN_FLIGHT_MAX;
    let page = Request::Namespaces(Namespaces::default());
    for number in 2..last {
        assert_eq!(rig.ask(key, number, &page), []);
    }
    assert_eq!(rig.ask(key, last, &page), [(last, Heard::Refused(ErrorCode::Overloaded))]);
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    let heard = rig.ask(key, last, &page);
    assert!(matches!(heard[..], [(number, Heard::Other(_))] if number == last), "{heard:?}");
}

#[test]
fn a_welcome_announces_the_limits_of_the_server() {
    let mut rig = Rig::new(2);
    let (_, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let Limits { lease_default_ms, lease_min_ms, lease_max_ms, .. } = rig.node.limits;
    assert_eq!(
        (welcome.lease_default_ms, welcome.lease_min_ms, welcome.lease_max_ms),
        (lease_default_ms, lease_min_ms, lease_max_ms)
    );
    assert_eq!((welcome.in_flight_max, welcome.frame_len_max), (IN_FLIGHT_MAX, FRAME_LEN_MAX as u32));
    assert_eq!((welcome.session_lease_ms, welcome.resumed), (10_000, false));
    assert_eq!((welcome.worker, welcome.worker_count), (0, 2));
    assert_eq!(usize::from(welcome.shard_count), rig.node.shards.len());
}

/// The request waited for its turns when its connection was lost, and its client does not want it any more.
#[test]
fn a_request_of_a_lost_connection_is_not_served_for_the_next() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    assert_eq!(rig.ask(key, 2, &Request::AcquireKeys(both_keys(&mut buffer))), []);
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    assert_eq!(rig.hear(key), []);
    let heard = rig.ask(key, 3, &acquire(b"b"));
    assert!(matches!(heard[..], [(3, Heard::Granted(Granted { fence: 1, .. }))]), "{heard:?}");
}

/// Other workers post events to a lane without knowing whether it has a connection.
#[test]
fn the_first_frame_on_a_resumed_lane_is_its_welcome() {
    let mut rig = Rig::new(2);
    let (other, _) = rig.connect(SessionRequest::None);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    rig.ask(key, 2, &Request::Watch(Watch { key: b"key" }));
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(other, 2, &acquire(b"key")), []);
    rig.workers[0].handle_lost(key, rig.now);
    rig.node.mailboxes[1].post(turn);
    assert!(rig.workers[1].handle_mail(rig.now), "the event is in the mailbox of the first worker");
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (key, _) = rig.connect(resume);
    rig.workers[0].handle_mail(rig.now);
    assert_eq!(rig.hear(key), [], "the watch ended with its connection");
}

/// A shard serves broadcasts before later requests of other clients.
#[test]
fn a_connection_may_have_few_broadcast_requests_in_flight() {
    for request in [
        Request::Namespaces(Namespaces::default()),
        Request::Freeze(Freeze { prefix: b"frozen", thaw: false, ..Freeze::default() }),
    ] {
        let mut rig = Rig::new(2);
        let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
        let turn = rig.hold_turn(b"key");
        for number in 2..EVERYWHERE_IN_FLIGHT_MAX + 2 {
            assert_eq!(rig.ask(key, number, &request), []);
        }
        let refused = EVERYWHERE_IN_FLIGHT_MAX + 2;
        assert_eq!(rig.ask(key, refused, &request), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
        assert_eq!(rig.ask(key, 2, &request), [], "a repetition is no new request");
        // Requests of the lost connection count until the shards have served them.
        let key = rig.reconnect(key, &welcome);
        assert_eq!(rig.ask(key, refused, &request), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
        rig.give_back(turn);
        rig.hear(key);
        for number in refused..refused + 2 * EVERYWHERE_IN_FLIGHT_MAX {
            let answers = rig.ask(key, number, &request);
            assert!(matches!(answers[..], [(_, Heard::Other(_))]), "{answers:?}");
        }
    }
}

/// Sends lists until the maximum number of them waits for the turn of the first shard. Returns the number of the next
/// request.
fn leave_lists(rig: &mut Rig, key: ConnectionKey) -> u32 {
    let next = 2 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 2..next {
        assert_eq!(rig.ask(key, number, &Request::List(List::default())), []);
    }
    next
}

/// A lease in the shard can end only after these requests, and they take long.
#[test]
fn a_connection_may_have_few_long_requests_waiting_for_a_shard() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    // The first page of a list is from the first shard.
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    let list = Request::List(List::default());
    let refused = leave_lists(&mut rig, key);
    assert_eq!(rig.ask(key, refused, &list), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    let mut buffer = Vec::new();
    let keys = Request::AcquireKeys(both_keys(&mut buffer));
    assert_eq!(rig.ask(key, refused, &keys), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    assert_eq!(rig.ask(key, refused + 1, &acquire(&name)), [], "short requests wait as ever");
    rig.give_back(turn);
    rig.hear(key);
    let answers = rig.ask(key, refused + 2, &list);
    assert!(matches!(answers[..], [(_, Heard::Other(_))]), "{answers:?}");
}

/// The shard searches all sets for a path, and the whole namespace is in one shard.
#[test]
fn a_connection_may_have_few_path_inspections_waiting_for_a_shard() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
    // A tree namespace is in the shard of its name.
    let turn = rig.hold_turn(NamespaceKind::Tree.name().as_bytes());
    let inspect = Request::Inspect(Inspect { key: b"" });
    let refused = 2 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 2..refused {
        assert_eq!(rig.ask(key, number, &inspect), []);
    }
    assert_eq!(rig.ask(key, refused, &inspect), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    rig.give_back(turn);
    assert_eq!(rig.hear(key).len(), refused as usize - 2);
}

/// An operator ends a claim because too many requests wait for it. The answer contains its path, which may be so long
/// that the request costs as much as many others.
#[test]
fn an_operator_can_end_a_claim_while_long_requests_wait() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
    let (paths, mut buffer) = ([vec![2, 0, b'a', b'b']], Vec::new());
    let set = Request::AcquireSet(large_set(&paths, &mut buffer));
    let Heard::Granted(Granted { id, .. }) = rig.ask(key, 2, &set)[0].1 else { panic!() };
    let turn = rig.hold_turn(NamespaceKind::Tree.name().as_bytes());
    let full = 3 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 3..full {
        assert_eq!(rig.ask(key, number, &Request::Inspect(Inspect { key: b"" })), []);
    }
    let force = Request::ForceRelease(ForceRelease { id, reason: b"stuck" });
    assert_eq!(rig.ask(key, full, &force), []);
    rig.give_back(turn);
    let answers = rig.hear(key).split_off(full as usize - 3);
    assert_eq!(answers, [(full, Heard::Other(FORCE_RELEASED)), (0, Heard::Other(opcode::REVOKED))]);
}

/// Without this count, a client could leave any number of long requests by connecting again.
#[test]
fn long_requests_of_a_lost_connection_count_for_the_resuming_connection() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    let list = Request::List(List::default());
    let refused = leave_lists(&mut rig, key);
    let key = rig.reconnect(key, &welcome);
    for _ in 0..2 {
        assert_eq!(rig.ask(key, refused, &list), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    }
    rig.give_back(turn);
    assert_eq!(rig.hear(key), [], "nobody asked again");
    let answers = rig.ask(key, refused, &list);
    assert!(matches!(answers[..], [(_, Heard::Other(_))]), "the refused number is new: {answers:?}");
}

/// Requests of a lost connection do not count for another client that gets its slot either.
#[test]
fn long_requests_of_a_lost_connection_do_not_count_for_others() {
    let mut rig = Rig::new(2);
    let (lost, _) = rig.connect(SessionRequest::None);
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    leave_lists(&mut rig, lost);
    rig.workers[0].handle_lost(lost, rig.now);
    let (next, _) = rig.connect(SessionRequest::None);
    assert_eq!(next.slot, lost.slot);
    let refused = leave_lists(&mut rig, next);
    rig.give_back(turn);
    let numbers: Vec<_> = rig.hear(next).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (2..refused).collect::<Vec<_>>());
}

/// The shard serves some of the first requests and postpones the others. It must not put them behind the later ones.
#[test]
fn waiting_requests_of_a_connection_are_served_in_order_over_turns() {
    const WATCH_COUNT: u32 = 1024;
    let mut rig = Rig::new(2);
    let ((watcher, _), (asker, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    for number in 2..2 + WATCH_COUNT {
        rig.ask(watcher, number, &Request::Watch(Watch { key: b"watched" }));
    }
    let turn = rig.hold_turn(b"watched");
    let shared = Request::Acquire(Acquire { key: b"watched", shared: true, ..Acquire::default() });
    rig.say(asker, &(2..10).flat_map(|number| frame(number, &shared)).collect::<Vec<_>>());
    rig.say(asker, &(10..12).flat_map(|number| frame(number, &shared)).collect::<Vec<_>>());
    rig.give_back(turn);
    let fences: Vec<_> = rig
        .hear(asker)
        .into_iter()
        .map(|(number, heard)| match heard {
            Heard::Granted(granted) => (number, granted.fence),
            other => panic!("{number}: {other:?}"),
        })
        .collect();
    assert_eq!(fences, (2..12).map(|number| (number, u64::from(number) - 1)).collect::<Vec<_>>());
}

/// If refused requests counted, a client with too many broadcasts could send no request any more.
#[test]
fn refused_broadcast_requests_do_not_count_as_in_flight() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"key");
    for number in 2..2 + EVERYWHERE_IN_FLIGHT_MAX + IN_FLIGHT_MAX {
        rig.ask(key, number, &Request::Namespaces(Namespaces::default()));
    }
    rig.give_back(turn);
    rig.hear(key);
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &Request::Inspect(Inspect { key: b"key" })), []);
    }
    rig.give_back(turn);
}

#[test]
fn waiting_requests_of_a_lost_connection_do_not_count_as_in_flight() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    let request = Request::AcquireKeys(both_keys(&mut buffer));
    for number in 2..2 + IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &request), []);
    }
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    let heard = rig.ask(key, 2 + IN_FLIGHT_MAX, &acquire(b"a"));
    assert!(matches!(heard[..], [(_, Heard::Granted(_))]), "{heard:?}");
}

/// The shard does not know the connection yet when it is lost.
#[test]
fn an_acquire_waiting_for_a_shard_is_dropped_with_its_connection() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (lost, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(lost, 2, &acquire(b"key")), []);
    rig.workers[0].handle_lost(lost, rig.now);
    rig.give_back(turn);
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let heard = rig.ask(holder, 4, &acquire(b"key"));
    assert!(matches!(heard[..], [(4, Heard::Granted(_))]), "{heard:?}");
}

/// Returns the remaining lease of the only hold of a key, as another client sees it.
fn remaining_ms(rig: &mut Rig, key: &[u8]) -> u32 {
    let (asker, _) = rig.connect(SessionRequest::None);
    rig.say(asker, &frame(2, &Request::Inspect(Inspect { key })));
    let output = rig.take_output(asker).expect("the connection is open");
    let answer = next_frame(&output, FRAME_LEN_MAX).expect("frames").expect("an answer");
    let Ok(Response::Inspected(inspected)) = Response::decode(answer) else { panic!("{answer:?}") };
    let [holder] = &inspected.holders[..] else { panic!("{inspected:?}") };
    holder.remaining_ms
}

#[test]
fn other_clients_see_the_session_lease_of_a_hold() {
    const LEASE_MS: u32 = 10_000;
    for is_left in [false, true] {
        let mut rig = Rig::new(2);
        let (key, _) = rig.connect(SessionRequest::New { lease_ms: LEASE_MS });
        let turn = is_left.then(|| rig.hold_turn(b"key"));
        rig.ask(key, 2, &vacancy::held(b"key"));
        turn.into_iter().for_each(|turn| rig.give_back(turn));
        assert_eq!(remaining_ms(&mut rig, b"key"), LEASE_MS, "another worker serves it: {is_left}");
    }
}

/// The mail must not come when the knock is served. At that time the turn is not free yet, so the worker would knock
/// again. On a node with many workers, these knocks would keep the turn from being given back.
#[test]
fn a_worker_waiting_for_several_turns_is_notified_when_one_is_free() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    assert_eq!(rig.ask(key, 2, &Request::AcquireKeys(both_keys(&mut buffer))), []);
    let count = SERVED_COST_MAX as u32 / 16;
    for number in 0..count {
        assert_eq!(rig.ask(key, 3 + number, &Request::Inspect(Inspect { key: b"a" })), []);
    }
    rig.node.mailboxes[1].post(turn);
    rig.workers[1].handle_mail(rig.now);
    let mails = rig.node.mailboxes[0].take();
    assert!(
        mails.iter().any(|mail| matches!(mail, Mail::Turn { .. })),
        "it was left too much, and passes the turn on"
    );
    assert!(!mails.iter().any(|mail| matches!(mail, Mail::Knocked { .. })), "nobody gave the turn back");
    let is_answer = |mail: &Mail| if let Mail::Letters(letters) = mail { letters.len() } else { 0 };
    let answered = mails.iter().map(is_answer).sum::<usize>();
    assert!(
        answered < count as usize / 2 + 2,
        "{answered} of {count} were answered before others had their turns"
    );
    for mail in mails {
        rig.node.mailboxes[0].post(mail);
    }
    while rig.workers[0].handle_mail(rig.now) | rig.workers[1].handle_mail(rig.now) {}
    let heard = rig.hear(key);
    assert!(heard.contains(&(2, Heard::Other(GRANTED_KEYS))), "now it has both");
    assert_eq!(heard.len(), count as usize + 1, "no batch was forgotten");
}

/// Only some tries run in one step, so that connections have their turns in between.
#[test]
fn very_many_requests_that_need_several_turns_retry_over_turns() {
    const REQUEST_COUNT: u32 = 500;
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    let request = Request::AcquireKeys(both_keys(&mut buffer));
    for number in 2..2 + REQUEST_COUNT {
        assert_eq!(rig.ask(key, number, &request), []);
    }
    rig.node.mailboxes[1].post(turn);
    rig.workers[1].handle_mail(rig.now);
    let mut answered = Vec::new();
    while rig.workers[0].handle_mail(rig.now) {
        let numbers: Vec<_> = rig.hear(key).iter().map(|(number, _)| *number).collect();
        assert!(numbers.len() <= BATCH_COST_MAX / 2, "{} tries at once", numbers.len());
        answered.extend(numbers);
        while rig.workers[1].handle_mail(rig.now) {}
    }
    answered.sort_unstable();
    assert_eq!(answered, (2..2 + REQUEST_COUNT).collect::<Vec<_>>());
}

/// Without the kept answer, the client would not know that it holds the key.
#[test]
fn a_stopping_server_still_answers_a_repeated_granted_acquire() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let granted = rig.ask(key, 2, &acquire(b"key"));
    let key = rig.reconnect(key, &welcome);
    rig.node.set_stopping();
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), granted);
    let refused = rig.ask(key, 3, &acquire(b"another"));
    assert_eq!(refused, [(3, Heard::Refused(ErrorCode::Shutdown))]);
}

/// Otherwise the wait of a client that reads nothing could end before its driver closes the connection.
#[test]
fn nothing_is_sent_after_a_partial_frame_to_a_stalled_connection() {
    let mut rig = Rig::new(1);
    let (holder, _) = rig.connect(SessionRequest::None);
    let (stalled, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    assert_eq!(rig.ask(stalled, 2, &acquire(b"key")), []);
    rig.say(stalled, &frame(3, &Request::LookUp(LookUp { key: b"key" })));
    rig.workers[0].wrote(stalled, 5);
    rig.pass_ms(WRITE_MS + 1);
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(rig.take_output(stalled), None);
}

/// The connection stays open until the client has read the farewell. The lock for which it waited may become free
/// meanwhile.
#[test]
fn no_grant_follows_a_farewell() {
    let mut rig = Rig::new(1);
    let (holder, _) = rig.connect(SessionRequest::None);
    let (key, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    rig.say(key, &frame(3, &Request::Goodbye(Goodbye)));
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let last_words = rig.take_output(key).expect("it is answered");
    assert_eq!(heard(&last_words), [(3, Heard::Other(FAREWELL))]);
    let heard = rig.ask(holder, 4, &acquire(b"key"));
    assert!(matches!(heard[..], [(4, Heard::Granted(Granted { fence: 2, .. }))]), "{heard:?}");
}

/// The shard has the acquire, but another worker has its turn while the session ends.
#[test]
fn no_answer_to_an_acquire_follows_a_session_gone_response() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    rig.ask(holder, 2, &acquire(b"key"));
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let (leaver, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    let turn = rig.hold_turn(b"key");
    let Request::Acquire(waits) = acquire(b"key") else { panic!() };
    let waits = Request::Acquire(Acquire { notify_queued: true, ..waits });
    assert_eq!(rig.ask(key, 2, &waits), []);
    rig.say(leaver, &frame(2, &Request::Goodbye(Goodbye)));
    let told = rig.ask(key, 2, &waits);
    assert!(told.contains(&(2, Heard::Refused(ErrorCode::SessionGone))), "{told:?}");
    rig.give_back(turn);
    assert_eq!(rig.hear(key), []);
}

/// Returns a set that its shard enters over several turns.
fn large_set<'a>(paths: &'a [Vec<u8>], buffer: &'a mut Vec<u8>) -> AcquireSet<'a> {
    let item = |path| PathItem { write: true, path: PathKey::new(path).expect("a path key") };
    let items = paths.iter().map(|path| item(path));
    AcquireSet { items: Items::new(items, buffer).expect("not too many"), ..AcquireSet::default() }
}

#[test]
fn leftover_work_does_not_delay_reading_sockets_before_expiries() {
    for session in [SessionRequest::None, SessionRequest::New { lease_ms: 100 }] {
        let mut rig = Rig::new(1);
        let (holder, _) = rig.connect(session);
        if session == SessionRequest::None {
            let lease = Acquire { key: b"key", lease_ms: 100, ..Acquire::default() };
            rig.ask(holder, 2, &Request::Acquire(lease));
        } else {
            rig.workers[0].handle_lost(holder, rig.now);
        }
        let (flooder, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
        let paths: Vec<_> =
            (0..1024_u16).map(|number| [[2, 0], number.to_le_bytes()].concat().repeat(8)).collect();
        rig.ask(flooder, 2, &Request::AcquireSet(large_set(&paths, &mut Vec::new())));
        rig.now = rig.now.after_ms(100);
        rig.workers[0].tick(rig.now);
        // The end of a session takes two steps.
        rig.now = rig.now.after_ms(1);
        rig.workers[0].tick(rig.now);
        assert_eq!(rig.workers[0].next_deadline(), Time::ZERO, "work is left over");
        assert!(rig.workers[0].wants_drain(), "{session:?}");
    }
}

/// A worker keeps an outdated deadline if another worker visited the shard first.
#[test]
fn a_worker_armed_twice_reads_its_sockets_for_the_earlier_deadline() {
    let mut rig = Rig::new(1);
    let (now, later) = (rig.now, rig.now.after_ms(100));
    rig.workers[0].state.timers.arm(0, now.after_ms(10), now.after_ms(10));
    rig.workers[0].state.timers.arm(0, later, later);
    rig.now = now.after_ms(20);
    rig.workers[0].tick(rig.now);
    assert!(rig.workers[0].wants_drain());
    rig.workers[0].handle_drained(rig.now, rig.now);
    assert!(!rig.workers[0].wants_drain());
}

/// Opens a namespace of kind flat, then acquires and releases a key three times. Returns the last fence, 3 for a new
/// key.
fn use_namespace(rig: &mut Rig, name: &[u8]) -> u64 {
    let key = rig.open(name, NamespaceKind::Flat);
    let mut fence = 0;
    for number in 0..3 {
        let acquire = Acquire { key: b"key", ..Acquire::default() };
        let [(_, Heard::Granted(granted))] = rig.ask(key, 2 + 2 * number, &Request::Acquire(acquire))[..]
        else {
            panic!("the key is free")
        };
        fence = granted.fence;
        rig.ask(key, 3 + 2 * number, &Request::Release(Release { id: granted.id, key: None, own: false }));
    }
    rig.workers[0].handle_lost(key, rig.now);
    fence
}

/// Lets namespaces become idle and end. All workers continue leftover work.
fn pass_idle_time(rig: &mut Rig) {
    for _ in 0..3 {
        rig.pass_ms(NAMESPACE_IDLE_MS);
        do_the_work(rig);
    }
}

/// Lets the workers do the rest of their work. Each turn does a part of it.
fn do_the_work(rig: &mut Rig) {
    for _ in 0..100 {
        for worker in &mut rig.workers {
            worker.handle_mail(rig.now);
            worker.tick(rig.now);
        }
    }
}

/// The shards still look for the first removal when the other requests arrive.
#[test]
fn each_removal_of_a_namespace_is_answered_while_another_is_in_progress() {
    let mut rig = Rig::new(2);
    use_namespace(&mut rig, b"first");
    use_namespace(&mut rig, b"second");
    let ((one, _), (other, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let remove = |name| Request::RemoveNamespace(RemoveNamespace { name });
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(one, 2, &remove(b"first")), []);
    assert_eq!(rig.ask(one, 3, &remove(b"second")), []);
    assert_eq!(rig.ask(other, 4, &remove(b"first")), []);
    rig.give_back(turn);
    do_the_work(&mut rig);
    let removed = |number| (number, Heard::Other(NAMESPACE_REMOVED));
    assert_eq!(rig.hear(one), [2, 3].map(removed));
    assert_eq!(rig.hear(other), [removed(4)]);
}

/// A connection opens the namespace before the shards look, and leaves a hold in a shard that has looked.
#[test]
fn a_namespace_with_a_hold_is_not_removed_even_without_connections() {
    let mut rig = Rig::new(2);
    use_namespace(&mut rig, b"other");
    use_namespace(&mut rig, b"a");
    let (operator, _) = rig.connect(SessionRequest::None);
    let remove = |name| Request::RemoveNamespace(RemoveNamespace { name });
    let turn_of_other = rig.hold_turn(b"key");
    assert_eq!(rig.ask(operator, 2, &remove(b"other")), []);
    assert_eq!(rig.ask(operator, 3, &remove(b"a")), []);
    let holder = rig.open(b"a", NamespaceKind::Flat);
    let late = (0..)
        .map(|number| format!("{number}"))
        .find(|name| rig.node.shard_of_key(name.as_bytes()) != rig.node.shard_of_key(b"key"));
    // All shards but the first one have looked for `other`. For `a`, the shard of `late` is to look last.
    do_the_work(&mut rig);
    let turn = rig.hold_turn(late.expect("there are more shards").as_bytes());
    rig.give_back(turn_of_other);
    do_the_work(&mut rig);
    let acquire = Request::Acquire(Acquire { key: b"key", lease_ms: 60_000, ..Acquire::default() });
    assert!(matches!(rig.ask(holder, 2, &acquire)[..], [(2, Heard::Granted(_))]));
    rig.workers[0].handle_lost(holder, rig.now);
    rig.give_back(turn);
    do_the_work(&mut rig);
    let removed = (2, Heard::Other(NAMESPACE_REMOVED));
    assert_eq!(rig.hear(operator), [removed, (3, Heard::Refused(ErrorCode::BadInput))]);
    let another = rig.open(b"a", NamespaceKind::Flat);
    assert_eq!(rig.ask(another, 2, &acquire), [(2, Heard::Refused(ErrorCode::Busy))]);
}

#[test]
fn an_idle_namespace_is_removed_and_later_fences_continue_above_it() {
    for worker_count in [1, 3] {
        let mut rig = Rig::new(worker_count);
        assert_eq!(use_namespace(&mut rig, b"a"), 3);
        pass_idle_time(&mut rig);
        assert_eq!(rig.node.find_namespace(b"a"), None);
        assert_eq!(use_namespace(&mut rig, b"b"), 6, "no key begins below what was folded");
        assert_eq!(use_namespace(&mut rig, b"a"), 6);
    }
}

#[test]
fn idle_namespaces_make_room_for_another_namespace() {
    let mut rig = Rig::new(1);
    for number in 0..NAMESPACE_COUNT_MAX {
        use_namespace(&mut rig, number.to_string().as_bytes());
    }
    assert_eq!(rig.greet(b"another", NamespaceKind::Flat).1, Heard::Refused(ErrorCode::Overloaded));
    pass_idle_time(&mut rig);
    assert!(matches!(rig.greet(b"another", NamespaceKind::Flat).1, Heard::Welcome(_)));
    assert_eq!(rig.node.find_namespace(b"17"), None);
}

#[test]
fn a_namespace_with_content_is_not_removed() {
    let mut rig = Rig::new(2);
    let held = rig.open(b"held", NamespaceKind::Flat);
    let acquire = Acquire { key: b"key", lease_ms: 3_600_000, ..Acquire::default() };
    rig.ask(held, 2, &Request::Acquire(acquire));
    let frozen = rig.open(b"frozen", NamespaceKind::Flat);
    rig.ask(frozen, 2, &Request::Freeze(Freeze { prefix: b"p", thaw: false, ..Freeze::default() }));
    let pool = rig.open(b"pool", NamespaceKind::Pool);
    rig.ask(
        pool,
        2,
        &Request::SetCapacity(SetCapacity { name: b"p", capacity: 3, ..SetCapacity::default() }),
    );
    let limit = rig.open(b"limit", NamespaceKind::Limit);
    let bucket = Bucket { rate: 1, period_ns: 600_000_000_000, burst: 9, cost: 9, name: b"b" };
    rig.ask(limit, 2, &Request::Throttle(Throttle { bucket, refund: false }));
    for key in [held, frozen, pool, limit] {
        rig.workers[0].handle_lost(key, rig.now);
    }
    let connected = rig.open(b"connected", NamespaceKind::Flat);
    rig.ask(connected, 2, &Request::Inspect(Inspect { key: b"k" }));
    pass_idle_time(&mut rig);
    for name in ["held", "frozen", "pool", "limit", "connected"] {
        assert!(rig.node.find_namespace(name.as_bytes()).is_some(), "{name}");
    }
    rig.now = rig.now.after_ms(2 * 3_600_000);
    rig.workers[0].handle_lost(connected, rig.now);
    pass_idle_time(&mut rig);
    for (name, stays) in [("frozen", true), ("pool", true), ("limit", false), ("connected", false)] {
        assert_eq!(rig.node.find_namespace(name.as_bytes()).is_some(), stays, "{name}");
    }
}

/// Returns the namespaces in a page of the list: the name of each, and the number of claims that are held in it.
fn listed(output: &[u8]) -> Option<Vec<(Vec<u8>, u64)>> {
    let frame = next_frame(output, FRAME_LEN_MAX).expect("a frame")?;
    let Ok(Response::NamespacesListed(page)) = Response::decode(frame) else { panic!("not a page") };
    Some(page.namespaces.iter().map(|listed| (listed.name.to_vec(), listed.held)).collect())
}

#[test]
fn requests_for_a_key_with_many_watches_are_served_in_order_over_turns() {
    const WATCH_COUNT: u32 = 1024;
    const ACQUIRE_COUNT: u32 = 200;
    for worker_count in [1, 2] {
        let mut rig = Rig::new(worker_count);
        let (watcher, asker) =
            (rig.open(b"many", NamespaceKind::Flat), rig.open(b"many", NamespaceKind::Flat));
        for number in 2..2 + WATCH_COUNT {
            rig.ask(watcher, number, &Request::Watch(Watch { key: b"watched" }));
        }
        let shared = Acquire { key: b"watched", shared: true, ..Acquire::default() };
        let acquires = (2..2 + ACQUIRE_COUNT).flat_map(|number| frame(number, &Request::Acquire(shared)));
        rig.say(asker, &acquires.collect::<Vec<_>>());
        let (mut told, mut answered) = (0, Vec::new());
        loop {
            let events = rig.hear(watcher).len();
            assert!(events <= 8 * 1024, "{events} events in one step");
            told += events as u32;
            answered.extend(rig.hear(asker).iter().map(|(number, _)| *number));
            let is_mail_left = rig.workers.iter_mut().any(|worker| worker.handle_mail(rig.now));
            if !is_mail_left && events == 0 {
                break;
            }
        }
        assert_eq!(told, WATCH_COUNT * ACQUIRE_COUNT);
        assert_eq!(answered, (2..2 + ACQUIRE_COUNT).collect::<Vec<_>>());
    }
}

/// Returns the number of holds and waiters in all shards. Each key of a claim counts.
fn claim_count(node: &Node) -> u32 {
    let turns = node.shards.iter().map(|shard| shard.enter().expect("nobody has it"));
    turns
        .map(|turn| {
            let count = turn.shard.claim_count();
            assert!(turn.leave().is_none(), "nobody left a batch");
            count
        })
        .sum()
}

#[test]
fn multi_key_claims_of_a_lost_connection_leave_their_queues_over_turns() {
    const CLAIM_COUNT: u32 = 40;
    const KEY_COUNT: u32 = 64;
    let mut rig = Rig::new(1);
    let names: Vec<_> = (0..KEY_COUNT).map(u32::to_le_bytes).collect();
    let mut buffer = Vec::new();
    let items = names.iter().map(|key| KeyItem { key, shared: false });
    let items = Items::new(items, &mut buffer).expect("they fit");
    let request = AcquireKeys { items, wait_ms: WAIT_FOREVER_MS, ..AcquireKeys::default() };
    let (holder, _) = rig.connect(SessionRequest::None);
    rig.ask(holder, 2, &Request::AcquireKeys(request));
    let (key, _) = rig.connect(SessionRequest::None);
    for number in 0..CLAIM_COUNT {
        assert_eq!(rig.ask(key, 2 + number, &Request::AcquireKeys(request)), []);
    }
    let mut left = claim_count(&rig.node);
    assert_eq!(left, (CLAIM_COUNT + 1) * KEY_COUNT);
    rig.workers[0].handle_lost(key, rig.now);
    loop {
        let before = std::mem::replace(&mut left, claim_count(&rig.node));
        let gone = before - left;
        assert!(gone <= 2 * BATCH_COST_MAX as u32, "{gone} waiters left in one step");
        if !rig.workers[0].handle_mail(rig.now) {
            break;
        }
    }
    assert_eq!(left, KEY_COUNT, "all of them have left");
}

#[test]
fn claims_of_very_many_connections_are_counted_over_turns() {
    const CONNECTION_COUNT: u32 = 10_000;
    for worker_count in [1, 2] {
        let mut rig = Rig::new(worker_count);
        for number in 0..CONNECTION_COUNT {
            let key = rig.open(if number == 0 { b"other" } else { b"many" }, NamespaceKind::Flat);
            let name = number.to_le_bytes();
            rig.ask(key, 2, &Request::Acquire(Acquire { key: &name, ..Acquire::default() }));
        }
        let key = rig.open(b"many", NamespaceKind::Flat);
        rig.say(key, &frame(2, &Request::Namespaces(Namespaces::default())));
        let at_once = rig.take_output(key).expect("the connection is open");
        // Two workers have eight shards, and each shard has a part of the connections.
        assert!(worker_count > 1 || listed(&at_once).is_none(), "one turn counts a part of them");
        while rig.workers.iter_mut().any(|worker| worker.handle_mail(rig.now)) {}
        let later = rig.take_output(key).expect("the connection is open");
        let output = [at_once, later].concat();
        let counted = vec![(b"other".to_vec(), 1), (b"many".to_vec(), u64::from(CONNECTION_COUNT) - 1)];
        assert_eq!(listed(&output), Some(counted));
    }
}

/// Leases begin at many points within a millisecond. The worker checks them ten times in a millisecond, like a
/// driver.
#[test]
fn a_lease_lasts_in_full_and_expires_after_at_most_two_reads() {
    const MILLISECOND_NS: u64 = 1_000_000;
    const STEP_NS: u64 = MILLISECOND_NS / 10;
    const LEASE_MS: u32 = 10;
    let moment = |nanos: u64| Moment::of(nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32);
    for begin in (2_000 * MILLISECOND_NS..2_001 * MILLISECOND_NS).step_by(STEP_NS as usize) {
        let mut rig = Rig::new(1);
        let (key, _) = rig.connect(SessionRequest::None);
        let acquire = Acquire { lease_ms: LEASE_MS, key: b"k", ..Acquire::default() };
        rig.workers[0].handle_bytes(key, &frame(2, &Request::Acquire(acquire)), moment(begin));
        assert!(
            matches!(rig.hear(key)[..], [(2, Heard::Granted(granted))] if granted.remaining_ms == LEASE_MS)
        );
        let mut drain_count = 0;
        let end = (begin..).step_by(STEP_NS as usize).find(|nanos| {
            let worker = &mut rig.workers[0];
            worker.tick(moment(*nanos));
            if worker.wants_drain() {
                drain_count += 1;
                worker.handle_drained(moment(*nanos).passed, moment(*nanos));
            }
            !rig.hear(key).is_empty()
        });
        let lease = end.expect("it ends") - begin;
        let lease_ns = u64::from(LEASE_MS) * MILLISECOND_NS;
        assert!(
            (lease_ns..lease_ns + MILLISECOND_NS).contains(&lease),
            "begun at {begin} ns, {lease} ns long"
        );
        // The worker drains once when the wheel moves the timer closer, and once at the end.
        assert!(drain_count <= 2, "begun at {begin} ns, read {drain_count} times");
    }
}

/// The watch of the lost connection is not answered yet.
#[test]
fn a_watch_repeated_while_memory_is_full_gets_one_answer() {
    let now = Time::from_millis(1_000);
    let memory = Arc::new(MemoryUse::new(Some(1)));
    let mut rig = Rig::of(test_node_with(2, now, Arc::clone(&memory)), now);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"key");
    let watch = Request::Watch(Watch { key: b"key" });
    assert_eq!(rig.ask(key, 2, &watch), []);
    let key = rig.reconnect(key, &welcome);
    memory.note(2);
    let mut heard = rig.ask(key, 2, &watch);
    rig.give_back(turn);
    heard.extend(rig.hear(key));
    assert_eq!(heard, [(2, Heard::Refused(ErrorCode::Cancelled))]);
}
