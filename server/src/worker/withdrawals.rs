//! Ended multi-key claims whose remaining stubs a worker removes in later steps, so that other work need not wait.

use crate::mail::LaneClosing;
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::multi_key::MultiKeyClaim;

#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    claims: VecDeque<Arc<MultiKeyClaim>>,
    /// Number of claims that were ever added.
    added_count: u64,
    /// Closed lanes, each with the number of claims that must be removed before its client learns of the end. The stubs
    /// of the lane's claims still block other clients until then.
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

    /// Keeps this closed lane until all claims that are here now are removed.
    pub(super) fn hold_back(&mut self, closing: Arc<LaneClosing>) {
        self.closings.push_back((self.added_count, closing));
    }

    /// Removes and returns a closed lane whose claims are all removed.
    pub(super) fn next_closed(&mut self) -> Option<Arc<LaneClosing>> {
        let removed_count = self.added_count - self.claims.len() as u64;
        let (_, closing) = self.closings.pop_front_if(|(count, _)| *count <= removed_count)?;
        Some(closing)
    }
}
