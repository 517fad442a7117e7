//! A server that stops: it refuses what is new, and nothing is granted any more.

use super::Auditor;
use crate::operation::{Acquire, Operation, Registering};

impl Auditor {
    /// The server is told to stop.
    pub(crate) fn note_stopping(&mut self, now_ms: u64) {
        self.stopping_ms = Some(now_ms);
    }

    /// Whether this is what a server that stops refuses, and it was told to.
    pub(super) fn may_be_shut_out(&self, operation: &Operation) -> bool {
        let begins = matches!(
            operation,
            Operation::Acquire(_)
                | Operation::Register(Registering { heartbeat: false, .. })
                | Operation::Watch { .. }
                | Operation::Hello { .. }
        );
        begins && self.stopping_ms.is_some()
    }

    /// What was asked for later is not granted, and neither is who waited, once all shards have heard of it.
    pub(super) fn judge_granted_in_time(&mut self, request: usize, stamp_ms: u64) {
        let Some(stopping_ms) = self.stopping_ms else { return };
        let sent_ms = self.requests[request].first_sent_ms;
        // What was decided before may have to be durable first.
        let is_late = self.settings.durability.is_none() && stamp_ms > self.latest_ms(stopping_ms);
        if sent_ms > stopping_ms || is_late {
            let operation = self.requests[request].operation;
            self.accuse("stopping", || {
                format!("{operation:?} of {sent_ms} was granted at {stamp_ms}, the server stops since {stopping_ms}")
            });
        }
    }

    /// Nobody waits to the end of a wait when all shards have heard of it.
    pub(super) fn judge_waited_in_time(&mut self, request: usize, acquire: &Acquire) {
        let Some(stopping_ms) = self.stopping_ms else { return };
        let over_ms = self.requests[request].first_sent_ms + u64::from(acquire.wait_ms);
        // One that took over a waiter has that one's deadline; one that is granted and waits for the log goes on to do so.
        if self.settings.durability.is_none()
            && acquire.request_id.is_none()
            && over_ms > self.latest_ms(stopping_ms)
        {
            self.accuse("stopping", || {
                format!("{acquire:?} waited to {over_ms}, the server stops since {stopping_ms}")
            });
        }
    }
}
