//! Rate limiter: decides whether tokens may be taken from a bucket, and if not, when.

use crate::effect::{Allowance, Refusal};
use crate::handle::handle;
use crate::index::HashIndex;
use crate::key::{LongKeys, StoredKey, hash};
use crate::limits::{BUCKET_SWEEP_STEPS, BUCKET_SWEEP_STEPS_FULL, KEY_LEN_MAX, Limits};
use crate::slab::Slab;
use ahash::RandomState;

handle! {
    /// A bucket of a shard.
    pub(crate) BucketIx
}

/// Longest time in nanoseconds, for instants, for periods and for filling a bucket: 292 years. The sum of two such
/// times still fits.
const TIME_MAX_NS: u64 = u64::MAX >> 1;

/// Request for one bucket. A bucket holds at most `burst` tokens, gains `rate` tokens in each period, and is full
/// before its first use.
///
/// One token arrives every `period_ns / rate` nanoseconds, rounded up. So a bucket never exceeds its rate. Rounding
/// loses less than 0.1 % at a million tokens per second. The loss grows with the rate, which is at most one token per
/// nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle<'a> {
    /// Name of the bucket.
    pub name: &'a [u8],
    /// Keyed hash of the namespace and the name.
    pub hash: u64,
    /// Number of tokens that arrive in each period.
    pub rate: u32,
    /// Length of a period in nanoseconds.
    pub period_ns: u64,
    /// Number of tokens in a full bucket.
    pub burst: u32,
    /// Number of tokens to take; 0 only reads the state.
    pub cost: u32,
    /// Whether to return `cost` tokens instead of taking them. Tokens above `burst` are lost.
    pub refund: bool,
}

impl Throttle<'_> {
    /// Returns the time in nanoseconds in which one token arrives.
    #[inline]
    fn emission_ns(&self) -> u64 {
        // `check` refuses zeros, but runs separately, so this function must not divide by zero.
        self.period_ns.div_ceil(u64::from(self.rate).max(1)).clamp(1, TIME_MAX_NS)
    }

    /// Decides about a bucket that will be full in `missing_ns`. Returns the answer, and the time until the bucket is
    /// full after it.
    #[inline]
    fn decide(&self, missing_ns: u64) -> (Allowance, u64) {
        let emission_ns = self.emission_ns();
        let burst_ns = emission_ns.saturating_mul(u64::from(self.burst)).min(TIME_MAX_NS);
        let cost_ns = emission_ns.saturating_mul(u64::from(self.cost));
        let wanted_ns = missing_ns.saturating_add(cost_ns);
        let (missing_ns, retry_after_ns) = if self.refund {
            (missing_ns.saturating_sub(cost_ns), 0)
        } else if self.cost == 0 {
            (missing_ns, 0)
        } else if self.cost > self.burst {
            (missing_ns, u64::MAX)
        } else if wanted_ns <= burst_ns {
            (wanted_ns, 0)
        } else {
            (missing_ns, wanted_ns - burst_ns)
        };
        let allowance = Allowance {
            allowed: retry_after_ns == 0,
            remaining: burst_ns.saturating_sub(missing_ns) / emission_ns,
            retry_after_ns,
            reset_after_ns: missing_ns,
        };
        (allowance, missing_ns)
    }
}

/// Bucket that is not full, or was not when it was last used, in 32 bytes.
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
/// Taking tokens moves the instant later by their worth. It is refused if the instant would be more than a full bucket
/// ahead of now. Returning tokens moves the instant earlier. All times are whole nanoseconds, so nothing drifts, and a
/// refund exactly undoes a take.
///
/// The instant does not depend on rate and burst, which each request brings along. A request with another rate or burst
/// counts the missing time in tokens of its own size.
///
/// A bucket is full once its instant has passed, and a full bucket behaves like a new one. So removing it changes no
/// answer. Memory is bounded by the number of buckets that are not full, or by `kept_bucket_count` if that is larger.
/// Beyond that count, a clock hand checks a few old buckets for each new one. Below it, removing a bucket that is soon
/// used again would cost more than keeping it.
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

    /// Checks the fields of a request. Callers check all buckets of a request before they take tokens from any of them.
    ///
    /// # Errors
    /// Returns a refusal that names the invalid field.
    pub(crate) fn check(throttle: &Throttle<'_>) -> Result<(), Refusal> {
        if throttle.name.is_empty() {
            return Err(Refusal::bad_input("name", 0, "must not be empty"));
        }
        if throttle.name.len() > KEY_LEN_MAX {
            return Err(Refusal::bad_input(
                "name",
                KEY_LEN_MAX as u64,
                "the name is too long; the maximum is 1024 bytes",
            ));
        }
        if throttle.rate == 0 {
            return Err(Refusal::bad_input("rate", 0, "must be at least 1"));
        }
        if throttle.period_ns == 0 {
            return Err(Refusal::bad_input("period_ns", 0, "must be at least 1"));
        }
        if throttle.period_ns > TIME_MAX_NS {
            return Err(Refusal::bad_input(
                "period_ns",
                TIME_MAX_NS,
                "the period is too long; the maximum is about 292 years",
            ));
        }
        if throttle.burst == 0 {
            return Err(Refusal::bad_input("burst", 0, "must be at least 1"));
        }
        let emission_ns = throttle.emission_ns();
        if emission_ns.saturating_mul(u64::from(throttle.burst)) > TIME_MAX_NS {
            let burst_max = TIME_MAX_NS / emission_ns;
            let message = "the burst is too large for this rate: the bucket would take too long to fill";
            return Err(Refusal::bad_input("burst", burst_max, message));
        }
        Ok(())
    }

    /// Returns the answer that [`BucketTable::take`] would give, without changing anything.
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
    /// Returns a refusal only if the table has no room for another bucket that is not full.
    #[inline]
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        namespace: u16,
        throttle: &Throttle<'_>,
    ) -> Result<Allowance, Refusal> {
        debug_assert_eq!(Self::check(throttle), Ok(()));
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

    /// Checks the index. For tests.
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

    /// Returns the end of the slots for `forget_full`.
    pub(crate) fn end(&self) -> u32 {
        self.buckets.end()
    }

    /// Removes the bucket in this slot if it is full and `concerns` accepts its namespace. Returns the namespace if it
    /// is accepted but the bucket is not full.
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

    /// Moves the clock hand over `steps` records, and removes the full buckets among them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    const SECOND_NS: u64 = 1_000_000_000;

    fn hasher() -> RandomState {
        RandomState::with_seeds(1, 2, 3, 4)
    }

    fn table(bucket_count_max: u32) -> BucketTable {
        table_that_keeps(0, bucket_count_max)
    }

    fn table_that_keeps(kept_bucket_count: u32, bucket_count_max: u32) -> BucketTable {
        BucketTable::new(hasher(), &Limits { bucket_count_max, kept_bucket_count, ..Limits::default() })
    }

    /// Returns a request for a bucket of ten tokens that gains ten per second.
    fn throttle(name: &[u8], cost: u32) -> Throttle<'_> {
        let hash = hash(&hasher(), 1, name);
        Throttle { name, hash, rate: 10, period_ns: SECOND_NS, burst: 10, cost, refund: false }
    }

    fn take(table: &mut BucketTable, now_ns: u64, throttle: &Throttle<'_>) -> Allowance {
        let decided = table.decide(now_ns, 1, throttle);
        let taken = table.take(now_ns, 1, throttle).expect("there is room");
        assert_eq!(decided, taken, "what was decided is not what was done");
        taken
    }

    #[test]
    fn a_bucket_allows_its_burst_at_once_and_then_its_rate() {
        let mut table = table(8);
        let one = throttle(b"b", 1);
        for taken in 1..=10 {
            let reset_after_ns = taken * SECOND_NS / 10;
            let remaining = 10 - taken;
            let expected = Allowance { allowed: true, remaining, retry_after_ns: 0, reset_after_ns };
            assert_eq!(take(&mut table, 5, &one), expected);
        }
        let refused = take(&mut table, 5, &one);
        let expected = Allowance {
            allowed: false,
            remaining: 0,
            retry_after_ns: SECOND_NS / 10,
            reset_after_ns: SECOND_NS,
        };
        assert_eq!(refused, expected);
        assert!(!take(&mut table, 4 + SECOND_NS / 10, &one).allowed, "a nanosecond early");
        assert!(take(&mut table, 5 + SECOND_NS / 10, &one).allowed, "in time");
        assert!(!take(&mut table, 5 + SECOND_NS / 10, &one).allowed, "the token was taken");
    }

    #[test]
    fn a_refusal_returns_the_exact_retry_time() {
        let mut table = table(8);
        assert!(take(&mut table, 0, &throttle(b"b", 7)).allowed);
        let five = throttle(b"b", 5);
        let refused = take(&mut table, 33, &five);
        assert_eq!((refused.allowed, refused.remaining), (false, 3), "nothing is taken in part");
        assert!(!take(&mut table, 33 + refused.retry_after_ns - 1, &five).allowed);
        assert!(take(&mut table, 33 + refused.retry_after_ns, &five).allowed);
    }

    #[test]
    fn full_memory_refuses_new_buckets_and_serves_known_buckets() {
        let mut table = table(8);
        assert!(take(&mut table, 0, &throttle(b"known", 1)).allowed);
        table.set_full_memory(Some(4096));
        let refusal = Refusal::Overloaded { limit: "bytes of memory", value: 4096 };
        assert_eq!(table.take(0, 1, &throttle(b"new", 1)), Err(refusal));
        assert!(take(&mut table, 0, &throttle(b"known", 1)).allowed);
        table.set_full_memory(None);
        assert!(take(&mut table, 0, &throttle(b"new", 1)).allowed);
    }

    #[test]
    fn a_cost_above_the_burst_is_never_allowed() {
        let mut table = table(8);
        let eleven = throttle(b"b", 11);
        let expected =
            Allowance { allowed: false, remaining: 10, retry_after_ns: u64::MAX, reset_after_ns: 0 };
        assert_eq!(take(&mut table, 0, &eleven), expected);
        assert_eq!(table.bucket_count(), 0, "a refusal needs no bucket");
    }

    #[test]
    fn a_zero_cost_request_changes_nothing() {
        let mut table = table(8);
        let look = throttle(b"b", 0);
        let full = Allowance { allowed: true, remaining: 10, retry_after_ns: 0, reset_after_ns: 0 };
        assert_eq!(take(&mut table, 7, &look), full);
        assert_eq!(table.bucket_count(), 0);
        take(&mut table, 7, &throttle(b"b", 10));
        let empty = Allowance { allowed: true, remaining: 0, retry_after_ns: 0, reset_after_ns: SECOND_NS };
        for _ in 0..3 {
            assert_eq!(take(&mut table, 7, &look), empty);
        }
        let half = Allowance { remaining: 5, reset_after_ns: SECOND_NS / 2, ..empty };
        assert_eq!(take(&mut table, 7 + SECOND_NS / 2, &look), half);
    }

    #[test]
    fn a_refund_never_exceeds_the_burst() {
        let mut table = table(8);
        let refund = |cost| Throttle { refund: true, ..throttle(b"b", cost) };
        let full = Allowance { allowed: true, remaining: 10, retry_after_ns: 0, reset_after_ns: 0 };
        assert_eq!(take(&mut table, 0, &refund(3)), full);
        assert_eq!(table.bucket_count(), 0);
        take(&mut table, 0, &throttle(b"b", 3));
        assert_eq!(take(&mut table, 0, &refund(2)).remaining, 9);
        assert_eq!(take(&mut table, 0, &refund(u32::MAX)), full);
        assert!(take(&mut table, 0, &throttle(b"b", 10)).allowed);
        assert!(!take(&mut table, 0, &throttle(b"b", 1)).allowed);
    }

    #[test]
    fn bucket_time_never_goes_back() {
        let mut table = table(8);
        let ten = throttle(b"b", 10);
        assert!(take(&mut table, 5 * SECOND_NS, &ten).allowed);
        assert_eq!(take(&mut table, 0, &ten).retry_after_ns, SECOND_NS);
        // The latest instant applies to all buckets.
        take(&mut table, 6 * SECOND_NS, &throttle(b"other", 0));
        assert!(take(&mut table, 0, &ten).allowed);
    }

    #[test]
    fn buckets_are_distinct_by_name_and_namespace() {
        let mut table = table(8);
        let names: [&[u8]; 4] = [b"b", b"b\0", &[b'x'; 16], &[b'x'; 17]];
        for name in names {
            assert!(take(&mut table, 0, &throttle(name, 10)).allowed);
        }
        for name in names {
            assert!(!take(&mut table, 0, &throttle(name, 1)).allowed);
            // The hashes are equal, so the names must differ.
            let answer = table.take(0, 2, &throttle(name, 10));
            assert_eq!(answer.map(|answer| answer.allowed), Ok(true));
        }
    }

    #[test]
    fn spent_tokens_stay_spent_when_rate_and_burst_change() {
        let mut table = table(8);
        take(&mut table, 0, &throttle(b"b", 10));
        let smaller = Throttle { burst: 4, ..throttle(b"b", 1) };
        let refused = take(&mut table, 0, &smaller);
        assert_eq!((refused.remaining, refused.retry_after_ns), (0, 7 * SECOND_NS / 10));
        let look = Throttle { cost: 0, ..smaller };
        assert!(take(&mut table, 0, &look).allowed, "looking is never refused");
        let faster = Throttle { rate: 100, burst: 150, ..throttle(b"b", 50) };
        assert!(take(&mut table, 0, &faster).allowed, "a second is missing: 100 of 150");
    }

    #[test]
    fn the_tightest_of_several_buckets_decides() {
        let roomy = Allowance { allowed: true, remaining: 3, retry_after_ns: 0, reset_after_ns: 9 };
        let tight = Allowance { remaining: 2, ..roomy };
        let refused = Allowance { allowed: false, remaining: 5, retry_after_ns: 7, reset_after_ns: 8 };
        let never = Allowance { retry_after_ns: u64::MAX, ..refused };
        let rising = [roomy, tight, refused, never];
        for (place, looser) in rising.iter().enumerate() {
            for tighter in &rising[place..] {
                assert_eq!(looser.tightest(*tighter), *tighter);
                assert_eq!(tighter.tightest(*looser), *tighter);
            }
        }
    }

    #[test]
    fn invalid_bucket_settings_are_rejected_by_field() {
        let good = throttle(b"b", 1);
        let refused = |throttle: Throttle<'_>| match BucketTable::check(&throttle) {
            Ok(()) => ("", 0),
            Err(Refusal::BadInput { field, limit, .. }) => (field, limit),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(refused(good), ("", 0));
        assert_eq!(refused(Throttle { name: b"", ..good }), ("name", 0));
        assert_eq!(refused(Throttle { name: &[b'x'; KEY_LEN_MAX], ..good }), ("", 0));
        let long = [b'x'; KEY_LEN_MAX + 1];
        assert_eq!(refused(Throttle { name: &long, ..good }), ("name", KEY_LEN_MAX as u64));
        assert_eq!(refused(Throttle { rate: 0, ..good }), ("rate", 0));
        assert_eq!(refused(Throttle { period_ns: 0, ..good }), ("period_ns", 0));
        assert_eq!(refused(Throttle { burst: 0, ..good }), ("burst", 0));
        let ages = Throttle { rate: 1, period_ns: TIME_MAX_NS, burst: 1, ..good };
        assert_eq!(refused(ages), ("", 0));
        assert_eq!(refused(Throttle { burst: 2, ..ages }), ("burst", 1));
        assert_eq!(refused(Throttle { period_ns: TIME_MAX_NS + 1, ..ages }), ("period_ns", TIME_MAX_NS));
        let year = Throttle { rate: 1, period_ns: 365 * 86_400 * SECOND_NS, burst: 292, ..good };
        assert_eq!(refused(year), ("", 0));
        assert_eq!(refused(Throttle { burst: 293, ..year }), ("burst", 292));
    }

    #[test]
    fn a_new_bucket_is_refused_if_too_many_buckets_are_not_full() {
        let mut table = table(100);
        for number in 0..100_u32 {
            assert!(take(&mut table, 0, &throttle(&number.to_le_bytes(), 5)).allowed);
        }
        let new = throttle(b"new", 1);
        let refusal = Refusal::Overloaded { limit: "buckets per shard", value: 100 };
        assert_eq!(table.take(0, 1, &new), Err(refusal.clone()));
        assert!(table.decide(0, 1, &new).allowed, "the bucket itself would allow it");
        // Existing buckets still work, as do requests that need no bucket.
        assert!(take(&mut table, 0, &throttle(&7_u32.to_le_bytes(), 5)).allowed);
        assert!(take(&mut table, 0, &throttle(b"new", 0)).allowed);
        assert!(!take(&mut table, 0, &throttle(b"new", 11)).allowed);
        assert_eq!(table.take(SECOND_NS / 2 - 1, 1, &new), Err(refusal), "a nanosecond early");
        assert!(take(&mut table, SECOND_NS / 2, &new).allowed);
        assert!(!take(&mut table, SECOND_NS / 2, &throttle(&7_u32.to_le_bytes(), 6)).allowed);
    }

    #[test]
    fn a_single_full_bucket_makes_room_for_a_new_bucket() {
        for full in 0..100_u32 {
            let mut table = table(100);
            for number in 0..100_u32 {
                let cost = if number == full { 1 } else { 5 };
                take(&mut table, 0, &throttle(&number.to_le_bytes(), cost));
            }
            assert!(take(&mut table, SECOND_NS / 10, &throttle(b"new", 1)).allowed);
        }
    }

    #[test]
    fn memory_is_bounded_by_the_buckets_that_are_not_full() {
        let mut table = table(1 << 20);
        // Each name is used once, one name per microsecond. Its bucket is full a millisecond later.
        for number in 0..10_000_000_u64 {
            let mut name = [b'n'; 20];
            name[..8].copy_from_slice(&number.to_le_bytes());
            let name = if number.is_multiple_of(16) { &name[..] } else { &name[..8] };
            let hash = table.hash(1, name);
            let throttle =
                Throttle { name, hash, rate: 1, period_ns: 1_000_000, burst: 2, cost: 1, refund: false };
            let answer = table.take(number * 1000, 1, &throttle);
            assert_eq!(answer.map(|answer| answer.remaining), Ok(1), "a name was known already");
        }
        assert!(table.buckets.end() < 1500, "1000 are not full, {} are kept", table.buckets.end());
        assert_eq!(table.index.len(), table.bucket_count() as usize);
    }

    #[test]
    fn full_buckets_are_kept_up_to_a_count() {
        let mut table = table_that_keeps(100, 1 << 20);
        let hour_later = |number: u32| u64::from(number) * 3600 * SECOND_NS;
        for number in 0..100 {
            take(&mut table, hour_later(number), &throttle(&number.to_le_bytes(), 5));
        }
        assert_eq!(table.bucket_count(), 100);
        // All buckets but the newest are full, and behave like new ones.
        assert_eq!(take(&mut table, hour_later(99), &throttle(&7_u32.to_le_bytes(), 10)).remaining, 0);
        for number in 100..10_000 {
            take(&mut table, hour_later(number), &throttle(&number.to_le_bytes(), 5));
            assert!(table.bucket_count() <= 100, "more full buckets are kept than need be");
        }
    }

    #[test]
    fn no_input_overflows() {
        let mut table = table(64);
        let extremes = [0, 1, 2, u64::from(u32::MAX), TIME_MAX_NS - 1, TIME_MAX_NS, u64::MAX - 1, u64::MAX];
        let counts = [0, 1, 2, u32::MAX - 1, u32::MAX];
        let mut accepted = 0;
        for now_ns in extremes {
            for period_ns in extremes {
                for (rate, burst) in counts.iter().flat_map(|rate| counts.map(|burst| (*rate, burst))) {
                    for (cost, refund) in counts.iter().flat_map(|cost| [(*cost, false), (*cost, true)]) {
                        let throttle = Throttle { rate, period_ns, burst, cost, refund, ..throttle(b"b", 0) };
                        // Requests that were not checked must not overflow either.
                        table.decide(now_ns, 1, &throttle);
                        if BucketTable::check(&throttle).is_ok() {
                            let answer = take(&mut table, now_ns, &throttle);
                            assert!(answer.remaining <= u64::from(burst));
                            accepted += 1;
                        }
                    }
                }
            }
        }
        assert!(accepted > 1000, "{accepted}");
    }

    #[test]
    fn a_bucket_works_at_the_latest_possible_time() {
        let mut table = table(8);
        assert!(take(&mut table, u64::MAX, &throttle(b"b", 10)).allowed);
        assert!(!take(&mut table, u64::MAX, &throttle(b"b", 1)).allowed);
    }

    /// Reference model of a bucket: a number of token parts, one of which arrives each nanosecond.
    struct Oracle {
        parts: u128,
        now_ns: u64,
    }

    impl Oracle {
        fn answer(&mut self, now_ns: u64, throttle: &Throttle<'_>) -> Allowance {
            let parts_per_token = u128::from(throttle.period_ns).div_ceil(u128::from(throttle.rate));
            let full = parts_per_token * u128::from(throttle.burst);
            let cost = parts_per_token * u128::from(throttle.cost);
            let now_ns = self.now_ns.max(now_ns);
            self.parts = full.min(self.parts + u128::from(now_ns - self.now_ns));
            self.now_ns = now_ns;
            let mut retry_after = 0;
            if throttle.refund {
                self.parts = full.min(self.parts + cost);
            } else if cost <= self.parts {
                self.parts -= cost;
            } else {
                retry_after = if cost > full { u128::from(u64::MAX) } else { cost - self.parts };
            }
            Allowance {
                allowed: retry_after == 0,
                remaining: (self.parts / parts_per_token) as u64,
                retry_after_ns: retry_after as u64,
                reset_after_ns: (full - self.parts) as u64,
            }
        }
    }

    /// Generates rate, period and burst, from ordinary to extreme.
    fn rules() -> impl Strategy<Value = (u32, u64, u32)> {
        let rate = prop_oneof![1..20_u32, any::<u32>().prop_map(|rate| rate.max(1))];
        let period = prop_oneof![1..100_u64, 1..10 * SECOND_NS, 1..=TIME_MAX_NS];
        let burst = prop_oneof![1..20_u32, any::<u32>().prop_map(|burst| burst.max(1))];
        (rate, period, burst).prop_map(|(rate, period_ns, burst)| {
            let burst_max = TIME_MAX_NS / period_ns.div_ceil(u64::from(rate));
            (rate, period_ns, u32::try_from(burst_max).map_or(burst, |burst_max| burst.min(burst_max)))
        })
    }

    /// Step of a test: the bucket, its cost, whether it is a refund, and the time since the step before. The cost is in
    /// 1/8 of the burst, or any number. The time is a part of the time to fill the bucket, or any number.
    type Step = (usize, Result<u32, u32>, bool, Result<u32, u64>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let cost = prop_oneof![4 => (0..10_u32).prop_map(Ok), 1 => (0..10_u32).prop_map(Err), 1 => any::<u32>().prop_map(Err)];
        let pause = prop_oneof![
            2 => Just(Err(0)),
            4 => (0..40_u32).prop_map(Ok),
            1 => (0..5_u64).prop_map(Err),
        ];
        prop::collection::vec((0..3_usize, cost, prop::bool::weighted(0.2), pause), 1..100)
    }

    fn asked<'a>(name: &'a [u8], rule: (u32, u64, u32), step: &Step) -> Throttle<'a> {
        let (rate, period_ns, burst) = rule;
        let cost = match step.1 {
            Ok(eighths) => (u64::from(burst) * u64::from(eighths) / 8).min(u64::from(u32::MAX)) as u32,
            Err(cost) => cost,
        };
        Throttle { rate, period_ns, burst, refund: step.2, ..throttle(name, cost) }
    }

    fn pause_ns(throttle: &Throttle<'_>, step: &Step) -> u64 {
        match step.3 {
            Ok(parts) => {
                let fill_ns = throttle.emission_ns() * u64::from(throttle.burst);
                (u128::from(fill_ns) * u128::from(parts) / 32) as u64
            }
            Err(pause_ns) => pause_ns,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn answers_match_the_reference_model(
            rules in prop::collection::vec(rules(), 3),
            start_ns in 0..SECOND_NS,
            steps in steps(),
        ) {
            let mut table = table(2);
            let mut oracles = BTreeMap::new();
            let mut now_ns = start_ns;
            for step in &steps {
                let name = &[step.0 as u8 + 1][..];
                let throttle = asked(name, rules[step.0], step);
                prop_assert_eq!(BucketTable::check(&throttle), Ok(()));
                now_ns = now_ns.saturating_add(pause_ns(&throttle, step)).min(TIME_MAX_NS);
                let full = u128::from(throttle.emission_ns()) * u128::from(throttle.burst);
                let oracle = oracles.entry(step.0).or_insert(Oracle { parts: full, now_ns });
                let decided = table.decide(now_ns, 1, &throttle);
                match table.take(now_ns, 1, &throttle) {
                    Ok(answer) => {
                        prop_assert_eq!(answer, oracle.answer(now_ns, &throttle));
                        prop_assert_eq!(answer, decided);
                    }
                    // The two other buckets are not full, so none can be removed for a third one.
                    Err(_) => {
                        let mut live_count = 0;
                        for (other, oracle) in &mut oracles {
                            let look = Throttle { cost: 0, ..asked(name, rules[*other], step) };
                            live_count += u32::from(oracle.answer(now_ns, &look).reset_after_ns > 0);
                        }
                        prop_assert_eq!(live_count, 2);
                    }
                }
            }
        }

        #[test]
        fn no_time_window_exceeds_burst_plus_rate(rule in rules(), steps in steps()) {
            let mut table = table(1);
            let (mut now_ns, mut taken) = (0, VecDeque::new());
            for step in &steps {
                let throttle = Throttle { refund: false, ..asked(b"b", rule, step) };
                now_ns = pause_ns(&throttle, step).saturating_add(now_ns).min(TIME_MAX_NS);
                if take(&mut table, now_ns, &throttle).allowed {
                    taken.push_back((now_ns, u128::from(throttle.cost)));
                }
            }
            let (rate, period_ns, burst) = (u128::from(rule.0), u128::from(rule.1), u128::from(rule.2));
            while let Some((first_ns, _)) = taken.front().copied() {
                let mut sum = 0;
                for (last_ns, cost) in &taken {
                    sum += cost;
                    let window_ns = u128::from(last_ns - first_ns);
                    // sum <= burst + rate * window / period, without the division
                    prop_assert!(sum * period_ns <= burst * period_ns + rate * window_ns);
                }
                taken.pop_front();
            }
        }

        #[test]
        fn a_refund_fully_undoes_a_take(
            rule in rules(),
            steps in steps(),
            detours in prop::collection::vec(prop::option::of(any::<u32>()), 100),
        ) {
            let (mut straight, mut with_detours) = (table(1), table(1));
            let mut now_ns = 0;
            for (step, detour) in steps.iter().zip(detours) {
                let throttle = asked(b"b", rule, step);
                now_ns = pause_ns(&throttle, step).saturating_add(now_ns).min(TIME_MAX_NS);
                prop_assert_eq!(take(&mut straight, now_ns, &throttle), take(&mut with_detours, now_ns, &throttle));
                if let Some(cost) = detour {
                    let taken = Throttle { cost: cost % throttle.burst + 1, refund: false, ..throttle };
                    if take(&mut with_detours, now_ns, &taken).allowed {
                        take(&mut with_detours, now_ns, &Throttle { refund: true, ..taken });
                    }
                }
            }
        }
    }
}
