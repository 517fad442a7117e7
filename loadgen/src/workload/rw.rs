//! Readers and writers over few keys.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Grant, Lane, Workload};
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, HoldLedger, WrongGrant};
use crate::target::Claim;

/// Exclusive acquires of each hundred.
const EXCLUSIVE_PERCENT: u32 = 10;

/// What all threads know of the keys.
#[derive(Debug)]
pub struct ReadWriteLedger {
    fences: FenceLedger,
    holds: HoldLedger,
}

impl ReadWriteLedger {
    /// Nothing seen yet.
    pub fn new(key_count: u32) -> Self {
        Self { fences: FenceLedger::new(key_count), holds: HoldLedger::new(key_count) }
    }
}

/// 90 % shared and 10 % exclusive acquires of random keys; all wait until they are granted.
#[derive(Debug)]
pub struct ReadWrite {
    ledger: Arc<ReadWriteLedger>,
    key_count: u32,
    random: SmallRng,
}

impl ReadWrite {
    /// For one thread.
    pub fn new(ledger: Arc<ReadWriteLedger>, key_count: u32, seed: u64) -> Self {
        Self { ledger, key_count, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Workload for ReadWrite {
    const RECORDS_RELEASES: bool = false;
    const CONTENDS: bool = true;

    #[inline]
    fn choose(&mut self, _lane: Lane) -> Claim {
        let key = KeyIndex(self.random.random_range(0..self.key_count));
        Claim { key, shared: self.random.random_range(0..100) >= EXCLUSIVE_PERCENT }
    }

    #[inline]
    fn fence_floor(&self, claim: Claim) -> u64 {
        self.ledger.fences.newest(claim)
    }

    #[inline]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        let held = self.ledger.holds.note_granted(grant.claim);
        let fence = grant
            .fence
            .map_or(Ok(()), |fence| self.ledger.fences.note_shared(grant.claim, fence, grant.fence_floor));
        held.and(fence)
    }

    #[inline]
    fn releasing(&mut self, claim: Claim, _now_ns: u64) {
        self.ledger.holds.note_releasing(claim);
    }

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
