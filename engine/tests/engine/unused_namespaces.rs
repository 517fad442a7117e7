//! Unused namespaces are forgotten, with the full buckets in them.

use std::sync::Arc;
use waymaker_engine::{
    Answer, Caller, Effects, Event, LaneAddress, Limits, Shard, ShardConfig, Throttle, Ticket, Time,
};

/// Hears which namespaces are in use.
#[derive(Default)]
struct InUse(Option<(u64, Vec<u16>)>);

impl Effects for InUse {
    fn answer(&mut self, _: Ticket, _: Answer) {}

    fn event(&mut self, _: LaneAddress, _: Event) {}

    fn namespaces_forgotten(&mut self, number: u64, in_use: Vec<u16>) {
        self.0 = Some((number, in_use));
    }
}

/// Takes the only token of a bucket, which is full again one second later.
fn take_token(shard: &mut Shard, now_ms: u64, namespace: u16) {
    let lane = shard.lane(LaneAddress::default(), &Arc::from(*b"owner"), namespace);
    let caller = Caller { lane, ticket: Ticket::default(), namespace };
    let throttle = Throttle {
        name: b"bucket",
        hash: shard.bucket_hash(namespace, b"bucket"),
        rate: 1,
        period_ns: 1_000_000_000,
        burst: 1,
        cost: 1,
        refund: false,
    };
    shard.throttle(&caller, now_ms * 1_000_000, &throttle, &mut InUse::default());
}

/// Forgets unused namespaces. Returns the numbers of the others.
fn forget(shard: &mut Shard, now_ms: u64, namespaces: &[u16]) -> Vec<u16> {
    let mut in_use = InUse::default();
    shard.forget_namespaces(now_ms, Arc::from(namespaces));
    shard.begin_turn(Time::from_millis(now_ms), Time::from_millis(now_ms), &mut in_use);
    let (number, in_use) = in_use.0.expect("one turn suffices");
    assert_eq!(number, now_ms, "the number of the walk");
    shard.verify();
    in_use
}

#[test]
fn a_bucket_keeps_its_namespace_in_use_until_it_is_full() {
    let mut shard = Shard::new(&ShardConfig {
        number: 0,
        limits: Limits::default(),
        hash_seeds: [1, 2, 3, 4],
        secret_seed: [5; 32],
        start: Time::from_millis(1000),
    });
    take_token(&mut shard, 1000, 7);
    take_token(&mut shard, 1100, 8);
    take_token(&mut shard, 1200, 9);
    assert_eq!(forget(&mut shard, 1999, &[7, 9]), [7, 9]);
    assert_eq!(shard.bucket_count(), 3);
    assert_eq!(forget(&mut shard, 2000, &[7, 9]), [9]);
    assert_eq!(shard.bucket_count(), 2, "the full one is forgotten");
    assert_eq!(forget(&mut shard, 2199, &[7, 9]), [9]);
    assert_eq!(forget(&mut shard, 2200, &[7, 9]), []);
    assert_eq!(shard.bucket_count(), 1, "that of the other namespace stays, full or not");
}
