//! What an inlet knows of its requests.

use super::following::Following;
use super::{Reply, is_answer};
use crate::clock::Moment;
use crate::limits::READ_LEN_MAX;
use crate::worker::{ConnectionKey, Worker};
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::{acquire, acquire_keys};
use waymaker_protocol::{
    Cancel, ErrorAnswer, ErrorCode, ErrorDetail, Event, Frame, LockId, Release, Response, next_frame,
};

/// What an inlet knows of its requests, by their numbers. A number is used again once its request is over.
#[derive(Debug)]
pub(in crate::driver) struct InletState {
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
    /// One that is over, for the next.
    spare: Option<Box<Following>>,
    is_closed: bool,
}

/// A request that was handed to the worker.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Begun {
    pub(super) number: u32,
    /// What it asked for is there already.
    pub(super) is_answered: bool,
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

impl InletState {
    pub(in crate::driver) fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            slots: Vec::new(),
            free: Vec::new(),
            followers: BTreeMap::new(),
            put_off: Vec::new(),
            taken: Vec::new(),
            spare: None,
            is_closed: false,
        }
    }

    pub(in crate::driver) fn key(&self) -> ConnectionKey {
        self.key
    }

    pub(in crate::driver) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A number for a request with one answer.
    pub(super) fn begin_asked(&mut self) -> u32 {
        self.begin(Slot::Asked { waker: None, answer: None })
    }

    /// A number for a request that is followed.
    pub(super) fn begin_followed(&mut self) -> u32 {
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

    /// Hands the frame of a request to the worker, and takes what it has to say.
    pub(in crate::driver) fn send(
        &mut self,
        worker: &mut Worker,
        number: u32,
        frame: &[u8],
        now: Moment,
    ) -> Begun {
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
    pub(in crate::driver) fn take_output(&mut self, worker: &mut Worker) {
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
                worker.handle_flushed(self.key, worker.moment());
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
            self.cancel(worker, acquire_number, &key, worker.moment());
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
            worker.handle_bytes(self.key, &frame, worker.moment());
        }
    }

    fn cancel(&mut self, worker: &mut Worker, acquire_number: u32, key: &[u8], now: Moment) {
        let number = self.begin(Slot::Cancels { acquire_number, key: key.into() });
        let mut frame = Vec::new();
        Cancel { acquire_number, key }.encode(number, &mut frame);
        worker.handle_bytes(self.key, &frame, now);
    }

    pub(super) fn poll_answer(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
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

    pub(super) fn poll_told(&mut self, number: u32, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        match &mut self.slots[number as usize - 1] {
            Slot::Followed(following) => following.poll_told(context).map(Some),
            _ => Poll::Ready(None),
        }
    }

    /// Nobody listens any more. With a key a wait is cancelled, and what was asked for and nobody knows of is released.
    pub(super) fn leave(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Moment) {
        if self.is_closed {
            return;
        }
        if self.is_answered(number) {
            match self.end(number) {
                Slot::Asked { answer: Some(answer), .. } if cancel_key.is_some() => {
                    if let Ok(Some(frame)) = next_frame(&answer, usize::MAX) {
                        self.release_all(worker, frame);
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
            *slot = Slot::Abandoned { undo };
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

/// What a request is refused with that no frame may be as long as.
fn too_long(number: u32) -> Vec<u8> {
    let message = format!("a request has at most {FRAME_LEN_MAX} bytes");
    let limit = FRAME_LEN_MAX as u64;
    let detail = ErrorDetail::Text { value: limit, field: b"request", message: message.as_bytes() };
    let mut refusal = Vec::new();
    ErrorAnswer { code: ErrorCode::BadInput, detail }.encode(number, &mut refusal);
    refusal
}
