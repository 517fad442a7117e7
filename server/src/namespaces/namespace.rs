//! One namespace, and its use by lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waymaker_engine::{Counted, Time};
use waymaker_protocol::NamespaceKind;

/// A namespace, with the state of its use.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) namespace: Arc<SharedNamespace>,
    pub(super) kind: NamespaceKind,
    /// Number of the last opening of this namespace, among the openings of all namespaces. If the number is unchanged
    /// after a check, no lane opened the namespace during the check.
    pub(super) last_opening: u64,
    /// Time at which the namespace was first found without a lane, or at which the last check of its shards began.
    /// `None` if a lane has opened the namespace since, or if it was last found in use, frozen, built in or declared.
    pub(super) idle_since: Option<Time>,
    /// Whether the log has the namespace.
    pub(super) is_recorded: bool,
    /// Whether the configuration declares the namespace.
    pub(super) is_declared: bool,
    /// Counts the namespace against the quotas of the client that created it, until the namespace is removed.
    pub(super) _counted: Option<Counted>,
}

impl Namespace {
    /// Returns whether a [`NamespaceUse`] of the namespace exists. A use starts only under the lock of all namespaces.
    pub(super) fn is_used(&self) -> bool {
        let is_used = Arc::strong_count(&self.namespace) > 1;
        // The caller may remove the namespace. Everything that the last lane did must be visible to this thread before
        // that.
        std::sync::atomic::fence(Ordering::Acquire);
        is_used
    }

    /// Returns the number of lanes and DynamoDB tables that use the namespace.
    pub(super) fn lane_count(&self) -> u64 {
        Arc::strong_count(&self.namespace) as u64 - 1
    }

    pub(super) fn is_known(&self) -> bool {
        self.namespace.is_known.load(Ordering::Relaxed)
    }
}

/// The part of a namespace that its lanes share.
#[derive(Debug)]
pub(super) struct SharedNamespace {
    pub(super) number: u16,
    /// Whether a shard may have got the number of the namespace, from a request or from the log.
    pub(super) is_known: AtomicBool,
    /// Default lease in milliseconds; `None` uses the default of the server.
    pub(super) lease_default_ms: Option<u32>,
}

/// The use of a namespace by a lane or a DynamoDB table. A namespace in use is not removed.
#[derive(Clone, Debug)]
pub struct NamespaceUse(pub(super) Arc<SharedNamespace>);

impl NamespaceUse {
    /// Returns the number of the namespace.
    pub fn number(&self) -> u16 {
        self.0.number
    }

    /// Returns the default lease of the namespace in milliseconds. `None` means the default of the server.
    pub fn lease_default_ms(&self) -> Option<u32> {
        self.0.lease_default_ms
    }

    /// Notes that a request is about to bring the number of the namespace to a shard. From then on the namespace is
    /// removed only after all shards have checked that it is empty.
    pub fn note_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }
}
