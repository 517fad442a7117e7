//! Acquires and releases without contention.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, WrongGrant};
use crate::plan::Plan;

/// Assignment of keys to lanes, and the fences of keys that are used repeatedly.
#[derive(Debug)]
pub struct PairLedger {
    fences: Option<FenceLedger>,
    keys: KeysOfLanes,
}

#[derive(Clone, Copy, Debug)]
enum KeysOfLanes {
    /// Each lane has this number of consecutive keys.
    Several(u32),
    /// Each lane uses one key after the other, at this distance.
    Distinct(u32),
}

impl PairLedger {
    /// Creates the ledger, before any grant.
    pub fn new(plan: &Plan, has_fences: bool) -> Self {
        let lane_count = plan.connections * plan.depth;
        let keys = if plan.has_distinct_keys {
            KeysOfLanes::Distinct(lane_count)
        } else {
            KeysOfLanes::Several(plan.key_count / lane_count)
        };
        let has_fences = has_fences && !plan.has_distinct_keys;
        Self { fences: has_fences.then(|| FenceLedger::new(plan.key_count)), keys }
    }
}

/// Each lane draws from its own keys. So all keys are equally likely, and yet busy is never a valid response.
#[derive(Debug)]
pub struct Pair {
    ledger: Arc<PairLedger>,
    random: SmallRng,
    /// For keys that are used once: the number of keys that each lane has used.
    chosen_counts: Vec<u32>,
}

impl Pair {
    /// Creates the workload of one thread.
    pub fn new(ledger: Arc<PairLedger>, seed: u64) -> Self {
        let chosen_counts = match ledger.keys {
            KeysOfLanes::Several(_) => Vec::new(),
            KeysOfLanes::Distinct(lane_count) => vec![0; lane_count as usize],
        };
        Self { ledger, random: SmallRng::seed_from_u64(seed), chosen_counts }
    }
}

impl Workload for Pair {
    const RECORDS_RELEASES: bool = true;
    const CONTENDS: bool = false;

    #[inline]
    fn choose(&mut self, lane: Lane) -> Claim {
        let key = match self.ledger.keys {
            KeysOfLanes::Several(count) => lane.0 * count + self.random.random_range(0..count),
            KeysOfLanes::Distinct(lane_count) => {
                let chosen_count = &mut self.chosen_counts[lane.0 as usize];
                // Keys repeat after 2^32 claims.
                let key = lane.0.wrapping_add(chosen_count.wrapping_mul(lane_count));
                *chosen_count = chosen_count.wrapping_add(1);
                key
            }
        };
        Claim { key: KeyIndex(key), shared: false }
    }

    #[inline]
    fn fence_floor(&self, _claim: Claim) -> u64 {
        0
    }

    #[inline]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        match (grant.fence, &self.ledger.fences) {
            (Some(fence), Some(fences)) => fences.note_private(grant.claim, fence),
            _ => Ok(()),
        }
    }

    #[inline]
    fn releasing(&mut self, _claim: Claim, _now_ns: u64) {}

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
