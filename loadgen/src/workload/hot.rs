//! All connections contend for one key, and each holder releases it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, HoldLedger, WrongGrant};

/// State of the key that all threads share.
#[derive(Debug)]
pub struct HotLedger {
    fences: FenceLedger,
    holds: HoldLedger,
    /// Time at which the last release was sent; 0 before the first.
    released_at_ns: AtomicU64,
}

impl Default for HotLedger {
    fn default() -> Self {
        Self { fences: FenceLedger::new(1), holds: HoldLedger::new(1), released_at_ns: AtomicU64::new(0) }
    }
}

/// Measures the hand-over: the time from sending a release to reading the next grant.
#[derive(Debug)]
pub struct Hot {
    ledger: Arc<HotLedger>,
    hand_over: Latencies,
}

impl Hot {
    /// Creates the workload of one thread.
    pub fn new(ledger: Arc<HotLedger>) -> Self {
        Self { ledger, hand_over: Latencies::default() }
    }
}

impl Workload for Hot {
    const RECORDS_RELEASES: bool = false;
    const CONTENDS: bool = true;

    fn choose(&mut self, _lane: Lane) -> Claim {
        Claim { key: KeyIndex(0), shared: false }
    }

    fn fence_floor(&self, claim: Claim) -> u64 {
        self.ledger.fences.newest(claim)
    }

    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        let released_at_ns = self.ledger.released_at_ns.load(Ordering::SeqCst);
        if grant.is_measured && released_at_ns != 0 {
            self.hand_over.record(grant.now_ns.saturating_sub(released_at_ns), 1);
        }
        let held = self.ledger.holds.note_granted(grant.claim);
        let fence = grant
            .fence
            .map_or(Ok(()), |fence| self.ledger.fences.note_shared(grant.claim, fence, grant.fence_floor));
        held.and(fence)
    }

    fn releasing(&mut self, claim: Claim, now_ns: u64) {
        self.ledger.released_at_ns.store(now_ns, Ordering::SeqCst);
        self.ledger.holds.note_releasing(claim);
    }

    fn into_hand_over(self) -> Option<Latencies> {
        Some(self.hand_over)
    }
}
