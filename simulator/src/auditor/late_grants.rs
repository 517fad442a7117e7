//! Late grants: a claim waits no longer than somebody is in its way.

use super::Auditor;
use crate::form::Form;
use crate::operation::{Acquire, Key};
use waymaker_protocol::{Granted, LockId};

impl Auditor {
    /// A claim that waited was granted when everybody in its way had gone, or a little later.
    pub(super) fn judge_late_grant(
        &mut self,
        request: usize,
        acquire: &Acquire,
        granted: &Granted,
        now_ms: u64,
    ) {
        let Granted { id, fence, stamp_ms, .. } = *granted;
        let key = acquire.key;
        let asked = &self.requests[request];
        let Some((.., queued_ms)) = asked.queued.filter(|_| asked.sent_count == 1 && !granted.repeated)
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
                format!("key {key}: {id} waited and was granted at {stamp_ms}, nobody was in its way since {clear_ms}")
            });
        }
    }

    /// When all earlier holders of a key had gone, if that is known.
    fn holders_left_ms(&self, key: Key, fence: u64) -> Option<u64> {
        let history = self.keys.get(&key)?;
        let mut next = fence;
        let mut left_ms = 0;
        for (other, grant) in history.others(fence).into_iter().filter(|(other, _)| *other < fence) {
            // A fence that nobody heard of may be held.
            if other + 1 != next {
                return None;
            }
            next = other;
            left_ms = left_ms.max(self.ceiling_of(grant.id)?);
        }
        Some(left_ms)
    }

    /// When all others had left the queue of a key that may have stood before this claim.
    fn waiters_left_ms(&self, request: usize, key: Key, queued_ms: u64, stamp_ms: u64) -> Option<u64> {
        if !self.knows_crowd_since(key, queued_ms) {
            return None;
        }
        let mut left_ms = 0;
        for other in self.crowd(key).filter(|other| *other != request) {
            let asked = &self.requests[other];
            if asked.first_sent_ms > stamp_ms {
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

    /// Whether a hold that is shown is over by now, workers running.
    pub(super) fn is_overdue(&self, id: LockId, at_ms: u64) -> Option<u64> {
        let hold = self.holds.get(&id)?;
        // What was said to be over has its own rule.
        let end_ms = self.ceiling_ms(hold).filter(|_| hold.over_ms.is_none())?;
        (at_ms > end_ms && at_ms > self.latest_ms(end_ms)).then_some(end_ms)
    }
}
