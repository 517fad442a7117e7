//! Rule `stopping`: a server that stops refuses new requests, grants nothing and keeps no waiters.

use super::Auditor;
use crate::operation::{Acquire, Operation, Registration};

impl Auditor {
    /// Records the order to stop the server.
    pub(crate) fn note_stopping(&mut self, now_ms: u64) {
        self.stopping_ms = Some(now_ms);
    }

    /// Returns whether the server is stopping and refuses this operation for this reason.
    pub(super) fn may_be_shut_out(&self, operation: &Operation) -> bool {
        let begins = matches!(
            operation,
            Operation::Acquire(_)
                | Operation::Register(Registration { heartbeat: false, .. })
                | Operation::Watch { .. }
                | Operation::Hello { .. }
        );
        begins && self.stopping_ms.is_some()
    }

    /// Rule `stopping`: the server grants no request sent after the order to stop, and no waiter after all
    /// shards know of it.
    pub(super) fn judge_granted_in_time(&mut self, request: usize, stamp_ms: u64) {
        let Some(stopping_ms) = self.stopping_ms else { return };
        let sent_ms = self.requests[request].first_sent_ms;
        // A grant that was decided before the order may still have to become durable.
        let is_late = self.settings.durability.is_none() && stamp_ms > self.latest_ms(stopping_ms);
        if sent_ms > stopping_ms || is_late {
            let operation = self.requests[request].operation;
            self.accuse("stopping", || {
                format!(
                    "{operation:?}, sent at {sent_ms} ms, was granted at {stamp_ms} ms, but the server has been stopping since {stopping_ms} ms"
                )
            });
        }
    }

    /// Rule `stopping`: no acquire waits to the end of its wait after all shards know of the order to stop.
    pub(super) fn judge_waited_in_time(&mut self, request: usize, acquire: &Acquire) {
        let Some(stopping_ms) = self.stopping_ms else { return };
        let over_ms = self.requests[request].first_sent_ms + u64::from(acquire.wait_ms);
        // An acquire that takes over a waiter has the deadline of that waiter. A granted acquire may still
        // wait for the log.
        if self.settings.durability.is_none()
            && acquire.request_id.is_none()
            && over_ms > self.latest_ms(stopping_ms)
        {
            self.accuse("stopping", || {
                format!(
                    "{acquire:?} waited to {over_ms} ms, but the server has been stopping since {stopping_ms} ms"
                )
            });
        }
    }
}
