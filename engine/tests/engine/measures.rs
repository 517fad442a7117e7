//! Measurements of a shard for metrics: differences of readings of the clock, in nanoseconds.

use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, Participant, RequestedKey};
use waymaker_engine::{
    Acquire, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, ContendedKey, ContendedKeys,
    Effects, Event, LaneSlot, Lease, Limits, LossReason, Measure, Nanos, PoolOrder, Reading, Register, Shard,
    ShardConfig, Ticket, Time, TreeItem,
};

const MS: u64 = 1_000_000;

/// Hears grants and measurements.
#[derive(Default)]
struct Heard {
    granted: Vec<ClaimId>,
    /// Nanoseconds of the holds that ended.
    holds: Vec<u64>,
    measures: Vec<Measure>,
    /// Types of the registrations whose lease expired.
    expired_types: Vec<Vec<u8>>,
}

impl Effects for Heard {
    fn answer(&mut self, _: Ticket, answer: Answer) {
        match answer {
            Answer::Granted(grant) => self.granted.push(grant.id),
            Answer::Registered(registered) => self.granted.push(registered.id),
            _ => {}
        }
    }

    fn event(&mut self, _: waymaker_engine::LaneAddress, _: Event) {}

    fn hold_ended(&mut self, held_nanos: u64) {
        self.holds.push(held_nanos);
    }

    fn measure(&mut self, measure: Measure) {
        self.measures.push(measure);
    }

    fn registration_expired(&mut self, namespace: u16, type_name: &[u8]) {
        assert_eq!(namespace, 3, "the namespace of the registration");
        self.expired_types.push(type_name.to_vec());
    }
}

/// A shard, and its effects.
struct Bench {
    shard: Shard,
    heard: Heard,
    number: u32,
}

impl Bench {
    fn new() -> Self {
        let limits = Limits { work_per_turn: 8, ..Limits::default() };
        let (hash_seeds, secret_seed) = ([1, 2, 3, 4], [5; 32]);
        let config = ShardConfig { number: 0, limits, hash_seeds, secret_seed, start: Time::ZERO };
        Self { shard: Shard::new(&config), heard: Heard::default(), number: 0 }
    }

    /// A turn at this reading, in nanoseconds.
    fn turn(&mut self, nanos: u64) {
        let reading = Reading { time: Nanos::new(nanos).round_up(), nanos: Nanos::new(nanos) };
        let drained = Time::from_millis(nanos / MS);
        self.shard.begin_turn(reading, drained, &mut self.heard);
    }

    fn caller(&mut self, namespace: u16) -> Caller {
        self.number += 1;
        let lane =
            waymaker_engine::LaneAddress { slot: LaneSlot(u32::from(namespace)), ..Default::default() };
        let number = self.shard.lane(lane, &Arc::from(*b"owner"), namespace);
        Caller { lane: number, ticket: Ticket { lane, number: self.number }, namespace }
    }

    fn acquire(&mut self, key: &[u8], lease_ms: u32, wait_ms: u32) {
        let caller = self.caller(0);
        let acquire = Acquire {
            key,
            hash: self.shard.hash(0, key),
            terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.shard.acquire(&caller, &acquire, &mut self.heard);
    }

    /// Registers a key, or renews its registration.
    fn register(&mut self, lease_ms: i64, lazy: bool) {
        let caller = self.caller(3);
        let register = Register {
            key: b"key",
            owner: b"owner",
            value: b"",
            type_name: b"type",
            lease: Lease::FromNow(lease_ms),
            lazy,
            ephemeral: true,
        };
        self.shard.register(&caller, &register, &mut self.heard);
    }

    /// Releases the oldest hold that was granted.
    fn release(&mut self, namespace: u16) {
        let caller = self.caller(namespace);
        let id = self.heard.granted.remove(0);
        self.shard.release(&caller, id, None, &mut self.heard);
    }

    /// The holds that ended since the last call.
    fn holds(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.heard.holds)
    }

    /// What else was measured since the last call.
    fn measures(&mut self) -> Vec<Measure> {
        std::mem::take(&mut self.heard.measures)
    }
}

#[test]
fn a_hold_is_measured_from_its_grant_to_its_end() {
    let mut bench = Bench::new();
    bench.turn(7 * MS + 1);
    bench.acquire(b"key", 0, 0);
    bench.turn(9 * MS + 300);
    assert_eq!(bench.holds(), []);
    bench.release(0);
    assert_eq!((bench.holds(), bench.measures()), (vec![2 * MS + 299], vec![]));
}

#[test]
fn a_waiter_is_measured_from_its_arrival_and_the_handover_from_the_release() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 0, 0);
    bench.turn(MS + 5);
    bench.acquire(b"key", 0, u32::MAX);
    assert_eq!(bench.measures(), [Measure::Queued { depth: 1 }]);
    bench.turn(3 * MS);
    // Another worker had read the release before.
    bench.shard.advance(Reading { time: Time::from_millis(3), nanos: Nanos::new(3 * MS - 400) });
    bench.release(0);
    let expected = [Measure::Waited { nanos: 2 * MS - 5 }, Measure::HandedOver { nanos: 400 }];
    assert_eq!((bench.holds(), bench.measures()), (vec![3 * MS], expected.to_vec()));
}

#[test]
fn the_handover_after_a_lease_begins_at_its_end() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 10, 0);
    bench.acquire(b"key", 0, u32::MAX);
    bench.measures();
    bench.turn(12 * MS + 77);
    let expected = [
        Measure::Lost(LossReason::Expired),
        Measure::Waited { nanos: 12 * MS + 77 },
        Measure::HandedOver { nanos: 2 * MS + 77 },
    ];
    assert_eq!((bench.holds(), bench.measures()), (vec![12 * MS + 77], expected.to_vec()));
}

#[test]
fn a_grant_that_a_later_turn_gives_counts_from_the_release() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 0, 0);
    let readers = 20;
    for _ in 0..readers {
        let caller = bench.caller(0);
        let hash = bench.shard.hash(0, b"key");
        let acquire = Acquire {
            key: b"key",
            hash,
            shared: true,
            terms: AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        bench.shard.acquire(&caller, &acquire, &mut bench.heard);
    }
    bench.turn(MS);
    bench.measures();
    bench.release(0);
    bench.turn(4 * MS);
    bench.turn(5 * MS);
    bench.turn(6 * MS);
    let is_handover = |measure: &Measure| matches!(measure, Measure::HandedOver { .. });
    let handovers: Vec<_> = bench.measures().into_iter().filter(is_handover).collect();
    assert_eq!(handovers.len(), readers);
    assert_eq!(handovers[0], Measure::HandedOver { nanos: 0 });
    assert!(handovers.contains(&Measure::HandedOver { nanos: 3 * MS }), "{handovers:?}");
}

#[test]
fn a_waiter_that_is_granted_because_another_one_leaves_is_no_handover() {
    let mut bench = Bench::new();
    let reader = |bench: &mut Bench, wait_ms| {
        let caller = bench.caller(0);
        let hash = bench.shard.hash(0, b"key");
        let acquire = Acquire {
            key: b"key",
            hash,
            shared: true,
            terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
        };
        bench.shard.acquire(&caller, &acquire, &mut bench.heard);
    };
    reader(&mut bench, 0);
    bench.acquire(b"key", 0, u32::MAX);
    let writer = bench.number;
    reader(&mut bench, u32::MAX);
    bench.turn(MS);
    bench.measures();
    let caller = bench.caller(0);
    bench.shard.cancel(&caller, writer, &mut bench.heard);
    assert_eq!(bench.measures(), [Measure::Waited { nanos: MS }]);
}

/// Acquires the permit of a pool that has one.
fn acquire_permit(bench: &mut Bench, wait_ms: u32) {
    let caller = bench.caller(1);
    let acquire = AcquirePermits {
        name: b"pool",
        capacity: Some(1),
        permits: 1,
        order: PoolOrder::Arrival,
        timestamp_us: 0,
        terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
    };
    bench.shard.acquire_permits(&caller, &acquire, &mut bench.heard);
}

/// Acquires a set of one path.
fn acquire_path(bench: &mut Bench, wait_ms: u32) {
    let caller = bench.caller(2);
    let items = [TreeItem { path: b"\x01\0a", write: true }];
    let acquire = AcquireSet { items: &items, terms: AcquireTerms { wait_ms, ..AcquireTerms::default() } };
    bench.shard.acquire_set(&caller, &acquire, &mut bench.heard);
}

#[test]
fn permits_and_sets_are_handed_over_too() {
    let mut bench = Bench::new();
    for (namespace, acquire) in [(1, &acquire_permit as &dyn Fn(&mut Bench, u32)), (2, &acquire_path)] {
        acquire(&mut bench, 0);
        acquire(&mut bench, u32::MAX);
        assert_eq!(bench.measures(), [Measure::Queued { depth: 1 }]);
        let now = bench.shard.reading().nanos.since(Nanos::ZERO);
        bench.turn(now + 5);
        bench.release(namespace);
        let expected = [Measure::Waited { nanos: 5 }, Measure::HandedOver { nanos: 0 }];
        assert_eq!(bench.measures(), expected, "namespace {namespace}");
        assert_eq!(bench.holds(), [5], "namespace {namespace}");
        bench.release(namespace);
        bench.holds();
    }
}

#[test]
fn permits_that_are_granted_because_a_waiter_leaves_are_no_handover() {
    let mut bench = Bench::new();
    let acquire = |bench: &mut Bench, permits: u64| {
        let caller = bench.caller(1);
        let acquire = AcquirePermits {
            name: b"pool",
            capacity: Some(2),
            permits,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { lease_ms: 3_600_000, wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        bench.shard.acquire_permits(&caller, &acquire, &mut bench.heard);
        bench.number
    };
    acquire(&mut bench, 1);
    acquire(&mut bench, 1);
    bench.turn(MS);
    // No claim waits for this permit.
    bench.release(1);
    bench.turn(2 * MS);
    let big = acquire(&mut bench, 2);
    acquire(&mut bench, 1);
    bench.turn(3 * MS);
    bench.measures();
    let caller = bench.caller(1);
    bench.shard.cancel(&caller, big, &mut bench.heard);
    assert_eq!(bench.measures(), [Measure::Waited { nanos: MS }]);
}

#[test]
fn a_renewal_is_measured_by_what_remained_of_the_lease() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 10, 0);
    bench.turn(4 * MS + 1);
    let (caller, id) = (bench.caller(0), bench.heard.granted[0]);
    bench.shard.extend(&caller, id, None, 20, &mut bench.heard);
    assert_eq!(bench.measures(), [Measure::Renewed { slack_nanos: 6 * MS - 1 }]);
}

#[test]
fn nothing_remains_of_the_lease_of_an_overdue_registration() {
    let mut bench = Bench::new();
    bench.register(10, true);
    bench.turn(20 * MS);
    bench.register(10, true);
    assert_eq!(bench.measures(), [Measure::Renewed { slack_nanos: 0 }]);
}

#[test]
fn a_registration_is_measured_when_it_is_renewed_but_is_no_hold() {
    let mut bench = Bench::new();
    bench.register(10, false);
    bench.turn(MS);
    bench.register(10, false);
    assert_eq!(bench.measures(), [Measure::Renewed { slack_nanos: 9 * MS }]);
    assert!(bench.heard.expired_types.is_empty());
    bench.turn(20 * MS);
    assert_eq!((bench.holds(), bench.measures()), (vec![], vec![Measure::Lost(LossReason::Expired)]));
    assert_eq!(bench.heard.expired_types, [b"type"]);
}

#[test]
fn a_set_that_is_granted_because_another_one_leaves_is_no_handover() {
    let mut bench = Bench::new();
    let set = |bench: &mut Bench, path: &[u8], write: bool| {
        let caller = bench.caller(2);
        let items = [TreeItem { path, write }];
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms { lease_ms: 3_600_000, wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        bench.shard.acquire_set(&caller, &acquire, &mut bench.heard);
        bench.number
    };
    set(&mut bench, b"\x01\0a", true);
    set(&mut bench, b"\x01\0b", false);
    bench.turn(MS);
    // No claim waits for it.
    bench.release(2);
    bench.turn(2 * MS);
    let writer = set(&mut bench, b"\x01\0b", true);
    set(&mut bench, b"\x01\0b", false);
    bench.turn(60_000 * MS);
    bench.measures();
    let caller = bench.caller(2);
    bench.shard.cancel(&caller, writer, &mut bench.heard);
    assert_eq!(bench.measures(), [Measure::Waited { nanos: 59_998 * MS }]);
}

/// A renewal leaves the timer of the lease where it was.
#[test]
fn a_release_in_the_turn_of_an_earlier_timer_counts_from_itself() {
    let mut bench = Bench::new();
    bench.acquire(b"renewed", 10, 0);
    bench.acquire(b"key", 60_000, 0);
    bench.acquire(b"key", 60_000, u32::MAX);
    bench.turn(5 * MS);
    let (caller, renewed) = (bench.caller(0), bench.heard.granted.remove(0));
    bench.shard.extend(&caller, renewed, None, 60_000, &mut bench.heard);
    bench.measures();
    bench.turn(5_000 * MS);
    bench.release(0);
    let waits = 5_000 * MS;
    let expected = vec![Measure::Waited { nanos: waits }, Measure::HandedOver { nanos: 0 }];
    assert_eq!((bench.holds(), bench.measures()), (vec![waits], expected));
}

#[test]
fn a_registration_that_is_released_by_its_id_is_no_hold() {
    for is_forced in [false, true] {
        let mut bench = Bench::new();
        bench.register(60_000, false);
        bench.turn(MS);
        let (caller, id) = (bench.caller(3), bench.heard.granted.remove(0));
        if is_forced {
            bench.shard.force_release(&caller, id, b"", &mut bench.heard);
        } else {
            bench.shard.release(&caller, id, None, &mut bench.heard);
        }
        assert_eq!(bench.holds(), [], "forced: {is_forced}");
    }
}

/// A front end asks on one lane about what it holds on another.
#[test]
fn a_release_by_another_lane_of_the_same_client_is_no_loss() {
    for (owner, lost) in [(*b"owner", 0), (*b"other", 1)] {
        let mut bench = Bench::new();
        bench.acquire(b"key", 0, 0);
        let lane = waymaker_engine::LaneAddress { slot: LaneSlot(7), ..Default::default() };
        let number = bench.shard.lane(lane, &Arc::from(owner), 0);
        let caller = Caller { lane: number, ticket: Ticket { lane, number: 1 }, namespace: 0 };
        bench.shard.release(&caller, bench.heard.granted[0], None, &mut bench.heard);
        let loss = Measure::Lost(LossReason::ReleasedElsewhere);
        assert_eq!(bench.measures().iter().filter(|measure| **measure == loss).count(), lost);
    }
}

/// A contended key with an estimated number of waits.
fn contended(
    namespace: u16,
    key: &[u8],
    waits: u64,
    waiter_count: Option<u32>,
    oldest_wait_ms: Option<u64>,
) -> ContendedKey {
    ContendedKey { namespace, key: key.to_vec(), waits, waiter_count, oldest_wait_ms }
}

#[test]
fn contended_keys_have_their_waiters_and_the_age_of_the_oldest() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 600_000, 0);
    bench.acquire(b"free", 600_000, 0);
    acquire_permit(&mut bench, 0);
    acquire_path(&mut bench, 0);
    // A refused try waits for nothing.
    bench.acquire(b"key", 0, 0);
    for (ms, acquire) in [
        (10, &(|bench: &mut Bench, wait_ms| bench.acquire(b"key", 0, wait_ms)) as &dyn Fn(&mut Bench, u32)),
        (20, &|bench, wait_ms| bench.acquire(b"key", 0, wait_ms)),
        (30, &|bench, wait_ms| bench.acquire(b"key", 0, wait_ms)),
        (40, &acquire_permit),
        (50, &acquire_permit),
        (60, &acquire_path),
    ] {
        bench.turn(ms * MS);
        acquire(&mut bench, 25_000);
    }
    bench.turn(100 * MS);
    let keys = vec![
        contended(0, b"key", 3, Some(3), Some(90)),
        contended(1, b"pool", 2, Some(2), Some(60)),
        contended(2, b"\x01\0a", 1, None, None),
    ];
    assert_eq!(bench.shard.contended_keys(), ContendedKeys { window_ms: 100, keys });
    for ms in 30_000..30_010 {
        bench.turn(ms * MS);
    }
    let found = bench.shard.contended_keys();
    assert_eq!(found.keys[0], contended(0, b"key", 3, Some(0), None));
}

#[test]
fn only_the_keys_that_block_a_multi_key_claim_are_contended() {
    let mut bench = Bench::new();
    bench.acquire(b"held", 600_000, 0);
    bench.turn(MS);
    let caller = bench.caller(0);
    let keys = [b"free", b"held"].map(|key| RequestedKey { key, shared: false, shard: 0 });
    let terms = AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() };
    let mut participants = [Participant { shard: &mut bench.shard, lane: caller.lane }];
    let request = AcquireMultiKey { keys: &keys, terms };
    multi_key::acquire(&mut participants, caller.ticket, 0, &request, &mut bench.heard);
    bench.turn(2 * MS);
    let found = bench.shard.contended_keys().keys;
    assert_eq!(found, [contended(0, b"held", 1, Some(1), Some(1))]);
}

#[test]
fn the_waits_of_a_removed_namespace_are_forgotten() {
    let mut bench = Bench::new();
    bench.acquire(b"key", 10, 0);
    bench.turn(MS);
    bench.acquire(b"key", 0, 5);
    bench.turn(50 * MS);
    assert_eq!(bench.shard.contended_keys().keys, [contended(0, b"key", 1, Some(0), None)]);
    bench.shard.forget_namespaces(1, Arc::from([0]));
    bench.turn(51 * MS);
    assert_eq!(bench.shard.contended_keys().keys, []);
}
