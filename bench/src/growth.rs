//! The most expensive single request while the tables of a shard grow.
//!
//! Each scenario creates records one by one, and measures the CPU time and the wall-clock time of each request.
//! CPU time excludes the time in which other programs had the core. Run a scenario several times and keep the
//! smallest cost of each request ([`crate::cost::keep_smallest`]): the tables grow at the same requests in each
//! run, while interruptions occur at different requests.

use crate::cost::Cost;
use crate::keys::{key, mixed};
use crate::lane::Bench;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, LaneAddress, LaneSlot, Limits, Throttle, TreeItem,
};

const LEASE_MS: u32 = 3_600_000;

/// Runs a scenario with this number of records. Returns the cost of each request.
pub type Scenario = fn(u32) -> Vec<Cost>;

/// All scenarios: name of the table, number of records, and function.
pub const SCENARIOS: [(&str, u32, Scenario); 8] = [
    ("keys", 10_000_000, keys),
    ("long keys", 3_000_000, long_keys),
    ("waiters of one key", 2_000_000, waiters),
    ("waited keys", 2_000_000, waited_keys),
    ("request ids", 2_000_000, request_ids),
    ("lanes", 1_000_000, lanes),
    ("tree nodes", 4_000_000, nodes),
    ("buckets", 4_000_000, buckets),
];

fn limits(count: u32) -> Limits {
    Limits {
        claim_count_max: (2 * count).max(Limits::default().claim_count_max),
        waiter_count_per_key_max: u32::MAX,
        linked_claim_count_per_lane_max: u32::MAX,
        path_count_per_lane_max: u32::MAX,
        node_count_per_tree_max: u32::MAX,
        node_count_max: u32::MAX,
        bucket_count_max: count.max(Limits::default().bucket_count_max),
        ..Limits::default()
    }
}

/// Measures each of `count` requests.
fn measured(count: u32, mut request: impl FnMut(&mut Bench, u64)) -> Vec<Cost> {
    let mut bench = Bench::new(limits(count));
    let mut costs = vec![Cost::MAX; count as usize];
    for (number, cost) in costs.iter_mut().enumerate() {
        *cost = Cost::of(|| request(&mut bench, number as u64));
    }
    assert!(bench.sink.granted + bench.sink.other > 0 || bench.shard.claim_count() > 0 || count == 0);
    costs
}

fn keys(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        bench.acquire(&key(number), LEASE_MS, 0);
    })
}

/// Keys of 32 bytes, which do not fit into their records.
fn long_keys(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        let long_key = [key(number), key(number)].concat();
        bench.acquire(&long_key, LEASE_MS, 0);
    })
}

fn waiters(count: u32) -> Vec<Cost> {
    measured(count, |bench, _| {
        bench.acquire(b"key", LEASE_MS, LEASE_MS);
    })
}

/// Each key gets a holder and then a waiter, and so a queue.
fn waited_keys(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        bench.acquire(&key(number / 2), LEASE_MS, LEASE_MS);
    })
}

fn request_ids(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        let (key, request_id) = (key(number), mixed(number).to_le_bytes());
        let options = AcquireOptions { request_id: Some(&request_id), ..AcquireOptions::default() };
        let hash = bench.shard.hash(0, &key);
        let acquire = Acquire {
            key: &key,
            hash,
            terms: AcquireTerms { lease_ms: LEASE_MS, options: Some(&options), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let caller = bench.next_caller();
        bench.shard.acquire(&caller, &acquire, &mut bench.sink);
    })
}

fn lanes(count: u32) -> Vec<Cost> {
    let owner: Arc<[u8]> = Arc::from(*b"owner");
    measured(count, |bench, number| {
        let address = LaneAddress { worker: 1, slot: LaneSlot(number as u32), generation: 0 };
        bench.caller.lane = bench.shard.lane(address, &owner, 0);
        bench.sink.other += 1;
    })
}

fn nodes(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        if number == 0 {
            // From here on the tree counts distinct segments.
            bench.shard.tree_statistics(&bench.caller, &mut bench.sink);
        }
        let path = [[8, 0].as_slice(), &mixed(number).to_le_bytes()].concat();
        let item = TreeItem { path: &path, write: true };
        bench.acquire_set(&[item], LEASE_MS, 0, None);
    })
}

fn buckets(count: u32) -> Vec<Cost> {
    measured(count, |bench, number| {
        let name = key(number);
        let hash = bench.shard.bucket_hash(0, &name);
        let throttle =
            Throttle { name: &name, hash, rate: 1, period_ns: 1 << 50, burst: 5, cost: 1, refund: false };
        let caller = bench.next_caller();
        bench.shard.throttle(&caller, 1, &throttle, &mut bench.sink);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_measures_all_its_requests() {
        for (what, _, scenario) in SCENARIOS {
            let costs = scenario(1000);
            assert_eq!(costs.len(), 1000, "{what}");
            assert!(costs.iter().all(|cost| cost.wall_ns < u32::MAX), "{what}");
            assert!(costs.iter().any(|cost| cost.processor_ns > 0), "{what}");
        }
    }
}
