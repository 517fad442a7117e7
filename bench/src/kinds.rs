//! Costs of the other kinds of namespaces without contention and with all data in the cache, as in
//! [`crate::pairs`]: sets of paths, permits, buckets and multi-key claims.

use crate::keys::key;
use crate::lane::Bench;
use waymaker_engine::{
    AcquirePermits, AcquireTerms, Answer, ClaimId, Effects, Event, LaneAddress, PoolOrder, Throttle, Ticket,
    TreeItem, multi_key,
    multi_key::{AcquireMultiKey, Participant, RequestedKey},
};

const LEASE_MS: u32 = 30_000;
/// Number of pairs in one turn, as in a batch of a busy connection.
const PAIRS_PER_TURN: u64 = 64;
/// Number of paths, pools, buckets and keys.
pub const NAME_COUNT: u64 = 1000;
/// Number of children of each node, if paths have several segments.
const FAN_OUT: u64 = 6;

/// Calls `work` with each number below `count`, in turns.
fn in_turns(bench: &mut Bench, count: u64, mut work: impl FnMut(&mut Bench, u64)) -> u64 {
    for number in 0..count {
        if number % PAIRS_PER_TURN == 0 {
            bench.turn(1);
        }
        work(bench, number % NAME_COUNT);
    }
    bench.sink.fences.wrapping_add(bench.sink.other)
}

/// Acquires and releases of one path each, as a writer.
pub struct Sets {
    bench: Bench,
    paths: Vec<Vec<u8>>,
}

impl Sets {
    /// Creates a tree whose paths have `depth` segments of four bytes.
    pub fn new(depth: u32) -> Self {
        let paths = (0..NAME_COUNT).map(|number| path(number, depth)).collect();
        let mut sets = Self { bench: Bench::default(), paths };
        sets.pairs(NAME_COUNT);
        sets
    }

    /// Runs `count` pairs.
    pub fn pairs(&mut self, count: u64) -> u64 {
        let paths = &self.paths;
        in_turns(&mut self.bench, count, |bench, number| {
            let item = TreeItem { path: &paths[number as usize], write: true };
            bench.acquire_set(&[item], LEASE_MS, 0, None);
            bench.release(bench.sink.last);
        })
    }
}

/// Returns a leaf; its segments are the digits of its number, and the first segment has the remainder.
fn path(number: u64, depth: u32) -> Vec<u8> {
    let mut rest = number;
    let mut segments = Vec::new();
    for _ in 1..depth {
        segments.push(rest % FAN_OUT);
        rest /= FAN_OUT;
    }
    segments.push(rest);
    let mut path = Vec::new();
    for segment in segments.iter().rev() {
        path.extend_from_slice(&4_u16.to_le_bytes());
        path.extend_from_slice(&(*segment as u32).to_be_bytes());
    }
    path
}

/// Runs `count` pairs of one permit from pools of ten.
pub fn permits(bench: &mut Bench, count: u64) -> u64 {
    in_turns(bench, count, |bench, number| {
        let acquire = AcquirePermits {
            name: &key(number),
            capacity: Some(10),
            permits: 1,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
        };
        let caller = bench.next_caller();
        bench.shard.acquire_permits(&caller, &acquire, &mut bench.sink);
        bench.release(bench.sink.last);
    })
}

/// Sends `count` requests to the limiter. Each counts as half of a pair, because there is no release.
pub fn throttles(bench: &mut Bench, count: u64) -> u64 {
    in_turns(bench, count, |bench, number| {
        // One request per microsecond, so that some are allowed and the others denied.
        let now_ns = bench.sink.other * 1_000;
        let name = key(number);
        let hash = bench.shard.bucket_hash(0, &name);
        let throttle = Throttle {
            name: &name,
            hash,
            rate: 450,
            period_ns: 1_000_000_000,
            burst: 5,
            cost: 1,
            refund: false,
        };
        let caller = bench.next_caller();
        bench.shard.throttle(&caller, now_ns, &throttle, &mut bench.sink);
    })
}

/// Keeps the holds of a multi-key claim.
#[derive(Default)]
struct Holds(Vec<ClaimId>);

impl Effects for Holds {
    #[inline]
    fn answer(&mut self, _: Ticket, answer: Answer) {
        if let Answer::GrantedMultiKey(grants) = answer {
            self.0.extend(grants.iter().map(|key| key.grant.id));
        }
    }

    fn event(&mut self, _: LaneAddress, _: Event) {}
}

/// Runs `count` claims of `key_count` keys of one shard, and the releases of all holds.
pub fn several_keys(bench: &mut Bench, key_count: usize, count: u64) -> u64 {
    let mut holds = Holds::default();
    in_turns(bench, count, |bench, number| {
        let names: Vec<_> = (0..key_count as u64).map(|place| key(number + NAME_COUNT * place)).collect();
        let mut keys: Vec<_> =
            names.iter().map(|key| RequestedKey { key, shared: false, shard: 0 }).collect();
        keys.sort_unstable_by_key(|key| key.key);
        let acquire = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
        };
        let caller = bench.next_caller();
        let mut participants = [Participant { shard: &mut bench.shard, lane: caller.lane }];
        multi_key::acquire(&mut participants, caller.ticket, caller.namespace, &acquire, &mut holds);
        for hold in holds.0.drain(..) {
            bench.release(hold);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_and_releases_every_set() {
        for depth in [1, 4] {
            let mut sets = Sets::new(depth);
            sets.pairs(500);
            assert_eq!((sets.bench.sink.granted, sets.bench.sink.other), (1500, 1500));
            assert_eq!(sets.bench.shard.claim_count(), 0);
        }
        assert_eq!(path(999, 4).len(), 4 * 6);
    }

    #[test]
    fn grants_and_releases_every_permit() {
        let mut bench = Bench::default();
        permits(&mut bench, 1500);
        assert_eq!((bench.sink.granted, bench.sink.other), (1500, 1500));
        assert_eq!(bench.shard.claim_count(), 0);
    }

    #[test]
    fn buckets_allow_and_deny() {
        let mut bench = Bench::default();
        throttles(&mut bench, 20_000);
        assert_eq!(bench.shard.bucket_count(), NAME_COUNT as u32);
        let (allowed, asked) = (bench.sink.allowed, bench.sink.other);
        assert_eq!(asked, 20_000);
        assert!(allowed > 5 * NAME_COUNT && allowed < asked, "{allowed}");
    }

    #[test]
    fn grants_and_releases_every_key_of_a_claim() {
        for key_count in [2, 8] {
            let mut bench = Bench::default();
            several_keys(&mut bench, key_count, 1500);
            assert_eq!(bench.sink.other, 1500 * key_count as u64);
            assert_eq!(bench.shard.claim_count(), 0);
        }
    }
}
