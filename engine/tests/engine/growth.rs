//! How many records a single request looks at or moves while a table grows. A table that grows all at once looks at every
//! record that it has.

use crate::recorder::Recorder;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireSet, AcquireTerms, Caller, LaneAddress, LaneSlot, Limits, Shard,
    ShardConfig, Throttle, Ticket, Time, TreeItem,
};

/// Records that each test makes: enough for many growths, in each of which most tables would move this many.
const RECORD_COUNT: u32 = 200_000;
/// A request looks at no more records than this, however many there are, unless a small slab grows. A request that adds a group
/// to an index hashes the entries of a run of full groups. Among the entries of these tests the longest run has fourteen groups of
/// twelve entries. A hash may ask for three records: a claim, its detail and its lane.
const TOUCHED_MAX: u64 = 14 * 12 * 3;
/// Cache lines of records that a small slab may copy in one request: 256 KiB.
const COPIED_MAX: u64 = 4096;
/// Requests that may copy more than [`TOUCHED_MAX`] cache lines, which are 31.5 KiB. A request makes records in up to four slabs. Each
/// slab doubles at most four times from there to 256 KiB.
const COPY_COUNT_MAX: u32 = 4 * 4;

/// One shard with very many records.
struct Crowd {
    shard: Shard,
    effects: Recorder,
    owner: Arc<[u8]>,
    caller: Caller,
}

impl Crowd {
    fn new() -> Self {
        let limits = Limits {
            // Fewer than the test makes, so that tables of this size must grow.
            idle_key_count_max: 16,
            waiter_count_per_key_max: u32::MAX,
            linked_claim_count_per_lane_max: u32::MAX,
            path_count_per_lane_max: u32::MAX,
            ..Limits::default()
        };
        let start = Time::from_millis(1000);
        let mut shard = Shard::new(&ShardConfig {
            number: 0,
            limits,
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [5; 32],
            start,
        });
        let lane = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };
        let owner: Arc<[u8]> = Arc::from(*b"owner");
        let caller =
            Caller { lane: shard.lane(lane, &owner, 0), ticket: Ticket { lane, number: 0 }, namespace: 0 };
        Self { shard, effects: Recorder::default(), owner, caller }
    }

    fn acquire(&mut self, key: &[u8], wait_ms: u32, options: Option<&AcquireOptions<'_>>) {
        let hash = self.shard.hash(0, key);
        let acquire = Acquire {
            key,
            hash,
            terms: AcquireTerms { wait_ms, options, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.shard.acquire(&self.caller, &acquire, &mut self.effects);
    }

    fn acquire_path(&mut self, path: &[u8]) {
        let acquire = AcquireSet {
            items: &[TreeItem { path, write: true }],
            terms: AcquireTerms { ..AcquireTerms::default() },
        };
        self.shard.acquire_set(&self.caller, &acquire, &mut self.effects);
    }

    /// Makes very many records by a request each, none of which may cost more than any other. Checks all of them in the end.
    #[track_caller]
    fn grow(mut self, what: &str, mut request: impl FnMut(&mut Self, u32)) {
        let (mut dearest, mut at) = (0, 0);
        let mut above_count = 0;
        for number in 0..RECORD_COUNT {
            self.caller.ticket.number = number;
            let before = self.shard.records_touched();
            request(&mut self, number);
            let touched = self.shard.records_touched() - before;
            self.effects.said.clear();
            above_count += u32::from(touched > TOUCHED_MAX);
            if touched > dearest {
                (dearest, at) = (touched, number);
            }
        }
        assert!(
            dearest <= TOUCHED_MAX + COPIED_MAX,
            "request {at} of {RECORD_COUNT} that made {what} looked at {dearest} records"
        );
        assert!(
            above_count <= COPY_COUNT_MAX,
            "{above_count} requests that made {what} looked at many records"
        );
        self.shard.verify_indexes();
    }
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_keys() {
    Crowd::new().grow("keys", |crowd, number| crowd.acquire(&number.to_le_bytes(), 0, None));
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_long_keys() {
    Crowd::new()
        .grow("long keys", |crowd, number| crowd.acquire(&[number.to_le_bytes(); 8].concat(), 0, None));
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_waiters() {
    Crowd::new().grow("waiters", |crowd, _| crowd.acquire(b"key", u32::MAX, None));
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_queues() {
    Crowd::new().grow("queues", |crowd, number| crowd.acquire(&(number / 2).to_le_bytes(), u32::MAX, None));
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_request_ids() {
    Crowd::new().grow("request ids", |crowd, number| {
        let id = number.to_le_bytes();
        crowd.acquire(&id, 0, Some(&AcquireOptions { request_id: Some(&id), ..AcquireOptions::default() }));
    });
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_lanes() {
    Crowd::new().grow("lanes", |crowd, number| {
        let address = LaneAddress { worker: 1, slot: LaneSlot(number), generation: 0 };
        let owner = Arc::clone(&crowd.owner);
        crowd.shard.lane(address, &owner, 0);
    });
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_nodes() {
    Crowd::new().grow("nodes", |crowd, number| {
        crowd.acquire_path(&[[4, 0].as_slice(), &number.to_le_bytes()].concat());
    });
}

#[test]
fn no_single_request_pays_for_growing_the_table_of_buckets() {
    Crowd::new().grow("buckets", |crowd, number| {
        let name = number.to_le_bytes();
        let hash = crowd.shard.bucket_hash(0, &name);
        let throttle =
            Throttle { name: &name, hash, rate: 1, period_ns: 1 << 50, burst: 5, cost: 1, refund: false };
        crowd.shard.throttle(&crowd.caller, 1, &throttle, &mut crowd.effects);
    });
}
