//! The view of tests and simulators into a worker.

use super::Worker;
use super::lane::Lane;
use crate::mail::ConnectionKey;
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{LaneAddress, Time};

impl Worker {
    /// Returns the address of a connection's lane in the shards. For tests.
    pub fn address(&self, key: ConnectionKey) -> Option<LaneAddress> {
        self.state.lanes.iter().find(|lane| lane.key() == key).map(|lane| lane.address)
    }

    /// Returns the connections that have work in progress. The three counts are requests in flight, waiting acquires,
    /// and the cost of requests that wait for shards. For tests.
    pub fn open_counts(&self) -> Vec<(ConnectionKey, [i64; 3])> {
        let counts = |lane: &Lane| {
            let counts = [lane.in_flight.into(), lane.waiting.into(), lane.left_cost().into()];
            (counts != [0; 3]).then(|| (lane.key(), counts))
        };
        self.state.lanes.iter().filter_map(counts).collect()
    }

    /// Returns when this worker next visits a shard to end leases and waits, or to continue leftover work. For tests.
    pub fn comes_by(&self, shard: usize) -> Time {
        self.state.timers.comes_by(shard)
    }

    /// Whether the work queue of this worker contains a new check of this waiting multi-key claim. The check determines
    /// whether each key of the claim could now be granted. For tests.
    pub fn will_recheck(&self, multi_key: &MultiKeyClaim) -> bool {
        self.state.will_recheck(multi_key)
    }
}
