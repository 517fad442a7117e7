//! A node for tests that run workers without threads, at times that the test chooses.

use crate::clock::Clock;
use crate::limits::SESSION_VACANT_MS;
use crate::log::{LogOrder, LogPort};
use crate::memory::MemoryUse;
use crate::node::{Node, NodeConfig, shard_count};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use waymaker_engine::{Limits, Time};

/// A clock that stands still. Workers get the time of their events from the test instead.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn unix_micros(&self) -> i64 {
        0
    }
}

/// Returns a node without log and cluster that starts at `start`.
pub(crate) fn test_node(worker_count: usize, start: Time) -> Arc<Node> {
    test_node_with(worker_count, start, Arc::default())
}

/// Returns a node without log and cluster that counts its memory in `memory`.
pub(crate) fn test_node_with(worker_count: usize, start: Time, memory: Arc<MemoryUse>) -> Arc<Node> {
    node_of(worker_count, start, memory, Limits::default(), None)
}

/// Returns a node without log and cluster, with these limits of the engine.
pub(crate) fn test_node_with_limits(worker_count: usize, start: Time, limits: Limits) -> Arc<Node> {
    node_of(worker_count, start, Arc::default(), limits, None)
}

/// Returns a node with the port of a log, and the receiver of the orders to the log. No log thread runs.
pub(crate) fn test_node_with_log(worker_count: usize, start: Time) -> (Arc<Node>, Receiver<LogOrder>) {
    let (port, orders) = LogPort::new(shard_count(worker_count));
    (node_of(worker_count, start, Arc::default(), Limits::default(), Some(port)), orders)
}

fn node_of(
    worker_count: usize,
    start: Time,
    memory: Arc<MemoryUse>,
    limits: Limits,
    log: Option<LogPort>,
) -> Arc<Node> {
    Arc::new(Node::new(&NodeConfig {
        memory,
        worker_count,
        acceptor_count: 0,
        limits,
        session_vacant_ms: SESSION_VACANT_MS,
        start,
        seed: [7; 32],
        clock: Arc::new(StoppedClock),
        log,
        quorum: None,
    }))
}
