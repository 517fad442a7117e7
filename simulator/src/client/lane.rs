//! One lane of a client: a connection, and what outlives it.

use crate::operation::{Key, Operation};
use std::collections::BTreeMap;

/// The sender of a number says that it has the answers to all that are older by so much; the server's limit, less some.
const UNANSWERED_MAX: u32 = 1000;

/// How far the connection of a lane has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Down {
        retry_at_us: u64,
    },
    Greeting {
        sent_us: u64,
    },
    Open,
    /// The client sends no more.
    OnlyReads,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) operation: Operation,
    /// When it was first sent.
    pub(super) sent_us: u64,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// Its name at the auditor.
    pub(super) auditor_lane: usize,
    pub(super) connection: Option<usize>,
    pub(super) stage: Stage,
    /// Its number in the session, once it has one.
    pub(super) number: Option<u16>,
    next_number: u32,
    /// The client is to ask for the holds of the lane: it may have missed a grant, or another server may have forgotten a release.
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

    /// Whether a new request may be sent. Not where an old one, other than a claim that waits, has no answer yet.
    pub(super) fn takes_requests(&self) -> bool {
        let waits = |pending: &Pending| matches!(pending.operation, Operation::Acquire(_));
        let oldest = self.pending.iter().find(|(_, pending)| !waits(pending));
        matches!(self.stage, Stage::Open)
            && oldest.is_none_or(|(number, _)| self.next_number - number < UNANSWERED_MAX)
    }

    /// The number of a new request.
    pub(super) fn note_pending(&mut self, operation: Operation, now_us: u64) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.pending.insert(number, Pending { operation, sent_us: now_us });
        number
    }

    /// What must be sent again after a resume: what is too old to be recognised must not.
    pub(super) fn repetitions(&mut self) -> Vec<(u32, Operation)> {
        let oldest = self.next_number.saturating_sub(UNANSWERED_MAX);
        // A watch ends with its connection, and so does what was asked about it.
        let outlives =
            |operation: &Operation| !matches!(operation, Operation::Watch { .. } | Operation::Unwatch { .. });
        self.pending.retain(|number, pending| *number >= oldest && outlives(&pending.operation));
        self.pending.iter().map(|(number, pending)| (*number, pending.operation)).collect()
    }

    /// Acquires that may be waiting.
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

    /// A lane with one request that has no answer, and so many behind it that have theirs.
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
    fn a_lane_takes_no_request_whose_number_says_that_an_older_one_has_its_answer() {
        assert!(lane_after(Operation::KeepAlive, UNANSWERED_MAX - 2).takes_requests());
        assert!(!lane_after(Operation::KeepAlive, UNANSWERED_MAX - 1).takes_requests());
    }

    #[test]
    fn a_claim_that_waits_keeps_no_request_back() {
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
