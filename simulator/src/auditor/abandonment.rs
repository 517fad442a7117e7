//! Rule `uncalled`: a real client cancels a waiting acquire whose caller has dropped it.

use super::Auditor;
use crate::key::Key;
use crate::operation::{MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet};

/// Waiting acquires without a caller at the last check, by lane.
#[derive(Debug, Default)]
pub(crate) struct AbandonedAcquires(BTreeMap<usize, BTreeSet<usize>>);

impl Auditor {
    /// Rule `uncalled`: checks the waiting acquires of a lane. Callers of its process want the keys in
    /// `wanted`. The lane has time until the next check to send the cancellation.
    pub(crate) fn judge_uncalled_of(&mut self, process: usize, lane: usize, wanted: &BTreeSet<Key>) {
        let before = self.abandoned.0.remove(&lane).unwrap_or_default();
        if !self.has_room(process, lane) {
            return;
        }
        let connection = self.lanes[lane].connections.last().copied();
        let left = self.lanes[lane].requests.values().copied().filter(|request| {
            let record = &self.requests[*request];
            let Operation::Acquire(acquire) = record.operation else { return false };
            let may_be_shared = acquire.request_id.is_some_and(|number| number < MADE_UP_REQUEST_ID);
            // If another connection carried the acquire, the client has released its claim and asks again
            // under another number.
            Some(record.connection) == connection
                && record.queued.is_some()
                && !record.is_answered
                && !may_be_shared
                && !self.is_cancelled_on(record.connection, record.number)
                && acquire.keys().iter().all(|(key, _)| !wanted.contains(key))
        });
        let left: BTreeSet<usize> = left.collect();
        if let Some(request) = left.intersection(&before).next() {
            let record = format!("{:?}", self.requests[*request]);
            self.accuse("uncalled", || {
                format!(
                    "no caller of process {process} waits for this acquire, but the client has not cancelled it: {record}"
                )
            });
        }
        self.abandoned.0.insert(lane, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{ACQUIRE, CONNECTION, PROCESS, granted_to_process, id_of, rule, says};
    use crate::operation::Acquire;
    use waymaker_protocol::{Event, Response};

    /// Returns the rule that is broken if an acquire waits and the callers of its process want these keys.
    fn rule_for(is_cancelled: bool, wanted: &[Key]) -> Option<&'static str> {
        let mut auditor = granted_to_process();
        let acquire = Acquire { wait_ms: u32::MAX, request_id: None, notify_queued: true, ..ACQUIRE };
        auditor.asks(CONNECTION, 2, Operation::Acquire(acquire), 0, 1_000);
        let queued = Event::Queued { id: id_of(2), position: 0, ticket: 1 };
        says(&mut auditor, CONNECTION, 2, &Response::Event(queued), 1_000);
        auditor.violation = None;
        if is_cancelled {
            auditor.asks(CONNECTION, 3, Operation::Cancel { acquire: 2, key: 0 }, 0, 2_000);
        }
        for _ in 0..2 {
            assert_eq!(auditor.violation(), None);
            auditor.judge_uncalled_of(PROCESS, 3, &wanted.iter().copied().collect());
        }
        rule(&auditor)
    }

    #[test]
    fn an_acquire_without_a_caller_is_cancelled() {
        assert_eq!(rule_for(false, &[0]), None);
        assert_eq!(rule_for(false, &[1]), Some("uncalled"));
        assert_eq!(rule_for(true, &[1]), None);
    }
}
