//! Tests of the rate limiter, against examples and a reference model.

use super::*;
use crate::limits::KEY_LEN_MAX;
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
    let expected =
        Allowance { allowed: false, remaining: 0, retry_after_ns: SECOND_NS / 10, reset_after_ns: SECOND_NS };
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
    let expected = Allowance { allowed: false, remaining: 10, retry_after_ns: u64::MAX, reset_after_ns: 0 };
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
    // The latest instant of any request applies to all buckets.
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
        // The request names namespace 2 but has the hash for namespace 1. So only the comparison of the namespaces
        // keeps the buckets apart.
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
    let refused = |throttle: Throttle<'_>| match throttle.check() {
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
    // Requests for existing buckets still work. So do requests that leave the new bucket full or are refused, since
    // these need no record.
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
                    // `decide` must not overflow even for a request that `check` rejects.
                    table.decide(now_ns, 1, &throttle);
                    if throttle.check().is_ok() {
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

/// Step of a test: the number of the bucket, the cost, whether it is a refund, and the time since the step before. A
/// cost is `Ok` in eighths of the burst, or `Err` in tokens. A time is `Ok` in 1/32 of the time to fill the bucket, or
/// `Err` in nanoseconds.
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

fn request<'a>(name: &'a [u8], rule: (u32, u64, u32), step: &Step) -> Throttle<'a> {
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
            let throttle = request(name, rules[step.0], step);
            prop_assert_eq!(throttle.check(), Ok(()));
            now_ns = now_ns.saturating_add(pause_ns(&throttle, step)).min(TIME_MAX_NS);
            let full = u128::from(throttle.emission_ns()) * u128::from(throttle.burst);
            let oracle = oracles.entry(step.0).or_insert(Oracle { parts: full, now_ns });
            let decided = table.decide(now_ns, 1, &throttle);
            match table.take(now_ns, 1, &throttle) {
                Ok(answer) => {
                    prop_assert_eq!(answer, oracle.answer(now_ns, &throttle));
                    prop_assert_eq!(answer, decided);
                }
                // The table has room for two buckets. The error is correct only if both other buckets are not full, so
                // that none of them can be removed.
                Err(_) => {
                    let mut live_count = 0;
                    for (other, oracle) in &mut oracles {
                        let look = Throttle { cost: 0, ..request(name, rules[*other], step) };
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
            let throttle = Throttle { refund: false, ..request(b"b", rule, step) };
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
            let throttle = request(b"b", rule, step);
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
