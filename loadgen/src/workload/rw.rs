//! Readers and writers of keys or paths, one or several per claim.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::item_set::ItemSet;
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, HoldLedger, WrongGrant};
use crate::options::WorkloadName;
use crate::plan::Plan;

/// State of the keys that all threads share.
#[derive(Debug)]
pub struct ReadWriteLedger {
    fences: FenceLedger,
    holds: HoldLedger,
    items: ItemSet,
    /// Whether all keys share one fence counter, as the paths of a tree do.
    has_one_counter: bool,
}

impl ReadWriteLedger {
    /// Creates the ledger, before any grant.
    pub fn new(plan: &Plan) -> Self {
        let has_one_counter = plan.workload == WorkloadName::Tree;
        Self {
            fences: FenceLedger::new(if has_one_counter { 1 } else { plan.key_count }),
            holds: HoldLedger::new(plan.key_count),
            items: ItemSet::new(plan.shape.item_count, plan.key_count),
            has_one_counter,
        }
    }

    /// Returns the claim under which the fence is checked. For multi-key claims this is the first key; over time
    /// each key is the first. With a common counter, a grant does not prove that earlier holds have ended, so it
    /// is checked like the grant of a reader.
    #[inline]
    fn counted(&self, claim: Claim) -> Claim {
        if self.has_one_counter { Claim { key: KeyIndex(0), shared: true } } else { claim }
    }

    #[inline]
    fn parts(&self, claim: Claim) -> impl Iterator<Item = Claim> + '_ {
        self.items.keys(claim.key).map(move |key| Claim { key, ..claim })
    }
}

/// Shared and exclusive acquires of random keys; all acquires wait until they are granted.
#[derive(Debug)]
pub struct ReadWrite {
    ledger: Arc<ReadWriteLedger>,
    key_count: u32,
    read_percent: u8,
    random: SmallRng,
}

impl ReadWrite {
    /// Creates the workload of one thread.
    pub fn new(ledger: Arc<ReadWriteLedger>, plan: &Plan, seed: u64) -> Self {
        let (key_count, read_percent) = (plan.key_count, plan.shape.read_percent);
        Self { ledger, key_count, read_percent, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Workload for ReadWrite {
    const RECORDS_RELEASES: bool = false;
    const CONTENDS: bool = true;

    #[inline]
    fn choose(&mut self, _lane: Lane) -> Claim {
        let key = KeyIndex(self.random.random_range(0..self.key_count));
        Claim { key, shared: self.random.random_range(0..100) < self.read_percent }
    }

    #[inline]
    fn fence_floor(&self, claim: Claim) -> u64 {
        self.ledger.fences.newest(self.ledger.counted(claim))
    }

    #[inline]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        let ledger = &self.ledger;
        let mut held = Ok(());
        for part in ledger.parts(grant.claim) {
            // Records all parts even after an error, so that all can be undone.
            held = held.and(ledger.holds.note_granted(part));
        }
        let counted = ledger.counted(grant.claim);
        let fence =
            grant.fence.map_or(Ok(()), |fence| ledger.fences.note_shared(counted, fence, grant.fence_floor));
        held.and(fence)
    }

    #[inline]
    fn releasing(&mut self, claim: Claim, _now_ns: u64) {
        for part in self.ledger.parts(claim) {
            self.ledger.holds.note_releasing(part);
        }
    }

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
