//! Acquires and releases of permits of pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::faults::FaultKind;
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::{FenceLedger, WrongGrant};
use crate::plan::Plan;

/// Number of permits of each pool that are certainly held: from reading the grant until just before writing the
/// release. Both ends are inside the true hold, so an excess here was also an excess at the server.
#[derive(Debug)]
pub struct PermitLedger {
    fences: FenceLedger,
    held: Box<[AtomicU64]>,
    capacity: u64,
    permits: u64,
}

impl PermitLedger {
    /// Creates the ledger, before any grant.
    pub fn new(plan: &Plan) -> Self {
        Self {
            fences: FenceLedger::new(plan.key_count),
            held: (0..plan.key_count).map(|_| AtomicU64::new(0)).collect(),
            capacity: u64::from(plan.shape.capacity),
            permits: u64::from(plan.shape.permits),
        }
    }

    fn note_granted(&self, claim: Claim) -> Result<(), WrongGrant> {
        let held = self.held[claim.key.0 as usize].fetch_add(self.permits, Ordering::SeqCst) + self.permits;
        if held <= self.capacity {
            return Ok(());
        }
        let message = format!("pool {:08x}: {held} permits of {} are held", claim.key.0, self.capacity);
        Err(WrongGrant { kind: FaultKind::ConflictingGrant, message })
    }
}

/// Acquires permits of random pools; all acquires wait until they are granted.
#[derive(Debug)]
pub struct Permits {
    ledger: Arc<PermitLedger>,
    pool_count: u32,
    random: SmallRng,
}

impl Permits {
    /// Creates the workload of one thread.
    pub fn new(ledger: Arc<PermitLedger>, plan: &Plan, seed: u64) -> Self {
        Self { ledger, pool_count: plan.key_count, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Workload for Permits {
    const RECORDS_RELEASES: bool = false;
    const CONTENDS: bool = true;

    #[inline]
    fn choose(&mut self, _lane: Lane) -> Claim {
        // Other clients hold permits at the same time, so the fence is checked like the fence of a reader.
        Claim { key: KeyIndex(self.random.random_range(0..self.pool_count)), shared: true }
    }

    #[inline]
    fn fence_floor(&self, claim: Claim) -> u64 {
        self.ledger.fences.newest(claim)
    }

    #[inline]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        let held = self.ledger.note_granted(grant.claim);
        let fence = grant
            .fence
            .map_or(Ok(()), |fence| self.ledger.fences.note_shared(grant.claim, fence, grant.fence_floor));
        held.and(fence)
    }

    #[inline]
    fn releasing(&mut self, claim: Claim, _now_ns: u64) {
        self.ledger.held[claim.key.0 as usize].fetch_sub(self.ledger.permits, Ordering::SeqCst);
    }

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
