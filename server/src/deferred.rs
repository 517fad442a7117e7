//! Effects that wait until a record is durable in the log or a fence is counted by the cluster.

use waymaker_engine::{Time, WhenDurable};

/// One deferred response, event or grant.
#[derive(Debug)]
pub struct DeferredEffect {
    /// Time of the turn that produced it.
    pub stamp: Time,
    /// Shard of that turn.
    pub shard: u16,
    /// Action to take once the record is durable.
    pub then: WhenDurable,
}
