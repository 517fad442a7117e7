//! A node with one worker and therefore one shard, like a server on one core, for workers that are driven by hand.

use std::sync::Arc;
use waymaker_engine::{Limits, Time};
use waymaker_server::clock::Clock;
use waymaker_server::limits::SESSION_VACANT_MS;
use waymaker_server::log::LogPort;
use waymaker_server::node::{Node, NodeConfig};
use waymaker_server::worker::Worker;

/// Start time of every node.
pub(crate) const START: Time = Time::from_millis(1_000_000);
/// Number of pairs in one millisecond of the worker's time.
const PAIRS_PER_MS: u64 = 64;

/// A stopped clock. Workers receive the time as an argument; only rate limits need a clock.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Time {
        START
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn unix_micros(&self) -> i64 {
        0
    }
}

/// Returns the node, which hashes identically in every run, and its worker.
pub(crate) fn with_one_worker(log: Option<LogPort>) -> (Arc<Node>, Worker) {
    let node = Arc::new(Node::new(&NodeConfig {
        worker_count: 1,
        acceptor_count: 0,
        limits: Limits::default(),
        session_vacant_ms: SESSION_VACANT_MS,
        start: START,
        seed: [7; 32],
        clock: Arc::new(StoppedClock),
        memory: Arc::default(),
        log,
        quorum: None,
    }));
    let worker = Worker::new(Arc::clone(&node), 0, START);
    (node, worker)
}

/// Returns the time of the worker after `pair_count` pairs.
#[inline]
pub(crate) fn time_after(pair_count: u64) -> Time {
    START.after_ms(pair_count / PAIRS_PER_MS)
}
