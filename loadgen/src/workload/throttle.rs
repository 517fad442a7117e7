//! Requests to the rate limiter, and the maximum number of tokens that it may allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::{Grant, Lane, Workload};
use crate::codec::Claim;
use crate::faults::{FaultKind, Faults};
use crate::key::KeyIndex;
use crate::latencies::Latencies;
use crate::ledger::WrongGrant;
use crate::shape::Shape;

/// Requested and allowed tokens of each bucket.
#[derive(Debug)]
pub struct Buckets {
    buckets: Box<[Bucket]>,
}

#[derive(Debug, Default)]
struct Bucket {
    asked_count: AtomicU64,
    allowed_count: AtomicU64,
}

/// Sum over all buckets, including the warm-up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Allowed {
    /// Number of requested tokens.
    pub asked_count: u64,
    /// Number of allowed tokens.
    pub allowed_count: u64,
    /// Maximum number of tokens that the requested buckets may have allowed: their bursts, and the tokens regained
    /// in the whole time.
    pub allowed_count_max: u64,
}

impl Buckets {
    /// Creates the counters, before any request.
    pub fn new(count: u32) -> Self {
        Self { buckets: (0..count).map(|_| Bucket::default()).collect() }
    }

    /// Finds buckets that allowed more than their burst plus the tokens regained during the load. One extra token
    /// per bucket is accepted, because regained tokens are counted in whole numbers.
    pub fn judge(&self, shape: &Shape, lasted_ns: u64, faults: &mut Faults) -> Allowed {
        let refilled = u128::from(shape.bucket_rate) * u128::from(lasted_ns) / 1_000_000_000;
        let most_of_one = u64::from(shape.burst) + u64::try_from(refilled).unwrap_or(u64::MAX) + 1;
        let mut sum = Allowed { asked_count: 0, allowed_count: 0, allowed_count_max: 0 };
        for (number, bucket) in self.buckets.iter().enumerate() {
            let asked_count = bucket.asked_count.load(Ordering::SeqCst);
            let allowed_count = bucket.allowed_count.load(Ordering::SeqCst);
            sum.asked_count += asked_count;
            sum.allowed_count += allowed_count;
            sum.allowed_count_max += most_of_one.min(asked_count);
            if allowed_count > most_of_one {
                faults.add(FaultKind::TooMuchAllowed, || {
                    format!("bucket {number:08x} allowed {allowed_count} tokens; the limit is {most_of_one}")
                });
            }
        }
        sum
    }
}

/// Requests one token at a time from random buckets.
#[derive(Debug)]
pub struct Throttled {
    buckets: Arc<Buckets>,
    random: SmallRng,
}

impl Throttled {
    /// Creates the workload of one thread.
    pub fn new(buckets: Arc<Buckets>, seed: u64) -> Self {
        Self { buckets, random: SmallRng::seed_from_u64(seed) }
    }
}

impl Workload for Throttled {
    const RECORDS_RELEASES: bool = true;
    const CONTENDS: bool = false;

    #[inline]
    fn choose(&mut self, _lane: Lane) -> Claim {
        let number = self.random.random_range(0..self.buckets.buckets.len() as u32);
        Claim { key: KeyIndex(number), shared: false }
    }

    #[inline]
    fn fence_floor(&self, _claim: Claim) -> u64 {
        0
    }

    #[cold]
    fn granted(&mut self, grant: Grant) -> Result<(), WrongGrant> {
        let message = format!("a grant in response to a request to bucket {:08x}", grant.claim.key.0);
        Err(WrongGrant { kind: FaultKind::WrongAnswer, message })
    }

    #[inline]
    fn throttled(&mut self, claim: Claim, allowed: bool) {
        let bucket = &self.buckets.buckets[claim.key.0 as usize];
        bucket.asked_count.fetch_add(1, Ordering::Relaxed);
        bucket.allowed_count.fetch_add(u64::from(allowed), Ordering::Relaxed);
    }

    #[inline]
    fn releasing(&mut self, _claim: Claim, _now_ns: u64) {}

    fn into_hand_over(self) -> Option<Latencies> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, Throttled};
    use crate::codec::Claim;
    use crate::faults::Faults;
    use crate::key::KeyIndex;
    use crate::shape::Shape;
    use crate::workload::Workload;
    use std::sync::Arc;

    #[test]
    fn finds_a_bucket_that_allows_too_much() {
        let buckets = Arc::new(Buckets::new(2));
        let mut workload = Throttled::new(Arc::clone(&buckets), 1);
        let shape = Shape { bucket_rate: 10, burst: 5, ..Shape::default() };
        let judge = || {
            let mut faults = Faults::default();
            let allowed = buckets.judge(&shape, 1_000_000_000, &mut faults);
            (allowed.asked_count, allowed.allowed_count, allowed.allowed_count_max, faults.count())
        };
        // 5 tokens at the start, 10 regained, and 1 that may have been almost complete.
        (0..16).for_each(|_| workload.throttled(Claim::default(), true));
        workload.throttled(Claim { key: KeyIndex(1), shared: false }, false);
        assert_eq!(judge(), (17, 16, 17, 0));
        workload.throttled(Claim::default(), true);
        assert_eq!(judge(), (18, 17, 17, 1));
    }
}
