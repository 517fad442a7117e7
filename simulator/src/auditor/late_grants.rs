//! Rules `late-grant` and `overdue`: a claim waits no longer than a conflicting claim exists.

use super::Auditor;
use crate::form::Form;
use crate::key::Key;
use crate::operation::Acquire;
use waymaker_protocol::{Granted, LockId};

impl Auditor {
    /// Rule `late-grant`: a waiting claim is granted shortly after the last conflicting claim is gone.
    pub(super) fn judge_late_grant(
        &mut self,
        request: usize,
        acquire: &Acquire,
        granted: &Granted,
        now_ms: u64,
    ) {
        let Granted { id, fence, stamp_ms, .. } = *granted;
        let key = acquire.key;
        let record = &self.requests[request];
        let Some((.., queued_ms)) = record.queued.filter(|_| record.sent_count == 1 && !granted.repeated)
        else {
            return;
        };
        if matches!(acquire.form, Form::Keys(_)) || acquire.request_id.is_some() || !self.is_prompt(key) {
            return;
        }
        if self.may_be_frozen(key, queued_ms, now_ms) {
            return;
        }
        let Some(holders_ms) = self.holders_left_ms(key, fence) else { return };
        let Some(waiters_ms) = self.waiters_left_ms(request, key, queued_ms, stamp_ms) else { return };
        let clear_ms = holders_ms.max(waiters_ms).max(queued_ms);
        if stamp_ms > self.latest_ms(clear_ms) {
            self.accuse("late-grant", || {
                format!(
                    "key {key}: {id} waited and was granted at {stamp_ms} ms, but no claim conflicted with it since {clear_ms} ms"
                )
            });
        }
    }

    /// Returns when all earlier holders of a key had gone, if that is known.
    fn holders_left_ms(&self, key: Key, fence: u64) -> Option<u64> {
        let history = self.keys.get(&key)?;
        let mut next = fence;
        let mut left_ms = 0;
        for (other, grant) in history.earlier(fence) {
            if other + 1 != next {
                break;
            }
            next = other;
            left_ms = left_ms.max(self.ceiling_of(grant.id)?);
        }
        // A hold with a fence that no client knows may last until now.
        if next > 1 {
            return None;
        }
        Some(left_ms)
    }

    /// Returns when all claims that may have been ahead of this one had left the queue of a key, if that is
    /// known.
    fn waiters_left_ms(&self, request: usize, key: Key, queued_ms: u64, stamp_ms: u64) -> Option<u64> {
        if !self.knows_crowd_since(key, queued_ms) {
            return None;
        }
        let mut left_ms = 0;
        for other in self.crowd(key).filter(|other| *other != request) {
            let record = &self.requests[other];
            if record.first_sent_ms > stamp_ms {
                continue;
            }
            match self.left_ms(other) {
                Some(other_ms) if other_ms < queued_ms => {}
                Some(other_ms) => left_ms = left_ms.max(other_ms),
                None => return None,
            }
        }
        Some(left_ms)
    }

    /// Returns the latest end of a hold that a response shows at `at_ms`, if the hold must have ended by then.
    pub(super) fn is_overdue(&self, id: LockId, at_ms: u64) -> Option<u64> {
        let hold = self.holds.get(&id)?;
        // A hold whose end was reported has its own rule.
        let end_ms = self.ceiling_ms(hold).filter(|_| hold.over_ms.is_none())?;
        (at_ms > end_ms && at_ms > self.over_by_ms(end_ms, at_ms)).then_some(end_ms)
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_granted};
    use crate::auditor::{Auditor, Ending};
    use crate::operation::{Acquire, Operation};
    use waymaker_protocol::{Event, Granted, Response};

    /// More holds than most rules compare.
    const HOLD_COUNT: u64 = 80;
    const FIRST_LEASE_MS: u32 = 5_000;
    const SHARED: Acquire = Acquire { shared: true, request_id: None, release_after_ms: None, ..ACQUIRE };

    /// Many holders share a key, the first of them with a lease of `first_lease_ms`. Clients get the grants
    /// from the fence `first_said` on. A claim that waits for all of them is granted `after_ms` after the
    /// start.
    fn granted_after(first_lease_ms: u32, first_said: u64, after_ms: u64) -> Auditor {
        let mut auditor = auditor();
        auditor.settings.durability = None;
        let start_ms = auditor.settings.start_ms;
        for fence in first_said..=HOLD_COUNT {
            let lease_ms = if fence == 1 { first_lease_ms } else { SHARED.lease_ms };
            let number = fence as u32;
            auditor.asks(0, number, Operation::Acquire(Acquire { lease_ms, ..SHARED }), 0, start_ms);
            let grant = Granted { remaining_ms: lease_ms, ..granted(fence, start_ms + 1) };
            says(&mut auditor, 0, number, &Response::Granted(grant), start_ms + 1);
        }
        let waits = Acquire { shared: false, wait_ms: u32::MAX, notify_queued: true, ..SHARED };
        auditor.asks(2, 1, Operation::Acquire(waits), 0, start_ms + 2);
        let id = id_of(HOLD_COUNT + 1);
        says(
            &mut auditor,
            2,
            1,
            &Response::Event(Event::Queued { id, position: 0, ticket: 0 }),
            start_ms + 3,
        );
        let grant = Granted { waited: true, ..granted(HOLD_COUNT + 1, start_ms + after_ms) };
        says(&mut auditor, 2, 1, &Response::Granted(grant), start_ms + after_ms);
        auditor
    }

    #[test]
    fn a_claim_waits_for_the_oldest_of_many_holds() {
        let after_ms = u64::from(FIRST_LEASE_MS) + 2;
        assert_eq!(granted_after(FIRST_LEASE_MS, 1, after_ms).violation(), None);
        assert_eq!(rule(&granted_after(SHARED.lease_ms, 1, after_ms)), Some("late-grant"));
    }

    #[test]
    fn a_claim_may_wait_for_a_hold_that_no_client_knows() {
        let after_ms = u64::from(FIRST_LEASE_MS) + 2;
        assert_eq!(granted_after(SHARED.lease_ms, 2, after_ms).violation(), None);
    }

    /// Returns whether a hold is overdue 300 ms after a start, if its lease ended while no server ran.
    /// Workers stall for `stall_us` after the start.
    fn is_overdue_after_a_start(stall_us: u64) -> bool {
        let mut auditor = auditor();
        let start_ms = auditor.settings.start_ms;
        asks(&mut auditor, 0, Acquire { shared: false, ..SHARED }, start_ms + 1);
        says_granted(&mut auditor, 0, granted(1, start_ms + 2));
        auditor.note_end(start_ms + 100, Ending::Clean);
        auditor.note_start(start_ms + 1_000, 0, false);
        auditor.note_stall(1_001_000, stall_us);
        auditor.is_overdue(id_of(1), start_ms + 1_300).is_some()
    }

    #[test]
    fn a_lease_that_ended_while_no_server_ran_is_over_once_workers_run() {
        assert!(!is_overdue_after_a_start(400_000));
        assert!(is_overdue_after_a_start(100_000));
    }
}
