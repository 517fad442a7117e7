//! Buckets of tokens.

use super::{Caller, Shard};
use crate::effect::{Answer, Effects};
use crate::limiter::{BucketTable, Throttle};

impl Shard {
    /// Takes from one bucket, if there is enough. `now_ns` is the engine's clock, finer.
    #[inline]
    pub fn throttle(
        &mut self,
        caller: &Caller,
        now_ns: u64,
        throttle: &Throttle<'_>,
        effects: &mut impl Effects,
    ) {
        let taken =
            BucketTable::check(throttle).and_then(|()| self.buckets.take(now_ns, caller.namespace, throttle));
        let answer = match taken {
            Ok(allowance) => Answer::Throttled(allowance),
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    /// The keyed hash of a bucket, for [`Throttle::hash`] and the passes.
    #[inline]
    pub fn bucket_hash(&self, namespace: u16, name: &[u8]) -> u64 {
        self.buckets.hash(namespace, name)
    }

    /// Pass one for a bucket: brings its place in the index near.
    #[inline]
    pub fn prefetch_bucket_index(&self, hash: u64) {
        self.buckets.prefetch_index(hash);
    }

    /// Pass two for a bucket: brings the record near that is most likely the one of this hash.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.buckets.prefetch_candidate(hash);
    }

    /// How many buckets are not full, or were not long ago.
    pub fn bucket_count(&self) -> u32 {
        self.buckets.bucket_count()
    }
}
