//! A request that every shard answers, on its way through the shards.

use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};
use waymaker_engine::{FreezeList, NamespaceCounters, Ticket};
use waymaker_protocol::NamespaceKind;

/// One broadcast.
#[derive(Debug)]
pub struct Broadcast {
    /// Number of shards that have not answered the request yet.
    pub(crate) left: AtomicUsize,
    /// Number of broadcasts, of the lane that sent this one, that some shard has not answered yet.
    pub(crate) in_flight: Arc<AtomicU32>,
    pub(crate) ticket: Ticket,
    pub(crate) question: Question,
}

/// Request of a broadcast.
#[derive(Debug)]
pub(crate) enum Question {
    /// Replace the shard's list of frozen prefixes by `freezes`.
    Freeze { freezes: FreezeList, changed: bool, frozen_count: u16 },
    /// Count the claims in the namespaces of a page of the list of namespaces.
    Namespaces { page: NamespacePage, sums: Mutex<Vec<NamespaceCounters>> },
}

/// A page of the list of namespaces. A namespace that is removed while the shards count its claims stays in the page.
#[derive(Debug)]
pub(crate) struct NamespacePage {
    /// Numbers of the namespaces, in ascending order.
    pub(crate) numbers: Vec<u16>,
    pub(crate) namespaces: Vec<(Box<[u8]>, NamespaceKind)>,
    /// Cursor of the next page; 0 after the last.
    pub(crate) next: u64,
}

/// Claims that one shard has counted so far, for each namespace of a page.
#[derive(Debug, Default)]
pub struct CountedClaims {
    /// Lane of the shard at which the count continues.
    pub(crate) next_lane: u32,
    pub(crate) claim_counts: Vec<u64>,
}
