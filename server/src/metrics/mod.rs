//! Counts and durations of a running server, which `front/metrics` exports to Prometheus.
//!
//! Each thread counts requests in its own cells, and a scrape adds them up. This needs no atomic addition, and no
//! thread waits. Only rare events, such as connections and rejections, use atomic additions or a lock.

mod acquires;
mod cell;
mod contended;
mod gauges;
mod histogram;
mod namespace_labels;
mod processor;
mod worker;

pub(crate) use acquires::{AcquireResult, NewAcquires, ResultCounts, add};
pub(crate) use contended::Contended;
pub(crate) use gauges::ShardGauges;
pub(crate) use histogram::{BUCKET_COUNT, FIRST_BOUND, Histogram, HistogramSum, bound};
pub(crate) use namespace_labels::NamespaceLabels;
pub(crate) use processor::watch_processors;
pub(crate) use worker::{AcquireCounts, NO_FRONT_END, WorkerMetrics};

use crate::port::Port;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_engine::LossReason;

/// Labels of the limits because of which connections are refused.
pub(crate) const REFUSAL_LABELS: [&str; 5] = [
    "connections",
    "bytes_of_memory",
    "connections_per_address",
    "new_connections_per_second",
    "handshakes_per_address",
];

/// The metrics of one node.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    pub(crate) workers: Box<[Arc<WorkerMetrics>]>,
    /// State of each shard, set by the worker that has its turn.
    pub(crate) shards: Box<[ShardGauges]>,
    /// Number of open connections by port.
    connections: [Arc<AtomicU64>; Port::ALL.len()],
    /// Number of refused connections for each of [`REFUSAL_LABELS`].
    refused_connections: [AtomicU64; REFUSAL_LABELS.len()],
    /// Durations of log syncs, written by the log thread.
    pub(crate) log_syncs: Histogram,
    pub(crate) log_segment_count: AtomicU64,
    /// Durations of requests to etcd, written by the quorum thread.
    pub(crate) quorum_requests: Histogram,
}

impl NodeMetrics {
    pub(crate) fn new(worker_count: usize, shard_count: usize) -> Self {
        Self {
            workers: (0..worker_count).map(|_| Arc::default()).collect(),
            shards: (0..shard_count).map(|_| ShardGauges::default()).collect(),
            connections: Default::default(),
            refused_connections: Default::default(),
            log_syncs: Histogram::default(),
            log_segment_count: AtomicU64::new(0),
            quorum_requests: Histogram::default(),
        }
    }

    /// Returns the metrics of each worker.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &WorkerMetrics> {
        self.workers.iter().map(|worker| &**worker)
    }

    /// Returns the number of lost holds by reason.
    pub(crate) fn lost(&self) -> BTreeMap<LossReason, u64> {
        let mut lost = BTreeMap::new();
        for (reason, count) in self.workers().flat_map(WorkerMetrics::lost) {
            *lost.entry(reason).or_default() += count;
        }
        lost
    }

    /// Returns the number of sessions of clients, as the workers last published it.
    pub(crate) fn session_count(&self) -> u64 {
        self.workers().map(|worker| worker.session_count.get()).sum()
    }

    /// Counts a connection of this port until the returned value is dropped.
    pub(crate) fn count_connection(&self, port: Port) -> OpenConnection {
        let count = Arc::clone(&self.connections[port as usize]);
        count.fetch_add(1, Ordering::Relaxed);
        OpenConnection(count)
    }

    /// Counts a refused connection. `label_index` is an index into [`REFUSAL_LABELS`].
    pub(crate) fn note_refused(&self, label_index: usize) {
        self.refused_connections[label_index].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refused connections by limit.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused_connections.iter().map(|count| count.load(Ordering::Relaxed));
        REFUSAL_LABELS.into_iter().zip(counts)
    }

    /// Returns the number of open connections of each port.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (Port, u64)> {
        Port::ALL.into_iter().map(|port| (port, self.connections[port as usize].load(Ordering::Relaxed)))
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<AtomicU64>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
