//! A connection of a front end, as a server has one for each gRPC or WebSocket client.
//!
//! Its contract is the binary protocol itself: the "library" below takes frames from the network and hands each request to an inlet of
//! the worker, under a number of the inlet's own. Answers and events go back under the numbers of the client. All that decides
//! is the server's: inlets, listeners, turns, and who runs in them. A CANCEL is what the reset of a stream is elsewhere: nobody listens
//! to the request any more, and neither of both gets an answer.

use super::io::{Arrival, Registered, VirtualStopwatch, read, register, write};
use super::tasks::{Errands, Tasks};
use crate::world::{Event as Happening, World};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Event, Extend, Hello, LockId, NamespaceKind, Release, Request, Response, SessionRequest, VERSION,
    next_frame,
};
use waymaker_server::clock::Moment;
use waymaker_server::edge::connection::{End, Write};
use waymaker_server::edge::front_turn::{FrontTurn, FrontTurnEnd, Others};
use waymaker_server::edge::inlet::{InletState, Listener, Reply};
use waymaker_server::edge::read_barrier::ReadBarrier;
use waymaker_server::edge::streams::{FrontWork, Ran, StreamTurns};
use waymaker_server::worker::{ConnectionKey, Worker};

/// Bytes that the library reads at once.
const READ_LEN_MAX: usize = 4 << 10;
/// Maximum time, beside its lease, until a hold without a listener is over.
const STRANGERS_US: u64 = 5_000_000;
/// How long a client may let a stream wait before it takes more of it.
const QUIET_MAX_US: u64 = 500_000;
/// How rarely the client of a silent stream takes the next response late: one time in three.
const NAP_EVERY: u64 = 3;
/// One of this number of connections never follows its claims.
const NEVER_FOLLOWS_EVERY: usize = 3;
/// Every how many streams say nothing at first.
const QUIET_EVERY: u64 = 16;
/// The same where clients try the edge of the server.
const EDGE_QUIET_EVERY: u64 = 4;

/// Which inlet a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// Claims, and what names the holds of this connection alone.
    Claims,
    /// Everything else: what happens to a hold by its id is told to its stream.
    Questions,
    Watches,
}

/// Connections whose streams were woken.
#[derive(Clone, Debug, Default)]
pub(super) struct Woken(Arc<Mutex<Vec<usize>>>);

impl Woken {
    pub(super) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes one stream of a connection.
#[derive(Debug)]
struct StreamWake {
    is_woken: AtomicBool,
    connection: usize,
    woken: Woken,
}

impl Wake for StreamWake {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
        }
    }
}

/// A request of the client that somebody listens to.
#[derive(Debug)]
struct Stream {
    purpose: Purpose,
    listener: Listener,
    is_followed: bool,
    wake: Arc<StreamWake>,
    /// The holds that it was granted and that are not over.
    granted: Vec<LockId>,
    /// One of these was found over then, and the stream has not heard so.
    unaware_since_us: Option<u64>,
    /// The client takes nothing of it before.
    quiet_until_us: u64,
    /// Once it has something to say again, its client takes nothing of it for so long.
    nap_us: u64,
    /// The key of a claim on one key; empty of any other claim. `None` if it is no claim.
    claimed: Option<Vec<u8>>,
}

/// A connection of a front end.
#[derive(Debug)]
pub(super) struct Front {
    connection: usize,
    /// What the client said at first, as the inlets say it.
    hello: Option<OwnedHello>,
    inlets: BTreeMap<Purpose, InletState>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Requests that never ran, each with the time since when its read had something to read.
    begun: VecDeque<(u64, Vec<u8>)>,
    streams: BTreeMap<u32, Stream>,
    /// True if it never follows its claims, because its client only wants the answers.
    never_follows: bool,
    /// Holds that streams have heard of.
    known: BTreeSet<LockId>,
    /// When it last gave up a claim that no stream had heard of.
    given_up_us: Option<u64>,
    /// Holds that the client gave back as their lane, so that their streams hear nothing of it.
    given_back: BTreeSet<LockId>,
    /// A hold without a listener may last until then: its grant crossed the reset of a stream that follows its hold.
    strangers_until_us: u64,
    turn: FrontTurn<VirtualStopwatch>,
    turns: StreamTurns,
    woken: Woken,
    /// The connection ends once its output is written.
    is_closing: bool,
}

#[derive(Clone, Debug)]
struct OwnedHello {
    kind: NamespaceKind,
    namespace: Vec<u8>,
    owner: Vec<u8>,
}

/// What a connection has at hand in its turn.
pub(super) struct Hands<'a> {
    pub(super) world: &'a mut World,
    pub(super) worker: &'a mut Worker,
    pub(super) barrier: &'a mut ReadBarrier,
    pub(super) tasks: &'a mut Tasks,
    pub(super) registered: &'a mut Registered,
    pub(super) errands: &'a mut Errands,
    pub(super) is_readable: &'a mut bool,
    pub(super) others: Others,
}

/// One turn.
struct Work<'a, 'b> {
    front: &'a mut Front,
    hands: Hands<'b>,
}

impl Front {
    pub(super) fn new(connection: usize, woken: &Woken) -> Self {
        Self {
            connection,
            hello: None,
            inlets: BTreeMap::new(),
            input: Vec::new(),
            output: Vec::new(),
            begun: VecDeque::new(),
            streams: BTreeMap::new(),
            never_follows: connection.is_multiple_of(NEVER_FOLLOWS_EVERY),
            known: BTreeSet::new(),
            given_up_us: None,
            given_back: BTreeSet::new(),
            strangers_until_us: 0,
            turn: FrontTurn::default(),
            turns: StreamTurns::default(),
            woken: woken.clone(),
            is_closing: false,
        }
    }

    /// Has a turn, in which each look at the stopwatch takes so long. Ready when the connection is over.
    pub(super) fn take_turn(&mut self, hands: Hands<'_>, look_us: u64) -> Poll<End> {
        self.turn.begin();
        self.turn.stopwatch_mut().look_us = look_us;
        let mut turns = std::mem::take(&mut self.turns);
        let polled = turns.poll(&mut Work { front: self, hands });
        self.turns = turns;
        polled
    }

    /// Ends a turn after which the connection lives on.
    pub(super) fn end_turn(&mut self, barrier: &mut ReadBarrier) -> FrontTurnEnd {
        self.turn.end(barrier)
    }

    /// How long its last turn took.
    pub(super) fn spent_us(&mut self) -> u64 {
        self.turn.stopwatch_mut().elapsed_us()
    }

    /// When the first of the requests arrived that never ran.
    pub(super) fn begun_since_us(&self) -> Option<u64> {
        self.begun.front().map(|(arrived_us, _)| *arrived_us)
    }

    /// Returns whether the connection ends once its output is written.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Takes what the worker has to say to this lane.
    pub(super) fn take_output(&mut self, worker: &mut Worker, key: ConnectionKey) {
        if let Some(inlet) = self.inlets.values_mut().find(|inlet| inlet.key() == key) {
            inlet.take_output(worker);
        }
    }

    /// Whether a stream was woken that the client takes nothing of yet.
    pub(super) fn has_quiet_streams(&self) -> bool {
        self.streams.values().any(|stream| stream.wake.is_woken.load(Ordering::Relaxed))
    }

    /// Returns a stream that sleeps although its lane is closed, unless the connection ends already.
    pub(super) fn sleeper(&self) -> Option<u32> {
        let is_closed = |purpose: &Purpose| self.inlets.get(purpose).is_some_and(InletState::is_closed);
        let sleeps = |(_, stream): &(&u32, &Stream)| {
            is_closed(&stream.purpose) && !stream.wake.is_woken.load(Ordering::Relaxed)
        };
        let mut streams = self.streams.iter().filter(|_| !self.is_closing);
        streams.find(sleeps).map(|(number, _)| *number)
    }

    /// Returns the stream that has not heard for the longest time that a hold of it is over, and since when.
    pub(super) fn find_unaware(
        &mut self,
        now_us: u64,
        is_over: impl Fn(LockId) -> bool,
    ) -> Option<(u64, u32)> {
        let given_back = &self.given_back;
        let mut found = None;
        for (number, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.is_followed) {
            if stream.granted.iter().any(|id| !given_back.contains(id) && is_over(*id)) {
                let since_us = *stream.unaware_since_us.get_or_insert(now_us);
                found = [found, Some((since_us, *number))].into_iter().flatten().min();
            } else {
                stream.unaware_since_us = None;
            }
        }
        found
    }

    /// Returns whether a stream has heard of this hold.
    pub(super) fn knows(&self, id: LockId) -> bool {
        self.known.contains(&id)
    }

    /// Returns whether a stream that waits for its first response may get a hold of this key.
    pub(super) fn awaits(&self, key: &[u8]) -> bool {
        let waiting = self.streams.values().filter(|stream| stream.granted.is_empty());
        let mut claimed = waiting.filter_map(|stream| stream.claimed.as_deref());
        claimed.any(|claimed| claimed.is_empty() || claimed == key)
    }

    /// When it last gave up a claim of which no stream had heard.
    pub(super) fn given_up_us(&mut self) -> &mut Option<u64> {
        &mut self.given_up_us
    }

    /// Returns the lane of its claims, and until when it may have holds without a listener.
    pub(super) fn claims(&self) -> Option<(ConnectionKey, u64)> {
        self.inlets.get(&Purpose::Claims).map(|inlet| (inlet.key(), self.strangers_until_us))
    }

    /// Returns the name of its namespace.
    pub(super) fn namespace(&self) -> &[u8] {
        self.hello.as_ref().map(|hello| hello.namespace.as_slice()).unwrap_or_default()
    }

    /// The connection is over. Returns the lanes that it had.
    pub(super) fn finish(
        mut self: Box<Self>,
        worker: &mut Worker,
        barrier: &mut ReadBarrier,
        now: Moment,
    ) -> Vec<ConnectionKey> {
        self.turn.leave(barrier);
        let keys: Vec<_> = self.inlets.values().map(InletState::key).collect();
        keys.iter().for_each(|key| worker.handle_lost(*key, now));
        keys
    }
}

impl FrontWork for Work<'_, '_> {
    type End = End;

    fn run(&mut self) -> Ran {
        let mut ran = Ran::Nothing;
        loop {
            self.begin_naps();
            let next = self.next_woken();
            if next.is_none() && self.front.begun.is_empty() {
                return ran;
            }
            if self.front.turn.is_spent() {
                self.front.turn.serve_later();
                return Ran::Part;
            }
            ran = Ran::All;
            match next {
                Some(number) => self.poll_stream(number),
                None => {
                    let (_, frame) = self.front.begun.pop_front().unwrap_or_default();
                    self.begin(&frame);
                }
            }
        }
    }

    fn poll_library(&mut self) -> Poll<End> {
        if let Poll::Ready(end) = self.read() {
            return Poll::Ready(end);
        }
        self.write();
        if self.front.is_closing && self.front.output.is_empty() {
            return Poll::Ready(End::Close);
        }
        Poll::Pending
    }

    fn has_begun(&self) -> bool {
        !self.front.begun.is_empty()
    }

    fn let_others_read(&mut self) -> bool {
        self.front.turn.let_others_read(self.hands.others)
    }
}

impl Work<'_, '_> {
    fn read(&mut self) -> Poll<End> {
        let Self { front, hands } = self;
        loop {
            let pipe = &hands.world.network.connections[front.connection].to_server;
            let len = front.turn.may_read(hands.barrier, || pipe.unread_len()).min(READ_LEN_MAX);
            if len == 0 {
                return Poll::Pending;
            }
            match read(hands.world, front.connection, hands.is_readable, len) {
                Arrival::Bytes(bytes) => {
                    front.turn.note_read(bytes.len());
                    let arrived_us = hands.world.network.connections[front.connection].read_since_us;
                    front.input.extend_from_slice(&bytes);
                    let mut offset = 0;
                    while let Ok(Some(frame)) = next_frame(&front.input[offset..], FRAME_LEN_MAX) {
                        front.begun.push_back((arrived_us, frame.bytes().to_vec()));
                        offset += frame.len();
                    }
                    front.input.drain(..offset);
                }
                Arrival::Nothing => return Poll::Pending,
                Arrival::End if front.turn.end_later() => return Poll::Pending,
                Arrival::End | Arrival::Failed => return Poll::Ready(End::Lost),
            }
        }
    }

    fn write(&mut self) {
        let Self { front, hands } = self;
        while !front.output.is_empty()
            && let Write::Written(len) = write(hands.world, front.connection, &front.output)
        {
            front.output.drain(..len);
        }
    }

    /// A stream that was woken, and of which the client takes more.
    fn next_woken(&self) -> Option<u32> {
        let now_us = self.hands.world.now_us;
        let is_ready = |stream: &Stream| {
            stream.wake.is_woken.load(Ordering::Relaxed)
                && (self.hands.world.calm || stream.quiet_until_us <= now_us)
        };
        self.front.streams.iter().find(|(_, stream)| is_ready(stream)).map(|(number, _)| *number)
    }

    /// Begins a request.
    fn begin(&mut self, bytes: &[u8]) {
        let Ok(Some(frame)) = next_frame(bytes, FRAME_LEN_MAX) else { return };
        let number = frame.number();
        let Ok(request) = Request::decode(frame) else { return self.front.is_closing = true };
        match &request {
            Request::Hello(hello) => self.greet(number, hello),
            Request::Cancel(cancel) => self.reset(cancel.acquire_number),
            Request::Unwatch(unwatch) => self.reset(unwatch.watch_number),
            Request::Acquire(acquire) => self.claim(number, bytes, acquire.key, acquire.lease_ms),
            Request::AcquirePermits(acquire) => self.claim(number, bytes, acquire.name, acquire.lease_ms),
            Request::AcquireSet(acquire) => self.claim(number, bytes, b"", acquire.lease_ms),
            Request::AcquireKeys(acquire) => {
                let first = acquire.items.iter().map(|item| item.key).min().unwrap_or_default();
                self.claim(number, bytes, first, acquire.lease_ms);
            }
            Request::Watch(watch) => self.ask(Purpose::Watches, number, bytes, true, Some(watch.key)),
            Request::Release(Release { id, own: true, .. }) => {
                self.front.given_back.insert(*id);
                self.ask(Purpose::Claims, number, bytes, false, None);
            }
            // The lane of the claims ends, and the connection with it.
            Request::Goodbye(_) | Request::Extend(Extend { own: true, .. }) | Request::Holds(_) => {
                self.ask(Purpose::Claims, number, bytes, false, None);
            }
            _ => self.ask(Purpose::Questions, number, bytes, false, None),
        }
    }

    /// Asks for holds. Some front ends listen to what happens to them, others only want the answer. What ends with its connection alone is
    /// asked for in the second way: a hold that nobody heard of must not stay.
    fn claim(&mut self, number: u32, bytes: &[u8], cancel_key: &[u8], lease_ms: u32) {
        let is_listening = lease_ms != u32::MAX && !self.hands.world.random.once_in(4);
        let is_followed = is_listening && !self.front.never_follows;
        self.ask(Purpose::Claims, number, bytes, is_followed, Some(cancel_key));
        if let Some(stream) = self.front.streams.get_mut(&number) {
            let is_one = matches!(
                next_frame(bytes, FRAME_LEN_MAX).ok().flatten().map(Request::decode),
                Some(Ok(Request::Acquire(_) | Request::AcquirePermits(_)))
            );
            stream.claimed = Some(if is_one { cancel_key.to_vec() } else { Vec::new() });
        }
    }

    fn ask(
        &mut self,
        purpose: Purpose,
        number: u32,
        bytes: &[u8],
        is_followed: bool,
        cancel_key: Option<&[u8]>,
    ) {
        if !self.open(purpose) {
            return;
        }
        let now = self.hands.world.server_time().into();
        let Self { front, hands } = self;
        let Some(inlet) = front.inlets.get_mut(&purpose).filter(|inlet| !inlet.is_closed()) else {
            return front.is_closing = true;
        };
        let own_number = if is_followed { inlet.begin_followed() } else { inlet.begin_asked() };
        let frame = renumbered(bytes, own_number);
        if is_followed && purpose == Purpose::Claims {
            hands.world.auditor.note_followed(front.connection, number);
        }
        let begun = inlet.send(hands.worker, own_number, &frame, now);
        hands.tasks.follow_up(hands.world, hands.worker, hands.errands);
        let quiet_every = if hands.world.settings.edge.is_some() { EDGE_QUIET_EVERY } else { QUIET_EVERY };
        let is_quiet = !hands.world.calm && hands.world.random.once_in(quiet_every);
        let quiet_us = if is_quiet { hands.world.random.spread(1_000, QUIET_MAX_US) } else { 0 };
        let wake = StreamWake {
            is_woken: AtomicBool::new(true),
            connection: front.connection,
            woken: front.woken.clone(),
        };
        let stream = Stream {
            purpose,
            listener: Listener::new(Some(begun), cancel_key),
            is_followed,
            wake: Arc::new(wake),
            granted: Vec::new(),
            unaware_since_us: None,
            nap_us: 0,
            claimed: None,
            quiet_until_us: hands.world.now_us + quiet_us,
        };
        front.streams.insert(number, stream);
    }

    /// The inlet of this purpose is open from here on. False: the worker refuses it, and the connection ends.
    fn open(&mut self, purpose: Purpose) -> bool {
        self.front.inlets.contains_key(&purpose) || self.open_anew(purpose).is_ok()
    }

    /// Opens an inlet. Returns the answer of the worker.
    fn open_anew(&mut self, purpose: Purpose) -> Result<Vec<u8>, Vec<u8>> {
        let Self { front, hands } = self;
        let Some(OwnedHello { kind, namespace, owner }) = front.hello.clone() else {
            front.is_closing = true;
            return Err(Vec::new());
        };
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            kind,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace: &namespace,
            owner: &owner,
            notify_taken_up: true,
            ..Hello::default()
        };
        let opened = InletState::open(hands.worker, &hello, hands.world.server_time().into());
        hands.tasks.follow_up(hands.world, hands.worker, hands.errands);
        match opened {
            Ok((inlet, answer)) => {
                register(hands.world, hands.tasks, hands.registered, inlet.key(), front.connection);
                front.inlets.insert(purpose, inlet);
                Ok(answer)
            }
            Err(answer) => {
                front.is_closing = true;
                Err(answer)
            }
        }
    }

    /// Nobody listens to this request any more.
    fn reset(&mut self, number: u32) {
        let Self { front, hands } = self;
        let Some(mut stream) = front.streams.remove(&number) else { return };
        if stream.is_followed && stream.granted.is_empty() {
            let lease_us = 1_000 * u64::from(hands.world.settings.limits.lease_max_ms);
            front.strangers_until_us = hands.world.now_us + lease_us + STRANGERS_US;
        } else if stream.claimed.is_some()
            && stream.granted.is_empty()
            && front.given_up_us.replace(hands.world.now_us).is_none()
        {
            hands.world.after(0, Happening::LookForStrangers(front.connection));
        }
        let now = hands.world.server_time().into();
        if let Some(inlet) = front.inlets.get_mut(&stream.purpose) {
            stream.listener.leave(inlet, hands.worker, now);
            hands.tasks.follow_up(hands.world, hands.worker, hands.errands);
        }
    }

    /// Takes what was said to a stream.
    fn poll_stream(&mut self, number: u32) {
        loop {
            let front = &mut *self.front;
            let Some(stream) = front.streams.get_mut(&number) else { return };
            let Some(inlet) = front.inlets.get_mut(&stream.purpose) else { return };
            stream.wake.is_woken.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&stream.wake));
            let mut context = Context::from_waker(&waker);
            let polled = if stream.is_followed {
                stream.listener.poll_told(inlet, &mut context)
            } else {
                stream.listener.poll_answer(inlet, &mut context)
            };
            match polled {
                Poll::Pending => return self.plan_nap(number),
                Poll::Ready(None) => return front.is_closing = true,
                Poll::Ready(Some(reply)) => {
                    if self.hear(number, &reply) {
                        return self.reset(number);
                    }
                }
            }
        }
    }

    /// Now and then the client takes the next response of a stream late.
    fn plan_nap(&mut self, number: u32) {
        let Self { front, hands } = self;
        let world = &mut *hands.world;
        if !world.calm
            && world.settings.edge.is_some()
            && world.edge_random.once_in(NAP_EVERY)
            && let Some(stream) = front.streams.get_mut(&number)
        {
            stream.nap_us = world.edge_random.spread(1_000, QUIET_MAX_US);
        }
    }

    fn begin_naps(&mut self) {
        let now_us = self.hands.world.now_us;
        for stream in self.front.streams.values_mut().filter(|stream| stream.nap_us > 0) {
            if stream.wake.is_woken.load(Ordering::Relaxed) {
                stream.quiet_until_us = now_us + std::mem::take(&mut stream.nap_us);
            }
        }
    }

    /// Passes on what was said to a stream. Returns whether that was the last.
    fn hear(&mut self, number: u32, reply: &Reply) -> bool {
        let Self { front, hands } = self;
        let Some(stream) = front.streams.get_mut(&number) else { return true };
        let mut as_number = number;
        let is_last = match reply.response() {
            Response::Granted(granted) => {
                front.known.insert(granted.id);
                stream.granted.push(granted.id);
                false
            }
            Response::GrantedKeys(granted) => {
                front.known.extend(granted.keys.iter().map(|key| key.id));
                stream.granted.extend(granted.keys.iter().map(|key| key.id));
                false
            }
            Response::Watching(_) => false,
            Response::Event(event) => {
                let own = stream.granted.clone();
                let (about, is_over) = match event {
                    Event::Expired { id } | Event::Revoked { id, .. } | Event::TakenUp { id } => {
                        (Some(id), true)
                    }
                    Event::LeaseMoved { id, .. } => (Some(id), false),
                    _ => (None, false),
                };
                if let Some(id) = about {
                    as_number = 0;
                    if !own.contains(&id) {
                        hands.world.auditor.accuse("listener", || {
                            format!("request {number} with the holds {own:?} is told {event:?}")
                        });
                    }
                    stream.granted.retain(|other| !is_over || *other != id);
                }
                // What took it up has a stream of its own.
                if let Event::TakenUp { .. } = event {
                    return stream.granted.is_empty();
                }
                is_over && stream.granted.is_empty()
            }
            Response::Farewell(_) => {
                front.is_closing = true;
                true
            }
            _ => true,
        };
        front.output.extend_from_slice(&renumbered(reply.bytes(), as_number));
        is_last || !stream.is_followed
    }

    /// The client greets: what its first inlet is answered is the answer.
    fn greet(&mut self, number: u32, hello: &Hello<'_>) {
        let (kind, namespace, owner) = (hello.kind, hello.namespace.to_vec(), hello.owner.to_vec());
        self.front.hello = Some(OwnedHello { kind, namespace, owner });
        let (Ok(answer) | Err(answer)) = self.open_anew(Purpose::Claims);
        if !answer.is_empty() {
            self.front.output.extend_from_slice(&renumbered(&answer, number));
        }
    }
}

/// The same frame under another number.
fn renumbered(frame: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}
