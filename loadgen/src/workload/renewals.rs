//! Renewals, in turn, of leases that stay held.

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::faults::FaultKind;
use crate::latencies::Latencies;
use crate::ledger::WrongGrant;

/// Sends one renewal after the other. Each connection chooses the lease itself, because it acquired the leases.
#[derive(Debug)]
pub struct Renewals;

impl Workload for Renewals {
    const RECORDS_RELEASES: bool = true;
    const CONTENDS: bool = false;
    const RENEWS: bool = true;

    #[inline]
    fn choose(&mut self, _lane: Lane) -> Claim {
        Claim::default()
    }

    #[inline]
    fn fence_floor(&self, _claim: Claim) -> u64 {
        0
    }

    #[cold]
    fn granted(&mut self, _grant: Grant) -> Result<(), WrongGrant> {
        Err(WrongGrant {
            kind: FaultKind::WrongAnswer,
            message: "a grant in response to a renewal".to_owned(),
        })
    }

    #[inline]
    fn releasing(&mut self, _claim: Claim, _now_ns: u64) {}

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}
