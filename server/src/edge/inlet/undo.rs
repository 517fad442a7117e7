//! Requests whose listener has left: their waits are cancelled, and holds that no client knows are released.

use super::reply::given_back;
use super::{Abandoned, InletState, PutOff, Slot, granted_ids, is_overloaded};
use crate::clock::Moment;
use crate::worker::Worker;
use waymaker_protocol::message::{acquire, acquire_keys};
use waymaker_protocol::{Cancel, Frame, LockId, Release, Response, next_frame};

impl InletState {
    /// Ends the listening to a request. With a key, a wait is cancelled, and a hold that no client knows is released.
    pub fn leave(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Moment) {
        if self.is_closed {
            return;
        }
        if self.is_watch(number) {
            // The watch lasts as long as the lane, and keeps its number.
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

    /// Sends a CANCEL for the wait of an abandoned acquire.
    pub(super) fn cancel(&mut self, worker: &mut Worker, acquire_number: u32, now: Moment) {
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

    /// Releases holds that no client knows.
    pub(super) fn release_all(&mut self, worker: &mut Worker, ids: impl IntoIterator<Item = LockId>) {
        for id in ids {
            let number = self.begin(Slot::Releases(id));
            self.release_count += 1;
            let mut frame = Vec::new();
            // Another lane may have taken the hold over, so release it only if it is this lane's own.
            Release { id, key: None, own: true }.encode(number, &mut frame);
            worker.handle_bytes(self.key, &frame, worker.moment());
        }
    }

    /// Frees the number of an abandoned request once no later answer or cancellation can name it.
    pub(super) fn end_abandoned(&mut self, number: u32) {
        if let Slot::Abandoned(Abandoned { is_answered: true, cancel_key: None, .. }) =
            &self.slots[number as usize - 1]
        {
            self.end(number);
        }
    }

    /// Processes the answer to a cancellation: it was served, or refused because too many requests are in flight.
    pub(super) fn hear_cancelled(&mut self, acquire_number: u32, frame: Frame<'_>) {
        let Slot::Abandoned(abandoned) = &mut self.slots[acquire_number as usize - 1] else { return };
        if is_overloaded(frame) && !abandoned.is_answered {
            self.put_off.push(PutOff::Cancel(acquire_number));
        } else {
            abandoned.cancel_key = None;
            self.end_abandoned(acquire_number);
        }
    }

    /// Refuses a request that took over a hold of an earlier one whose release is on its way. The release was sent
    /// later, so the worker serves it after the grant.
    #[cold]
    pub(super) fn hear_answer_during_releases(&mut self, frame: Frame<'_>) {
        let refusal = self.releases_any_of(frame).then(|| given_back(frame.number()));
        let refusal = refusal.as_deref().and_then(|bytes| next_frame(bytes, usize::MAX).ok().flatten());
        self.hear_answer(refusal.unwrap_or(frame));
    }

    /// Returns whether this answer repeats the grant of a hold whose release is on its way.
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
}
