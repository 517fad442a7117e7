//! Ten million keys, each taken and released once: memory stays where it is, and no fence ever goes back.

use crate::recorder::{Effect, Recorder};
use std::collections::BTreeMap;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, Answer, Caller, Fence, Grant, LaneAddress, Limits, Shard, ShardConfig, Ticket, Time,
};

const KEY_COUNT: u64 = 10_000_000;
const IDLE_MAX: u32 = 50_000;
/// The clock hand looks at 32 keys for each new one, and may have to come round once before it forgets any.
const IDLE_BOUND: u32 = IDLE_MAX + IDLE_MAX / 16;
/// One of so many keys is taken again, now and then.
const SAMPLE: u64 = 9973;

struct Keys {
    shard: Shard,
    caller: Caller,
    effects: Recorder,
}

impl Keys {
    fn new() -> Self {
        let config = ShardConfig {
            number: 0,
            limits: Limits { idle_key_count_max: IDLE_MAX, ..Limits::default() },
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [5; 32],
            start: Time::from_millis(1000),
        };
        let mut shard = Shard::new(&config);
        let owner: Arc<[u8]> = Arc::from([]);
        let lane = shard.lane(LaneAddress::default(), &owner, 0);
        let caller = Caller { lane, ticket: Ticket::default(), namespace: 0 };
        Self { shard, caller, effects: Recorder::default() }
    }

    /// Takes a key and releases it. Says its fence, and where the claim lay.
    fn use_once(&mut self, number: u64) -> Grant {
        // Some keys fit into their record, others do not.
        let key = if number.is_multiple_of(10) {
            format!("a key that is longer than its record, number {number}")
        } else {
            format!("{number:x}")
        };
        let acquire =
            Acquire { key: key.as_bytes(), hash: self.shard.hash(0, key.as_bytes()), ..Acquire::default() };
        self.shard.acquire(&self.caller, &acquire, &mut self.effects);
        let Some(Effect::Answer(_, Answer::Granted(grant))) = self.effects.said.pop() else {
            panic!("{key} is free");
        };
        self.shard.release(&self.caller, grant.id, None, &mut self.effects);
        self.effects.said.clear();
        grant
    }
}

#[test]
fn ten_million_idle_keys_leave_only_a_floor() {
    let mut keys = Keys::new();
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut floor, mut jumps) = (0, 0);
    for number in 0..KEY_COUNT {
        let grant = keys.use_once(number);
        assert_eq!(grant.id.place as u32, 0, "one record serves all claims");
        if number.is_multiple_of(SAMPLE) {
            newest.insert(number, grant.fence.get());
            // An old one again, a newer one, and one that is most likely still known.
            for other in [number / 2 / SAMPLE * SAMPLE, number / 10 * 9 / SAMPLE * SAMPLE, number] {
                let fence = keys.use_once(other).fence;
                let last = newest.insert(other, fence.get()).expect("it was used");
                assert!(fence > Fence::new(last), "the fence of {other} went back from {last} to {fence}");
                jumps += u32::from(fence > Fence::new(last + 1));
            }
            assert!(keys.shard.floor() >= Fence::new(floor), "the floor fell");
            floor = keys.shard.floor().get();
            assert!(keys.shard.idle_key_count() <= IDLE_BOUND, "{} idle keys", keys.shard.idle_key_count());
        }
    }
    assert_eq!(keys.shard.claim_count(), 0);
    assert!((IDLE_MAX - 1..=IDLE_BOUND).contains(&keys.shard.idle_key_count()));
    assert!(floor > 0 && jumps > 0, "keys were forgotten");
    assert!(newest.values().all(|fence| *fence <= floor + u64::from(IDLE_MAX)), "fences stay near the floor");
    keys.shard.verify();
}
