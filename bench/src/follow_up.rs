//! The most expensive turn of each kind of follow-up work, and the request that causes the work.
//!
//! Each scenario causes as much follow-up work as possible with one request or at one instant, and measures all
//! turns that the work takes. A turn does a bounded number of steps, so the most expensive turn shows the cost of
//! that many steps in the worst case.

use crate::cost::Cost;
use crate::keys::key;
use crate::lane::Bench;
use waymaker_engine::limits::ITEM_COUNT_MAX;
use waymaker_engine::{
    AcquireOptions, AcquirePermits, AcquireTerms, FreezeList, LaneAddress, LaneSlot, Limits, LogState,
    PoolOrder, Scope, TreeItem,
};

const LEASE_MS: u32 = 10_000;
const LONG_LEASE_MS: u32 = 3_600_000;

/// Costs measured by a scenario.
#[derive(Debug)]
pub struct Costs {
    /// Cost of the request that causes the work; `None` if no request causes it.
    pub request: Option<Cost>,
    /// Costs of the turns.
    pub turns: Vec<Cost>,
}

/// Runs a scenario with this number of claims.
pub type Scenario = fn(u32) -> Costs;

/// All scenarios: name, number of claims, and function.
pub const SCENARIOS: [(&str, u32, Scenario); 16] = [
    ("leases expire", 1_000_000, leases_expire),
    ("waits time out", 1_000_000, waits_time_out),
    ("readers are granted", 1_000_000, readers_are_granted),
    ("permits are granted", 1_000_000, permits_are_granted),
    ("a namespace is thawed", 1_000_000, a_namespace_is_thawed),
    ("a connection is lost", 100_000, a_connection_is_lost),
    ("a set is held", 1, a_set_is_held),
    ("a set waits", 1, a_set_waits),
    ("a set is refused", 1, a_set_is_refused),
    ("a set is requested again", 1, a_set_is_requested_again),
    ("a waiting set is granted", 1, a_waiting_set_is_granted),
    ("sets expire", 4, sets_expire),
    ("sets of short paths expire", 1000, sets_of_short_paths_expire),
    ("waits of sets time out", 1000, waits_of_sets_time_out),
    ("a durable set is held", 1, a_durable_set_is_held),
    ("the segments of a tree are counted", 1_000_000, the_segments_of_a_tree_are_counted),
];

fn bench(count: u32) -> Bench {
    Bench::new(Limits {
        idle_key_count_max: count.max(Limits::default().idle_key_count_max),
        waiter_count_per_key_max: u32::MAX,
        linked_claim_count_per_lane_max: u32::MAX,
        ..Limits::default()
    })
}

/// Triggers the work, and runs turns until none is left.
fn measured(bench: &mut Bench, later_ms: u32, request: Option<&mut dyn FnMut(&mut Bench)>) -> Costs {
    let before = bench.sink.granted + bench.sink.other;
    let request = request.map(|request| Cost::of(|| request(bench)));
    let mut turns = vec![Cost::of(|| bench.turn(u64::from(later_ms)))];
    while bench.shard.next_deadline() <= bench.shard.now() {
        turns.push(Cost::of(|| bench.turn(0)));
    }
    assert!(bench.sink.granted + bench.sink.other > before, "the work had an effect");
    Costs { request, turns }
}

fn leases_expire(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..u64::from(count) {
        bench.acquire(&key(number), LEASE_MS, 0);
    }
    measured(&mut bench, LEASE_MS, None)
}

fn waits_time_out(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..=count {
        bench.acquire(b"key", LONG_LEASE_MS, if number == 0 { 0 } else { LEASE_MS });
    }
    measured(&mut bench, LEASE_MS, None)
}

fn readers_are_granted(count: u32) -> Costs {
    let mut bench = bench(count);
    let writer = bench.acquire(b"key", LONG_LEASE_MS, 0);
    for _ in 0..count {
        bench.share(b"key", LONG_LEASE_MS, LONG_LEASE_MS);
    }
    measured(&mut bench, 0, Some(&mut |bench| bench.release(writer)))
}

fn permits_are_granted(count: u32) -> Costs {
    let mut bench = bench(count);
    let set_capacity = |bench: &mut Bench, capacity| {
        let caller = bench.next_caller();
        bench.shard.set_capacity(&caller, b"pool", capacity, PoolOrder::Arrival, &mut bench.sink);
    };
    set_capacity(&mut bench, 1);
    for _ in 0..=count {
        let acquire = AcquirePermits {
            name: b"pool",
            capacity: None,
            permits: 1,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms {
                lease_ms: LONG_LEASE_MS,
                wait_ms: LONG_LEASE_MS,
                ..AcquireTerms::default()
            },
        };
        let caller = bench.next_caller();
        bench.shard.acquire_permits(&caller, &acquire, &mut bench.sink);
    }
    measured(&mut bench, 0, Some(&mut |bench| set_capacity(bench, u64::from(count) + 1)))
}

/// A namespace with `count` free keys, each with a waiter.
fn a_namespace_is_thawed(count: u32) -> Costs {
    let mut bench = bench(count);
    let mut freezes = FreezeList::default();
    let mut change = |bench: &mut Bench, frozen| {
        freezes.change(0, b"", frozen).expect("there is room for one");
        bench.shard.set_freezes(&freezes);
    };
    change(&mut bench, true);
    bench.settle();
    for number in 0..u64::from(count) {
        bench.acquire(&key(number), LONG_LEASE_MS, LONG_LEASE_MS);
    }
    measured(&mut bench, 0, Some(&mut |bench| change(bench, false)))
}

/// Loss of a client that waits for `count` keys.
fn a_connection_is_lost(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..u64::from(count) {
        bench.acquire(&key(number), LONG_LEASE_MS, 0);
        bench.acquire(&key(number), LONG_LEASE_MS, LONG_LEASE_MS);
    }
    let address = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };
    measured(
        &mut bench,
        0,
        Some(&mut |bench| {
            bench.shard.close_lane(address, true, &mut bench.sink);
            bench.sink.other += 1;
        }),
    )
}

/// Returns the largest set: 1,024 paths of 64 segments. Sets of different numbers share no prefix.
fn largest_set(number: u16) -> Vec<Vec<u8>> {
    let path = |item: u16| {
        let mut path = vec![4, 0];
        path.extend_from_slice(&number.to_le_bytes());
        path.extend_from_slice(&item.to_le_bytes());
        path.resize(path.len() + 63 * 2, 0);
        path
    };
    (0..ITEM_COUNT_MAX as u16).map(path).collect()
}

impl Bench {
    fn request_set(&mut self, paths: &[Vec<u8>], lease_ms: u32, wait_ms: u32, scope: Scope) {
        let options = AcquireOptions { scope, ..AcquireOptions::default() };
        self.ask_with_options(paths, lease_ms, wait_ms, options);
    }

    fn ask_with_options(
        &mut self,
        paths: &[Vec<u8>],
        lease_ms: u32,
        wait_ms: u32,
        options: AcquireOptions<'_>,
    ) {
        let items: Vec<_> = paths.iter().map(|path| TreeItem { path, write: true }).collect();
        self.acquire_set(&items, lease_ms, wait_ms, Some(&options));
    }

    fn settle(&mut self) {
        self.turn(0);
        while self.shard.next_deadline() <= self.shard.now() {
            self.turn(0);
        }
    }
}

/// Requests a large set while `held` of its paths are held.
fn a_set_enters(held: usize, wait_ms: u32, scope: Scope) -> Costs {
    let mut bench = bench(1);
    bench.shard.set_log_state(LogState::Ready, 0);
    let set = largest_set(0);
    if held > 0 {
        bench.request_set(&set[ITEM_COUNT_MAX - held..], LONG_LEASE_MS, 0, Scope::Ephemeral);
        bench.settle();
    }
    measured(
        &mut bench,
        0,
        Some(&mut |bench| {
            bench.request_set(&set, LONG_LEASE_MS, wait_ms, scope);
            bench.sink.other += 1;
        }),
    )
}

fn a_set_is_held(_: u32) -> Costs {
    a_set_enters(0, 0, Scope::Ephemeral)
}

/// Counts `count` distinct segments for the first statistics of the tree.
fn the_segments_of_a_tree_are_counted(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..u64::from(count) {
        let path = [[8, 0].as_slice(), &number.to_le_bytes()].concat();
        bench.request_set(&[path], LONG_LEASE_MS, 0, Scope::Ephemeral);
    }
    measured(
        &mut bench,
        0,
        Some(&mut |bench| {
            let caller = bench.next_caller();
            bench.shard.tree_statistics(&caller, &mut bench.sink);
        }),
    )
}

fn a_durable_set_is_held(_: u32) -> Costs {
    a_set_enters(0, 0, Scope::Local)
}

fn a_set_waits(_: u32) -> Costs {
    a_set_enters(ITEM_COUNT_MAX, LONG_LEASE_MS, Scope::Ephemeral)
}

fn a_set_is_refused(_: u32) -> Costs {
    a_set_enters(1, 0, Scope::Ephemeral)
}

fn a_set_is_requested_again(_: u32) -> Costs {
    let mut bench = bench(1);
    let set = largest_set(0);
    let mut ask = |bench: &mut Bench| {
        let options = AcquireOptions { request_id: Some(b"again"), ..AcquireOptions::default() };
        bench.ask_with_options(&set, LONG_LEASE_MS, 0, options);
    };
    ask(&mut bench);
    bench.settle();
    measured(&mut bench, 0, Some(&mut ask))
}

fn a_waiting_set_is_granted(_: u32) -> Costs {
    let mut bench = bench(1);
    let set = largest_set(0);
    bench.request_set(&set[..1], LONG_LEASE_MS, 0, Scope::Ephemeral);
    let first = bench.sink.last;
    bench.request_set(&set, LONG_LEASE_MS, LONG_LEASE_MS, Scope::Ephemeral);
    bench.settle();
    measured(&mut bench, 0, Some(&mut |bench| bench.release(first)))
}

/// `count` held sets expire; another set waits behind each of them.
fn sets_expire(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..count as u16 {
        bench.request_set(&largest_set(number), LEASE_MS, 0, Scope::Ephemeral);
        bench.request_set(&largest_set(number), LONG_LEASE_MS, LONG_LEASE_MS, Scope::Ephemeral);
        bench.settle();
    }
    assert_eq!(bench.sink.granted, u64::from(count));
    let costs = measured(&mut bench, LEASE_MS, None);
    assert_eq!(bench.sink.granted, 2 * u64::from(count), "the waiters hold the paths");
    costs
}

/// Returns a set of as many paths as a set may have. Each path has one segment that no set of another number has.
fn short_paths(number: u16) -> Vec<Vec<u8>> {
    let path = |item: u16| [[4, 0], number.to_le_bytes(), item.to_le_bytes()].concat();
    (0..ITEM_COUNT_MAX as u16).map(path).collect()
}

fn sets_of_short_paths_expire(count: u32) -> Costs {
    let mut bench = bench(count);
    for number in 0..count as u16 {
        bench.request_set(&short_paths(number), LEASE_MS, 0, Scope::Ephemeral);
        bench.settle();
    }
    assert_eq!(bench.sink.granted, u64::from(count));
    measured(&mut bench, LEASE_MS, None)
}

fn waits_of_sets_time_out(count: u32) -> Costs {
    let mut bench = bench(count);
    bench.request_set(&[Vec::new()], LONG_LEASE_MS, 0, Scope::Ephemeral);
    for number in 0..count as u16 {
        bench.request_set(&short_paths(number), LONG_LEASE_MS, LEASE_MS, Scope::Ephemeral);
        bench.settle();
    }
    assert_eq!(bench.sink.granted, 1);
    measured(&mut bench, LEASE_MS, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::limits::WORK_PER_TURN;

    #[test]
    fn each_scenario_takes_many_turns() {
        for (what, count, scenario) in SCENARIOS {
            let costs = scenario(count.min(5000));
            let turn_count = costs.turns.len() as u32;
            // One step counts four nodes.
            let per_step = if what == "the segments of a tree are counted" { 4 } else { 1 };
            assert!(turn_count >= count.min(5000) / per_step / WORK_PER_TURN, "{what}: {turn_count} turns");
            let is_short = matches!(what, "a set is refused" | "a set is requested again");
            assert!(count >= 5000 || is_short || turn_count > 10, "{what}: {turn_count} turns");
        }
    }
}
