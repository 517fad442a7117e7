//! What all connections together know of each key: its newest fence and who of us holds it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::faults::FaultKind;
use crate::target::Claim;

/// The newest fence seen on each key. A fence must be above every fence that was seen before its acquire was sent.
#[derive(Debug)]
pub struct FenceLedger {
    newest: Box<[AtomicU64]>,
}

/// What is wrong with a grant.
#[derive(Debug)]
pub struct WrongGrant {
    /// In which way.
    pub kind: FaultKind,
    /// For people.
    pub message: String,
}

impl FenceLedger {
    /// No fence seen yet.
    pub fn new(key_count: u32) -> Self {
        Self { newest: (0..key_count).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The newest fence of the key.
    #[inline]
    pub fn newest(&self, claim: Claim) -> u64 {
        self.newest[claim.key.0 as usize].load(Ordering::Relaxed)
    }

    /// Notes a grant of a key that only the caller uses.
    #[inline]
    pub fn note_private(&self, claim: Claim, fence: u64) -> Result<(), WrongGrant> {
        let cell = &self.newest[claim.key.0 as usize];
        // Two plain moves: nobody else writes this cell.
        let newest = cell.load(Ordering::Relaxed);
        if fence <= newest {
            return Err(not_rising(claim, fence, newest));
        }
        cell.store(fence, Ordering::Relaxed);
        Ok(())
    }

    /// Notes a grant of a key that others use too. `floor` is the newest fence when its acquire was sent; an exclusive
    /// grant follows the end of all holds before it, so nothing seen by now may be above it either.
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

/// Which keys are surely held by one of us: from when a grant was read until its release is about to be written.
/// Both ends lie inside the true hold, so two that overlap here overlapped at the server.
#[derive(Debug)]
pub struct HoldLedger {
    holds: Box<[AtomicU32]>,
}

/// Set while held exclusively; below it the number of readers.
const EXCLUSIVE: u32 = 1 << 31;

impl HoldLedger {
    /// Nothing is held.
    pub fn new(key_count: u32) -> Self {
        Self { holds: (0..key_count).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Notes a grant.
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

    /// Notes that the release is about to be written.
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
        before if before & EXCLUSIVE != 0 => "another connection of ours holds it exclusively".to_owned(),
        readers => format!("{readers} of our connections hold it shared"),
    };
    let message = format!("key {:08x} granted {asked} while {holder}", claim.key.0);
    WrongGrant { kind: FaultKind::ConflictingGrant, message }
}

#[cfg(test)]
mod tests {
    use super::{FenceLedger, HoldLedger};
    use crate::target::Claim;

    const EXCLUSIVE: Claim = Claim { key: crate::key::KeyIndex(0), shared: false };
    const SHARED: Claim = Claim { key: crate::key::KeyIndex(0), shared: true };

    #[test]
    fn a_fence_must_rise() {
        let ledger = FenceLedger::new(1);
        assert!(ledger.note_private(EXCLUSIVE, 1).is_ok());
        assert!(ledger.note_private(EXCLUSIVE, 1).is_err());
        assert!(ledger.note_private(EXCLUSIVE, 2).is_ok());
        // Two readers whose grants were read in the other order.
        assert!(ledger.note_shared(SHARED, 4, 2).is_ok());
        assert!(ledger.note_shared(SHARED, 3, 2).is_ok());
        assert!(ledger.note_shared(SHARED, 4, 2).is_err());
        assert!(ledger.note_shared(SHARED, 2, 2).is_err());
        assert!(ledger.note_shared(EXCLUSIVE, 3, 2).is_err());
        assert!(ledger.note_shared(EXCLUSIVE, 5, 2).is_ok());
    }

    #[test]
    fn an_exclusive_hold_stands_alone() {
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
