//! Requests whose front end no longer listens to them. The front end may have given a cancel key: the key or pool name
//! of the claim, which a CANCEL must name. With a cancel key, a request that still waits is cancelled. If a request
//! with one answer was granted holds, and the front end has not read that answer, the holds are released, because no
//! client knows them. A hold that a newer request took over stays. A request with a stream of events (a followed
//! request) keeps its holds. Without a cancel key, nothing is cancelled or released.

use super::reply::given_back;
use super::{Abandoned, InletState, PutOff, Slot, granted_ids, is_overloaded};
use crate::clock::Moment;
use crate::worker::Worker;
use waymaker_protocol::message::{acquire, acquire_keys};
use waymaker_protocol::{Cancel, Frame, LockId, Release, Response, next_frame};

impl InletState {
    /// Removes the listener of a request, because the front end needs no replies any more. With `cancel_key`, the inlet
    /// cancels the request if it still waits. A request with one answer ([`InletState::begin_asked`]) may have an
    /// answer that the front end has not read. With `cancel_key`, the inlet also releases the holds that this answer
    /// grants. Without a key, or for a request with events ([`InletState::begin_followed`]), granted holds stay. Does
    /// nothing once the inlet is closed.
    pub fn leave(&mut self, worker: &mut Worker, number: u32, cancel_key: Option<&[u8]>, now: Moment) {
        if self.is_closed {
            return;
        }
        if self.is_watch(number) {
            // The request is a watch, which lasts as long as its lane. So keep its number in use, without a listener.
            let abandoned = Abandoned { undo: false, is_answered: true, cancel_key: None };
            self.slots[number as usize - 1] = Slot::Abandoned(abandoned);
        } else if self.is_answered(number) {
            match self.end(number) {
                Slot::Request { answer: Some(answer), is_taken_up: false, .. } if cancel_key.is_some() => {
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
            let undo = matches!(slot, Slot::Request { .. }) && cancel_key.is_some();
            let cancel_key = cancel_key.map(Into::into);
            *slot = Slot::Abandoned(Abandoned { undo, is_answered: false, cancel_key });
            self.cancel(worker, number, now);
        }
        self.take_output(worker);
    }

    /// Sends a CANCEL for an abandoned acquire that is unanswered. The CANCEL names the cancel key that the front end
    /// passed to [`InletState::leave`]; without a key, sends nothing. If the worker has answered the acquire by now,
    /// sends nothing and frees the number of the acquire.
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

    /// Sends a RELEASE for each of these holds, which no client knows.
    pub(super) fn release_all(&mut self, worker: &mut Worker, ids: impl IntoIterator<Item = LockId>) {
        for id in ids {
            let number = self.begin(Slot::Releases(id));
            self.release_count += 1;
            let mut frame = Vec::new();
            // Set `own`, so that the RELEASE ends the hold only if it still belongs to this lane: another lane may have
            // taken it over.
            Release { id, key: None, own: true }.encode(number, &mut frame);
            worker.handle_bytes(self.key, &frame, worker.moment());
        }
    }

    /// Frees the number of an abandoned request if the worker has answered the request and no CANCEL of it is pending.
    /// A CANCEL is pending until the worker has answered it. If the worker refused it because too many requests were in
    /// flight, it stays pending: the inlet sends it again later.
    pub(super) fn end_abandoned(&mut self, number: u32) {
        if let Slot::Abandoned(Abandoned { is_answered: true, cancel_key: None, .. }) =
            &self.slots[number as usize - 1]
        {
            self.end(number);
        }
    }

    /// Processes the answer to the CANCEL of an abandoned acquire. The worker may have refused the CANCEL because too
    /// many requests are in flight. If so, and if the acquire is still unanswered, puts off the CANCEL to be sent
    /// again. In all other cases notes that no CANCEL is needed any more, and frees the number of the acquire if the
    /// acquire is answered.
    pub(super) fn hear_cancelled(&mut self, acquire_number: u32, frame: Frame<'_>) {
        let Slot::Abandoned(abandoned) = &mut self.slots[acquire_number as usize - 1] else { return };
        if is_overloaded(frame) && !abandoned.is_answered {
            self.put_off.push(PutOff::Cancel(acquire_number));
        } else {
            abandoned.cancel_key = None;
            self.end_abandoned(acquire_number);
        }
    }

    /// Processes an answer while a RELEASE of this lane is unanswered. A client may repeat an acquire with the same
    /// request id. The answer to the newer acquire then grants the hold of the older one. If the RELEASE is for this
    /// hold, the listener of the newer acquire gets a refusal instead of the grant. Otherwise it would get a hold that
    /// ends at once, because the worker serves the RELEASE after the acquire.
    #[cold]
    pub(super) fn hear_answer_during_releases(&mut self, frame: Frame<'_>) {
        let refusal = self.releases_any_of(frame).then(|| given_back(frame.number()));
        let refusal = refusal.as_deref().and_then(|bytes| next_frame(bytes, usize::MAX).ok().flatten());
        self.hear_answer(refusal.unwrap_or(frame));
    }

    /// Returns whether this answer repeats the grant of a hold for which a RELEASE is unanswered.
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
