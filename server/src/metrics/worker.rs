//! The metrics of one worker. Only its own thread writes them, except `busy_ratio`. So they need no atomic additions,
//! and locks only for the tables of acquires and rejections.

use super::acquires::{AcquireKey, AcquireTable};
use super::cell::Cell;
use super::histogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::{LossReason, Measure, Time};
use waymaker_protocol::NamespaceKind;

pub(crate) use super::acquires::AcquireCounts;

/// Name of the front end, in metrics, of a connection that did not arrive at a port.
pub(crate) const NO_FRONT_END: &str = "internal";

/// The metrics of one worker, aligned so that threads write to different cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerMetrics {
    pub(crate) waits: Histogram,
    pub(crate) holds: Histogram,
    pub(crate) handovers: Histogram,
    pub(crate) renewal_slacks: Histogram,
    pub(crate) queue_depths: Histogram,
    /// Number of lost holds, in the order of [`LossReason::ALL`].
    lost: [Cell; LossReason::ALL.len()],
    pub(crate) acquires: AcquireTable,
    /// Number of rejections by name of the limit. The worker locks this only for a rejection; otherwise only a scrape
    /// does.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) session_count: Cell,
    /// Earliest deadline, in milliseconds, of a lease, wait or session that is overdue but has not ended because
    /// sockets must be read first. `NEVER` if there was none at the last tick of the worker.
    oldest_due_ms: Cell,
    /// Id of the worker's thread in the operating system; 0 before the thread runs.
    pub(crate) thread_id: Cell,
    /// Share of the last measurement interval in which the thread ran, as the bits of a float. Written by the measuring
    /// thread.
    busy_ratio: Cell,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        let metrics = Self {
            waits: Histogram::default(),
            holds: Histogram::default(),
            handovers: Histogram::default(),
            renewal_slacks: Histogram::default(),
            queue_depths: Histogram::default(),
            lost: Default::default(),
            acquires: AcquireTable::default(),
            rejected: Mutex::default(),
            session_count: Cell::default(),
            oldest_due_ms: Cell::default(),
            thread_id: Cell::default(),
            busy_ratio: Cell::default(),
        };
        metrics.set_oldest_due(Time::NEVER);
        metrics
    }
}

impl WorkerMetrics {
    /// Counts a measurement from a shard.
    #[inline]
    pub(crate) fn note(&self, measure: Measure) {
        match measure {
            Measure::Waited { nanos } => self.waits.note_nanos(nanos),
            Measure::HandedOver { nanos } => self.handovers.note_nanos(nanos),
            Measure::Renewed { slack_nanos } => self.renewal_slacks.note_nanos(slack_nanos),
            Measure::Queued { depth } => self.queue_depths.note_count(depth),
            Measure::Lost(reason) => self.lost[reason as usize].add(1),
        }
    }

    /// Counts a request, session or connection that a limit rejects.
    #[cold]
    pub(crate) fn note_rejected(&self, limit: &'static str) {
        *self.rejected.lock().unwrap_or_else(PoisonError::into_inner).entry(limit).or_default() += 1;
    }

    /// Returns the counters to which a new connection adds the results of its acquires. Connections with the same
    /// namespace, kind and front end share them.
    pub(crate) fn acquires_of(
        &self,
        namespace: &[u8],
        kind: NamespaceKind,
        front_end: Option<&'static str>,
    ) -> Arc<AcquireCounts> {
        let front_end = front_end.unwrap_or(NO_FRONT_END);
        self.acquires.row(AcquireKey { namespace: namespace.into(), kind, front_end })
    }

    pub(crate) fn set_oldest_due(&self, due: Time) {
        self.oldest_due_ms.set(due.as_millis());
    }

    pub(crate) fn oldest_due(&self) -> Time {
        Time::from_millis(self.oldest_due_ms.get())
    }

    pub(crate) fn set_busy_ratio(&self, ratio: f64) {
        self.busy_ratio.set(ratio.to_bits());
    }

    pub(crate) fn busy_ratio(&self) -> f64 {
        f64::from_bits(self.busy_ratio.get())
    }

    pub(crate) fn lost(&self) -> impl Iterator<Item = (LossReason, u64)> {
        LossReason::ALL.into_iter().map(|reason| (reason, self.lost[reason as usize].get()))
    }

    /// Adds the counts of rejections to `sums`, by limit.
    pub(crate) fn add_rejected(&self, sums: &mut BTreeMap<&'static str, u64>) {
        for (limit, count) in &*self.rejected.lock().unwrap_or_else(PoisonError::into_inner) {
            *sums.entry(limit).or_default() += count;
        }
    }
}
