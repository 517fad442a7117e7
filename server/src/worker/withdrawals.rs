//! Ended multi-key claims of which a worker removes the remaining stubs in later steps, so that other work need not
//! wait. A stub is the waiter that stands for a claim at one key.

use crate::mail::LaneClosing;
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::multi_key::MultiKeyClaim;

#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    claims: VecDeque<Arc<MultiKeyClaim>>,
    /// Number of claims that were ever added.
    added_count: u64,
    /// Closed lanes, each with the value of `added_count` when the lane was added here. The client of a lane learns of
    /// the end of its lane when the worker has withdrawn so many claims from their shards. Until then, waiters that
    /// stand for its ended claims may still block other clients.
    closings: VecDeque<(u64, Arc<LaneClosing>)>,
}

impl Withdrawals {
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(super) fn push(&mut self, claim: Arc<MultiKeyClaim>) {
        self.claims.push_back(claim);
        self.added_count += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Arc<MultiKeyClaim>> {
        self.claims.pop_front()
    }

    /// Keeps this closed lane until the worker has taken from `claims` all claims that are there now, and has withdrawn
    /// them from their shards. Then `next_closed` returns the lane.
    pub(super) fn hold_back(&mut self, closing: Arc<LaneClosing>) {
        self.closings.push_back((self.added_count, closing));
    }

    /// Removes and returns the oldest closed lane, if all claims that were in `claims` when it was added have been
    /// taken out.
    pub(super) fn next_closed(&mut self) -> Option<Arc<LaneClosing>> {
        let removed_count = self.added_count - self.claims.len() as u64;
        let (_, closing) = self.closings.pop_front_if(|(count, _)| *count <= removed_count)?;
        Some(closing)
    }
}
