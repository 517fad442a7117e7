//! One client against a model of the server, over a network that delays and breaks, in virtual time.
//!
//! Every millisecond it is checked that what a guard says is held, the server holds: whatever was delayed, cut,
//! repeated, renewed, shortened or stolen in between. At the end the network is healed and everything that was asked
//! for must be answered, and nothing may be left on the server that no guard stands for. Many acquires have the request id of
//! another one, so a hold is often granted twice; one guard at a time may believe in it.
//!
//! The seed decides everything and is printed when a run fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use tokio::sync::{mpsc, oneshot};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    Acquire, AcquireKeys, Cancelled, ErrorAnswer, ErrorDetail, Event, Extended, Farewell, Granted,
    GrantedKey, GrantedKeys, KeptAlive, Listed, ListedLock, LockId, LockState, Released, Request,
    RevokeReason, SessionId, StatusAnswer, next_frame,
};

use super::tests::{StoppedClock, at};
use super::*;
use crate::claim::{Claim, Lease, Wanted, WantedKey};
use crate::clock::Clock;
use crate::hold::Key;
use crate::job::AcquireJob;
use crate::lock::Lock;

const SEED_COUNT: u64 = 150;
const KEY_COUNT: u32 = 3;
/// Small, so that the window is often full and numbers often become too old.
const IN_FLIGHT_MAX: u32 = 16;
const SESSION_LEASE_MS: u64 = 3_000;
/// The clocks differ by this and drift apart by one part in two thousand.
const SKEW_MS: u64 = 7_777;
const FAULTS_MS: u64 = 40_000;
const END_MS: u64 = 100_000;

/// A small generator, so that a seed means the same for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }

    fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Bytes on their way, in order. `cut` is when the connection breaks for the receiving side.
#[derive(Default)]
struct Pipe {
    messages: VecDeque<(u64, Vec<u8>)>,
}

impl Pipe {
    fn send(&mut self, now: u64, delay: u64, bytes: Vec<u8>) {
        let earliest = self.messages.back().map_or(0, |(at, _)| *at);
        self.messages.push_back((earliest.max(now + delay), bytes));
    }

    fn receive(&mut self, now: u64) -> Option<Vec<u8>> {
        (self.messages.front()?.0 <= now).then(|| self.messages.pop_front()).flatten().map(|(_, bytes)| bytes)
    }
}

struct Hold {
    key: Vec<u8>,
    /// `None`: the session's.
    own_end: Option<u64>,
    release_after: Option<u64>,
    /// When it ends because its connection was lost.
    abandoned_at: Option<u64>,
    session: u64,
    /// Number of the acquire that has it.
    number: u32,
}

struct Waiter {
    place: u64,
    session: u64,
    number: u32,
    lease_ms: u32,
    session_lease: bool,
    release_after: Option<u64>,
    /// More than one if all are wanted in one step.
    keys: Vec<Vec<u8>>,
    /// By which its holds, or its place in the queue, are found again.
    request_id: Option<Vec<u8>>,
}

#[derive(Default)]
struct SessionState {
    end: u64,
    answers: BTreeMap<u32, Vec<u8>>,
}

/// What a server promises, in the simplest way that keeps it. Exclusive claims only, on one key or on two.
#[derive(Default)]
struct Server {
    now: u64,
    sessions: BTreeMap<u64, SessionState>,
    session_last: u64,
    holds: BTreeMap<u64, Hold>,
    hold_last: u64,
    waiters: VecDeque<Waiter>,
    fences: BTreeMap<Vec<u8>, u64>,
    /// The holds of claims, by their request ids.
    named: BTreeMap<Vec<u8>, Vec<u64>>,
    /// The session of the one connection there is.
    bound: Option<u64>,
    out: Vec<u8>,
}

fn id(place: u64) -> LockId {
    LockId { place, secret: 9 }
}

/// Returns one bit for each of these keys, of which `KEY_COUNT` exist.
fn bits<'a>(keys: impl IntoIterator<Item = &'a Vec<u8>>) -> u32 {
    keys.into_iter().fold(0, |bits, key| bits | 1 << (key[1] - b'0'))
}

fn refusal(code: ErrorCode) -> Response<'static> {
    let detail = match code {
        ErrorCode::Busy => ErrorDetail::Contention(waymaker_protocol::Contention::default()),
        _ => ErrorDetail::Text { value: 0, field: b"", message: b"" },
    };
    Response::Error(ErrorAnswer { code, detail })
}

impl Server {
    fn stamp_ms(&self) -> u64 {
        self.now
    }

    fn push(&mut self, event: Event<'_>) {
        if self.bound.is_some() {
            Response::Event(event).encode(0, &mut self.out);
        }
    }

    /// Answers a request of the bound session, and remembers the answer if a repetition must get it again.
    fn answer(&mut self, session: u64, number: u32, response: &Response<'_>, remember: bool) {
        let mut bytes = Vec::new();
        response.encode(number, &mut bytes);
        if self.bound == Some(session) {
            self.out.extend_from_slice(&bytes);
        }
        if remember && let Some(state) = self.sessions.get_mut(&session) {
            state.answers.insert(number, bytes);
        }
    }

    fn disconnect(&mut self) {
        let Some(session) = self.bound.take() else { return };
        self.out.clear();
        // They left the queue; a repetition is a new attempt, so nothing is remembered.
        self.waiters.retain(|waiter| waiter.session != session);
        for hold in self.holds.values_mut().filter(|hold| hold.session == session) {
            hold.abandoned_at = hold.release_after.map(|delay| self.now + delay);
        }
        self.grant_waiters();
    }

    /// Binds a new connection, and says how it went.
    fn hello(&mut self, request: SessionRequest) {
        self.disconnect();
        let (session, resumed) = match request {
            SessionRequest::Resume { id, .. } => match self.sessions.contains_key(&id.place) {
                true => (id.place, true),
                false => return refusal(ErrorCode::SessionGone).encode(0, &mut self.out),
            },
            _ => {
                self.session_last += 1;
                (self.session_last, false)
            }
        };
        self.bound = Some(session);
        self.sessions.entry(session).or_default().end = self.now + SESSION_LEASE_MS;
        for hold in self.holds.values_mut().filter(|hold| hold.session == session) {
            hold.abandoned_at = None;
        }
        let welcome = Welcome {
            session_id: SessionId { place: session, secret: 1 },
            session_lease_ms: SESSION_LEASE_MS as u32,
            stamp_ms: self.stamp_ms(),
            lease_default_ms: 30_000,
            lease_min_ms: 10,
            lease_max_ms: 86_400_000,
            in_flight_max: IN_FLIGHT_MAX,
            resumed,
            ..Welcome::default()
        };
        Response::Welcome(welcome).encode(0, &mut self.out);
    }

    fn handle(&mut self, number: u32, request: &Request<'_>) {
        let Some(session) = self.bound else { return };
        let Some(state) = self.sessions.get_mut(&session) else { return };
        state.end = self.now + SESSION_LEASE_MS;
        let highest = state.answers.last_key_value().map_or(0, |(number, _)| *number).max(number);
        state.answers.retain(|number, _| number + IN_FLIGHT_MAX > highest);
        if let Some(bytes) = state.answers.get(&number) {
            self.out.extend_from_slice(bytes);
            return;
        }
        let stamp_ms = self.now;
        let (response, remember) = match request {
            Request::Acquire(acquire) => return self.acquire(session, number, acquire),
            Request::AcquireKeys(acquire) => return self.acquire_keys(session, number, acquire),
            Request::Release(release) => match self.holds.remove(&release.id.place) {
                Some(_) => (Response::Released(Released::default()), true),
                None => (refusal(ErrorCode::NotFound), true),
            },
            Request::Extend(extend) => match self.holds.get_mut(&extend.id.place) {
                Some(hold) if hold.own_end.is_some() => {
                    hold.own_end = Some(self.now + u64::from(extend.lease_ms));
                    let remaining_ms = extend.lease_ms;
                    (Response::Extended(Extended { remaining_ms, stamp_ms, clamped: false }), true)
                }
                Some(_) => (refusal(ErrorCode::BadInput), true),
                None => (refusal(ErrorCode::NotFound), true),
            },
            Request::Status(status) => match self.holds.get(&status.id.place) {
                Some(hold) => {
                    let end = hold.own_end.unwrap_or(self.now + SESSION_LEASE_MS);
                    let answer = StatusAnswer {
                        state: LockState::Held,
                        shared: false,
                        session_lease: hold.own_end.is_none(),
                        fence: 1,
                        remaining_ms: (end - self.now) as u32,
                        age_ms: 0,
                        stamp_ms,
                        priority: 0,
                        waited_ms: 0,
                        key: b"k",
                    };
                    (Response::Status(answer), false)
                }
                None => (refusal(ErrorCode::NotFound), false),
            },
            Request::Cancel(cancel) => {
                let before = self.waiters.len();
                self.waiters
                    .retain(|waiter| waiter.session != session || waiter.number != cancel.acquire_number);
                let was_waiting = self.waiters.len() < before;
                if was_waiting {
                    self.answer(session, cancel.acquire_number, &refusal(ErrorCode::Cancelled), true);
                }
                (Response::Cancelled(Cancelled { was_waiting }), true)
            }
            Request::Holds(holds) => return self.list(session, number, holds.cursor),
            Request::KeepAlive(_) => {
                let remaining_ms = SESSION_LEASE_MS as u32;
                (Response::KeptAlive(KeptAlive { remaining_ms, stamp_ms }), false)
            }
            Request::Goodbye(_) => {
                Response::Farewell(Farewell).encode(number, &mut self.out);
                return self.end_session(session);
            }
            other => unreachable!("{other:?}"),
        };
        self.answer(session, number, &response, remember);
        self.grant_waiters();
    }

    /// Pages of two, in the order of their places.
    fn list(&mut self, session: u64, number: u32, cursor: u64) {
        let mut after = (self.holds.iter())
            .filter(|(place, hold)| hold.session == session && **place > cursor)
            .map(|(place, hold)| (*place, hold.key.clone()));
        let page: Vec<_> = after.by_ref().take(2).collect();
        let next = if after.next().is_some() { page[1].0 } else { 0 };
        let locks =
            page.iter().map(|(place, key)| ListedLock { id: id(*place), key, ..ListedLock::default() });
        let locks = locks.collect();
        self.answer(session, number, &Response::Listed(Listed { next, locks }), false);
    }

    fn acquire(&mut self, session: u64, number: u32, acquire: &Acquire<'_>) {
        let waiter = Waiter {
            place: 0,
            session,
            number,
            lease_ms: acquire.lease_ms,
            session_lease: acquire.session_lease,
            release_after: acquire.options.release_after_ms.map(u64::from),
            keys: vec![acquire.key.to_vec()],
            request_id: acquire.options.request_id.map(<[u8]>::to_vec),
        };
        if !self.is_found_again(&waiter, acquire.notify_queued) {
            self.wait(waiter, acquire.wait_ms, acquire.notify_queued);
        }
    }

    /// Gives a hold, or a place in the queue, to a newer acquire with its request id.
    fn is_found_again(&mut self, newer: &Waiter, notify_queued: bool) -> bool {
        let Some(request_id) = &newer.request_id else { return false };
        let place = self.named.get(request_id).map(|places| places[0]);
        if let Some((place, hold)) = place.and_then(|place| Some((place, self.holds.get_mut(&place)?))) {
            let older = std::mem::replace(&mut hold.number, newer.number);
            let is_here = self.bound == Some(std::mem::replace(&mut hold.session, newer.session));
            hold.abandoned_at = None;
            if is_here {
                Response::Event(Event::TakenUp { id: id(place) }).encode(older, &mut self.out);
            }
            self.answer_single(newer.session, newer.number, place, true);
            return true;
        }
        let waiting = self.waiters.iter_mut().find(|waiter| waiter.request_id == newer.request_id);
        let Some(waiting) = waiting else { return false };
        let older = (waiting.session, std::mem::replace(&mut waiting.number, newer.number));
        waiting.session = newer.session;
        let place = waiting.place;
        self.answer(older.0, older.1, &refusal(ErrorCode::Cancelled), true);
        if notify_queued {
            let event = Event::Queued { id: id(place), position: 0, ticket: 0 };
            self.answer(newer.session, newer.number, &Response::Event(event), false);
        }
        true
    }

    fn acquire_keys(&mut self, session: u64, number: u32, acquire: &AcquireKeys<'_>) {
        let request_id = acquire.options.request_id.unwrap().to_vec();
        let places = self.named.get(&request_id).cloned().unwrap_or_default();
        if !places.is_empty() && places.iter().all(|place| self.holds.contains_key(place)) {
            for place in &places {
                self.holds.get_mut(place).unwrap().session = session;
            }
            return self.answer_keys(session, number, &places, true);
        }
        let waiter = Waiter {
            place: 0,
            session,
            number,
            lease_ms: acquire.lease_ms,
            session_lease: acquire.session_lease,
            release_after: acquire.options.release_after_ms.map(u64::from),
            keys: acquire.items.iter().map(|item| item.key.to_vec()).collect(),
            request_id: Some(request_id),
        };
        self.wait(waiter, acquire.wait_ms, acquire.notify_queued);
    }

    fn wait(&mut self, waiter: Waiter, wait_ms: u32, notify_queued: bool) {
        self.hold_last += 1;
        let (place, session, number) = (self.hold_last, waiter.session, waiter.number);
        self.waiters.push_back(Waiter { place, ..waiter });
        self.grant_waiters();
        let is_it = |waiter: &Waiter| waiter.session == session && waiter.number == number;
        if self.waiters.iter().any(is_it) {
            if wait_ms == 0 {
                self.waiters.retain(|waiter| !is_it(waiter));
                self.answer(session, number, &refusal(ErrorCode::Busy), true);
            } else if notify_queued {
                let event = Event::Queued { id: id(place), position: 0, ticket: 0 };
                self.answer(session, number, &Response::Event(event), false);
            }
        }
    }

    fn grant_waiters(&mut self) {
        // Keys that are held, or wanted by a waiter in front.
        let mut taken = bits(self.holds.values().map(|hold| &hold.key));
        let mut index = 0;
        while let Some(waiter) = self.waiters.get(index).filter(|_| taken.count_ones() < KEY_COUNT) {
            let wanted = bits(&waiter.keys);
            let is_free = taken & wanted == 0;
            taken |= wanted;
            if is_free {
                let waiter = self.waiters.remove(index).unwrap();
                self.grant(waiter);
            } else {
                index += 1;
            }
        }
    }

    fn grant(&mut self, waiter: Waiter) {
        let mut places = Vec::new();
        let is_single = waiter.keys.len() == 1;
        for key in waiter.keys {
            *self.fences.entry(key.clone()).or_default() += 1;
            // Only a single hold keeps the id that its claim had while it waited.
            let place = if is_single {
                waiter.place
            } else {
                self.hold_last += 1;
                self.hold_last
            };
            let hold = Hold {
                key,
                own_end: (!waiter.session_lease).then(|| self.now + u64::from(waiter.lease_ms)),
                release_after: waiter.release_after,
                abandoned_at: None,
                session: waiter.session,
                number: waiter.number,
            };
            self.holds.insert(place, hold);
            places.push(place);
        }
        if let Some(request_id) = waiter.request_id {
            self.named.insert(request_id, places.clone());
            if !is_single {
                return self.answer_keys(waiter.session, waiter.number, &places, false);
            }
        }
        self.answer_single(waiter.session, waiter.number, places[0], false);
    }

    fn answer_single(&mut self, session: u64, number: u32, place: u64, repeated: bool) {
        let hold = &self.holds[&place];
        let granted = Granted {
            id: id(place),
            fence: self.fences[&hold.key],
            remaining_ms: self.remaining_ms(hold),
            stamp_ms: self.stamp_ms(),
            waited: true,
            repeated,
            session_lease: hold.own_end.is_none(),
            ..Granted::default()
        };
        self.answer(session, number, &Response::Granted(granted), true);
    }

    fn answer_keys(&mut self, session: u64, number: u32, places: &[u64], repeated: bool) {
        let held = places.iter().map(|place| (*place, self.holds[place].key.clone()));
        let held: Vec<(u64, Vec<u8>)> = held.collect();
        let granted =
            |(place, key): &'_ (u64, Vec<u8>)| (self.fences[key], self.remaining_ms(&self.holds[place]));
        let numbers: Vec<(u64, u32)> = held.iter().map(granted).collect();
        let keys = (held.iter().zip(numbers))
            .map(|((place, key), (fence, remaining_ms))| GrantedKey {
                id: id(*place),
                fence,
                remaining_ms,
                shared: false,
                key,
            })
            .collect();
        let granted =
            GrantedKeys { stamp_ms: self.now, waited: true, repeated, keys, ..GrantedKeys::default() };
        self.answer(session, number, &Response::GrantedKeys(granted), true);
    }

    /// What is left of a hold. The remaining time of a session is told as of its last frame; it may be shorter.
    fn remaining_ms(&self, hold: &Hold) -> u32 {
        let session_end =
            || self.sessions.get(&hold.session).map_or(self.now + SESSION_LEASE_MS, |state| state.end);
        (hold.own_end.unwrap_or_else(session_end) - self.now) as u32
    }

    fn end_session(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.waiters.retain(|waiter| waiter.session != session);
        self.holds.retain(|_, hold| hold.session != session || hold.own_end.is_some());
        self.grant_waiters();
    }

    fn advance(&mut self, now: u64) {
        self.now = now;
        let ended: Vec<u64> =
            self.sessions.iter().filter(|(_, state)| state.end <= now).map(|(session, _)| *session).collect();
        for session in ended {
            if self.bound == Some(session) {
                self.push(Event::SessionExpired);
            }
            self.end_session(session);
        }
        let over: Vec<(u64, Event<'_>)> = self
            .holds
            .iter()
            .filter_map(|(place, hold)| {
                if hold.own_end.is_some_and(|end| end <= now) {
                    Some((*place, Event::Expired { id: id(*place) }))
                } else if hold.abandoned_at.is_some_and(|end| end <= now) {
                    let reason = RevokeReason::ConnectionLost;
                    Some((*place, Event::Revoked { id: id(*place), reason, message: b"" }))
                } else {
                    None
                }
            })
            .collect();
        for (place, event) in over {
            self.holds.remove(&place);
            self.push(event);
        }
        self.grant_waiters();
    }
}

/// Where the client is with its connection.
#[derive(Clone, Copy)]
enum Wire {
    Up,
    /// Broken; each side has yet to notice, if it says when.
    Broken {
        client_notices: Option<u64>,
        server_notices: Option<u64>,
    },
    /// The hello is on its way to the server, and then the welcome back.
    Greeting {
        sent: BootTime,
        arrives: u64,
        answered: bool,
    },
}

struct Simulation {
    seed: u64,
    random: Random,
    clock: Arc<StoppedClock>,
    session: Session,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    server: Server,
    wire: Wire,
    up: Pipe,
    down: Pipe,
    delay_max: u64,
    answers: Vec<oneshot::Receiver<Result<Vec<Lock>>>>,
    locks: Vec<Lock>,
    /// Holds that somebody else released while there was no connection, with the deadline that the guard had then.
    stolen: BTreeMap<LockId, BootTime>,
    granted_count: u64,
}

/// The server's clock, which is slow or fast.
fn server_time(seed: u64, ms: u64) -> u64 {
    let drift = ms / 2_000;
    if seed.is_multiple_of(2) { ms + SKEW_MS - drift } else { ms + SKEW_MS + drift }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let start = 1_000;
        let clock = Arc::new(StoppedClock(Mutex::new(at(start))));
        let (shared, commands) = Shared::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let common = Arc::new(SharedSession::default());
        common.enter(shared.commands()).unwrap();
        let mut server = Server { now: server_time(seed, start), ..Server::default() };
        server.hello(SessionRequest::New { lease_ms: 0 });
        let hello = std::mem::take(&mut server.out);
        let frame = next_frame(&hello, FRAME_LEN_MAX).unwrap().unwrap();
        let Response::Welcome(welcome) = Response::decode(frame).unwrap() else { panic!() };
        let options = SessionOptions {
            lease_ms: 0,
            outage_max: Duration::from_secs(4),
            request_timeout: Duration::from_secs(4),
        };
        let mut session = Session::new(options, common, Arc::downgrade(&shared), at(start));
        session.request().expect("nobody else opens the session");
        session.handle_welcome(welcome, at(start), at(start));
        Self {
            seed,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            clock,
            session,
            shared,
            commands,
            server,
            wire: Wire::Up,
            up: Pipe::default(),
            down: Pipe::default(),
            delay_max: 1,
            answers: Vec::new(),
            locks: Vec::new(),
            stolen: BTreeMap::new(),
            granted_count: 0,
        }
    }

    fn run(&mut self) {
        for now in 1_001..END_MS {
            *self.clock.0.lock().unwrap() = at(now);
            self.server.advance(server_time(self.seed, now));
            if now < FAULTS_MS {
                self.act(now);
            } else {
                self.wind_down();
            }
            self.move_wire(now);
            self.collect();
            self.check(now);
        }
        assert!(self.answers.is_empty(), "{} acquires were never answered", self.answers.len());
        assert!(self.locks.is_empty());
        assert!(self.server.holds.is_empty(), "holds are left that nobody knows of");
        assert!(self.granted_count > 20, "only {} grants", self.granted_count);
    }

    /// Something that callers or the network do.
    fn act(&mut self, now: u64) {
        if self.random.once_in(40) {
            self.ask();
        }
        if self.random.once_in(60) && !self.answers.is_empty() {
            let index = self.random.below(self.answers.len() as u64) as usize;
            drop(self.answers.swap_remove(index));
        }
        if self.random.once_in(50) && !self.locks.is_empty() {
            let index = self.random.below(self.locks.len() as u64) as usize;
            drop(self.locks.swap_remove(index));
        }
        if self.random.once_in(200) && !self.locks.is_empty() {
            let index = self.random.below(self.locks.len() as u64) as usize;
            let lease_ms = [100, 400, 2_000][self.random.below(3) as usize];
            let hold = Arc::clone(&self.locks[index].hold);
            let extend = Command::Extend { hold, lease_ms, reply: Reply::Nobody };
            self.session.handle_command(extend, at(now));
        }
        if self.random.once_in(500) {
            self.delay_max = [1, 5, 40, 300][self.random.below(4) as usize];
        }
        if self.server.bound.is_none() && self.random.once_in(100) && !self.locks.is_empty() {
            // The push that tells of it has nowhere to go.
            let lock = &self.locks[self.random.below(self.locks.len() as u64) as usize];
            if lock.is_held() && self.server.holds.remove(&lock.id().place).is_some() {
                self.stolen.insert(lock.id(), lock.hold.deadline());
            }
        }
        if let (Wire::Up, true) = (self.wire, self.random.once_in(1_500)) {
            let mut notices = || {
                let scale = [1, 100, 5_000][self.random.below(3) as usize];
                Some(now + self.random.below(scale))
            };
            let (client_notices, server_notices) = (notices(), notices());
            self.wire = Wire::Broken { client_notices, server_notices };
            self.up = Pipe::default();
            self.down = Pipe::default();
        }
    }

    fn ask(&mut self) {
        let mut key = || Key::from(format!("k{}", self.random.below(u64::from(KEY_COUNT))).into_bytes());
        let first = key();
        let mut claim = Claim::key(&first, false);
        let second = key();
        if first != second {
            // In the order in which the server grants them.
            let keys = [first.clone().min(second.clone()), first.clone().max(second)];
            let wanted = keys.map(|key| WantedKey { key, shared: false });
            if self.random.once_in(3) {
                claim.wanted = Wanted::Keys(wanted.into());
            }
        }
        claim.lease = match self.random.below(4) {
            0 => Lease::Session,
            1 => Lease::Own { ms: 100 },
            2 => Lease::Own { ms: 6_000 },
            _ => Lease::Own { ms: 1_500 },
        };
        if self.random.once_in(4) && matches!(claim.wanted, Wanted::Key { .. }) {
            // So few that many acquires are repetitions. One request id names one key with one kind of lease.
            let request_id = format!("{} {:?} {}", first[1], claim.lease, self.random.below(2));
            claim.request_id = Some(request_id.into_bytes().into());
        }
        if self.random.once_in(3) {
            claim.release_after_ms = Some(1_000 + self.random.below(1_000) as u32);
        }
        let wait = if self.random.once_in(3) { Wait::Try } else { Wait::Forever };
        let (reply, answer) = Reply::channel();
        let job = AcquireJob {
            token: self.shared.next_token(),
            claim,
            wait,
            timer: BootTime::NEVER,
            renew: !self.random.once_in(4),
            on_loss: None,
            on_queued: None,
            reply,
        };
        self.session.handle_command(Command::Submit(Job::Acquire(Box::new(job))), self.clock.now());
        self.answers.push(answer);
    }

    /// Nobody asks for more, and whatever is granted is given back.
    fn wind_down(&mut self) {
        self.delay_max = 1;
        self.locks.clear();
    }

    fn move_wire(&mut self, now: u64) {
        self.session.handle_timers(at(now));
        while let Ok(command) = self.commands.try_recv() {
            self.session.handle_command(command, at(now));
        }
        match self.wire {
            Wire::Up => {
                self.session.transmit(at(now));
                if !self.session.out.is_empty() {
                    let bytes = std::mem::take(&mut self.session.out);
                    let delay = self.random.below(self.delay_max);
                    self.up.send(now, delay, bytes);
                }
                while let Some(bytes) = self.up.receive(now) {
                    self.serve(&bytes);
                }
                self.flush_server(now);
                while let Some(bytes) = self.down.receive(now) {
                    if !self.read(&bytes, now) {
                        return;
                    }
                }
                if self.session.doubt().is_some() {
                    self.hang_up(now);
                }
            }
            Wire::Broken { client_notices, mut server_notices } => {
                self.session.out.clear();
                if client_notices.is_some_and(|at| at <= now) || self.session.doubt().is_some() {
                    self.session.handle_disconnected(Error::disconnected("cut"), at(now));
                    self.wire = Wire::Greeting { sent: at(now), arrives: now, answered: false };
                    // The server notices no later than the next hello.
                    return;
                }
                if server_notices.is_some_and(|at| at <= now) {
                    server_notices = None;
                    self.server.disconnect();
                }
                self.server.out.clear();
                self.wire = Wire::Broken { client_notices, server_notices };
            }
            Wire::Greeting { sent, arrives, answered } => self.greet(now, sent, arrives, answered),
        }
    }

    fn greet(&mut self, now: u64, sent: BootTime, arrives: u64, answered: bool) {
        self.server.out.clear();
        if !self.session.wants_connection(at(now)) {
            return;
        }
        if !answered {
            // An attempt takes a while, and may fail.
            let slow = if now < FAULTS_MS && self.random.once_in(3) { 2_500 } else { 1 };
            let arrives = now + self.random.below(self.delay_max * 3) + self.random.below(slow);
            self.wire = Wire::Greeting { sent: at(now), arrives, answered: true };
        } else if arrives <= now {
            if now < FAULTS_MS && self.random.once_in(3) {
                self.session.handle_attempt_failed(Error::disconnected("refused"));
                self.wire = Wire::Greeting { sent, arrives, answered: false };
                return;
            }
            let request = self.session.request().expect("there is no other connection");
            self.server.hello(request);
            let bytes = std::mem::take(&mut self.server.out);
            let frame = next_frame(&bytes, FRAME_LEN_MAX).unwrap().unwrap();
            match Response::decode(frame).unwrap() {
                Response::Welcome(welcome) => {
                    // Sent long ago, and only now read.
                    self.session.handle_welcome(welcome, sent, at(now));
                    self.up = Pipe::default();
                    self.down = Pipe::default();
                    self.wire = Wire::Up;
                }
                Response::Error(error) => {
                    self.session.handle_attempt_failed(error.into());
                    self.wire = Wire::Greeting { sent, arrives, answered: false };
                }
                other => unreachable!("{other:?}"),
            }
        }
    }

    fn hang_up(&mut self, now: u64) {
        self.session.handle_disconnected(Error::disconnected("given up"), at(now));
        self.server.disconnect();
        self.wire = Wire::Greeting { sent: at(now), arrives: now, answered: false };
    }

    fn serve(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(frame) = next_frame(rest, FRAME_LEN_MAX).unwrap() {
            self.server.handle(frame.number(), &Request::decode(frame).unwrap());
            rest = &rest[frame.len()..];
        }
    }

    fn flush_server(&mut self, now: u64) {
        if !self.server.out.is_empty() {
            let bytes = std::mem::take(&mut self.server.out);
            let delay = self.random.below(self.delay_max);
            self.down.send(now, delay, bytes);
        }
    }

    /// False if the client hung up.
    fn read(&mut self, bytes: &[u8], now: u64) -> bool {
        let mut rest = bytes;
        while let Some(frame) = next_frame(rest, FRAME_LEN_MAX).unwrap() {
            if self.session.handle_frame(frame, at(now)).is_err() {
                self.hang_up(now);
                return false;
            }
            rest = &rest[frame.len()..];
        }
        true
    }

    fn collect(&mut self) {
        let (locks, granted_count) = (&mut self.locks, &mut self.granted_count);
        self.answers.retain_mut(|answer| match answer.try_recv() {
            Ok(Ok(granted)) => {
                *granted_count += 1;
                locks.extend(granted);
                false
            }
            Ok(Err(Error::Cancelled { .. })) => false,
            Ok(Err(Error::Busy(_) | Error::Uncertain(_) | Error::Unavailable(_) | Error::Lost(_))) => false,
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => true,
        });
        // The owner of a lost guard drops it some time later.
        let random = &mut self.random;
        self.locks.retain(|lock| lock.is_held() || !random.once_in(20));
    }

    fn check(&self, now: u64) {
        let mut owned = BTreeSet::new();
        for lock in self.locks.iter().filter(|lock| lock.is_held()) {
            assert!(owned.insert(lock.id()), "at {now} ms two guards believe in {:?}", lock.id());
            let hold = self.server.holds.get(&lock.id().place);
            // Nobody can know of a theft, but nobody may go on believing because the connection came back.
            let excused = self.stolen.get(&lock.id()).is_some_and(|deadline| at(now) < *deadline);
            assert!(
                excused || hold.is_some_and(|hold| hold.key == lock.key()),
                "at {now} ms a guard believes in {lock:?}, which the server does not hold"
            );
        }
    }
}

#[test]
fn no_guard_ever_believes_in_a_lock_that_the_server_does_not_hold() {
    for seed in 1..=SEED_COUNT {
        let run = std::panic::catch_unwind(|| Simulation::new(seed).run());
        if let Err(panic) = run {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
