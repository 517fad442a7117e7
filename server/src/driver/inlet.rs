//! A lane without a socket: how front ends ask the worker of their thread.

use super::Local;
use crate::limits::{FRONT_WATCH_BACKLOG_MAX, READ_LEN_MAX};
use crate::worker::{ConnectionKey, Worker};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use waymaker_engine::Time;
use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::message::{acquire, acquire_keys, opcode};
use waymaker_protocol::{
    Cancel, ErrorAnswer, ErrorCode, ErrorDetail, Event, Frame, Hello, LockId, NamespaceKind, Release,
    Response, SessionRequest, VERSION, next_frame,
};

/// A client of the worker of this thread, in the binary protocol, over a lane that no socket belongs to.
///
/// Every front end translates: a request of its own contract becomes frames of ours, and the frames that come back become
/// its answer. So there is one way into the worker, with one set of limits, errors and rules, however a client came in.
/// What is asked is served at once, in this thread, and mostly answered before the call returns; what is not wakes whoever
/// waits for it.
///
/// ```text
///   gRPC, WebSocket -> handler -> Asked/Followed -> Inlet -> frame -> Worker
///                      handler <- Reply          <- InletState <- output of the lane
/// ```
///
/// Dropping it is the loss of a connection: waiters leave, and holds stay as long as their acquires said.
#[derive(Debug)]
pub(crate) struct Inlet {
    key: ConnectionKey,
}

/// The lane is over: the server is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// A frame from the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply(Box<[u8]>);

impl Reply {
    /// What it says. The worker writes what this version of the protocol knows, so there is always something.
    pub(crate) fn response(&self) -> Response<'_> {
        let frame = next_frame(&self.0, usize::MAX).ok().flatten().expect("a reply is a whole frame");
        Response::decode(frame).expect("the worker speaks the protocol")
    }
}

impl Inlet {
    /// Opens a lane in this namespace, for this owner unless an acquire names another.
    ///
    /// # Errors
    /// What the worker said instead of a welcome, an ERROR.
    pub(crate) fn open(kind: NamespaceKind, namespace: &[u8], owner: &[u8]) -> Result<Self, Reply> {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            kind,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace,
            owner,
            credentials: b"",
            attempt: None,
            notify_taken_up: true,
        };
        let opened = Local::with(|local| local.open_inlet(&hello));
        opened.map(|key| Self { key }).map_err(|answer| Reply(answer.into()))
    }

    /// Asks what is answered once.
    pub(crate) fn ask(&self, encode: impl FnOnce(u32, &mut Vec<u8>)) -> Asked {
        self.ask_to_cancel(None, encode)
    }

    /// Asks for holds that are worth nothing to anybody but whoever waits for the answer: if that is dropped before it was
    /// read, the wait is cancelled, and what was granted is released. `cancel_key` is what a CANCEL of it has to name.
    pub(crate) fn ask_for_holds(&self, cancel_key: &[u8], encode: impl FnOnce(u32, &mut Vec<u8>)) -> Asked {
        self.ask_to_cancel(Some(cancel_key.into()), encode)
    }

    fn ask_to_cancel(&self, cancel_key: Option<Box<[u8]>>, encode: impl FnOnce(u32, &mut Vec<u8>)) -> Asked {
        let begin = |inlet: &mut InletState| inlet.begin(Slot::Asked { waker: None, answer: None });
        let number = Local::with(|local| local.ask(self.key, begin, encode));
        Asked { key: self.key, number, cancel_key }
    }

    /// Asks for holds, or for a watch, and listens to everything the worker says about them from then on. If it is dropped
    /// while it waits, the wait is cancelled; holds stay, and a watch does as long as the lane, so it should have its own.
    /// `cancel_key` is what a CANCEL of it has to name.
    pub(crate) fn follow(&self, cancel_key: &[u8], encode: impl FnOnce(u32, &mut Vec<u8>)) -> Followed {
        let begin = |inlet: &mut InletState| inlet.begin(Slot::Followed(Box::default()));
        let number = Local::with(|local| local.ask(self.key, begin, encode));
        Followed { key: self.key, number, cancel_key: Some(cancel_key.into()) }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        Local::with(|local| local.close_inlet(self.key));
    }
}

/// The answer to come, as a future. One whose answer is there already is ready when it is first polled.
#[derive(Debug)]
pub(crate) struct Asked {
    key: ConnectionKey,
    number: Option<u32>,
    /// Of what has to be undone if nobody waits for it any more.
    cancel_key: Option<Box<[u8]>>,
}

impl Future for Asked {
    type Output = Result<Reply, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.get_mut();
        let Some(number) = own.number else { return Poll::Ready(Err(Closed)) };
        let polled = Local::with(|local| {
            local
                .with_inlet(own.key, |inlet, _| inlet.poll_answer(number, context))
                .unwrap_or(Poll::Ready(None))
        });
        polled.map(|answer| {
            own.number = None;
            answer.ok_or(Closed)
        })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let (key, cancel_key) = (self.key, self.cancel_key.take());
        Local::with(|local| {
            let abandoned = local.with_inlet(key, |inlet, worker| {
                inlet.abandon(worker, number, cancel_key.as_deref(), local.now());
            });
            if abandoned.is_some() {
                local.follow_up_alone();
            }
        });
    }
}

/// Everything the worker says about one acquire or watch, as it comes.
#[derive(Debug)]
pub(crate) struct Followed {
    key: ConnectionKey,
    number: Option<u32>,
    /// While it may wait.
    cancel_key: Option<Box<[u8]>>,
}

impl Followed {
    /// The next that was said: its answer, and before and after it events. `None` is the end of the lane.
    pub(crate) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        let polled = Local::with(|local| {
            local
                .with_inlet(self.key, |inlet, _| inlet.poll_told(number, context))
                .unwrap_or(Poll::Ready(None))
        });
        if let Poll::Ready(Some(reply)) = &polled
            && is_answer(reply.0[OPCODE_OFFSET])
        {
            self.cancel_key = None;
        }
        polled
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let (key, cancel_key) = (self.key, self.cancel_key.take());
        Local::with(|local| {
            let left = local.with_inlet(key, |inlet, worker| {
                inlet.leave(worker, number, cancel_key.as_deref(), local.now());
            });
            if left.is_some() {
                local.follow_up_alone();
            }
        });
    }
}

/// Where the opcode stands in a frame.
const OPCODE_OFFSET: usize = 8;

/// Whether a frame answers a request: events only tell.
fn is_answer(frame_opcode: u8) -> bool {
    frame_opcode < opcode::QUEUED || frame_opcode == opcode::ERROR
}

/// What an inlet knows of its requests, by their numbers. A number is used again once its request is over.
#[derive(Debug)]
pub(super) struct InletState {
    key: ConnectionKey,
    /// The slot of number n is at n - 1.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Who listens to what happens to a hold.
    followers: BTreeMap<LockId, u32>,
    /// Cancellations that found too many requests in flight.
    put_off: Vec<(u32, Box<[u8]>)>,
    /// Empty but while it is heard.
    taken: Vec<u8>,
    is_closed: bool,
}

#[derive(Debug)]
enum Slot {
    Free,
    /// Its answer is waited for.
    Asked {
        waker: Option<Waker>,
        answer: Option<Box<[u8]>>,
    },
    /// Nobody waits for its answer. What it grants is released if `undo`.
    Abandoned {
        undo: bool,
    },
    /// A cancellation of the request with this number; the key is kept until it is known to have been served.
    Cancels {
        acquire_number: u32,
        key: Box<[u8]>,
    },
    Followed(Box<Following>),
}

#[derive(Debug, Default)]
struct Following {
    told: VecDeque<Box<[u8]>>,
    waker: Option<Waker>,
    /// The holds, once there are some: one, or one for each of several keys.
    ids: Vec<LockId>,
    is_answered: bool,
}

impl Following {
    fn tell(&mut self, frame: Frame<'_>) {
        if !self.replaces(frame) && !self.overruns(frame) {
            self.told.push_back(frame.bytes().into());
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Of what was not heard yet about a lease only the last counts.
    fn replaces(&mut self, frame: Frame<'_>) -> bool {
        if frame.opcode() != opcode::LEASE_MOVED {
            return false;
        }
        let id = |bytes: &[u8]| bytes.get(HEADER_LEN..HEADER_LEN + ID_LEN).map(<[u8]>::to_vec);
        let own = id(frame.bytes());
        let older =
            self.told.iter_mut().find(|told| told[OPCODE_OFFSET] == opcode::LEASE_MOVED && id(told) == own);
        older.map(|older| *older = frame.bytes().into()).is_some()
    }

    /// Of a watch that is not read, no more is kept than that there was more.
    fn overruns(&mut self, frame: Frame<'_>) -> bool {
        let of_watch = matches!(frame.opcode(), opcode::KEY_HELD | opcode::KEY_FREED | opcode::OVERRUN);
        if !of_watch || self.told.len() < FRONT_WATCH_BACKLOG_MAX {
            return false;
        }
        if self.told.back().is_none_or(|last| last[OPCODE_OFFSET] != opcode::OVERRUN) {
            let mut overrun = Vec::new();
            Event::Overrun.encode(frame.number(), &mut overrun);
            self.told.push_back(overrun.into());
        }
        true
    }
}

impl InletState {
    pub(super) fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            slots: Vec::new(),
            free: Vec::new(),
            followers: BTreeMap::new(),
            put_off: Vec::new(),
            taken: Vec::new(),
            is_closed: false,
        }
    }

    pub(super) fn key(&self) -> ConnectionKey {
        self.key
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A number for a request.
    fn begin(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize - 1] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32
            }
        }
    }

    fn end(&mut self, number: u32) {
        self.slots[number as usize - 1] = Slot::Free;
        self.free.push(number);
    }

    /// Hands a frame to the worker, and takes what it has to say.
    pub(super) fn send(&mut self, worker: &mut Worker, number: u32, frame: &[u8], now: Time) {
        if frame.len() > FRAME_LEN_MAX {
            let message = format!("a request has at most {FRAME_LEN_MAX} bytes");
            let limit = FRAME_LEN_MAX as u64;
            let detail = ErrorDetail::Text { value: limit, field: b"request", message: message.as_bytes() };
            let mut refusal = Vec::new();
            ErrorAnswer { code: ErrorCode::BadInput, detail }.encode(number, &mut refusal);
            return self.hear_all(worker, &refusal);
        }
        worker.handle_bytes(self.key, frame, now);
        self.take_output(worker);
        worker.settle(self.key);
    }

    /// Takes what the worker has to say.
    pub(super) fn take_output(&mut self, worker: &mut Worker) {
        loop {
            let Some(output) = worker.output(self.key) else { return self.close() };
            if output.is_empty() {
                return;
            }
            let mut taken = std::mem::take(&mut self.taken);
            taken.extend_from_slice(output);
            worker.wrote(self.key, taken.len());
            self.hear_all(worker, &taken);
            // A burst must not keep its memory.
            if taken.capacity() <= READ_LEN_MAX {
                taken.clear();
                self.taken = taken;
            }
            if worker.has_input(self.key) {
                worker.handle_flushed(self.key, worker.now());
            }
        }
    }

    fn hear_all(&mut self, worker: &mut Worker, mut bytes: &[u8]) {
        let refused_before = self.put_off.len();
        let mut answer_count = 0;
        while let Ok(Some(frame)) = next_frame(bytes, usize::MAX) {
            self.hear(worker, frame);
            answer_count += usize::from(is_answer(frame.opcode()));
            bytes = &bytes[frame.len()..];
        }
        let refused_count = self.put_off.len() - refused_before;
        // Each other answer made room for one. Without any it would be refused again, and again.
        let room = answer_count - refused_count;
        for (acquire_number, key) in self.put_off.drain(..room.min(self.put_off.len())).collect::<Vec<_>>() {
            self.cancel(worker, acquire_number, &key, worker.now());
        }
    }

    fn hear(&mut self, worker: &mut Worker, frame: Frame<'_>) {
        if frame.number() == 0 {
            return self.hear_event(frame);
        }
        let number = frame.number();
        let Some(slot) = self.slots.get_mut(number as usize - 1) else { return };
        match slot {
            Slot::Asked { waker, answer } => {
                *answer = Some(frame.bytes().into());
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Slot::Followed(following) => {
                following.tell(frame);
                following.is_answered |= is_answer(frame.opcode());
                match Response::decode(frame) {
                    Ok(Response::Granted(granted)) => {
                        following.ids.push(granted.id);
                        self.followers.insert(granted.id, number);
                    }
                    Ok(Response::GrantedKeys(granted)) => {
                        following.ids = granted.keys.iter().map(|key| key.id).collect();
                        self.followers.extend(granted.keys.iter().map(|key| (key.id, number)));
                    }
                    Ok(Response::Event(Event::TakenUp { id })) => {
                        following.ids.retain(|own| *own != id);
                        self.forget(id, number);
                    }
                    _ => {}
                }
            }
            Slot::Abandoned { undo } if is_answer(frame.opcode()) => {
                let undo = *undo;
                self.end(number);
                if undo {
                    self.release_all(worker, frame);
                }
            }
            Slot::Cancels { acquire_number, key } => {
                let overloaded = ErrorCode::Overloaded;
                let again = matches!(
                    Response::decode(frame), Ok(Response::Error(error)) if error.code == overloaded
                );
                let put_off = again.then(|| (*acquire_number, std::mem::take(key)));
                self.end(number);
                self.put_off.extend(put_off);
            }
            Slot::Abandoned { .. } | Slot::Free => {}
        }
    }

    /// This request follows a hold no longer; another one may, which took it up on this very lane.
    fn forget(&mut self, id: LockId, number: u32) {
        if self.followers.get(&id) == Some(&number) {
            self.followers.remove(&id);
        }
    }

    /// What happened to a hold.
    fn hear_event(&mut self, frame: Frame<'_>) {
        let Ok(Response::Event(event)) = Response::decode(frame) else { return };
        let (id, is_over) = match event {
            Event::Expired { id } | Event::Revoked { id, .. } => (id, true),
            Event::LeaseMoved { id, .. } => (id, false),
            _ => return,
        };
        let Some(number) = self.followers.get(&id).copied() else { return };
        if is_over {
            self.followers.remove(&id);
        }
        if let Slot::Followed(following) = &mut self.slots[number as usize - 1] {
            following.tell(frame);
        }
    }

    /// Releases what an answer grants: nobody knows of it.
    fn release_all(&mut self, worker: &mut Worker, frame: Frame<'_>) {
        let ids: Vec<LockId> = match (frame.opcode(), Response::decode(frame)) {
            (acquire::GRANTED, Ok(Response::Granted(granted))) if !granted.repeated => vec![granted.id],
            (acquire_keys::GRANTED_KEYS, Ok(Response::GrantedKeys(granted))) if !granted.repeated => {
                granted.keys.iter().map(|key| key.id).collect()
            }
            _ => return,
        };
        for id in ids {
            let number = self.begin(Slot::Abandoned { undo: false });
            let mut frame = Vec::new();
            Release { id, key: None }.encode(number, &mut frame);
            worker.handle_bytes(self.key, &frame, worker.now());
        }
    }

    fn cancel(&mut self, worker: &mut Worker, acquire_number: u32, key: &[u8], now: Time) {
        let number = self.begin(Slot::Cancels { acquire_number, key: key.into() });
        let mut frame = Vec::new();
        Cancel { acquire_number, key }.encode(number, &mut frame);
        worker.handle_bytes(self.key, &frame, now);
    }

    fn poll_answer(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        match &mut self.slots[number as usize - 1] {
            Slot::Asked { answer: Some(answer), .. } => {
                let answer = std::mem::take(answer);
                self.end(number);
                Poll::Ready(Some(Reply(answer)))
            }
            Slot::Asked { waker, .. } => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(None),
        }
    }

    fn poll_told(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Slot::Followed(following) = &mut self.slots[number as usize - 1] else {
            return Poll::Ready(None);
        };
        if let Some(bytes) = following.told.pop_front() {
            return Poll::Ready(Some(Reply(bytes)));
        }
        following.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Nobody waits for an answer any more. With a key it is cancelled, and undone if it was granted.
    fn abandon(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Time) {
        let Slot::Asked { answer, .. } = &mut self.slots[number as usize - 1] else { return };
        let undo = cancel_key.is_some();
        if let Some(answer) = answer.take() {
            self.end(number);
            if undo && let Ok(Some(frame)) = next_frame(&answer, usize::MAX) {
                self.release_all(worker, frame);
            }
        } else {
            self.slots[number as usize - 1] = Slot::Abandoned { undo };
            if let Some(key) = cancel_key {
                self.cancel(worker, number, key, now);
            }
        }
        self.take_output(worker);
    }

    /// Nobody listens any more.
    fn leave(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Time) {
        let Slot::Followed(following) = &mut self.slots[number as usize - 1] else { return };
        let is_answered = following.is_answered;
        for id in std::mem::take(&mut following.ids) {
            self.forget(id, number);
        }
        if is_answered {
            self.end(number);
        } else {
            self.slots[number as usize - 1] = Slot::Abandoned { undo: false };
            if let Some(key) = cancel_key {
                self.cancel(worker, number, key, now);
            }
        }
        self.take_output(worker);
    }

    /// The worker ended the lane: whoever waits learns it.
    fn close(&mut self) {
        self.is_closed = true;
        for slot in &mut self.slots {
            let waker = match slot {
                Slot::Asked { waker, .. } => waker.take(),
                Slot::Followed(following) => following.waker.take(),
                _ => None,
            };
            *slot = Slot::Free;
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
