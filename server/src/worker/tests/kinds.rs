//! Sets, permits and multi-key claims through workers with several shards: every short sequence of three clients, as
//! frames on their connections.
//!
//! The tests of the engine give the same sequences to the shards directly. Both check every effect with the same judge,
//! a simple model of the grant rules. Here a worker also routes each request to its shard, and serves it or leaves it
//! for the worker that has the turn. It then writes the answer as a frame, and keeps it for repetitions.

#[path = "../../../../engine/tests/engine/judge.rs"]
#[allow(dead_code, reason = "the engine's tests do more to the judge")]
mod judge;
#[path = "../../../../engine/tests/engine/short_sequences.rs"]
mod short_sequences;

use self::judge::{Ask, Effect, Judge, Kind};
use self::short_sequences::{
    Act, CAPACITY_OF_A_FEW, CLIENT_COUNT, Enumeration, Menu, Subject, in_every_way, keys_menu, lane_of,
    pool_menu, tree_menu,
};
use super::super::test_node::test_node_with_limits;
use super::*;
use std::collections::BTreeMap;
use waymaker_engine::{
    Answer, CancelReason, ClaimId, Contention, Event, Fence, Grant, KeyGrant, Limits, Refusal, Ticket,
};
use waymaker_protocol as wire;
use waymaker_protocol::{
    AcquirePermits, AcquireSet, AcquireTerms, Cancel, LockId, PathItem, PathKey, PoolOrder, Release,
};

const START: Time = Time::from_millis(1_000);
const WORKER_COUNT: usize = 2;
/// Keys, each in a shard of its own.
const KEYS: [&[u8]; 3] = [b"0", b"1", b"2"];
/// A session with a lease that is longer than the time that passes in any sequence of requests here. So no session
/// expires.
const SESSION: SessionRequest = SessionRequest::New { lease_ms: 600_000 };
/// Maximum number of rounds after one step, in which all workers handle their mail, their timers and the requested
/// readings of their sockets. A test fails if a worker still has work after that.
const LOOKS_MAX: u32 = 1_000;

/// Conditions under which a test runs its sequences of requests. They are the kind of the claims, the shard (if any)
/// whose turn another worker has during each step, and whether clients reconnect and repeat their requests.
#[derive(Clone, Copy, Debug)]
struct Course {
    kind: Kind,
    /// Name whose shard is busy: another worker has its turn during each step, and gives it back after the step.
    busy: Option<&'static [u8]>,
    /// Whether the client of a step loses its connection after it, resumes its session, and repeats all its requests.
    /// Not after steps that an earlier sequence has tested, and not if the client has a waiting acquire.
    repeats: bool,
}

/// One client. It has a session, so that it may repeat its requests.
struct Client {
    worker: usize,
    key: ConnectionKey,
    welcome: Welcome,
    /// All frames that it has received, without the welcomes and the answers to repeated requests.
    heard: Vec<u8>,
    /// Number of bytes of `heard` that the judge, the model of the grant rules, has checked.
    judged_len: usize,
}

/// One step, as workers see it.
#[derive(Clone, Debug)]
enum Line {
    Said { client: usize, bytes: Vec<u8> },
    Until(Time),
}

/// Clients and the workers of one node. Each worker has some of the clients.
struct Crew {
    rig: Rig,
    clients: Vec<Client>,
}

impl Crew {
    fn new(kind: Kind) -> Self {
        let limits = Limits {
            // Keep the maximum number of claims small: each shard of a node allocates memory for so many claims. Each
            // sequence of requests that a test tries begins with a new node.
            claim_count_max: 1 << 13,
            idle_key_count_max: 1 << 13,
            bucket_count_max: 1,
            ..Limits::default()
        };
        let mut crew = Self {
            rig: Rig::of(test_node_with_limits(WORKER_COUNT, START, limits), START),
            clients: Vec::new(),
        };
        for client in 0..CLIENT_COUNT {
            let worker = client % WORKER_COUNT;
            let (key, welcome) = crew.connect(worker, kind, SESSION);
            crew.clients.push(Client { worker, key, welcome, heard: Vec::new(), judged_len: 0 });
        }
        crew
    }

    fn connect(&mut self, worker: usize, kind: Kind, session: SessionRequest) -> (ConnectionKey, Welcome) {
        let Rig { workers, now, .. } = &mut self.rig;
        let worker = &mut workers[worker];
        let key = worker.handle_open(b"peer", *now);
        let kind = match kind {
            Kind::Keys => NamespaceKind::Flat,
            Kind::Tree => NamespaceKind::Tree,
            Kind::Pool { .. } => NamespaceKind::Pool,
        };
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            kind,
            session,
            worker: ANY_WORKER,
            namespace: kind.name().as_bytes(),
            ..Hello::default()
        };
        let next = worker.handle_bytes(key, &frame(1, &Request::Hello(hello)), *now);
        let key = if let Next::Rebound(key) = next { key } else { key };
        let output = worker.output(key).expect("the connection is open").to_vec();
        worker.wrote(key, output.len());
        match heard(&output)[..] {
            [(1, Heard::Welcome(welcome))] => (key, welcome),
            ref other => panic!("expected a welcome, got {other:?}"),
        }
    }

    /// Does one step of a sequence: a client sends a request, or time passes. Lets all workers then handle the mail and
    /// the timers that result. If `busy` is given, another worker has the turn of the shard of this name during the
    /// step, and gives it back afterwards.
    fn run(&mut self, line: &Line, busy: Option<&[u8]>) {
        let turn = busy.map(|name| self.rig.hold_turn(name));
        let worker = match line {
            Line::Said { client, bytes } => {
                self.say(*client, bytes);
                self.clients[*client].worker
            }
            Line::Until(time) => {
                self.rig.now = *time;
                0
            }
        };
        self.settle();
        if let Some(turn) = turn {
            self.rig.node.mailboxes[(worker + 1) % WORKER_COUNT].post(turn);
            self.settle();
        }
    }

    fn say(&mut self, client: usize, bytes: &[u8]) {
        let Client { worker, key, .. } = self.clients[client];
        let next = self.rig.workers[worker].handle_bytes(key, bytes, self.rig.now);
        assert_eq!(next, Next::Continue);
    }

    /// Lets all workers finish the work of this instant, and takes their output.
    fn settle(&mut self) {
        let Rig { workers, now, .. } = &mut self.rig;
        let is_settled = (0..LOOKS_MAX).any(|_| {
            let mut is_idle = true;
            for worker in workers.iter_mut() {
                is_idle &= !worker.handle_mail(*now);
                if worker.next_deadline() <= *now {
                    is_idle = false;
                    worker.tick(*now);
                }
                if worker.wants_drain() {
                    is_idle = false;
                    worker.handle_drained(*now, *now);
                }
            }
            is_idle
        });
        assert!(is_settled, "workers have work after {LOOKS_MAX} looks");
        for client in &mut self.clients {
            let worker = &mut workers[client.worker];
            let output = worker.output(client.key).expect("the connection is open");
            let len = output.len();
            client.heard.extend_from_slice(output);
            worker.wrote(client.key, len);
        }
    }

    /// Ends the connection of a client, and resumes its session on a new connection.
    fn reconnect(&mut self, client: usize, kind: Kind) {
        let Client { worker, key, welcome, .. } = self.clients[client];
        self.rig.workers[worker].handle_lost(key, self.rig.now);
        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        self.clients[client].key = self.connect(worker, kind, resume).0;
    }

    /// Returns the number of holds and waiters in all shards. If `verifies`, also checks the invariants of the shards.
    fn claim_count(&self, verifies: bool) -> usize {
        let count = |cell: &waymaker_engine::TurnCell<crate::node::HostedShard, crate::mail::Batch>| {
            let turn = cell.enter().expect("nobody has it");
            if verifies {
                turn.shard.verify();
            }
            let count = turn.shard.claim_count() as usize;
            assert!(turn.leave().is_none(), "nobody left a batch");
            count
        };
        self.rig.node.shards.iter().map(count).sum()
    }
}

/// A crew of clients and workers, and a judge: a simple model of the grant rules that checks all frames of the clients.
struct Through {
    course: Course,
    judge: Judge,
    crew: Crew,
    /// Number of the last request. No two clients use the same number.
    number: u32,
    asks: BTreeMap<u32, Ask>,
    lines: Vec<Line>,
}

impl Through {
    fn new(course: Course) -> Self {
        Self {
            course,
            judge: Judge::new(course.kind, (0, 0), CAPACITY_OF_A_FEW, false, START.as_millis()),
            crew: Crew::new(course.kind),
            number: 1,
            asks: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// Does a step and judges its effects.
    fn run(&mut self, line: Line, asker: Option<usize>, asked: Option<ClaimId>, is_known: bool) {
        self.crew.run(&line, self.course.busy);
        self.lines.push(line);
        for effect in self.told(asker) {
            self.judge.hear(&effect, asked);
        }
        self.judge.end_step(0, self.crew.claim_count(!is_known));
        if let Some(client) = asker.filter(|_| self.course.repeats && !is_known) {
            self.repeat(client);
        }
    }

    fn advance(&mut self, now: u64, is_known: bool) {
        self.judge.advance(now);
        self.run(Line::Until(Time::from_millis(now)), None, None, is_known);
    }

    /// Returns the effects of a step in a possible order. First the requesting client gets its answer or leases
    /// expire, then waits end, then other clients are granted their claims.
    fn told(&mut self, asker: Option<usize>) -> Vec<Effect> {
        let (mut first, mut then, mut granted) = (Vec::new(), Vec::new(), Vec::new());
        for client in 0..CLIENT_COUNT {
            let Client { heard, judged_len, .. } = &mut self.crew.clients[client];
            let mut bytes = &heard[std::mem::replace(judged_len, heard.len())..];
            while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("frames") {
                let response = Response::decode(frame).expect("a response");
                let effect = effect_of(client, frame.number(), &response, &self.asks, self.crew.rig.now);
                match effect {
                    _ if asker == Some(client) => first.push(effect),
                    Effect::Event(_, Event::Expired { .. }) => first.push(effect),
                    Effect::Answer(_, Answer::Granted(_) | Answer::GrantedMultiKey(_)) => {
                        granted.push(effect);
                    }
                    _ => then.push(effect),
                }
                bytes = &bytes[frame.len()..];
            }
        }
        first.append(&mut then);
        while !granted.is_empty() {
            let is_next = |one: &Effect| {
                let mine = self.fences(one);
                let is_later = |other: &Effect| {
                    self.fences(other)
                        .iter()
                        .all(|(key, fence)| mine.get(key).is_none_or(|mine| mine <= fence))
                };
                granted.iter().all(is_later)
            };
            let next = granted.iter().position(is_next).expect("fences of one key rise");
            first.push(granted.remove(next));
        }
        first
    }

    /// Returns the fences of a grant, by the name of their counter. All claims of a tree or of a pool have one counter,
    /// here with an empty name.
    fn fences(&self, grant: &Effect) -> BTreeMap<Vec<u8>, u64> {
        match grant {
            Effect::Answer(_, Answer::GrantedMultiKey(keys)) => {
                keys.iter().map(|key| (key.key.to_vec(), key.grant.fence.get())).collect()
            }
            Effect::Answer(ticket, Answer::Granted(grant)) => {
                let is_key = self.course.kind == Kind::Keys;
                let counter = if is_key { self.asks[&ticket.number].items[0].name.clone() } else { vec![] };
                BTreeMap::from([(counter, grant.fence.get())])
            }
            other => panic!("{other:?} is no grant"),
        }
    }

    /// Repeats all requests of a client on a new connection, unless it has a waiting acquire. The client must get the
    /// same answers, and no other effect may follow.
    fn repeat(&mut self, client: usize) {
        if self.judge.live().0.iter().any(|ticket| ticket.lane == lane_of(client)) {
            // The client has a waiting acquire, which would end with the connection. So do not reconnect and repeat the
            // requests of this client: the waiter would be missing in the later steps of the sequence.
            return;
        }
        let asked = self.lines.iter().filter_map(|line| match line {
            Line::Said { client: by, bytes } if *by == client => Some(bytes),
            _ => None,
        });
        let asked: Vec<u8> = asked.flatten().copied().collect();
        let answers = answers(&self.crew.clients[client].heard);
        self.crew.reconnect(client, self.course.kind);
        let heard_len = self.crew.clients[client].heard.len();
        self.crew.say(client, &asked);
        self.crew.settle();
        let heard = self.crew.clients[client].heard.split_off(heard_len);
        assert_eq!(answers_in_order(&heard), answers, "the answers to requests that were repeated");
        for (other, client) in self.crew.clients.iter().enumerate() {
            assert_eq!(client.heard.len(), client.judged_len, "client {other} was told of a repetition");
        }
        self.judge.end_step(0, self.crew.claim_count(true));
    }
}

/// Returns the answers among these frames, by the numbers of their requests.
fn answers(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut answers = answers_in_order(bytes);
    answers.sort_unstable();
    answers
}

fn answers_in_order(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut answers = Vec::new();
    while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("frames") {
        if !matches!(Response::decode(frame), Ok(Response::Event(_))) {
            answers.push((frame.number(), frame.bytes().to_vec()));
        }
        bytes = &bytes[frame.len()..];
    }
    answers
}

impl Subject for Through {
    fn judge(&self) -> &Judge {
        &self.judge
    }

    fn act(&mut self, act: &Act, is_known: bool) {
        self.number += 1;
        let number = self.number;
        let (client, asked, bytes) = match act {
            Act::Advance { millis } => {
                let target = self.crew.rig.now.as_millis() + millis;
                while let Some(next) = self.judge.next_end().filter(|next| *next < target) {
                    self.advance(next, is_known);
                }
                return self.advance(target, is_known);
            }
            Act::Acquire { client, ask } => {
                self.judge.ask(Ticket { lane: lane_of(*client), number }, ask);
                self.asks.insert(number, ask.clone());
                (*client, None, acquire_frame(self.course.kind, number, ask))
            }
            Act::Release { client, id } => {
                let release = Release { id: lock_id(*id), key: None, own: false };
                (*client, Some(*id), frame(number, &Request::Release(release)))
            }
            Act::Cancel { ticket } => {
                self.judge.cancel(*ticket);
                let is_tree = self.course.kind == Kind::Tree;
                let key = if is_tree { &b""[..] } else { &self.asks[&ticket.number].items[0].name };
                let cancel = Cancel { acquire_number: ticket.number, key };
                (ticket.lane.slot.index(), None, frame(number, &Request::Cancel(cancel)))
            }
        };
        self.run(Line::Said { client, bytes }, Some(client), asked, is_known);
    }

    /// Repeats the test of a tree or a pool on new workers, with another order of serving: while another worker has the
    /// turn, the requests up to the next advance of the time are left for it, and then all are served at once. Every
    /// client must receive the same frames as before.
    fn finish(&mut self) {
        let Some(name) = self.course.busy.filter(|_| self.course.kind != Kind::Keys) else { return };
        let mut crew = Crew::new(self.course.kind);
        let mut lines = &self.lines[..];
        while !lines.is_empty() {
            let said_count = lines.iter().take_while(|line| matches!(line, Line::Said { .. })).count();
            let (said, rest) = lines.split_at(said_count);
            let turn = crew.rig.hold_turn(name);
            for batch in said.chunk_by(|one, other| client_of(one) == client_of(other)) {
                let bytes: Vec<u8> = batch.iter().flat_map(bytes_of).copied().collect();
                crew.say(client_of(&batch[0]), &bytes);
            }
            crew.settle();
            crew.rig.node.mailboxes[1].post(turn);
            crew.settle();
            lines = rest;
            if let [Line::Until(time), rest @ ..] = lines {
                crew.run(&Line::Until(*time), None);
                lines = rest;
            }
        }
        for (client, (alike, judged)) in crew.clients.iter().zip(&self.crew.clients).enumerate() {
            assert_eq!(show(&alike.heard), show(&judged.heard), "what client {client} hears of all at once");
        }
    }
}

fn client_of(line: &Line) -> usize {
    if let Line::Said { client, .. } = line { *client } else { usize::MAX }
}

fn bytes_of(line: &Line) -> &[u8] {
    if let Line::Said { bytes, .. } = line { bytes } else { &[] }
}

/// Returns frames as text, to compare them and to show differences.
fn show(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(frame) = next_frame(bytes, FRAME_LEN_MAX).expect("frames") {
        all.push(format!("{}: {:?}", frame.number(), Response::decode(frame)));
        bytes = &bytes[frame.len()..];
    }
    all
}

fn acquire_frame(kind: Kind, number: u32, ask: &Ask) -> Vec<u8> {
    let Ask { items, lease_ms, wait_ms, .. } = ask;
    let (lease_ms, wait_ms, notify_queued, mut buffer) = (*lease_ms, *wait_ms, true, Vec::new());
    match kind {
        Kind::Keys if ask.is_multi_key => {
            // Clients list the keys in any order.
            let keys = items.iter().rev().map(|item| KeyItem { shared: item.shared, key: &item.name });
            let items = Items::new(keys, &mut buffer).expect("keys");
            let acquire = AcquireKeys {
                items,
                terms: AcquireTerms { lease_ms, wait_ms, notify_queued, ..AcquireTerms::default() },
            };
            frame(number, &Request::AcquireKeys(acquire))
        }
        Kind::Keys => {
            let (key, shared) = (&items[0].name, items[0].shared);
            let acquire = Acquire {
                key,
                shared,
                terms: AcquireTerms { lease_ms, wait_ms, notify_queued, ..AcquireTerms::default() },
            };
            frame(number, &Request::Acquire(acquire))
        }
        Kind::Tree => {
            let path = |name: &[u8]| name.iter().flat_map(|letter| [1, 0, *letter]).collect::<Vec<u8>>();
            let paths: Vec<Vec<u8>> = items.iter().map(|item| path(&item.name)).collect();
            let paths = items.iter().zip(&paths).map(|(item, path)| PathItem {
                write: !item.shared,
                path: PathKey::new(path).expect("a path"),
            });
            let items = Items::new(paths, &mut buffer).expect("paths");
            let acquire = AcquireSet {
                items,
                terms: AcquireTerms { lease_ms, wait_ms, notify_queued, ..AcquireTerms::default() },
            };
            frame(number, &Request::AcquireSet(acquire))
        }
        Kind::Pool { by_time } => frame(
            number,
            &Request::AcquirePermits(AcquirePermits {
                capacity: CAPACITY_OF_A_FEW,
                permits: ask.permits,
                order: if by_time { PoolOrder::Timestamp } else { PoolOrder::Arrival },
                timestamp_us: if by_time { ask.timestamp_us } else { 0 },
                name: &items[0].name,
                terms: AcquireTerms { lease_ms, wait_ms, notify_queued, ..AcquireTerms::default() },
                ..AcquirePermits::default()
            }),
        ),
    }
}

fn lock_id(id: ClaimId) -> LockId {
    LockId { place: id.place, secret: id.secret }
}

fn claim_id(id: LockId) -> ClaimId {
    ClaimId { place: id.place, secret: id.secret }
}

/// Converts a frame back to the effect of the engine.
fn effect_of(
    client: usize,
    number: u32,
    response: &Response<'_>,
    asks: &BTreeMap<u32, Ask>,
    now: Time,
) -> Effect {
    let lane = lane_of(client);
    let answer = match response {
        Response::Granted(granted) => {
            assert_eq!(granted.stamp_ms, now.as_millis(), "the time of a grant");
            let wire::Granted { fence, remaining_ms, clamped, waited, repeated, session_lease, .. } =
                *granted;
            let id = claim_id(granted.id);
            Answer::Granted(Grant {
                id,
                fence: Fence::new(fence),
                remaining_ms,
                clamped,
                waited,
                repeated,
                session_lease,
            })
        }
        Response::GrantedKeys(granted) => {
            assert_eq!(granted.stamp_ms, now.as_millis(), "the time of a grant");
            let wanted = asks[&number].items.iter().map(|item| (&item.name[..], item.shared));
            assert!(
                granted.keys.iter().map(|key| (key.key, key.shared)).eq(wanted),
                "other keys: {granted:?}"
            );
            let keys = granted.keys.iter().map(|key| KeyGrant {
                grant: Grant {
                    id: claim_id(key.id),
                    fence: Fence::new(key.fence),
                    remaining_ms: key.remaining_ms,
                    clamped: granted.clamped,
                    waited: granted.waited,
                    repeated: granted.repeated,
                    session_lease: granted.session_lease,
                },
                shared: key.shared,
                key: key.key.into(),
            });
            Answer::GrantedMultiKey(keys.collect())
        }
        Response::Released(released) => Answer::Released { was_waiting: released.was_waiting },
        Response::Cancelled(cancelled) => Answer::Cancelled { was_waiting: cancelled.was_waiting },
        Response::Error(error) => Answer::Refused(refusal_of(error)),
        Response::Event(wire::Event::Queued { id, position, ticket }) => {
            let (id, position, ticket) = (claim_id(*id), *position, *ticket);
            return Effect::Event(lane, Event::Queued { number, id, position, ticket });
        }
        Response::Event(wire::Event::Expired { id }) => {
            return Effect::Event(lane, Event::Expired { id: claim_id(*id) });
        }
        other => panic!("client {client} did not ask for {other:?}"),
    };
    Effect::Answer(Ticket { lane, number }, answer)
}

fn refusal_of(error: &wire::ErrorAnswer<'_>) -> Refusal {
    let contention = |theirs: wire::Contention<'_>| {
        Box::new(Contention {
            held: theirs.held,
            shared: theirs.shared,
            age_ms: theirs.age_ms,
            remaining_ms: theirs.remaining_ms,
            waiter_count: theirs.waiter_count,
            owner: theirs.owner.into(),
        })
    };
    let asked = wire::CancelReason::Asked.number();
    match (error.code, error.detail) {
        (ErrorCode::Busy, wire::ErrorDetail::Contention(theirs)) => Refusal::Busy(contention(theirs)),
        (ErrorCode::Timeout, wire::ErrorDetail::Contention(theirs)) => Refusal::Timeout(contention(theirs)),
        (ErrorCode::NotFound, _) => Refusal::NotFound,
        (ErrorCode::Cancelled, wire::ErrorDetail::Text { value, .. }) if value == asked => {
            Refusal::Cancelled(CancelReason::Asked)
        }
        _ => panic!("refused for {error:?}"),
    }
}

/// Runs all sequences of `steps` steps, unless `WAYMAKER_DEPTH` sets another number.
fn enumerate(course: Course, menu: Vec<Ask>, steps: usize) {
    let depth = std::env::var("WAYMAKER_DEPTH").ok().and_then(|depth| depth.parse().ok());
    Enumeration::new(|| Through::new(course), menu, depth.unwrap_or(steps)).run();
}

/// Enumerates three menus: sequences of 5 steps of a few requests that wait without limit; of 4 steps of the same
/// requests with no wait, a short wait and an unlimited wait; and of 4 steps of all requests that wait without limit.
fn run_all(course: Course, Menu { few, all }: Menu) {
    for (menu, steps) in [(few.clone(), 5), (in_every_way(&few), 4), (all, 4)] {
        enumerate(course, menu, steps);
    }
}

/// The hash of the namespace's name, here `tree`, selects the one shard that has all paths of the namespace. In each
/// step, another worker has the turn of this shard. So the worker that reads a request leaves it for that worker.
#[test]
fn every_short_sequence_on_a_small_tree_follows_the_rule_with_workers() {
    run_all(Course { kind: Kind::Tree, busy: Some(b"tree"), repeats: true }, tree_menu());
}

#[test]
fn every_short_sequence_on_a_small_pool_follows_the_rule_with_workers() {
    for (by_time, steps) in [(false, 5), (true, 4)] {
        let course = Course { kind: Kind::Pool { by_time }, busy: Some(b"p"), repeats: true };
        enumerate(course, in_every_way(&pool_menu(by_time)), steps);
    }
}

/// Each key is in a shard of its own. In each step, another worker has the turn of the shard of one key, or of no
/// shard.
#[test]
fn every_short_sequence_on_several_keys_follows_the_rule_with_workers() {
    let node = test_node(WORKER_COUNT, START);
    let mut shards = KEYS.map(|key| node.shard_of_key(key)).to_vec();
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards.len(), KEYS.len(), "the keys are in different shards");
    for busy in [None, Some(KEYS[0]), Some(KEYS[1])] {
        run_all(Course { kind: Kind::Keys, busy, repeats: busy.is_none() }, keys_menu());
    }
}
