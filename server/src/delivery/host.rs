//! The interface through which the log thread and the quorum thread use the server.

use super::{Delivery, end_of, mails, post};
use crate::clock::Clock;
use crate::deferred::DeferredEffect;
use crate::node::Node;
use crate::quorum::counters::FinishedQuestion;
use crate::quorum::thread::QuorumHost;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use waymaker_engine::Time;
use waymaker_log::Record;
use waymaker_log::store::committer::Outcome;
use waymaker_log::store::thread::LogHost;

/// A node (the state that all threads of a server share), and a function that wakes the worker of the given index. The
/// function is called when a sleeping worker has new mail.
pub(crate) struct Host<W> {
    node: Arc<Node>,
    wake: W,
}

impl<W> Host<W> {
    pub(crate) fn new(node: Arc<Node>, wake: W) -> Self {
        Self { node, wake }
    }
}

impl<W: Fn(u16) + Send + 'static> LogHost for Host<W> {
    type Effect = DeferredEffect;

    fn now(&self) -> Time {
        self.node.clock.now()
    }

    fn nanos(&self) -> u64 {
        self.node.clock.nanos()
    }

    fn note_sync(&self, nanos: u64) {
        self.node.metrics.log_syncs.note_nanos(nanos);
    }

    fn set_segment_count(&self, count: u64) {
        self.node.metrics.log_segment_count.store(count, Ordering::Relaxed);
    }

    fn deliver(&self, deferred: impl Iterator<Item = DeferredEffect>, outcome: Outcome) {
        post(&self.node, mails(deferred, end_of(outcome)), &self.wake);
    }

    fn write_contents(&self, put: &mut dyn FnMut(&Record<'_>)) {
        self.node.write_contents(put);
    }
}

impl<W: Fn(u16) + Send + Sync + 'static> QuorumHost for Host<W> {
    fn clock(&self) -> &dyn Clock {
        &*self.node.clock
    }

    fn note_request(&self, nanos: u64) {
        self.node.metrics.quorum_requests.note_nanos(nanos);
    }

    fn namespace_name(&self, number: u16) -> Box<[u8]> {
        let namespaces = self.node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.name_of(number).unwrap_or_default().into()
    }

    fn deliver(&self, finished: FinishedQuestion) {
        let log = self.node.log.as_ref();
        match Delivery::new(finished, log.is_some(), self.node.clock.now()) {
            Delivery::Workers(mails) => post(&self.node, mails, &self.wake),
            Delivery::Log(batch) => {
                if let Some(log) = log {
                    log.post(batch);
                }
            }
        }
    }
}
