//! Records of a node that belong to no request.

use super::Node;
use crate::log::{LogBatch, LogPort};
use crate::namespaces::NamespaceChange;
use std::sync::PoisonError;
use waymaker_engine::{Answer, Effects, Event, LaneAddress, Ticket, WhenDurable};
use waymaker_log::Record;
use waymaker_log::limits::LOG_GROUP_LEN_MAX;

impl Node {
    /// Writes to the log the holds and counters that are not in it, so that they survive this clean stop, and then a
    /// record of the stop itself. Does nothing without a log. No worker may be running.
    pub fn record_ephemeral(&self) {
        let Some(log) = &self.log else { return };
        for hosted in &self.shards {
            let mut turn = hosted.enter().expect("all workers have ended");
            let mut effects = Recorder { log: Some(log), batch: LogBatch::default() };
            turn.shard.record_ephemeral(&mut effects);
            log.post(effects.batch);
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch after its end");
        }
        self.record(&Record::Stopped);
    }

    /// Passes records to `put` that produce the whole state from nothing, including ephemeral holds. The caller has
    /// already written the record of the server's start. No worker may be running.
    ///
    /// # Panics
    /// If a worker is still running.
    pub fn write_contents(&self, put: &mut dyn FnMut(&Record<'_>)) {
        let namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, name, kind) in namespaces.by_number(0) {
            put(&Record::Namespace { number, kind: kind.number(), name });
        }
        for hosted in &self.shards {
            let turn = hosted.enter().expect("all workers have ended");
            turn.shard.write_contents(put);
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch after its end");
        }
        let freezes = self.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        for (namespace, prefix) in freezes.all() {
            put(&Record::Frozen { namespace, frozen: true, prefix });
        }
    }

    /// Records that a namespace was created or removed. The caller has the lock of the namespaces, so changes are
    /// recorded in their order.
    pub(crate) fn record_namespace(&self, change: NamespaceChange<'_>) {
        self.record(&match change {
            NamespaceChange::Made { number, kind, name } => {
                Record::Namespace { number, kind: kind.number(), name }
            }
            NamespaceChange::Removed(number) => Record::NamespaceRemoved { number },
        });
    }

    /// Writes a record that belongs to no single shard. Does nothing without a log.
    pub(crate) fn record(&self, record: &Record<'_>) {
        if let Some(log) = &self.log {
            let mut batch = LogBatch::default();
            batch.add(record);
            log.post(batch);
        }
    }
}

/// Collects the records of a restore or a stop. During a restore or a stop there are no clients, so answers and events
/// are dropped.
#[derive(Debug, Default)]
pub(crate) struct Recorder<'a> {
    /// Port that gets the records as soon as `batch` has more than half the maximum length of a log group (records that
    /// the log writes together). Without a port, all records stay in `batch`.
    pub(crate) log: Option<&'a LogPort>,
    pub(crate) batch: LogBatch,
}

impl Effects for Recorder<'_> {
    fn answer(&mut self, _: Ticket, _: Answer) {}

    fn event(&mut self, _: LaneAddress, _: Event) {}

    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        self.batch.push(shard, number, record);
        if let Some(log) = self.log
            && self.batch.records.len() > LOG_GROUP_LEN_MAX / 2
        {
            log.post(std::mem::take(&mut self.batch));
        }
    }

    fn when_durable(&mut self, _: WhenDurable) {}
}
