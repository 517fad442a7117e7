//! Rate limiter: the buckets of a shard, and whether tokens may be taken from them.

#[cfg(test)]
mod tests;
mod throttle;

pub use throttle::Throttle;

use crate::effect::{Allowance, Refusal};
use crate::handle::handle;
use crate::index::HashIndex;
use crate::key::{LongKeys, StoredKey, hash};
use crate::limits::{BUCKET_SWEEP_STEPS, BUCKET_SWEEP_STEPS_FULL, Limits};
use crate::slab::Slab;
use ahash::RandomState;
use throttle::TIME_MAX_NS;

handle! {
    /// Handle of a bucket.
    pub(crate) BucketIx
}

/// Bucket that was not full when its record was added, in 32 bytes.
#[derive(Debug, Default)]
#[repr(C, align(32))]
struct Bucket {
    /// Name of the bucket; empty if the record is not in use.
    name: StoredKey,
    namespace: u16,
    /// Instant at which the bucket will be full, also known as its theoretical arrival time.
    full_at_ns: u64,
}

const _: () = assert!(size_of::<Bucket>() == 32, "two buckets to a cache line");

/// Buckets of a shard.
///
/// The algorithm is the generic cell rate algorithm (ITU-T I.371, as virtual scheduling). The only state of a bucket is
/// the instant at which it will be full if no more tokens are taken. A token is worth the time in which it arrives.
/// Taking tokens moves the instant later by their worth. A request is refused if the instant would then lie further
/// ahead of now than a whole bucket is worth. Returning tokens moves the instant earlier. All times are whole
/// nanoseconds, so nothing drifts, and a refund at the same rate exactly undoes a take, unless the bucket is full by
/// then.
///
/// The instant at which a bucket will be full does not depend on rate and burst, which each request brings along. A
/// request with another rate or burst than the previous request counts the missing time in tokens of its own size.
///
/// A bucket is full once the instant at which it fills has passed, and a full bucket behaves like a new one. So
/// removing a full bucket changes no answer. Memory is bounded by the number of buckets that are not full, or by
/// `kept_bucket_count` if that is larger. While the table has at least `kept_bucket_count` buckets, each new bucket
/// makes a clock hand check a few old ones. With fewer buckets, a new bucket removes none: a removed bucket that is
/// soon used again would cost more than a kept one.
#[derive(Debug)]
pub(crate) struct BucketTable {
    buckets: Slab<BucketIx, Bucket>,
    index: HashIndex<BucketIx>,
    long_names: LongKeys,
    hasher: RandomState,
    bucket_count_max: u32,
    kept_bucket_count: u32,
    /// Memory limit of the process in bytes, while the limit is reached. No bucket is added during that time.
    full_memory: Option<u64>,
    /// Latest instant of any request.
    now_ns: u64,
    hand: BucketIx,
}

impl BucketTable {
    /// Returns the memory of the table in bytes, without long names.
    pub(crate) fn len_bytes(&self) -> usize {
        self.buckets.len_bytes() + self.index.len_bytes()
    }

    /// Returns an empty table, bounded by `limits`.
    pub(crate) fn new(hasher: RandomState, limits: &Limits) -> Self {
        let Limits { bucket_count_max, kept_bucket_count, .. } = *limits;
        Self {
            buckets: Slab::with_capacity(bucket_count_max),
            index: HashIndex::new(bucket_count_max as usize),
            long_names: LongKeys::default(),
            hasher,
            bucket_count_max,
            kept_bucket_count,
            full_memory: None,
            now_ns: 0,
            hand: BucketIx::new(0),
        }
    }

    /// Returns the keyed hash of a bucket, for [`Throttle::hash`].
    #[inline]
    pub(crate) fn hash(&self, namespace: u16, name: &[u8]) -> u64 {
        hash(&self.hasher, namespace, name)
    }

    /// Prefetches the index group of this hash.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the bucket that most likely has this hash.
    #[inline]
    pub(crate) fn prefetch_candidate(&self, hash: u64) {
        if let Some(bucket) = self.index.candidate(hash) {
            self.buckets.prefetch(bucket);
        }
    }

    /// Returns the answer that [`BucketTable::take`] would give if the table has room, without changing anything.
    pub(crate) fn decide(&self, now_ns: u64, namespace: u16, throttle: &Throttle<'_>) -> Allowance {
        let now_ns = self.now_ns.max(now_ns.min(TIME_MAX_NS));
        let missing_ns = match self.find(namespace, throttle) {
            Some(bucket) => self.buckets[bucket].full_at_ns.saturating_sub(now_ns),
            None => 0,
        };
        throttle.decide(missing_ns).0
    }

    /// Sets the memory limit of the process in bytes if the limit is reached, or `None` if it is not.
    pub(crate) fn set_full_memory(&mut self, limit: Option<u64>) {
        self.full_memory = limit;
    }

    /// Takes or returns tokens. Nothing changes unless the answer allows the request.
    ///
    /// # Errors
    /// Returns a refusal only if the bucket needs a record, and the table or the memory of the process is full.
    #[inline]
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        namespace: u16,
        throttle: &Throttle<'_>,
    ) -> Result<Allowance, Refusal> {
        debug_assert_eq!(throttle.check(), Ok(()));
        self.now_ns = self.now_ns.max(now_ns.min(TIME_MAX_NS));
        if let Some(bucket) = self.find(namespace, throttle) {
            let full_at_ns = &mut self.buckets[bucket].full_at_ns;
            let (allowance, missing_ns) = throttle.decide(full_at_ns.saturating_sub(self.now_ns));
            *full_at_ns = self.now_ns.saturating_add(missing_ns);
            return Ok(allowance);
        }
        let (allowance, missing_ns) = throttle.decide(0);
        // A full bucket needs no record, because it behaves like a new one.
        if missing_ns > 0 {
            self.insert(namespace, throttle, self.now_ns.saturating_add(missing_ns))?;
        }
        Ok(allowance)
    }

    /// Checks that the index finds each bucket. For tests.
    pub(crate) fn verify_index(&self) {
        self.index.verify(|bucket| {
            let bucket = &self.buckets[bucket];
            hash(&self.hasher, bucket.namespace, bucket.name.bytes(&self.long_names))
        });
        assert_eq!(self.index.len(), self.buckets.live_count() as usize, "buckets that are found");
    }

    #[cfg(debug_assertions)]
    pub(crate) fn records_touched(&self) -> u64 {
        self.buckets.touched() + self.long_names.touched()
    }

    /// Returns the number of slots, for callers that pass each of them to `forget_full`.
    pub(crate) fn end(&self) -> u32 {
        self.buckets.end()
    }

    /// Removes the bucket in this slot if it is full and `concerns` accepts its namespace. Returns the namespace if
    /// `concerns` accepts it but the bucket is not full.
    pub(crate) fn forget_full(
        &mut self,
        slot: BucketIx,
        now_ns: u64,
        concerns: impl FnOnce(u16) -> bool,
    ) -> Option<u16> {
        let bucket = self.buckets.get(slot).filter(|bucket| !bucket.name.is_empty())?;
        let Bucket { namespace, full_at_ns, .. } = *bucket;
        if !concerns(namespace) {
            return None;
        }
        if full_at_ns > self.now_ns.max(now_ns) {
            return Some(namespace);
        }
        self.forget(slot);
        None
    }

    /// Returns the number of buckets in memory. Some of them may be full again.
    pub(crate) fn bucket_count(&self) -> u32 {
        self.buckets.live_count()
    }

    #[inline]
    fn find(&self, namespace: u16, throttle: &Throttle<'_>) -> Option<BucketIx> {
        self.index.find(throttle.hash, |bucket| {
            self.buckets.get(bucket).is_some_and(|bucket| {
                bucket.namespace == namespace && bucket.name.is(throttle.name, &self.long_names)
            })
        })
    }

    #[cold]
    fn insert(&mut self, namespace: u16, throttle: &Throttle<'_>, full_at_ns: u64) -> Result<(), Refusal> {
        if let Some(value) = self.full_memory {
            return Err(Refusal::Overloaded { limit: "bytes of memory", value });
        }
        if self.bucket_count() >= self.kept_bucket_count {
            self.sweep(BUCKET_SWEEP_STEPS);
        }
        if self.bucket_count() >= self.bucket_count_max {
            self.sweep(BUCKET_SWEEP_STEPS_FULL);
        }
        if self.bucket_count() >= self.bucket_count_max {
            let value = u64::from(self.bucket_count_max);
            return Err(Refusal::Overloaded { limit: "buckets per shard", value });
        }
        let bucket = self.buckets.allocate();
        let name = self.long_names.store(throttle.name);
        self.buckets[bucket] = Bucket { name, namespace, full_at_ns };
        let Self { buckets, long_names, hasher, index, .. } = self;
        index.insert(throttle.hash, bucket, |other| {
            let bucket = &buckets[other];
            hash(hasher, bucket.namespace, bucket.name.bytes(long_names))
        });
        Ok(())
    }

    /// Checks the `steps` records behind the record `self.hand`, in a circle over all records, and removes the full
    /// buckets among them. Moves `self.hand` to the last checked record.
    fn sweep(&mut self, steps: u32) {
        for _ in 0..steps.min(self.buckets.end()) {
            self.hand = self.buckets.after(self.hand);
            let bucket = &self.buckets[self.hand];
            if !bucket.name.is_empty() && bucket.full_at_ns <= self.now_ns {
                self.forget(self.hand);
            }
        }
    }

    fn forget(&mut self, bucket: BucketIx) {
        let Bucket { name, namespace, .. } = &mut self.buckets[bucket];
        let hash = hash(&self.hasher, *namespace, name.bytes(&self.long_names));
        self.index.remove(hash, bucket);
        self.long_names.discard(name);
        self.buckets.release(bucket);
    }
}
