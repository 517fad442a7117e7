//! Acquire a random key, then release it. Nobody is ever in the way.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Grant, Lane, Workload};
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, WrongGrant};
use crate::target::Claim;

/// Each lane draws from keys of its own. So all keys are equally likely, and yet busy can never be a right answer.
#[derive(Debug)]
pub struct Pair {
    fences: Arc<FenceLedger>,
    keys_per_lane: u32,
    random: SmallRng,
}

impl Pair {
    /// For one thread.
    pub fn new(fences: Arc<FenceLedger>, keys_per_lane: u32, seed: u64) -> Self {
        Self { fences, keys_per_lane, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Workload for Pair {
    const RECORDS_RELEASES: bool = true;
    const CONTENDS: bool = false;

    #[inline]
    fn choose(&mut self, lane: Lane) -> Claim {
        let key = lane.0 * self.keys_per_lane + self.random.random_range(0..self.keys_per_lane);
        Claim { key: KeyIndex(key), shared: false }
    }

    #[inline]
    fn fence_floor(&self, _claim: Claim) -> u64 {
        0
    }

    #[inline]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        grant.fence.map_or(Ok(()), |fence| self.fences.note_private(grant.claim, fence))
    }

    #[inline]
    fn releasing(&mut self, _claim: Claim, _now_ns: u64) {}

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
