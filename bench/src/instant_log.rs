//! A log without a disk, for workers that are driven by hand.

use crossbeam_channel::Receiver;
use std::sync::Arc;
use waymaker_engine::{ReservedEnd, Time};
use waymaker_log::store::port::LogStatus;
use waymaker_server::delivery;
use waymaker_server::log::{LogOrder, LogPort};
use waymaker_server::node::Node;

/// The log side of a [`LogPort`], which makes every record durable as soon as it is handed over.
///
/// Does the part of the log thread that notifies the workers, without the part that writes.
#[derive(Debug)]
pub(crate) struct InstantLog {
    orders: Receiver<LogOrder>,
    /// Number of the newest durable record of each shard.
    pub(crate) status: Arc<LogStatus>,
}

impl InstantLog {
    /// Returns a port for a node with `shard_count` shards, and its log.
    pub(crate) fn new(shard_count: usize) -> (LogPort, Self) {
        let (port, orders) = LogPort::new(shard_count);
        let status = Arc::clone(port.status());
        (port, Self { orders, status })
    }

    /// Marks the records that workers handed over as durable, and releases the responses that waited for them.
    pub(crate) fn sync(&self, node: &Node, now: Time) {
        while let Ok(order) = self.orders.try_recv() {
            let LogOrder::Batch(batch) = order else { continue };
            for run in &batch.runs {
                self.status.set_durable(run.shard, run.last);
            }
            let mails = delivery::mails(batch.waiting.into_iter(), ReservedEnd::Begins(now));
            delivery::post(node, mails, |_| {});
        }
    }
}
