//! One lane of a client: a connection, and what outlives it.

use crate::operation::{Key, Operation};
use std::collections::BTreeMap;

/// How far the connection of a lane has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Down { retry_at_us: u64 },
    Greeting { sent_us: u64 },
    Open,
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
            pending: BTreeMap::new(),
            input: Vec::new(),
            output: Vec::new(),
        }
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
        let oldest = self.next_number.saturating_sub(1000);
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
