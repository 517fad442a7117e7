//! What clients do to their claims: they release them, extend them, and give up waiting.

use super::Auditor;
use super::duties::Word;
use crate::operation::Operation;
use waymaker_protocol::{Extended, LockId};

impl Auditor {
    pub(super) fn judge_release(
        &mut self,
        request: usize,
        id: LockId,
        forged: bool,
        was_waiting: bool,
        now_ms: u64,
    ) {
        if forged {
            return self.accuse("old-id", || format!("the forged id {id} was released"));
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
            self.accuse("old-id", || format!("{id} was over before it was released"));
        }
        self.note_over(id, now_ms);
        self.owe_to_holder(request, id, now_ms, Word::Revoked(id));
    }

    /// Another lane changed or ended this hold: its own lane must hear so.
    fn owe_to_holder(&mut self, request: usize, id: LockId, now_ms: u64, word: Word) {
        let (asked, Some(hold)) = (&self.requests[request], self.holds.get(&id)) else { return };
        let was_there = !hold.may_have_moved && hold.settled_ms < asked.first_sent_ms;
        // The stream of a hold hears of changes by other streams of its connection, unless these act as the lane of the hold.
        let is_own = matches!(
            asked.operation,
            Operation::Extend { own: true, .. } | Operation::Release { own: true, .. }
        );
        let is_elsewhere = hold.lane != asked.lane || self.is_front(asked.lane) && !is_own;
        if is_elsewhere && was_there && asked.sent_count == 1 {
            self.owe_event(hold.lane, asked.first_sent_ms, now_ms, word);
        }
    }

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
            self.accuse("answers", || format!("a lease of {given_ms} ms was due: {extended:?}"));
        }
        self.note_lease(id, stamp_ms, remaining_ms);
        let Some(hold) = self.holds.get(&id) else { return };
        if hold.session.is_some() {
            return self.accuse("answers", || format!("{id} has no lease of its own: {extended:?}"));
        }
        let over_before = hold.was_over_before(first_sent_ms);
        if over_before {
            self.accuse("old-id", || format!("{id} was over before it was extended"));
        }
        self.moved.insert((id, remaining_ms), stamp_ms);
        self.owe_to_holder(request, id, now_ms, Word::LeaseMoved(id, remaining_ms));
        self.judge_neighbours(id);
    }

    pub(super) fn judge_cancellation(&mut self, request: usize, number: u32, now_ms: u64) {
        let lane = self.requests[request].lane;
        if let Some(acquire) = self.lanes[lane].asked.get(&number).copied() {
            self.note_cancelled(acquire, now_ms);
        }
    }

    /// A request ended an acquire that waited.
    fn note_cancelled(&mut self, acquire: usize, now_ms: u64) {
        self.owe_cancelled(acquire, now_ms);
        let asked = &mut self.requests[acquire];
        asked.is_cancelled = true;
        // Its own answer comes after this one.
        if asked.is_granted {
            let (lane, number) = (asked.lane, asked.number);
            self.accuse("cancelled", || {
                format!("lane {lane}: {number} is acknowledged to have waited when it was granted")
            });
        }
    }
}
