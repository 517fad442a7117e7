//! Workloads: the requests of the connections, and the checks of their grants.

mod hot;
mod pair;
mod permits;
mod renewals;
mod rw;
mod throttle;

pub use hot::{Hot, HotLedger};
pub use pair::{Pair, PairLedger};
pub use permits::{PermitLedger, Permits};
pub use renewals::Renewals;
pub use rw::{ReadWrite, ReadWriteLedger};
pub use throttle::{Allowed, Buckets, Throttled};

use crate::codec::Claim;
use crate::latencies::Latencies;
use crate::ledger::WrongGrant;

/// Index of a request slot over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lane(pub u32);

/// One grant, for the checks of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Claim of the request.
    pub claim: Claim,
    /// Fence of the grant, if the system has fences.
    pub fence: Option<u64>,
    /// Result of [`Workload::fence_floor`] when the acquire was sent.
    pub fence_floor: u64,
    /// Time at which the response was read.
    pub now_ns: u64,
    /// Whether the grant counts in the results.
    pub is_measured: bool,
}

/// Workload of one thread; state that threads share is behind ledgers.
pub trait Workload: Send {
    /// Whether latencies include releases; otherwise they are the latencies of acquires only.
    const RECORDS_RELEASES: bool;
    /// Whether another client may hold the key, so that busy is a valid response.
    const CONTENDS: bool;

    /// Whether leases are renewed instead of acquired and released.
    const RENEWS: bool = false;

    /// Returns the next claim of a lane that holds nothing.
    fn choose(&mut self, lane: Lane) -> Claim;

    /// Returns a fence that the grant of this claim must exceed; called when the acquire is sent.
    fn fence_floor(&self, claim: Claim) -> u64;

    /// Checks a grant.
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant>;

    /// Records a response of the limiter; called only for limiter workloads.
    #[inline]
    fn throttled(&mut self, _claim: Claim, _allowed: bool) {}

    /// Records that the release of this claim is about to be sent.
    fn releasing(&mut self, claim: Claim, now_ns: u64);

    /// Returns the times from a release to the next grant, if the workload measures them.
    fn into_hand_over(self) -> Option<Latencies>;
}
