//! Rules about the content of INSPECT, STATUS and VERIFY responses.

use super::Auditor;
use crate::key::{Key, TREE};
use crate::operation::Operation;
use waymaker_protocol::{Inspected, LockId, LockState, StatusAnswer, Verified};

impl Auditor {
    /// Rules `old-id` and `view`: STATUS shows a hold that was not over, as it was granted.
    pub(super) fn judge_status(&mut self, request: usize, id: LockId, status: &StatusAnswer<'_>) {
        self.judge_status_numbers(request, id, status);
        let first_sent_ms = self.requests[request].first_sent_ms;
        let Some(hold) = self.holds.get(&id) else { return };
        let is_over = hold.was_over_before(first_sent_ms);
        let same =
            status.state == LockState::Held && status.fence == hold.fence && status.shared == hold.shared;
        if is_over {
            self.accuse("old-id", || {
                format!("{id} had ended before the request was sent, but STATUS shows it: {status:?}")
            });
        } else if !same {
            self.accuse("view", || {
                format!("STATUS shows {id} with another state, fence or mode than it was granted: {status:?}")
            });
        }
        self.judge_overdue(&[id], status.stamp_ms);
        self.judge_session_shown(request, id, status);
    }

    /// Rule `view`: INSPECT shows no conflicting holders, no old fence, and all holds that surely exist, as they were granted.
    pub(super) fn judge_inspection(&mut self, request: usize, inspected: &Inspected<'_>, now_ms: u64) {
        let record = &self.requests[request];
        let (sent_ms, fence_before) = (record.first_sent_ms, record.fence_before);
        let Operation::Inspect { key } = record.operation else { return };
        let exclusive = inspected.holders.iter().any(|holder| !holder.shared);
        let conflict = exclusive && inspected.holder_count > 1 && key != TREE;
        if conflict || inspected.fence < fence_before {
            return self.accuse("view", || {
                format!(
                    "key {key}: INSPECT shows conflicting holders, or a fence below {fence_before}, which was known before: {inspected:?}"
                )
            });
        }
        let is_other = inspected.holders.iter().find(|holder| {
            self.holds.get(&holder.id).is_some_and(|hold| {
                let (owner, ..) = hold.shown();
                (holder.fence, holder.shared, holder.owner) != (hold.fence, hold.shared, &owner)
            })
        });
        if let Some(holder) = is_other {
            return self.accuse("view", || {
                format!(
                    "key {key}: INSPECT shows {holder:?} with another fence, mode or owner than it was granted"
                )
            });
        }
        self.judge_inspected_numbers(request, key, inspected, now_ms);
        let shown: Vec<LockId> = inspected.holders.iter().map(|holder| holder.id).collect();
        self.judge_shown(&shown, sent_ms);
        self.judge_overdue(&shown, inspected.stamp_ms);
        let all_shown = inspected.holder_count as usize == shown.len();
        self.judge_missing(key, (fence_before, sent_ms), &shown, all_shown, now_ms);
    }

    /// Rule `view`: a hold that was granted before the request was sent, and surely exists after the
    /// response, is shown.
    pub(super) fn judge_missing(
        &mut self,
        key: Key,
        (fence_before, sent_ms): (u64, u64),
        shown: &[LockId],
        all_shown: bool,
        now_ms: u64,
    ) {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        for id in ids {
            let hold = &self.holds[&id];
            let listed = hold.key != key || shown.contains(&id) || !all_shown;
            // A durable claim may become held after claims with higher fences.
            let was_held = self.is_plain(key) && self.is_prompt(key) || hold.said_ms < sent_ms;
            if !listed && was_held && hold.fence <= fence_before && self.surely_lives(id, now_ms) {
                self.accuse("view", || {
                    format!("key {key}: {id} is held, but the response shows only {shown:?}")
                });
            }
        }
    }

    /// Rule `overdue`: while workers run, no hold lasts long after its lease. The response shows it as held
    /// at `at_ms` or later.
    pub(super) fn judge_overdue(&mut self, shown: &[LockId], at_ms: u64) {
        for id in shown {
            if let Some(end_ms) = self.is_overdue(*id, at_ms) {
                let hold = format!("{:?}", self.holds.get(id));
                self.accuse("overdue", || {
                    format!(
                        "{id} is still held at {at_ms} ms, but its latest possible end was {end_ms} ms: {hold}"
                    )
                });
            }
        }
    }

    /// Rule `view`: a hold that a response shows was not known to have ended when the request was sent.
    pub(super) fn judge_shown(&mut self, shown: &[LockId], sent_ms: u64) {
        for id in shown {
            let over_ms = self.holds.get(id).and_then(|hold| hold.over_ms);
            if over_ms.is_some_and(|over_ms| over_ms < sent_ms) {
                self.accuse("view", || format!("{id} is shown as held, but had ended at {over_ms:?} ms"));
            }
        }
    }

    /// Rule `view`: VERIFIED reports correctly whether the fence is the newest of its key, and whether it is held.
    pub(super) fn judge_verified(
        &mut self,
        request: usize,
        key: Key,
        fence: u64,
        verified: &Verified,
        now_ms: u64,
    ) {
        let record = &self.requests[request];
        let (sent_ms, fence_before) = (record.first_sent_ms, record.fence_before);
        let is_forgetful = self.settings.is_forgetful;
        // In a tree the fence of every hold is the newest. The server forgets only counters of free keys. After
        // that it no longer knows that a fence of such a key was the newest.
        let is_newest = verified.newest_fence == fence && fence > 0 || verified.held && key == TREE;
        let is_consistent = (verified.newest == is_newest || is_forgetful && is_newest)
            && (verified.newest || !verified.held)
            && verified.newest_fence >= fence_before;
        // If a counter restarted, or the cluster counted while other claims were granted, another hold may
        // have the same fence.
        let is_counted = self.keys.get(&key).is_some_and(|key| key.is_counted_asked);
        let mut named = self.holds.iter().filter(|(_, hold)| hold.key == key && hold.fence == fence);
        let named = named.next().filter(|_| named.next().is_none() && !is_counted);
        let agrees = named.is_none_or(|(id, hold)| {
            // After a restart a new hold, still unknown to its client, may have the fence of an ended one.
            let was_over = hold.was_over_before(sent_ms) && !self.restarts.happened_since(hold.said_ms);
            let lives = self.surely_lives(*id, now_ms);
            !(verified.held && was_over || verified.newest && !verified.held && lives)
        });
        if !is_consistent || !agrees {
            self.accuse("view", || {
                format!(
                    "key {key}: VERIFY of fence {fence} gives a wrong result; fence {fence_before} was known before: {verified:?}"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::workload::Settings;
    use waymaker_protocol::Response;

    /// Returns the rule that is broken if VERIFIED reports that the newest fence of a free key is not the
    /// newest.
    fn newest_is_denied(is_forgetful: bool) -> Option<&'static str> {
        let settings = Settings { is_forgetful, ..Settings::new(0, None, &mut Random::new(0)) };
        let now_ms = settings.start_ms;
        let mut auditor = Auditor::new(&settings);
        let lane = auditor.new_lane(0);
        auditor.open(lane, false);
        auditor.asks(0, 1, Operation::Verify { key: 0, fence: 1 }, 0, now_ms);
        let mut frame = Vec::new();
        Response::Verified(Verified { newest_fence: 1, ..Verified::default() }).encode(1, &mut frame);
        auditor.said(0, &frame, now_ms);
        auditor.violation().map(|violation| violation.rule)
    }

    #[test]
    fn the_newest_fence_is_reported_as_newest_unless_its_counter_was_forgotten() {
        assert_eq!(newest_is_denied(false), Some("view"));
        assert_eq!(newest_is_denied(true), None);
    }
}
