//! The requests of a front end at a worker, and who listens to their answers and events.

mod following;
#[cfg(test)]
mod interleavings;
mod listener;
#[cfg(test)]
mod take_ups;

pub use listener::Listener;

use crate::clock::Moment;
use crate::limits::READ_LEN_MAX;
use crate::worker::{Client, ConnectionKey, Unlimited, Worker};
use following::Following;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::{acquire, acquire_keys, opcode, watch};
use waymaker_protocol::{
    Cancel, CancelReason, ErrorAnswer, ErrorCode, ErrorDetail, Event, Frame, Hello, LockId, Release,
    Response, next_frame,
};

/// A frame from the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Box<[u8]>);

impl Reply {
    /// What it says. The worker writes what this version of the protocol knows, so there is always something.
    ///
    /// # Panics
    /// If the frame does not come from a worker.
    pub fn response(&self) -> Response<'_> {
        let frame = next_frame(&self.0, usize::MAX).ok().flatten().expect("a reply is a whole frame");
        Response::decode(frame).expect("the worker speaks the protocol")
    }

    /// The frame.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the answer to the request, and not an event.
    pub fn is_answer(&self) -> bool {
        is_answer(self.0[OPCODE_OFFSET])
    }
}

impl From<Vec<u8>> for Reply {
    fn from(frame: Vec<u8>) -> Self {
        Self(frame.into())
    }
}

/// Opens a lane and says HELLO on it. Returns the lane and the answer, which is empty or one frame.
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

/// Where the opcode stands in a frame.
const OPCODE_OFFSET: usize = 8;

/// Whether a frame answers a request: events only tell.
fn is_answer(frame_opcode: u8) -> bool {
    frame_opcode < opcode::QUEUED || frame_opcode == opcode::ERROR
}

/// The requests of an inlet, by their numbers.
///
/// A number is reused once its request was answered and has no listener, but the hold that the request was granted keeps the
/// number. So a number alone says which request an *answer* is for, since each request is answered once. An *event* reaches
/// a request only if it names a hold that this very request was granted.
#[derive(Debug)]
pub struct InletState {
    key: ConnectionKey,
    /// The slot of number n is at n - 1.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Who listens to what happens to a hold.
    followers: BTreeMap<LockId, u32>,
    /// Cancellations and releases that were refused because too many requests were in flight.
    put_off: Vec<PutOff>,
    /// Number of slots that are releases.
    release_count: usize,
    /// Holds of abandoned requests, with the numbers of these. Empty but while the lane is heard.
    unknown: Vec<(u32, LockId)>,
    /// Empty but while it is heard.
    taken: Vec<u8>,
    /// One that is over, for the next.
    spare: Option<Box<Following>>,
    is_closed: bool,
    /// The ERROR that ended the lane for want of an identity or a right.
    denial: Option<Reply>,
}

/// A request that was handed to the worker.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    number: u32,
    /// What it asked for is there already.
    is_answered: bool,
}

#[derive(Debug)]
enum Slot {
    Free,
    /// Its answer is waited for.
    Asked {
        waker: Option<Waker>,
        answer: Option<Box<[u8]>>,
        /// A newer request took up the hold that the answer grants.
        is_taken_up: bool,
    },
    Abandoned(Abandoned),
    /// A cancellation of the abandoned acquire with this number.
    Cancels {
        acquire_number: u32,
    },
    /// A release of this hold of an abandoned request.
    Releases(LockId),
    Followed(Box<Following>),
}

/// A request that is sent again once the lane has room.
#[derive(Debug)]
enum PutOff {
    /// The cancellation of an abandoned acquire.
    Cancel(u32),
    /// The release of a hold of an abandoned request.
    Release(LockId),
}

/// A request that nobody listens to. It keeps its number until it is answered, and until its cancellation is: the
/// cancellation names the number.
#[derive(Debug)]
struct Abandoned {
    /// Whether a hold that it is granted is released.
    undo: bool,
    is_answered: bool,
    /// Key of the cancellation that was not served yet.
    cancel_key: Option<Box<[u8]>>,
}

impl InletState {
    /// Returns the requests of an open lane: none.
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

    /// Opens a lane that no socket belongs to. Returns it with the answer to its HELLO.
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

    /// A number for a request with one answer.
    pub fn begin_asked(&mut self) -> u32 {
        self.begin(Slot::Asked { waker: None, answer: None, is_taken_up: false })
    }

    /// A number for a request that is followed.
    pub fn begin_followed(&mut self) -> u32 {
        let following = self.spare.take().unwrap_or_default();
        self.begin(Slot::Followed(following))
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

    /// Its number is free. What was known of it.
    fn end(&mut self, number: u32) -> Slot {
        self.free.push(number);
        std::mem::replace(&mut self.slots[number as usize - 1], Slot::Free)
    }

    /// Whether what it asked for is there already.
    fn is_answered(&self, number: u32) -> bool {
        match &self.slots[number as usize - 1] {
            Slot::Asked { answer, .. } => answer.is_some(),
            Slot::Followed(following) => following.is_answered,
            _ => true,
        }
    }

    fn is_watch(&self, number: u32) -> bool {
        matches!(&self.slots[number as usize - 1], Slot::Followed(following) if following.is_watch)
    }

    /// Hands the frame of a request to the worker, and takes what it has to say.
    pub fn send(&mut self, worker: &mut Worker, number: u32, frame: &[u8], now: Moment) -> Begun {
        if frame.len() <= FRAME_LEN_MAX {
            worker.handle_bytes(self.key, frame, now);
            self.take_output(worker);
            worker.settle(self.key);
        } else {
            self.hear_all(worker, &too_long(number));
        }
        Begun { number, is_answered: self.is_answered(number) }
    }

    /// Takes what the worker has to say.
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
            // A burst must not keep its memory.
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
        // Not earlier: a newer request of this lane may have taken a hold up, which only a later frame tells.
        let unknown = std::mem::take(&mut self.unknown);
        self.release_all(worker, unknown.into_iter().map(|(_, id)| id));
        if self.put_off.is_empty() {
            return;
        }
        // An event may have said that one of them was taken up.
        let refused_count = self.put_off.len().saturating_sub(put_off_before);
        // Each other answer made room for one. Without any it would be refused again, and again.
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
            Slot::Asked { waker, answer, .. } => {
                *answer = Some(frame.bytes().into());
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Slot::Followed(following) => {
                following.tell(frame);
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
            // A watch goes on as long as its lane, and keeps its number.
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

    /// Refuses a request that took up a hold of an earlier one whose release is on its way. The release was sent later, so the worker serves
    /// it behind the grant.
    #[cold]
    fn hear_answer_during_releases(&mut self, frame: Frame<'_>) {
        let refusal = self.releases_any_of(frame).then(|| given_back(frame.number()));
        let refusal = refusal.as_deref().and_then(|bytes| next_frame(bytes, usize::MAX).ok().flatten());
        self.hear_answer(refusal.unwrap_or(frame));
    }

    /// Returns whether this answer grants a hold once more whose release is on its way.
    fn releases_any_of(&self, frame: Frame<'_>) -> bool {
        let ids = match (frame.opcode(), Response::decode(frame)) {
            (acquire::GRANTED, Ok(Response::Granted(granted))) if granted.repeated => vec![granted.id],
            (acquire_keys::GRANTED_KEYS, Ok(Response::GrantedKeys(granted))) if granted.repeated => {
                granted.keys.iter().map(|key| key.id).collect()
            }
            _ => return false,
        };
        self.slots.iter().any(|slot| matches!(slot, Slot::Releases(id) if ids.contains(id)))
    }

    /// A cancellation was answered: served, or refused because too many requests are in flight.
    fn hear_cancelled(&mut self, acquire_number: u32, frame: Frame<'_>) {
        let Slot::Abandoned(abandoned) = &mut self.slots[acquire_number as usize - 1] else { return };
        if is_overloaded(frame) && !abandoned.is_answered {
            self.put_off.push(PutOff::Cancel(acquire_number));
        } else {
            abandoned.cancel_key = None;
            self.end_abandoned(acquire_number);
        }
    }

    /// Frees the number of an abandoned request that neither an answer nor a cancellation will name any more.
    fn end_abandoned(&mut self, number: u32) {
        if let Slot::Abandoned(Abandoned { is_answered: true, cancel_key: None, .. }) =
            &self.slots[number as usize - 1]
        {
            self.end(number);
        }
    }

    /// This request follows a hold no longer; another one may, which took it up on this very lane.
    fn forget(&mut self, id: LockId, number: u32) {
        if self.followers.get(&id) == Some(&number) {
            self.followers.remove(&id);
        }
    }

    /// Something happened to a hold, to a claim that waits, or to a watched key.
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
            // No inlet says the capability, so none is pinged.
            Event::SessionExpired | Event::Ping => {}
        }
    }

    /// Tells the listener of this number what happened to a hold, if the hold is its own. Returns whether it is.
    fn tell_of_hold(&mut self, number: u32, id: LockId, frame: Frame<'_>, is_over: bool) -> bool {
        let Some(Slot::Followed(following)) = self.slots.get_mut((number as usize).wrapping_sub(1)) else {
            return false;
        };
        let Some(place) = following.ids.iter().position(|own| *own == id) else { return false };
        if is_over {
            following.ids.swap_remove(place);
        }
        following.tell(frame);
        true
    }

    /// Tells the listener that the frame names by its number, if it fits.
    fn tell_if(&mut self, frame: Frame<'_>, fits: impl FnOnce(&Following) -> bool) {
        let place = (frame.number() as usize).wrapping_sub(1);
        if let Some(Slot::Followed(following)) = self.slots.get_mut(place)
            && fits(following)
        {
            following.tell(frame);
        }
    }

    /// A newer request has the hold of this request from here on, and may be one of this lane. The older request must not release it.
    fn keep(&mut self, number: u32, id: LockId) {
        self.unknown.retain(|unknown| *unknown != (number, id));
        self.put_off.retain(|put_off| !matches!(put_off, PutOff::Release(other) if *other == id));
        let slot = self.slots.get_mut((number as usize).wrapping_sub(1));
        if let Some(Slot::Asked { answer: Some(answer), is_taken_up, .. }) = slot
            && let Ok(Some(frame)) = next_frame(answer, usize::MAX)
        {
            *is_taken_up |= granted_ids(frame).contains(&id);
        }
    }

    /// Releases holds of which no client knows.
    fn release_all(&mut self, worker: &mut Worker, ids: impl IntoIterator<Item = LockId>) {
        for id in ids {
            let number = self.begin(Slot::Releases(id));
            self.release_count += 1;
            let mut frame = Vec::new();
            // Another lane may have taken the hold up since.
            Release { id, key: None, own: true }.encode(number, &mut frame);
            worker.handle_bytes(self.key, &frame, worker.moment());
        }
    }

    /// Asks the worker to end the wait of an abandoned acquire.
    fn cancel(&mut self, worker: &mut Worker, acquire_number: u32, now: Moment) {
        let Slot::Abandoned(abandoned) = &mut self.slots[acquire_number as usize - 1] else { return };
        if abandoned.is_answered {
            abandoned.cancel_key = None;
            return self.end_abandoned(acquire_number);
        }
        let Some(key) = abandoned.cancel_key.clone() else { return };
        let number = self.begin(Slot::Cancels { acquire_number });
        let mut frame = Vec::new();
        Cancel { acquire_number, key: &key }.encode(number, &mut frame);
        worker.handle_bytes(self.key, &frame, now);
    }

    /// Returns the answer to a request of [`InletState::begin_asked`], and frees its number. `None` is the end of the lane.
    pub fn poll_answer(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
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

    /// Returns the next that was said about a request of [`InletState::begin_followed`]. `None` is the end of the lane.
    pub fn poll_told(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        match &mut self.slots[number as usize - 1] {
            Slot::Followed(following) => following.poll_told(context).map(Some),
            _ => Poll::Ready(None),
        }
    }

    /// Nobody listens any more. With a key a wait is cancelled, and what was asked for and nobody knows of is released.
    pub fn leave(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Moment) {
        if self.is_closed {
            return;
        }
        if self.is_watch(number) {
            // The watch goes on as long as the lane, and keeps its number.
            let abandoned = Abandoned { undo: false, is_answered: true, cancel_key: None };
            self.slots[number as usize - 1] = Slot::Abandoned(abandoned);
        } else if self.is_answered(number) {
            match self.end(number) {
                Slot::Asked { answer: Some(answer), is_taken_up: false, .. } if cancel_key.is_some() => {
                    if let Ok(Some(frame)) = next_frame(&answer, usize::MAX) {
                        self.release_all(worker, granted_ids(frame));
                    }
                }
                Slot::Followed(following) => {
                    following.ids.iter().for_each(|id| self.forget(*id, number));
                    self.spare = following.into_spare();
                }
                _ => {}
            }
        } else {
            let slot = &mut self.slots[number as usize - 1];
            let undo = matches!(slot, Slot::Asked { .. }) && cancel_key.is_some();
            let cancel_key = cancel_key.map(Into::into);
            *slot = Slot::Abandoned(Abandoned { undo, is_answered: false, cancel_key });
            self.cancel(worker, number, now);
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

/// Returns whether the worker refuses a request because too many are in flight.
fn is_overloaded(frame: Frame<'_>) -> bool {
    matches!(Response::decode(frame), Ok(Response::Error(error)) if error.code == ErrorCode::Overloaded)
}

/// Returns the holds that an answer grants anew. A repeated grant is known from an earlier request.
fn granted_ids(frame: Frame<'_>) -> Vec<LockId> {
    match (frame.opcode(), Response::decode(frame)) {
        (acquire::GRANTED, Ok(Response::Granted(granted))) if !granted.repeated => vec![granted.id],
        (acquire_keys::GRANTED_KEYS, Ok(Response::GrantedKeys(granted))) if !granted.repeated => {
            granted.keys.iter().map(|key| key.id).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the refusal of a request that took up a hold whose release is on its way.
fn given_back(number: u32) -> Vec<u8> {
    let message = "the hold of an earlier request with this id is being released; send the request again";
    let reason = CancelReason::Asked.number();
    refusal(number, ErrorCode::Cancelled, reason, b"request_id", message)
}

/// What a request is refused with that no frame may be as long as.
fn too_long(number: u32) -> Vec<u8> {
    let message = format!("the request is too long; the maximum is {FRAME_LEN_MAX} bytes");
    refusal(number, ErrorCode::BadInput, FRAME_LEN_MAX as u64, b"request", &message)
}

fn refusal(number: u32, code: ErrorCode, value: u64, field: &[u8], message: &str) -> Vec<u8> {
    let detail = ErrorDetail::Text { value, field, message: message.as_bytes() };
    let mut refusal = Vec::new();
    ErrorAnswer { code, detail }.encode(number, &mut refusal);
    refusal
}
