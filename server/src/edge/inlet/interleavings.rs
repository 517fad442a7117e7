//! Random interleavings of front-end actions on inlets: follow an acquire, drop it, repeat it under its request id,
//! send another request. Every listener must get only the events of its own hold.

use super::reply::OPCODE_OFFSET;
use super::{InletState, Reply, greet};
use crate::mail::Mail;
use crate::node::Node;
use crate::worker::test_node::test_node;
use crate::worker::{Client, Worker};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use waymaker_engine::Time;
use waymaker_protocol::limits::{ANY_WORKER, IN_FLIGHT_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, CancelReason, ErrorAnswer, ErrorCode, ErrorDetail, Event, Extend,
    Hello, Inspect, LockId, Release, Request, Response, SessionRequest, Status, VERSION,
};

const WORKER_COUNT: usize = 2;
const INLET_COUNT: usize = 3;
/// Index of the inlet that sends only requests with one answer. The test sends no acquire on it whose later events it
/// checks.
const QUESTIONS: usize = 0;
const KEYS: [&[u8]; 2] = [b"left", b"right"];
const REQUEST_IDS: [&[u8]; 2] = [b"first", b"second"];
const STEPS_PER_RUN: usize = 400;
const RUN_COUNT: u64 = 150;

/// A request to which the front end still listens.
#[derive(Debug)]
struct Listener {
    inlet: usize,
    number: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A request with this opcode, whose one answer the front end awaits. The opcode is 0 once the front end has read
    /// the answer.
    Request {
        opcode: u8,
    },
    Followed(Following),
}

/// An acquire whose answer and events a front end gets until its hold ends. `queued`, `granted` and `is_over` tell what
/// the front end has heard so far.
#[derive(Debug)]
struct Following {
    key: usize,
    request_id: Option<usize>,
    queued: Option<LockId>,
    granted: Option<LockId>,
    is_over: bool,
}

impl Following {
    /// Returns the hold, if the client of the front end believes that it holds the lock.
    fn believes(&self) -> Option<LockId> {
        self.granted.filter(|_| !self.is_over)
    }

    /// Checks a reply to this acquire: it must be about the acquire's own claim, and must not repeat the grant or
    /// follow the end. Records in the fields whether the claim is queued, granted or over.
    fn hear(&mut self, reply: &Reply) {
        assert!(!self.is_over, "{reply:?} after the end of {self:?}");
        match reply.response() {
            Response::Event(Event::Queued { id, .. }) => {
                assert_eq!((self.queued, self.granted), (None, None), "queued once, and before the grant");
                self.queued = Some(id);
            }
            Response::Granted(granted) => {
                assert_eq!(self.granted, None, "granted once");
                assert!(self.queued.is_none_or(|id| id == granted.id), "queued as another claim: {self:?}");
                assert!(!granted.repeated || self.request_id.is_some(), "repeated without a request id");
                self.granted = Some(granted.id);
            }
            Response::Event(
                Event::Expired { id }
                | Event::Revoked { id, .. }
                | Event::TakenUp { id }
                | Event::LeaseMoved { id, .. },
            ) => {
                assert_eq!(self.granted, Some(id), "an event of another hold: {self:?}");
                self.is_over = reply.0[OPCODE_OFFSET] != opcode::LEASE_MOVED;
            }
            Response::Error(error) => {
                assert_eq!(self.granted, None, "{error:?} after the grant");
                // Do not expect `CancelReason::Asked`: front ends cancel a request only after its listener has left.
                let is_expected = match error {
                    ErrorAnswer {
                        code: ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::Overloaded,
                        ..
                    } => true,
                    ErrorAnswer { code: ErrorCode::Cancelled, detail: ErrorDetail::Text { value, .. } } => {
                        value != CancelReason::Asked.number()
                    }
                    _ => false,
                };
                assert!(is_expected, "{error:?} for {self:?}");
                self.is_over = true;
            }
            other => panic!("{other:?} for {self:?}"),
        }
    }
}

struct World {
    node: Arc<Node>,
    workers: Vec<Worker>,
    inlets: Vec<InletState>,
    listeners: Vec<Listener>,
    /// Turns of shards that the test has taken. Until the test returns a turn, the workers cannot serve requests for
    /// keys of its shard. They answer these requests afterwards.
    kept_turns: Vec<Mail>,
    /// Holds of whose grant a listener has heard, with their keys. A hold may occur several times.
    known: Vec<(LockId, usize)>,
    now: Time,
    random: StdRng,
}

fn worker_of(inlet: usize) -> usize {
    inlet % WORKER_COUNT
}

pub(super) fn open(worker: &mut Worker, now: Time) -> InletState {
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        session: SessionRequest::None,
        worker: ANY_WORKER,
        namespace: b"default",
        owner: b"app",
        notify_taken_up: true,
        ..Hello::default()
    };
    let (key, welcome) = greet(worker, &hello, Client::default(), now.into());
    assert!(!welcome.is_empty(), "the lane is open");
    InletState::new(key)
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Time::from_millis(1_000);
        let node = test_node(WORKER_COUNT, now);
        let mut workers: Vec<Worker> =
            (0..WORKER_COUNT).map(|index| Worker::new(Arc::clone(&node), index as u16, now)).collect();
        let inlets = (0..INLET_COUNT).map(|inlet| open(&mut workers[worker_of(inlet)], now)).collect();
        Self {
            node,
            workers,
            inlets,
            listeners: Vec::new(),
            kept_turns: Vec::new(),
            known: Vec::new(),
            now,
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.random_range(0..count)
    }

    fn step(&mut self) {
        if self.pick(300) == 0 {
            self.flood();
        }
        match self.pick(10) {
            0..4 => self.follow(),
            4 => self.ask(),
            5 | 6 => self.leave(),
            7 => self.keep_turn(),
            8 => self.give_back(),
            _ => self.pass_time(),
        }
        self.deliver();
        for listener in 0..self.listeners.len() {
            // Leave some replies for a later step, as a slow front end does.
            if self.random.random_range(0..4) > 0 {
                self.listen(listener);
            }
        }
        self.forget_ended();
    }

    /// Sends a request and returns its opcode.
    fn send(&mut self, inlet: usize, number: u32, request: &Request<'_>) -> u8 {
        let mut frame = Vec::new();
        request.encode(number, &mut frame);
        self.inlets[inlet].send(&mut self.workers[worker_of(inlet)], number, &frame, self.now.into());
        frame[OPCODE_OFFSET]
    }

    fn follow(&mut self) {
        let inlet = QUESTIONS + 1 + self.pick(INLET_COUNT - 1);
        let key = self.pick(KEYS.len());
        let request_id = (self.pick(4) > 0).then(|| self.pick(REQUEST_IDS.len()));
        let acquire = Acquire {
            key: KEYS[key],
            terms: AcquireTerms {
                lease_ms: [200, 60_000][self.pick(2)],
                wait_ms: [0, 300, WAIT_FOREVER_MS][self.pick(3)],
                notify_queued: true,
                options: AcquireOptions {
                    request_id: request_id.map(|id| REQUEST_IDS[id]),
                    ..AcquireOptions::default()
                },
                ..AcquireTerms::default()
            },
            ..Acquire::default()
        };
        let number = self.inlets[inlet].begin_followed();
        let following = Following { key, request_id, queued: None, granted: None, is_over: false };
        self.listeners.push(Listener { inlet, number, kind: Kind::Followed(following) });
        self.send(inlet, number, &Request::Acquire(acquire));
    }

    /// Sends a request with one answer, for a known hold if there is one.
    ///
    /// Only the inlet `QUESTIONS` extends and releases holds. The worker sends the lane that extends or releases a hold
    /// only the answer, and no event of the hold. An acquire of the same lane that expects events of its hold would
    /// miss its end.
    fn ask(&mut self) {
        let any_inlet = self.pick(INLET_COUNT);
        let known = self.known.len().min(6);
        let (inlet, request) = if known == 0 {
            (any_inlet, Request::Inspect(Inspect { key: KEYS[0] }))
        } else {
            let newest = self.pick(known) + 1;
            let (id, key) = self.known[self.known.len() - newest];
            let key = Some(KEYS[key]);
            match self.pick(3) {
                0 => (any_inlet, Request::Status(Status { id, key })),
                1 => (QUESTIONS, Request::Extend(Extend { id, key, lease_ms: 30_000, own: false })),
                _ => (QUESTIONS, Request::Release(Release { id, key, own: false })),
            }
        };
        let number = self.inlets[inlet].begin_asked();
        let opcode = self.send(inlet, number, &request);
        self.listeners.push(Listener { inlet, number, kind: Kind::Request { opcode } });
    }

    /// Lets a client end one of its streams or calls.
    fn leave(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        let index = self.pick(self.listeners.len());
        let Listener { inlet, number, kind } = self.listeners.swap_remove(index);
        let cancel_key = match &kind {
            Kind::Request { .. } => None,
            Kind::Followed(following) => following.granted.is_none().then_some(KEYS[following.key]),
        };
        self.inlets[inlet].leave(&mut self.workers[worker_of(inlet)], number, cancel_key, self.now.into());
    }

    /// Sends the maximum number of requests in flight on one inlet. If their shard's turn is kept, none of them is
    /// served, and the worker refuses cancellations of the inlet.
    fn flood(&mut self) {
        self.keep_turn();
        let inlet = self.pick(INLET_COUNT);
        for _ in 0..IN_FLIGHT_MAX {
            let number = self.inlets[inlet].begin_asked();
            let opcode = self.send(inlet, number, &Request::Inspect(Inspect { key: KEYS[0] }));
            self.listeners.push(Listener { inlet, number, kind: Kind::Request { opcode } });
        }
    }

    fn keep_turn(&mut self) {
        let key = self.pick(KEYS.len());
        let shard = self.node.shard_of_key(KEYS[key]);
        if let Some(turn) = self.node.shards[usize::from(shard)].enter() {
            self.kept_turns.push(Mail::Turn { shard, pass: turn.pass_on() });
        }
    }

    fn give_back(&mut self) {
        if self.kept_turns.is_empty() {
            return;
        }
        let index = self.pick(self.kept_turns.len());
        let turn = self.kept_turns.swap_remove(index);
        let worker = self.pick(WORKER_COUNT);
        self.node.mailboxes[worker].post(turn);
        self.workers[worker].handle_mail(self.now);
    }

    fn pass_time(&mut self) {
        self.now = self.now.after_ms(self.random.random_range(1..150));
        // Report that all workers have read their sockets, because a lease ends only afterwards.
        self.workers.iter_mut().for_each(|worker| worker.handle_drained(self.now, self.now));
        self.workers.iter_mut().for_each(|worker| worker.tick(self.now));
    }

    /// Lets the workers read their mail and the inlets process their output, until there is no more.
    fn deliver(&mut self) {
        loop {
            let mut any = false;
            for worker in &mut self.workers {
                any |= worker.handle_mail(self.now);
            }
            for index in 0..INLET_COUNT {
                let (inlet, worker) = (&mut self.inlets[index], &mut self.workers[worker_of(index)]);
                inlet.take_output(worker);
            }
            if !any {
                return;
            }
        }
    }

    /// Lets a front end take its replies.
    fn listen(&mut self, index: usize) {
        let Listener { inlet, number, kind } = &mut self.listeners[index];
        let inlet = &mut self.inlets[*inlet];
        let context = &mut Context::from_waker(Waker::noop());
        match kind {
            Kind::Request { opcode } => {
                if let Poll::Ready(reply) = inlet.poll_answer(*number, context) {
                    let answer = reply.expect("the lane is open").0[OPCODE_OFFSET];
                    let is_its_own = answer == *opcode | opcode::ANSWER || answer == opcode::ERROR;
                    assert!(is_its_own, "{answer:#x} answers {opcode:#x}");
                    *opcode = 0;
                }
            }
            Kind::Followed(following) => {
                while !following.is_over
                    && let Poll::Ready(reply) = inlet.poll_reply(*number, context)
                {
                    following.hear(&reply.expect("the lane is open"));
                    if let Some(id) = following.granted {
                        self.known.push((id, following.key));
                    }
                }
            }
        }
    }

    /// Removes the followed requests that have ended, as the streams of a front end do. Also removes the requests whose
    /// one answer was read; the inlet has freed their numbers already.
    fn forget_ended(&mut self) {
        let mut index = 0;
        while index < self.listeners.len() {
            let Listener { inlet, number, kind } = &self.listeners[index];
            match kind {
                Kind::Request { opcode: 0 } => drop(self.listeners.swap_remove(index)),
                Kind::Followed(Following { is_over: true, .. }) => {
                    let worker = &mut self.workers[worker_of(*inlet)];
                    self.inlets[*inlet].leave(worker, *number, None, self.now.into());
                    self.listeners.swap_remove(index);
                }
                _ => index += 1,
            }
        }
    }

    /// Gives back all shard turns that the test kept, and delivers all mail to the workers and all replies to the
    /// listeners. Then each listener that believes that it holds a lock must hold it, and each listener that waits must
    /// be in the queue.
    fn settle(&mut self) {
        while !self.kept_turns.is_empty() {
            self.give_back();
        }
        for _ in 0..4 {
            self.pass_time();
            self.deliver();
            (0..self.listeners.len()).for_each(|listener| self.listen(listener));
            self.forget_ended();
        }
        let mut believers: BTreeMap<usize, Vec<LockId>> = BTreeMap::new();
        let mut waiting = [0; KEYS.len()];
        for Listener { kind, .. } in &self.listeners {
            let Kind::Followed(following) = kind else { panic!("not answered: {kind:?}") };
            match following.believes() {
                Some(id) => believers.entry(following.key).or_default().push(id),
                None => waiting[following.key] += 1,
            }
        }
        for (key, name) in KEYS.iter().enumerate() {
            let (holder, waiter_count) = self.inspect(name);
            let believed = believers.remove(&key).unwrap_or_default();
            assert!(believed.len() <= 1, "{} believe in {key}", believed.len());
            if let Some(id) = believed.first() {
                assert_eq!(holder, Some(*id), "somebody else has {key}");
            }
            assert_eq!(waiter_count, waiting[key], "waiters of {key}");
        }
    }

    /// Returns the holder of a key, and the number of its waiters.
    fn inspect(&mut self, key: &[u8]) -> (Option<LockId>, u32) {
        let number = self.inlets[0].begin_asked();
        self.send(0, number, &Request::Inspect(Inspect { key }));
        self.deliver();
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Some(reply)) = self.inlets[0].poll_answer(number, context) else {
            panic!("no answer")
        };
        let Response::Inspected(inspected) = reply.response() else { panic!("{reply:?}") };
        (inspected.holders.first().map(|holder| holder.id), inspected.waiter_count)
    }
}

#[test]
fn every_listener_gets_events_of_its_own_hold_only() {
    for seed in 0..RUN_COUNT {
        let mut world = World::new(seed);
        let run = std::panic::AssertUnwindSafe(|| {
            (0..STEPS_PER_RUN).for_each(|_| world.step());
            world.settle();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A front end drops the answer to an acquire before its client has received the grant.
#[test]
fn an_immediate_grant_whose_answer_is_not_read_is_released() {
    let now = Time::from_millis(1_000);
    let mut worker = Worker::new(test_node(1, now), 0, now);
    let mut inlet = open(&mut worker, now);
    let try_it = |worker: &mut Worker, inlet: &mut InletState| {
        let number = inlet.begin_asked();
        let mut frame = Vec::new();
        Acquire {
            key: KEYS[0],
            terms: AcquireTerms { lease_ms: 1_000, ..AcquireTerms::default() },
            ..Acquire::default()
        }
        .encode(number, &mut frame);
        inlet.send(worker, number, &frame, now.into())
    };
    let sent = try_it(&mut worker, &mut inlet);
    super::Listener::new(Some(sent), Some(KEYS[0])).leave(&mut inlet, &mut worker, now.into());
    let sent = try_it(&mut worker, &mut inlet);
    let context = &mut Context::from_waker(Waker::noop());
    let mut second = super::Listener::new(Some(sent), Some(KEYS[0]));
    let Poll::Ready(Some(reply)) = second.poll_answer(&mut inlet, context) else { panic!("no answer") };
    assert!(matches!(reply.response(), Response::Granted(_)), "{reply:?}");
}
