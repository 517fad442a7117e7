//! The work of a front end in one turn: it reads, runs requests, polls streams and writes.

use super::{Front, Hands, OwnedHello, Purpose, Stream, StreamWake};
use crate::event::Event as Happening;
use crate::node::io::{Arrival, read, register, write};
use crate::node::thread::client_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Event, Extend, Hello, Release, Request, Response, SessionRequest, VERSION, next_frame,
};
use waymaker_server::edge::connection::{End, Write};
use waymaker_server::edge::inlet::{InletState, Listener, Reply};
use waymaker_server::edge::streams::{FrontWork, RunResult};

/// Number of bytes that the library reads at once.
const READ_LEN_MAX: usize = 4 << 10;
/// Longest time, in addition to its lease, until a hold without a listener has ended.
const STRANGERS_US: u64 = 5_000_000;
/// Longest time for which a client pauses before it takes the next response of a stream.
const QUIET_MAX_US: u64 = 500_000;
/// One of this number of idle streams has a client that takes the next response late.
const NAP_EVERY: u64 = 3;
/// One of this number of streams is slow to take its first response.
const QUIET_EVERY: u64 = 16;
/// The same in runs with `Settings::edge`.
const EDGE_QUIET_EVERY: u64 = 4;

/// State of one turn.
pub(super) struct Work<'a, 'b> {
    pub(super) front: &'a mut Front,
    pub(super) hands: Hands<'b>,
}

impl FrontWork for Work<'_, '_> {
    type End = End;

    fn run(&mut self) -> RunResult {
        let mut ran = RunResult::Nothing;
        loop {
            self.begin_naps();
            let next = self.next_woken();
            if next.is_none() && self.front.begun.is_empty() {
                return ran;
            }
            if self.front.turn.is_spent() {
                self.front.turn.serve_later();
                return RunResult::Part;
            }
            ran = RunResult::All;
            match next {
                Some(number) => self.poll_stream(number),
                None => {
                    let (_, frame) = self.front.begun.pop_front().unwrap_or_default();
                    self.begin(&frame);
                }
            }
        }
    }

    fn is_library_woken(&self) -> bool {
        // A look at the socket has no cost here.
        true
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

    /// Returns a stream that was woken and from which the client takes more.
    fn next_woken(&self) -> Option<u32> {
        let now_us = self.hands.world.now_us;
        let is_ready = |stream: &Stream| {
            stream.wake.is_woken.load(Ordering::Relaxed)
                && (self.hands.world.calm || stream.quiet_until_us <= now_us)
        };
        self.front.streams.iter().find(|(_, stream)| is_ready(stream)).map(|(number, _)| *number)
    }

    /// Begins to serve a request.
    fn begin(&mut self, bytes: &[u8]) {
        let Ok(Some(frame)) = next_frame(bytes, FRAME_LEN_MAX) else { return };
        let number = frame.number();
        let Ok(request) = Request::decode(frame) else { return self.front.is_closing = true };
        match &request {
            Request::Hello(hello) => self.greet(number, hello),
            Request::Cancel(cancel) => self.reset(cancel.acquire_number),
            Request::Unwatch(unwatch) => self.reset(unwatch.watch_number),
            Request::Acquire(acquire) => self.claim(number, bytes, acquire.key, acquire.terms.lease_ms),
            Request::AcquirePermits(acquire) => {
                self.claim(number, bytes, acquire.name, acquire.terms.lease_ms);
            }
            Request::AcquireSet(acquire) => self.claim(number, bytes, b"", acquire.terms.lease_ms),
            Request::AcquireKeys(acquire) => {
                let first = acquire.items.iter().map(|item| item.key).min().unwrap_or_default();
                self.claim(number, bytes, first, acquire.terms.lease_ms);
            }
            Request::Watch(watch) => self.ask(Purpose::Watches, number, bytes, true, Some(watch.key)),
            Request::Release(Release { id, own: true, .. }) => {
                self.front.given_back.insert(*id);
                self.ask(Purpose::Claims, number, bytes, false, None);
            }
            // These requests act on the lane of the claims. A GOODBYE ends the lane and the connection.
            Request::Goodbye(_) | Request::Extend(Extend { own: true, .. }) | Request::Holds(_) => {
                self.ask(Purpose::Claims, number, bytes, false, None);
            }
            _ => self.ask(Purpose::Questions, number, bytes, false, None),
        }
    }

    /// Sends a claim to the worker. Some streams follow the events of their holds, others only want the
    /// response. A hold without a lease is always claimed in the second way, because it would stay for ever if
    /// no client received it.
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

    /// Opens the inlet of this purpose unless it is open. Returns false if the worker refuses it; then the
    /// connection ends.
    fn open(&mut self, purpose: Purpose) -> bool {
        self.front.inlets.contains_key(&purpose) || self.open_anew(purpose).is_ok()
    }

    /// Opens an inlet. Returns the response of the worker.
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
        let client = client_of(hands.world, front.connection);
        let opened = InletState::open(hands.worker, &hello, client, hands.world.server_time().into());
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

    /// Removes the listener of a request.
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

    /// Takes the responses and events of a stream.
    fn poll_stream(&mut self, number: u32) {
        loop {
            let front = &mut *self.front;
            let Some(stream) = front.streams.get_mut(&number) else { return };
            let Some(inlet) = front.inlets.get_mut(&stream.purpose) else { return };
            stream.wake.is_woken.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&stream.wake));
            let mut context = Context::from_waker(&waker);
            let polled = if stream.is_followed {
                stream.listener.poll_reply(inlet, &mut context)
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

    /// In some cases, plans that the client takes the next response of a stream late.
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

    /// Passes a response or an event on to the client. Returns whether it was the last of its stream.
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
                            format!("request {number} has the holds {own:?} but got the event {event:?}")
                        });
                    }
                    stream.granted.retain(|other| !is_over || *other != id);
                }
                // The request that took the hold up has a stream of its own.
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

    /// Handles the greeting of the client. The response to the first inlet is the response to the client.
    fn greet(&mut self, number: u32, hello: &Hello<'_>) {
        let (kind, namespace, owner) = (hello.kind, hello.namespace.to_vec(), hello.owner.to_vec());
        self.front.hello = Some(OwnedHello { kind, namespace, owner });
        let (Ok(answer) | Err(answer)) = self.open_anew(Purpose::Claims);
        if !answer.is_empty() {
            self.front.output.extend_from_slice(&renumbered(&answer, number));
        }
    }
}

/// Returns the same frame with another number.
fn renumbered(frame: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}
