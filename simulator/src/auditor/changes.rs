//! Rules about releases, extends and cancellations of claims.

use super::Auditor;
use super::duties::Word;
use crate::operation::Operation;
use waymaker_protocol::{Extended, LockId};

impl Auditor {
    /// Rule `old-id`: RELEASED names a claim that was not over.
    pub(super) fn judge_release(
        &mut self,
        request: usize,
        id: LockId,
        forged: bool,
        was_waiting: bool,
        now_ms: u64,
    ) {
        if forged {
            return self.accuse("old-id", || {
                format!("the forged id {id} must not be found, but the server reports its release")
            });
        }
        let first_sent_ms = self.requests[request].first_sent_ms;
        if was_waiting {
            if let Some(acquire) = self.waiters.get(&id).copied() {
                self.note_cancelled(acquire, now_ms);
            }
            return;
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let over_before = hold.was_over_before(first_sent_ms);
        let twice = hold.released_by.replace(request).is_some_and(|other| other != request);
        if over_before || twice {
            self.accuse("old-id", || {
                format!("{id} had ended before the release was sent, but the server reports its release")
            });
        }
        self.note_over(id, now_ms);
        self.owe_to_holder(request, id, now_ms, Word::Revoked(id));
    }

    /// Adds the duty to tell the lane of a hold that another lane changed or ended it.
    fn owe_to_holder(&mut self, request: usize, id: LockId, now_ms: u64, word: Word) {
        let (record, Some(hold)) = (&self.requests[request], self.holds.get(&id)) else { return };
        let was_there = !hold.may_have_moved && hold.settled_ms < record.first_sent_ms;
        // A front end tells the stream of a hold about changes by other streams of its connection. It does not
        // tell about a request with `own: true`, which acts as the lane of the hold.
        let is_own = matches!(
            record.operation,
            Operation::Extend { own: true, .. } | Operation::Release { own: true, .. }
        );
        let is_elsewhere = hold.lane != record.lane || self.is_front(record.lane) && !is_own;
        if is_elsewhere && was_there && record.sent_count == 1 {
            self.owe_event(hold.lane, record.first_sent_ms, now_ms, word);
        }
    }

    /// Rules `answers` and `old-id`: EXTENDED gives the requested lease, within the limit, to a hold that was not over.
    pub(super) fn judge_extension(
        &mut self,
        request: usize,
        id: LockId,
        lease_ms: u32,
        extended: &Extended,
        now_ms: u64,
    ) {
        self.forget_move(request, id);
        let first_sent_ms = self.requests[request].first_sent_ms;
        self.forget_moves_of_ended_sessions(id, first_sent_ms);
        let given_ms = self.settings.given_lease_ms(lease_ms);
        let Extended { remaining_ms, stamp_ms, clamped } = *extended;
        if remaining_ms != given_ms || clamped != (lease_ms > self.settings.limits.lease_max_ms) {
            self.accuse("answers", || {
                format!("the extend must give a lease of {given_ms} ms, but gave {extended:?}")
            });
        }
        self.note_lease(id, stamp_ms, remaining_ms);
        let Some(hold) = self.holds.get(&id) else { return };
        if hold.session.is_some() {
            return self.accuse("answers", || {
                format!(
                    "{id} depends on the lease of its session and cannot be extended, but got {extended:?}"
                )
            });
        }
        let over_before = hold.was_over_before(first_sent_ms);
        if over_before {
            self.accuse("old-id", || {
                format!("{id} had ended before the extend was sent, but the server reports its extension")
            });
        }
        self.moved.insert((id, remaining_ms), stamp_ms);
        self.owe_to_holder(request, id, now_ms, Word::LeaseMoved(id, remaining_ms));
        self.judge_neighbours(id);
    }

    /// Records the response to a cancellation that ended a wait.
    pub(super) fn judge_cancellation(&mut self, request: usize, number: u32, now_ms: u64) {
        let lane = self.requests[request].lane;
        if let Some(acquire) = self.lanes[lane].requests.get(&number).copied() {
            self.note_cancelled(acquire, now_ms);
        }
    }

    /// Rule `cancelled`: an acquire that was acknowledged as waiting is not granted.
    fn note_cancelled(&mut self, acquire: usize, now_ms: u64) {
        self.owe_cancelled(acquire, now_ms);
        let record = &mut self.requests[acquire];
        record.is_cancelled = true;
        // The acquire gets its own response after this one.
        if record.is_granted {
            let (lane, number) = (record.lane, record.number);
            self.accuse("cancelled", || {
                format!(
                    "lane {lane}, request {number}: the server acknowledges the end of its wait, but had already granted it"
                )
            });
        }
    }
}
