//! An inlet: a lane without a socket, through which a front end sends requests to the worker of its thread. This module
//! keeps the state of each request until the request is answered and nothing listens for it, and delivers answers and
//! events to the listeners (the handles that the front end has of its requests).

#[cfg(test)]
mod interleavings;
mod listener;
mod reply;
mod reply_queue;
#[cfg(test)]
mod take_ups;
mod undo;

pub use listener::Listener;
pub use reply::Reply;

use crate::clock::Moment;
use crate::limits::READ_LEN_MAX;
use crate::mail::ConnectionKey;
use crate::worker::{Client, Unlimited, Worker};
use reply::{is_answer, too_long};
use reply_queue::ReplyQueue;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::{acquire, acquire_keys, opcode, watch};
use waymaker_protocol::{ErrorCode, Event, Frame, Hello, LockId, Response, next_frame};

/// Opens a lane and sends HELLO on it. Returns the lane and the answer: one frame, or nothing if the HELLO selects
/// another worker.
pub(crate) fn greet(
    worker: &mut Worker,
    hello: &Hello<'_>,
    client: Client,
    now: Moment,
) -> (ConnectionKey, Vec<u8>) {
    let key = worker.handle_open(hello.owner, now);
    worker.note_client(key, client);
    let mut frame = Vec::new();
    hello.encode(0, &mut frame);
    worker.handle_bytes(key, &frame, now);
    let answer = worker.output(key).unwrap_or_default().to_vec();
    worker.wrote(key, answer.len());
    (key, answer)
}

/// The requests of an inlet, by their numbers.
///
/// A number is reused once its request was answered, has no listener, and waits for no answer to a CANCEL. The number
/// of a watch is not reused. An *answer* belongs to the request with its number, because each request is answered once.
/// But an *event* may name the number of a past request: TAKEN_UP has the number of the acquire that was granted the
/// hold, however long ago. So the inlet passes an event of a hold to a request only if this request was granted the
/// hold. An earlier request with the same number does not count.
#[derive(Debug)]
pub struct InletState {
    key: ConnectionKey,
    /// Slots of the requests; the slot of number n is at n - 1.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Number of the request whose listener (the handle of a front end) gets the events of each hold: its end, or
    /// another lease. The answer to this request granted the hold.
    followers: BTreeMap<LockId, u32>,
    /// Cancellations and releases that were refused because too many requests were in flight. They are sent again when
    /// answers have made room.
    put_off: Vec<PutOff>,
    /// Number of slots that are [`Slot::Releases`]: releases that the worker has not answered yet.
    release_count: usize,
    /// Holds that were granted to requests after their listeners had left, with the numbers of these requests. They are
    /// released once all frames of the worker's output are processed. Empty at all other times.
    unknown: Vec<(u32, LockId)>,
    /// Empty buffer. Its memory is used while the frames of the worker's output are processed, which are copied into
    /// it.
    taken: Vec<u8>,
    /// Reply queue of an ended request, which the next followed request reuses to save allocations.
    spare: Option<Box<ReplyQueue>>,
    is_closed: bool,
    /// ERROR that ended the lane because the client lacks an identity or a right.
    denial: Option<Reply>,
}

/// A request that was handed to the worker.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    number: u32,
    /// Whether the request was answered, or the lane had ended, when the request had been handed to the worker.
    is_answered: bool,
}

#[derive(Debug)]
enum Slot {
    Free,
    /// A request that gets one answer and no events. The slot is freed once the answer has arrived and the request's
    /// listener (the handle of a front end) takes it or leaves. If the listener leaves before that, the slot becomes
    /// `Abandoned`.
    Request {
        waker: Option<Waker>,
        answer: Option<Box<[u8]>>,
        /// Whether a newer request took over a hold that the answer grants. If so, all holds of the answer stay when
        /// the listener leaves without reading it.
        is_taken_up: bool,
    },
    Abandoned(Abandoned),
    /// Cancels the abandoned acquire with this number.
    Cancels {
        acquire_number: u32,
    },
    /// Releases this hold, which was granted to a request whose listener has left.
    Releases(LockId),
    Followed(Box<ReplyQueue>),
}

/// A request that the worker refused because too many were in flight, and that is sent again later.
#[derive(Debug)]
enum PutOff {
    /// The cancellation of an abandoned acquire.
    Cancel(u32),
    /// The release of a hold that was granted to a request whose listener has left.
    Release(LockId),
}

/// A request without a listener. It keeps its number until the request and, if one was sent, its cancellation are
/// answered, because the cancellation names the number. A watch keeps its number as long as its lane.
#[derive(Debug)]
struct Abandoned {
    /// Whether to release the holds that the worker still grants to this request, unless a newer request takes them
    /// over.
    undo: bool,
    is_answered: bool,
    /// Key or pool name that the CANCEL names. `None` if the wait is not to be cancelled, or once no CANCEL is needed
    /// any more.
    cancel_key: Option<Box<[u8]>>,
}

impl InletState {
    /// Returns the state of an open lane without requests.
    pub fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            slots: Vec::new(),
            free: Vec::new(),
            followers: BTreeMap::new(),
            put_off: Vec::new(),
            release_count: 0,
            unknown: Vec::new(),
            taken: Vec::new(),
            spare: None,
            is_closed: false,
            denial: None,
        }
    }

    /// Opens a lane without a socket. Returns the inlet with the answer to its HELLO.
    ///
    /// # Errors
    /// The answer to the HELLO, if the worker refuses it.
    pub fn open(
        worker: &mut Worker,
        hello: &Hello<'_>,
        client: Client,
        now: Moment,
    ) -> Result<(Self, Vec<u8>), Vec<u8>> {
        let (key, answer) = greet(worker, hello, client, now);
        let is_welcome = |frame: Frame<'_>| frame.opcode() != opcode::ERROR;
        if next_frame(&answer, usize::MAX).ok().flatten().is_none_or(is_welcome) {
            return Ok((Self::new(key), answer));
        }
        worker.handle_lost(key, now);
        Err(answer)
    }

    /// Returns the key of the lane.
    pub fn key(&self) -> ConnectionKey {
        self.key
    }

    /// Whether the worker has ended the lane.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the ERROR with which the worker ended the lane, if the client has lost its identity or a right.
    pub fn denial(&self) -> Option<&Reply> {
        self.denial.as_ref()
    }

    /// Returns a number for a request with one answer.
    pub fn begin_asked(&mut self) -> u32 {
        self.begin(Slot::Request { waker: None, answer: None, is_taken_up: false })
    }

    /// Returns a number for a followed request: its listener gets the answer and the events before and after it.
    pub fn begin_followed(&mut self) -> u32 {
        let following = self.spare.take().unwrap_or_default();
        self.begin(Slot::Followed(following))
    }

    /// Returns a number for a request.
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

    /// Frees the number of a request, and returns its last state.
    fn end(&mut self, number: u32) -> Slot {
        self.free.push(number);
        std::mem::replace(&mut self.slots[number as usize - 1], Slot::Free)
    }

    /// Whether no answer to the request with this number is awaited: it is already answered, or has no listener.
    fn is_answered(&self, number: u32) -> bool {
        match &self.slots[number as usize - 1] {
            Slot::Request { answer, .. } => answer.is_some(),
            Slot::Followed(following) => following.is_answered,
            _ => true,
        }
    }

    fn is_watch(&self, number: u32) -> bool {
        matches!(&self.slots[number as usize - 1], Slot::Followed(following) if following.is_watch)
    }

    /// Hands the frame of a request to the worker, and processes the output of the worker. If the frame is longer than
    /// [`FRAME_LEN_MAX`], answers the request with an error instead.
    pub fn send(&mut self, worker: &mut Worker, number: u32, frame: &[u8], now: Moment) -> SentRequest {
        if frame.len() <= FRAME_LEN_MAX {
            worker.handle_bytes(self.key, frame, now);
            self.take_output(worker);
            worker.settle(self.key);
        } else {
            self.hear_all(worker, &too_long(number));
        }
        SentRequest { number, is_answered: self.is_answered(number) }
    }

    /// Takes all output that the worker has for this lane. Passes each answer and event to the listener of its request,
    /// if it has one, and processes the answers to abandoned requests and to requests of the inlet itself. Lets the
    /// worker serve the requests of the lane that it had set aside. Closes the inlet if the worker has ended the lane.
    pub fn take_output(&mut self, worker: &mut Worker) {
        loop {
            let Some(output) = worker.output(self.key) else { return self.close() };
            if output.is_empty() {
                return;
            }
            let mut taken = std::mem::take(&mut self.taken);
            taken.extend_from_slice(output);
            worker.wrote(self.key, taken.len());
            self.hear_all(worker, &taken);
            // Put the buffer back into `self.taken` for the next output. Drop it instead if a burst of output has made
            // it larger than a usual read, because a buffer never shrinks by itself.
            if taken.capacity() <= READ_LEN_MAX {
                taken.clear();
                self.taken = taken;
            }
            if worker.has_input(self.key) {
                worker.handle_set_aside(&mut Unlimited, self.key, worker.moment());
            }
        }
    }

    fn hear_all(&mut self, worker: &mut Worker, mut bytes: &[u8]) {
        let put_off_before = self.put_off.len();
        let mut answer_count = 0;
        while let Ok(Some(frame)) = next_frame(bytes, usize::MAX) {
            if frame.number() != 0 && is_answer(frame.opcode()) {
                answer_count += 1;
                if self.release_count > 0 {
                    self.hear_answer_during_releases(frame);
                } else {
                    self.hear_answer(frame);
                }
            } else {
                self.hear_event(frame);
            }
            bytes = &bytes[frame.len()..];
        }
        // Release the holds in `unknown` only after all frames. A later frame may report that a newer request of this
        // lane took over one of these holds.
        let unknown = std::mem::take(&mut self.unknown);
        self.release_all(worker, unknown.into_iter().map(|(_, id)| id));
        if self.put_off.is_empty() {
            return;
        }
        // Count the cancellations and releases that the worker refused in this output and that are now in `put_off`.
        // Saturate, because `put_off` may be shorter than before. A TAKEN_UP event in this output removes a release
        // from it, if a newer request took over the hold.
        let refused_count = self.put_off.len().saturating_sub(put_off_before);
        // An answer usually makes room for one more request in flight, so send as many requests of `put_off` again. Do
        // not count refusals of cancellations and releases: these were never in flight, so their refusals make no room.
        // The worker would refuse the same requests again and again.
        let room = answer_count - refused_count;
        for put_off in self.put_off.drain(..room.min(self.put_off.len())).collect::<Vec<_>>() {
            match put_off {
                PutOff::Cancel(number) => self.cancel(worker, number, worker.moment()),
                PutOff::Release(id) => self.release_all(worker, [id]),
            }
        }
    }

    #[inline(always)]
    fn hear_answer(&mut self, frame: Frame<'_>) {
        let number = frame.number();
        let Some(slot) = self.slots.get_mut(number as usize - 1) else { return };
        match slot {
            Slot::Request { waker, answer, .. } => {
                *answer = Some(frame.bytes().into());
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Slot::Followed(following) => {
                following.push(frame);
                following.is_answered = true;
                match Response::decode(frame) {
                    Ok(Response::Granted(granted)) => {
                        following.ids.push(granted.id);
                        self.followers.insert(granted.id, number);
                    }
                    Ok(Response::GrantedKeys(granted)) => {
                        following.ids = granted.keys.iter().map(|key| key.id).collect();
                        self.followers.extend(granted.keys.iter().map(|key| (key.id, number)));
                    }
                    Ok(Response::Watching(_)) => following.is_watch = true,
                    _ => {}
                }
            }
            // The request is a watch whose listener left before this answer. A watch lasts as long as its lane, so do
            // not free its number.
            Slot::Abandoned(_) if frame.opcode() == watch::WATCHING => {}
            Slot::Abandoned(abandoned) => {
                abandoned.is_answered = true;
                let undo = abandoned.undo;
                self.end_abandoned(number);
                if undo {
                    self.unknown.extend(granted_ids(frame).into_iter().map(|id| (number, id)));
                }
            }
            Slot::Cancels { acquire_number } => {
                let acquire_number = *acquire_number;
                self.end(number);
                self.hear_cancelled(acquire_number, frame);
            }
            Slot::Releases(id) => {
                let id = *id;
                self.end(number);
                self.release_count -= 1;
                if is_overloaded(frame) {
                    self.put_off.push(PutOff::Release(id));
                }
            }
            Slot::Free => {}
        }
    }

    /// Stops the delivery of the events of a hold to the request with this number. If another request of this lane has
    /// taken the hold over, that request still gets the events.
    fn forget(&mut self, id: LockId, number: u32) {
        if self.followers.get(&id) == Some(&number) {
            self.followers.remove(&id);
        }
    }

    /// Passes an event of a hold, of a waiting claim, or of a watched key to the listener of its request. Stores the
    /// ERROR that ends the lane if the client has lost its identity or a right.
    fn hear_event(&mut self, frame: Frame<'_>) {
        let event = match Response::decode(frame) {
            Ok(Response::Event(event)) => event,
            // An error that answers no request ends the lane.
            Ok(Response::Error(error)) if error.code == ErrorCode::Unauthorized => {
                self.denial = Some(Reply(frame.bytes().into()));
                return;
            }
            _ => return,
        };
        match event {
            Event::Expired { id } | Event::Revoked { id, .. } => {
                if let Some(number) = self.followers.remove(&id) {
                    self.tell_of_hold(number, id, frame, true);
                }
            }
            Event::LeaseMoved { id, .. } => {
                if let Some(number) = self.followers.get(&id) {
                    self.tell_of_hold(*number, id, frame, false);
                }
            }
            Event::TakenUp { id } => {
                self.keep(frame.number(), id);
                if self.tell_of_hold(frame.number(), id, frame, true) {
                    self.forget(id, frame.number());
                }
            }
            Event::Queued { .. } => self.tell_if(frame, |following| !following.is_answered),
            Event::KeyHeld { .. } | Event::KeyFreed { .. } | Event::Overrun => {
                self.tell_if(frame, |following| following.is_watch);
            }
            // The worker sends neither SESSION_EXPIRED nor PING to an inlet: no inlet has a session or announces the
            // capability for PING.
            Event::SessionExpired | Event::Ping => {}
        }
    }

    /// Passes an event of a hold to the listener of the request with this number, if that request was granted the hold.
    /// Returns whether it was. If `is_over`, the hold has ended or another request has taken it over, so the request
    /// gets no further events of it.
    fn tell_of_hold(&mut self, number: u32, id: LockId, frame: Frame<'_>, is_over: bool) -> bool {
        let Some(Slot::Followed(following)) = self.slots.get_mut((number as usize).wrapping_sub(1)) else {
            return false;
        };
        let Some(place) = following.ids.iter().position(|own| *own == id) else { return false };
        if is_over {
            following.ids.swap_remove(place);
        }
        following.push(frame);
        true
    }

    /// Passes a frame to the listener of the followed request whose number the frame has. Drops the frame if there is
    /// no such request, or if `fits` returns false for it.
    fn tell_if(&mut self, frame: Frame<'_>, fits: impl FnOnce(&ReplyQueue) -> bool) {
        let place = (frame.number() as usize).wrapping_sub(1);
        if let Some(Slot::Followed(following)) = self.slots.get_mut(place)
            && fits(following)
        {
            following.push(frame);
        }
    }

    /// Notes that a newer request has taken over the hold `id` of the request with this number. From now on, the older
    /// request does not release the hold when its listener leaves. Otherwise, if the newer request is of this lane too,
    /// the release would end the hold of the newer request.
    fn keep(&mut self, number: u32, id: LockId) {
        self.unknown.retain(|unknown| *unknown != (number, id));
        self.put_off.retain(|put_off| !matches!(put_off, PutOff::Release(other) if *other == id));
        let slot = self.slots.get_mut((number as usize).wrapping_sub(1));
        if let Some(Slot::Request { answer: Some(answer), is_taken_up, .. }) = slot
            && let Ok(Some(frame)) = next_frame(answer, usize::MAX)
        {
            *is_taken_up |= granted_ids(frame).contains(&id);
        }
    }

    /// Returns the answer to a request of [`InletState::begin_asked`], and frees its number. `None` means that the lane
    /// has ended.
    pub fn poll_answer(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        match &mut self.slots[number as usize - 1] {
            Slot::Request { answer: Some(answer), .. } => {
                let answer = std::mem::take(answer);
                self.end(number);
                Poll::Ready(Some(Reply(answer)))
            }
            Slot::Request { waker, .. } => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(None),
        }
    }

    /// Returns the next answer or event for a request of [`InletState::begin_followed`]. `None` means that the lane
    /// has ended.
    pub fn poll_reply(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        match &mut self.slots[number as usize - 1] {
            Slot::Followed(following) => following.poll_reply(context).map(Some),
            _ => Poll::Ready(None),
        }
    }

    /// Closes the inlet after the worker has ended the lane, and wakes all listeners.
    fn close(&mut self) {
        self.is_closed = true;
        for slot in &mut self.slots {
            let waker = match slot {
                Slot::Request { waker, .. } => waker.take(),
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

/// Returns whether the frame is an OVERLOADED error. The worker answers a CANCEL or a RELEASE with it if too many
/// requests are in flight.
fn is_overloaded(frame: Frame<'_>) -> bool {
    matches!(Response::decode(frame), Ok(Response::Error(error)) if error.code == ErrorCode::Overloaded)
}

/// Returns the holds that an answer grants for the first time. A repeated grant has none: an earlier request was
/// granted its holds.
fn granted_ids(frame: Frame<'_>) -> Vec<LockId> {
    match (frame.opcode(), Response::decode(frame)) {
        (acquire::GRANTED, Ok(Response::Granted(granted))) if !granted.repeated => vec![granted.id],
        (acquire_keys::GRANTED_KEYS, Ok(Response::GrantedKeys(granted))) if !granted.repeated => {
            granted.keys.iter().map(|key| key.id).collect()
        }
        _ => Vec::new(),
    }
}
