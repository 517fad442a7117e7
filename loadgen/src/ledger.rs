//! State of each key as all connections together know it: its newest fence and the connection that holds it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::codec::Claim;
use crate::faults::FaultKind;

/// Newest fence seen on each key. A new fence must be above every fence that was seen before its acquire was sent.
#[derive(Debug)]
pub struct FenceLedger {
    newest: Box<[AtomicU64]>,
}

/// Fault of a grant.
#[derive(Debug)]
pub struct WrongGrant {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Message for people.
    pub message: String,
}

impl FenceLedger {
    /// Creates a ledger without any fence.
    pub fn new(key_count: u32) -> Self {
        Self { newest: (0..key_count).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns the newest fence of the key.
    #[inline]
    pub fn newest(&self, claim: Claim) -> u64 {
        self.newest[claim.key.0 as usize].load(Ordering::Relaxed)
    }

    /// Records a grant of a key that only the caller uses.
    #[inline]
    pub fn note_private(&self, claim: Claim, fence: u64) -> Result<(), WrongGrant> {
        let cell = &self.newest[claim.key.0 as usize];
        // A plain load and store suffice, because no other thread writes this cell.
        let newest = cell.load(Ordering::Relaxed);
        if fence <= newest {
            return Err(not_rising(claim, fence, newest));
        }
        cell.store(fence, Ordering::Relaxed);
        Ok(())
    }

    /// Records a grant of a key that other connections use too. `floor` is the newest fence when the acquire was
    /// sent. An exclusive grant follows the end of all earlier holds, so its fence must also be above all fences
    /// seen by now.
    pub fn note_shared(&self, claim: Claim, fence: u64, floor: u64) -> Result<(), WrongGrant> {
        let newest = self.newest[claim.key.0 as usize].fetch_max(fence, Ordering::SeqCst);
        let floor = if claim.shared { floor } else { newest };
        if fence <= floor || fence == newest { Err(not_rising(claim, fence, newest)) } else { Ok(()) }
    }
}

#[cold]
fn not_rising(claim: Claim, fence: u64, newest: u64) -> WrongGrant {
    let message = format!("key {:08x} granted with fence {fence} after fence {newest} was seen", claim.key.0);
    WrongGrant { kind: FaultKind::FenceNotRising, message }
}

/// Keys that one of our connections certainly holds: from reading the grant until just before writing the release.
/// Both ends are inside the true hold, so two holds that overlap here also overlapped at the server.
#[derive(Debug)]
pub struct HoldLedger {
    holds: Box<[AtomicU32]>,
}

/// Bit that is set while the key is held exclusively. The lower bits count the readers.
const EXCLUSIVE: u32 = 1 << 31;

impl HoldLedger {
    /// Creates a ledger without any holds.
    pub fn new(key_count: u32) -> Self {
        Self { holds: (0..key_count).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Records a grant.
    pub fn note_granted(&self, claim: Claim) -> Result<(), WrongGrant> {
        let cell = &self.holds[claim.key.0 as usize];
        let (before, conflict) = if claim.shared {
            let before = cell.fetch_add(1, Ordering::SeqCst);
            (before, before & EXCLUSIVE != 0)
        } else {
            let before = cell.fetch_or(EXCLUSIVE, Ordering::SeqCst);
            (before, before != 0)
        };
        if conflict { Err(conflicting(claim, before)) } else { Ok(()) }
    }

    /// Records that the release is about to be written.
    pub fn note_releasing(&self, claim: Claim) {
        let cell = &self.holds[claim.key.0 as usize];
        if claim.shared {
            cell.fetch_sub(1, Ordering::SeqCst);
        } else {
            cell.fetch_and(!EXCLUSIVE, Ordering::SeqCst);
        }
    }
}

#[cold]
fn conflicting(claim: Claim, before: u32) -> WrongGrant {
    let asked = if claim.shared { "shared" } else { "exclusively" };
    let holder = match before {
        before if before & EXCLUSIVE != 0 => {
            "another connection of this load generator holds it exclusively".to_owned()
        }
        readers => format!("{readers} connections of this load generator hold it shared"),
    };
    let message = format!("key {:08x} granted {asked} while {holder}", claim.key.0);
    WrongGrant { kind: FaultKind::ConflictingGrant, message }
}

#[cfg(test)]
mod tests {
    use super::{FenceLedger, HoldLedger};
    use crate::codec::Claim;

    const EXCLUSIVE: Claim = Claim { key: crate::key::KeyIndex(0), shared: false };
    const SHARED: Claim = Claim { key: crate::key::KeyIndex(0), shared: true };

    #[test]
    fn rejects_a_fence_that_does_not_rise() {
        let ledger = FenceLedger::new(1);
        assert!(ledger.note_private(EXCLUSIVE, 1).is_ok());
        assert!(ledger.note_private(EXCLUSIVE, 1).is_err());
        assert!(ledger.note_private(EXCLUSIVE, 2).is_ok());
        // Two readers whose grants were read in reverse order.
        assert!(ledger.note_shared(SHARED, 4, 2).is_ok());
        assert!(ledger.note_shared(SHARED, 3, 2).is_ok());
        assert!(ledger.note_shared(SHARED, 4, 2).is_err());
        assert!(ledger.note_shared(SHARED, 2, 2).is_err());
        assert!(ledger.note_shared(EXCLUSIVE, 3, 2).is_err());
        assert!(ledger.note_shared(EXCLUSIVE, 5, 2).is_ok());
    }

    #[test]
    fn rejects_a_grant_beside_an_exclusive_hold() {
        let ledger = HoldLedger::new(1);
        assert!(ledger.note_granted(SHARED).is_ok());
        assert!(ledger.note_granted(SHARED).is_ok());
        ledger.note_releasing(SHARED);
        assert!(ledger.note_granted(EXCLUSIVE).is_err());
        ledger.note_releasing(SHARED);
        ledger.note_releasing(EXCLUSIVE);
        assert!(ledger.note_granted(EXCLUSIVE).is_ok());
        assert!(ledger.note_granted(SHARED).is_err());
    }
}
