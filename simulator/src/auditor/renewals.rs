//! Rules about a client that keeps its holds.
//!
//! The local deadline of a guard is as late as a response of the server allows, and no later than the server surely keeps the
//! hold. A connected lane renews each lease in time: after a third of a lease, a renewal is in flight. The same is true of
//! the lease of its session.

use super::Auditor;
use super::guards::GuardView;
use crate::operation::Operation;

/// Tolerance for the drift of client clocks and for whole milliseconds on the wire.
const SLACK_MS: u64 = 4;
/// The longest time between two keep-alives of a lane, and the longest delay of a renewal that was refused.
const KEEP_ALIVE_MAX_MS: u64 = 5_000;
const RETRY_MAX_MS: u64 = 1_000;

impl Auditor {
    /// Rules `needless-loss`, `guard` and `renewal` for a guard that reports that it holds.
    pub(super) fn judge_held_guard(&mut self, process: usize, view: &GuardView, now_us: u64) {
        let Some(hold) = self.holds.get(&view.id) else { return };
        // Another acquire with the same request id may have found the hold.
        if hold.request_id.is_some() || self.guards.is_excused(process, view.id) {
            return;
        }
        self.judge_belief(process, view);
        if view.is_connected && self.has_room(process, view.lane) {
            self.judge_renewal_of_guard(process, view, now_us);
        }
    }

    /// Rules `needless-loss` and `guard`: checks the local deadline of a guard.
    fn judge_belief(&mut self, process: usize, view: &GuardView) {
        let Some(hold) = self.holds.get(&view.id) else { return };
        let floor_ms = self.belief_floor_ms(process, view.id).filter(|_| {
            // A caller may request a shorter lease.
            let extends = |operation| matches!(operation, Operation::Extend { id, .. } if id == view.id);
            hold.release_after_ms.is_none()
                && view.is_connected
                && self.has_room(process, view.lane)
                && !self.unanswered(process, view.lane).any(extends)
        });
        let lease_ms = match hold.session {
            Some(session) => self.session_lease_floor_ms(session),
            // A lease that restarted with the server may last longer, and its guard learns of this.
            None => self.lease_floor_ms(view.id).max(hold.late_ms.min(self.word_ms(view.id))),
        };
        // A loss of the lane from before the grant has no effect.
        let outer_ms = Some(self.outer_floor_ms(hold)).filter(|outer_ms| *outer_ms > hold.said_ms);
        let latest_ms = lease_ms.min(outer_ms.unwrap_or(u64::MAX));
        let is_certain = hold.over_ms.is_none()
            && !hold.lease_is_open
            && !hold.others_may_end
            && !hold.may_have_moved
            && !self.is_session_in_doubt(hold.lane);
        if let Some(floor_ms) = floor_ms
            && view.until_us < self.to_us(floor_ms)
        {
            let hold = format!("{hold:?}");
            return self.accuse("needless-loss", || {
                format!(
                    "process {process} has a guard with a deadline that is too early: {view:?}; a response allows {floor_ms} ms: {hold}"
                )
            });
        }
        if is_certain && view.until_us > self.end_us(latest_ms) {
            let hold = format!("{hold:?}");
            self.accuse("guard", || {
                format!(
                    "process {process} has a guard with a deadline that is too late: {view:?}; the server keeps the hold to {latest_ms} ms: {hold}"
                )
            });
        }
    }

    /// Rule `renewal`: a request that renews the lease is in flight in time.
    fn judge_renewal_of_guard(&mut self, process: usize, view: &GuardView, now_us: u64) {
        let left_ms = view.until_us.saturating_sub(now_us) / 1000;
        // The deadline of a hold that ends with its connection also depends on the connection.
        let Some(hold) = self.holds.get(&view.id).filter(|hold| hold.release_after_ms.is_none()) else {
            return;
        };
        let (lease_ms, due_ms) = if view.is_on_session {
            let lease_ms = u64::from(self.lease_ms_of_session(hold.session));
            (lease_ms, lease_ms.saturating_sub((lease_ms / 3).min(KEEP_ALIVE_MAX_MS)))
        } else {
            let Some(word) = self.lease_word(process, view.id).filter(|word| word.end_ms < u64::MAX) else {
                return;
            };
            if !view.is_renewed {
                return;
            }
            let lease_ms = u64::from(word.remaining_ms);
            (lease_ms, lease_ms - lease_ms / 3)
        };
        let longest_ms = lease_ms.max(u64::from(hold.longest_ms));
        let margin_ms = (longest_ms / 10).min(50) + longest_ms / 100 + lease_ms / 1000 + SLACK_MS;
        let retry_us = (lease_ms / 3).clamp(10, RETRY_MAX_MS) * 1000;
        let is_refused = self.not_moved_us(process, view.id) + retry_us > now_us;
        let is_refused = is_refused
            || view.is_on_session && self.has_heard_any_refusal(process, now_us.saturating_sub(retry_us));
        if left_ms + margin_ms >= due_ms || is_refused {
            return;
        }
        let renews = |operation: Operation| match operation {
            Operation::Extend { id, .. } | Operation::Status { id } => id == view.id,
            Operation::KeepAlive | Operation::Holds { .. } => view.is_on_session,
            _ => false,
        };
        if !self.unanswered(process, view.lane).any(renews) {
            let hold = format!("{hold:?}");
            self.accuse("renewal", || {
                format!(
                    "process {process} has no renewal in flight for {view:?}, with {left_ms} ms left of a lease of {lease_ms} ms: {hold}"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::restarts::Ending;
    use crate::auditor::scene::{
        ACQUIRE, ALL, CONNECTION, PROCESS, asks, auditor, granted, granted_to_process, guard_view, id_of,
        rule, says, says_granted, status,
    };
    use crate::operation::Acquire;
    use waymaker_protocol::{Extended, Granted, Response, SessionId, Welcome};

    /// Returns an auditor with a real client that has read the grant of its hold.
    fn granted_hold() -> Auditor {
        let mut auditor = granted_to_process();
        auditor.note_heard(CONNECTION, ALL, 101_000);
        auditor
    }

    fn believes(auditor: &mut Auditor, until_ms: u64, now_ms: u64) {
        let view = GuardView { is_renewed: true, is_connected: true, ..guard_view(until_ms) };
        auditor.note_guards(PROCESS, &[view], now_ms * 1000);
    }

    fn asks_for_extend(auditor: &mut Auditor, number: u32, lease_ms: u32, now_ms: u64) {
        let operation = Operation::Extend { id: id_of(1), lease_ms, own: false };
        auditor.asks(CONNECTION, number, operation, 0, now_ms);
    }

    #[test]
    fn a_deadline_is_as_late_as_a_response_allows() {
        let mut auditor = granted_hold();
        believes(&mut auditor, 740, 110);
        assert_eq!(auditor.violation(), None);
        believes(&mut auditor, 700, 110);
        assert_eq!(rule(&auditor), Some("needless-loss"));
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_of_it() {
        let mut auditor = granted_hold();
        believes(&mut auditor, 740, 300);
        assert_eq!(auditor.violation(), None);
        asks_for_extend(&mut auditor, 2, 700, 340);
        believes(&mut auditor, 740, 400);
        assert_eq!(auditor.violation(), None, "the renewal is in flight");
        let mut auditor = granted_hold();
        believes(&mut auditor, 740, 400);
        assert_eq!(rule(&auditor), Some("renewal"));
    }

    /// Returns the rule that is broken if a guard reports a hold of a session until `until_ms`, after
    /// restarts. No connection resumes the session.
    fn rule_for_belief_in_session(restart_count: u64, until_ms: u64) -> Option<&'static str> {
        let mut auditor = auditor();
        auditor.settings.start_ms = 0;
        let lane = auditor.new_lane_of_process(3, PROCESS);
        auditor.open(lane, false);
        let session_id = SessionId { place: 1, secret: 1 };
        let welcome = Welcome { session_id, session_lease_ms: 700, stamp_ms: 90, ..Welcome::default() };
        auditor.note_welcome(CONNECTION, &welcome, 90);
        let acquire = Acquire { request_id: None, release_after_ms: None, session_lease: true, ..ACQUIRE };
        asks(&mut auditor, CONNECTION, acquire, 100);
        says_granted(&mut auditor, CONNECTION, Granted { session_lease: true, ..granted(1, 100) });
        auditor.note_heard(CONNECTION, ALL, 101_000);
        for restart in 0..restart_count {
            auditor.note_end(110 + restart * 10, Ending::Clean);
            auditor.note_start(115 + restart * 10, 0, false);
        }
        let view = GuardView {
            id: id_of(1),
            until_us: until_ms * 1000,
            lane: 3,
            fence: 1,
            is_on_session: true,
            ..GuardView::default()
        };
        auditor.note_guards(PROCESS, &[view], 200_000);
        rule(&auditor)
    }

    /// The auditor does not rely on a session that is not resumed between two restarts, but the server may
    /// have restored it.
    #[test]
    fn a_guard_may_rely_on_a_session_that_two_restarts_may_have_kept() {
        assert_eq!(rule_for_belief_in_session(0, 790), None);
        assert_eq!(rule_for_belief_in_session(2, 790), None);
        assert_eq!(rule_for_belief_in_session(2, 810), Some("last-word"));
    }

    /// A server with a log restarts 200 ms after a grant of 700 ms, and then reports `remaining_ms` of the
    /// lease.
    fn rule_for_belief_in_lease_begun_anew(remaining_ms: u32, until_ms: u64) -> Option<&'static str> {
        let mut auditor = granted_hold();
        auditor.note_end(290, Ending::Clean);
        auditor.note_start(300, 0, true);
        auditor.asks(CONNECTION, 2, Operation::Status { id: id_of(1) }, 0, 310);
        says(&mut auditor, CONNECTION, 2, &Response::Status(status(remaining_ms, 311)), 312);
        auditor.note_heard(CONNECTION, 1, 313_000);
        believes(&mut auditor, until_ms, 320);
        rule(&auditor)
    }

    #[test]
    fn a_guard_relies_on_a_restarted_lease_once_its_process_has_read_it() {
        assert_eq!(rule_for_belief_in_lease_begun_anew(689, 950), None);
        assert_eq!(rule_for_belief_in_lease_begun_anew(489, 950), Some("last-word"));
        assert_eq!(rule_for_belief_in_lease_begun_anew(900, 1_200), Some("guard"));
    }

    /// The server answers both extends, but the client has read only the response to the first.
    #[test]
    fn a_guard_does_not_rely_on_more_than_the_shorter_requested_lease() {
        let mut auditor = granted_hold();
        auditor.note_extend_of(PROCESS, id_of(1), 200_000);
        asks_for_extend(&mut auditor, 2, 700, 200);
        asks_for_extend(&mut auditor, 3, 50, 200);
        let extended = Extended { remaining_ms: 700, stamp_ms: 201, clamped: false };
        says(&mut auditor, CONNECTION, 2, &Response::Extended(extended), 201);
        auditor.note_heard(CONNECTION, 1, 202_000);
        believes(&mut auditor, 244, 203);
        assert_eq!(auditor.violation(), None);
        believes(&mut auditor, 840, 203);
        assert_eq!(rule(&auditor), Some("guard"));
    }
}
