//! Rule `durable`: a response that promises durability follows the sync of its record. Syncs, and times in
//! which the log cannot write.

use super::Auditor;
use super::holds::Hold;
use crate::operation::{Acquire, Operation};
use waymaker_protocol::{LockId, Response, StatusAnswer};

impl Auditor {
    /// Records that everything handed to the log before `before_ms` is durable.
    pub(crate) fn note_durable(&mut self, before_ms: u64, now_us: u64) {
        self.restarts.durable_ms = before_ms;
        if self.restarts.durable_since.last().is_none_or(|(last_ms, _)| *last_ms < before_ms) {
            self.restarts.durable_since.push((before_ms, now_us));
        }
    }

    /// Records that nothing handed to the log after this time is durable.
    pub(crate) fn note_nothing_durable_since(&mut self, at_ms: u64) {
        self.restarts.undurable_from_ms = Some(at_ms);
    }

    /// Rule `durable`: a response that promises durability follows the sync of its record. The record was
    /// handed to the log when the request had arrived, or later.
    pub(super) fn judge_durable(&mut self, request: usize, response: &Response<'_>) {
        if let (Operation::Status { id }, Response::Status(status)) =
            (self.requests[request].operation, response)
            && let Some(left_ms) = self.lengthened_ms(id, status)
        {
            return self.judge_durable_since(request, left_ms);
        }
        if self.settings.log().is_none() || !self.is_said_when_durable(request, response) {
            return;
        }
        let record = &self.requests[request];
        let arrived_ms = record.arrived_ms.filter(|_| record.sent_count == 1).unwrap_or(record.first_sent_ms);
        self.judge_durable_since(request, arrived_ms);
    }

    /// Rule `durable`: the record is durable; it was handed to the log at `left_ms` or later.
    pub(super) fn judge_durable_since(&mut self, request: usize, left_ms: u64) {
        let Some(undurable_from_ms) = self.restarts.undurable_from_ms else { return };
        if self.settings.log().is_some() && left_ms > undurable_from_ms {
            let record = &self.requests[request];
            let (lane, number, operation) = (record.lane, record.number, record.operation);
            self.accuse("durable", || {
                format!(
                    "lane {lane}, request {number}: the response depends on a record handed to the log at {left_ms} ms or later, but nothing from after {undurable_from_ms} ms is durable: {operation:?}"
                )
            });
        }
    }

    /// Returns when the only unanswered extend of a durable hold arrived, if `status` shows the longer lease
    /// that this extend set.
    pub(super) fn lengthened_ms(&self, id: LockId, status: &StatusAnswer<'_>) -> Option<u64> {
        let hold = self.holds.get(&id).filter(|hold| hold.session.is_none() && !hold.lease_is_open)?;
        // Of two responses with the same millisecond, it is unknown which is newer.
        let is_newest = hold.lease_stamp_ms < status.stamp_ms;
        let end_ms = status.stamp_ms + u64::from(status.remaining_ms);
        let is_local = self.keys.get(&hold.key).is_some_and(|key| key.is_local(hold.fence));
        let [(extend, ..)] = hold.may_move[..] else { return None };
        let extend = &self.requests[extend];
        // After its lease a hold is still shown, with no time left, until the server decides its end.
        let is_open = status.remaining_ms > 0 && status.remaining_ms < u32::MAX;
        let is_longer = is_local && is_newest && is_open && end_ms > hold.lease_end_ms.max(hold.late_ms);
        extend.arrived_ms.filter(|_| is_longer && extend.sent_count == 1)
    }

    /// Returns whether the request surely caused a record that the response depends on.
    pub(super) fn is_said_when_durable(&self, request: usize, response: &Response<'_>) -> bool {
        let is_local = |id: LockId| {
            let hold = self.holds.get(&id);
            hold.is_some_and(|hold| self.keys.get(&hold.key).is_some_and(|key| key.is_local(hold.fence)))
        };
        match (self.requests[request].operation, response) {
            (Operation::Acquire(acquire), Response::Granted(granted)) => {
                !granted.repeated && self.is_claim_durable(request, &acquire)
            }
            (Operation::Acquire(acquire), Response::GrantedKeys(granted)) => {
                !granted.repeated && self.is_claim_durable(request, &acquire)
            }
            (Operation::Extend { id, .. }, Response::Extended(extended)) => {
                let end_ms = extended.stamp_ms + u64::from(extended.remaining_ms);
                // Of two responses with the same millisecond, it is unknown which is newer.
                let is_known = |hold: &Hold| !hold.lease_is_open && hold.may_move.len() < 2;
                let is_longer = |hold: &Hold| is_known(hold) && hold.lease_end_ms.max(hold.late_ms) < end_ms;
                is_local(id) && self.holds.get(&id).is_some_and(is_longer)
            }
            (Operation::ForceRelease { id }, Response::ForceReleased(released)) => {
                is_local(id) && !released.was_waiting
            }
            (Operation::SetCapacity { .. }, Response::CapacitySet(_)) => true,
            (Operation::Register(registration), Response::Registered(_)) => !registration.heartbeat,
            _ => false,
        }
    }

    /// Returns whether the claim of this acquire is surely written to the log. An acquire may find an earlier
    /// claim by its request id; that claim keeps its own scope.
    pub(super) fn is_claim_durable(&self, request: usize, acquire: &Acquire) -> bool {
        let is_durable = |other: usize| matches!(self.requests[other].operation, Operation::Acquire(other) if other.scope.is_durable());
        acquire.scope.is_durable()
            && (acquire.request_id.is_none() || self.same_requests(request, acquire).all(is_durable))
    }

    /// Records the end of a sync.
    pub(crate) fn note_synced(&mut self, now_ms: u64) {
        self.restarts.synced_ms.insert(now_ms);
    }

    /// Records the duration of a sync. The log does nothing else meanwhile.
    pub(crate) fn note_sync_time(&mut self, took_ms: u64) {
        self.restarts.sync_ms += took_ms;
    }

    /// Records that the log of the server failed. All requests that wait for it get the response that their
    /// outcome is unknown.
    pub(crate) fn note_log_failed(&mut self, now_ms: u64) {
        self.restarts.log_failed_ms.get_or_insert(now_ms);
    }

    /// Records that the disk becomes full, or has room again.
    pub(crate) fn note_disk_full(&mut self, now_ms: u64, is_full: bool) {
        self.restarts.full_until_ms = Some(if is_full { u64::MAX } else { now_ms });
        self.restarts.sync_ms = 0;
    }
}
