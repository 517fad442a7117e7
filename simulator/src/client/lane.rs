//! One lane of a client: a connection, and the state that survives the loss of the connection.

use crate::key::Key;
use crate::operation::Operation;
use std::collections::BTreeMap;

/// A request number confirms that all requests older by this number have been answered. This is the server's
/// limit, with a margin.
const UNANSWERED_MAX: u32 = 1000;

/// Stage of the connection of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Down {
        retry_at_us: u64,
    },
    Greeting {
        sent_us: u64,
    },
    Open,
    /// The client sends nothing more.
    OnlyReads,
}

/// A request without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) operation: Operation,
    /// Time at which the request was first sent.
    pub(super) sent_us: u64,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// Number of the lane at the auditor.
    pub(super) auditor_lane: usize,
    pub(super) connection: Option<usize>,
    pub(super) stage: Stage,
    /// Number of the lane in the session; `None` without a session.
    pub(super) number: Option<u16>,
    next_number: u32,
    /// True if the client must list the holds of the lane: it may have missed a grant, or another server may
    /// have forgotten a release.
    pub(super) reconciles: bool,
    pub(super) pending: BTreeMap<u32, Pending>,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

impl Lane {
    pub(super) fn new(auditor_lane: usize) -> Self {
        Self {
            auditor_lane,
            connection: None,
            stage: Stage::Down { retry_at_us: 0 },
            number: None,
            next_number: 1,
            reconciles: false,
            pending: BTreeMap::new(),
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Returns whether a new request may be sent. It may not if it would confirm the answer to a request that
    /// has no answer yet. Waiting claims do not count.
    pub(super) fn takes_requests(&self) -> bool {
        let waits = |pending: &Pending| matches!(pending.operation, Operation::Acquire(_));
        let oldest = self.pending.iter().find(|(_, pending)| !waits(pending));
        matches!(self.stage, Stage::Open)
            && oldest.is_none_or(|(number, _)| self.next_number - number < UNANSWERED_MAX)
    }

    /// Registers a request and returns its number.
    pub(super) fn note_pending(&mut self, operation: Operation, now_us: u64) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.pending.insert(number, Pending { operation, sent_us: now_us });
        number
    }

    /// Returns the requests to repeat after a resume. Requests that are too old for the server to recognize
    /// are dropped.
    pub(super) fn repetitions(&mut self) -> Vec<(u32, Operation)> {
        let oldest = self.next_number.saturating_sub(UNANSWERED_MAX);
        // A watch ends with its connection, so requests about it are not repeated either.
        let outlives =
            |operation: &Operation| !matches!(operation, Operation::Watch { .. } | Operation::Unwatch { .. });
        self.pending.retain(|number, pending| *number >= oldest && outlives(&pending.operation));
        self.pending.iter().map(|(number, pending)| (*number, pending.operation)).collect()
    }

    /// Returns the acquires that may be waiting.
    pub(super) fn waiting(&self) -> Vec<(u32, Key)> {
        let acquire = |(number, pending): (&u32, &Pending)| match pending.operation {
            Operation::Acquire(acquire) => Some((*number, acquire.key)),
            _ => None,
        };
        self.pending.iter().filter_map(acquire).collect()
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;
    use crate::operation::Acquire;
    use waymaker_engine::Scope;

    /// Returns a lane with one unanswered request, followed by `count` answered requests.
    fn lane_after(first: Operation, count: u32) -> Lane {
        let mut lane = Lane { stage: Stage::Open, ..Lane::new(0) };
        lane.note_pending(first, 0);
        for _ in 0..count {
            let number = lane.note_pending(Operation::KeepAlive, 0);
            lane.pending.remove(&number);
        }
        lane
    }

    #[test]
    fn a_lane_takes_no_request_whose_number_would_confirm_an_unanswered_request() {
        assert!(lane_after(Operation::KeepAlive, UNANSWERED_MAX - 2).takes_requests());
        assert!(!lane_after(Operation::KeepAlive, UNANSWERED_MAX - 1).takes_requests());
    }

    #[test]
    fn a_waiting_claim_does_not_block_new_requests() {
        let acquire = Acquire {
            key: 0,
            shared: false,
            wait_ms: u32::MAX,
            lease_ms: 700,
            session_lease: false,
            notify_queued: false,
            release_after_ms: None,
            priority: None,
            request_id: None,
            label: None,
            form: Form::One,
            scope: Scope::Ephemeral,
        };
        assert!(lane_after(Operation::Acquire(acquire), 2 * UNANSWERED_MAX).takes_requests());
    }
}
