//! A log without a disk, which makes records durable when the input says so.

use crossbeam_channel::Receiver;
use std::sync::Arc;
use waymaker_engine::{ReservedEnd, Time};
use waymaker_log::record::each;
use waymaker_log::store::port::LogStatus;
use waymaker_log::{Image, Record, Started};
use waymaker_server::delivery;
use waymaker_server::log::{LogOrder, LogPort};
use waymaker_server::node::Node;

/// The log side of a [`LogPort`].
#[derive(Debug)]
pub(crate) struct ManualLog {
    orders: Receiver<LogOrder>,
    status: Arc<LogStatus>,
    /// State after all durable records.
    image: Image,
    has_failed: bool,
}

impl ManualLog {
    /// Returns a port for a node with `shard_count` shards, and its log.
    pub(crate) fn new(shard_count: usize, start: Time) -> (LogPort, Self) {
        let (port, orders) = LogPort::new(shard_count);
        let status = Arc::clone(port.status());
        let mut image = Image::default();
        let started = Started { boot_id: [1; 16], now_ms: start.as_millis(), unix_ms: 0 };
        let mut bytes = Vec::new();
        Record::Started(started).encode(&mut bytes);
        apply(&mut image, &bytes);
        (port, Self { orders, status, image, has_failed: false })
    }

    /// Makes everything durable that workers recorded, and posts the responses that waited for it. After a call with `fails` no record
    /// becomes durable any more, and clients learn that the outcome is unknown.
    pub(crate) fn sync(&mut self, node: &Node, fails: bool) {
        self.has_failed |= fails;
        while let Ok(order) = self.orders.try_recv() {
            let LogOrder::Batch(batch) = order else { continue };
            let end = if self.has_failed {
                ReservedEnd::Unknown
            } else {
                apply(&mut self.image, &batch.records);
                for run in &batch.runs {
                    self.status.set_durable(run.shard, run.last);
                }
                ReservedEnd::Begins(node.clock.now())
            };
            let mails = delivery::mails(batch.waiting.into_iter(), end);
            delivery::post(node, mails, |_| {});
        }
    }

    /// Returns the state that a server would restore.
    pub(crate) fn into_image(self) -> Image {
        self.image
    }
}

fn apply(image: &mut Image, records: &[u8]) {
    for record in each(records) {
        image.apply(0, record.expect("workers record whole records")).expect("workers record facts");
    }
}
