//! What the connections do, and what each grant must then be.

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

use crate::latencies::Latencies;
use crate::ledger::WrongGrant;
use crate::target::Claim;

/// A place for one request in flight: which one over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lane(pub u32);

/// One grant, as the workload judges it.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// What was asked for.
    pub claim: Claim,
    /// Its fence, where the system has fences.
    pub fence: Option<u64>,
    /// What [`Workload::fence_floor`] said when the acquire was sent.
    pub fence_floor: u64,
    /// When its answer was read.
    pub now_ns: u64,
    /// It counts in the results.
    pub is_measured: bool,
}

/// One per thread; what threads must know of each other is behind shared ledgers.
pub trait Workload: Send {
    /// The latencies are those of acquires and releases; otherwise of acquires only.
    const RECORDS_RELEASES: bool;
    /// Somebody else may hold the key, so busy may be an answer.
    const CONTENDS: bool;

    /// Leases are renewed instead of acquired and released.
    const RENEWS: bool = false;

    /// The next claim of a lane that holds nothing.
    fn choose(&mut self, lane: Lane) -> Claim;

    /// A fence that the grant of this claim must exceed; asked when its acquire is sent.
    fn fence_floor(&self, claim: Claim) -> u64;

    /// Judges a grant.
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant>;

    /// The limiter answered. Only where it is asked.
    #[inline]
    fn throttled(&mut self, _claim: Claim, _allowed: bool) {}

    /// The release of this claim is about to be sent.
    fn releasing(&mut self, claim: Claim, now_ns: u64);

    /// Latencies from one release to the next grant, where the workload has them.
    fn into_hand_over(self) -> Option<Latencies>;
}
