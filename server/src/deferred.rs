//! Effects that wait until a record is durable in the log or a fence is counted by the cluster.

use waymaker_engine::{Time, WhenDurable};

/// One deferred response, event or grant.
#[derive(Debug)]
pub struct DeferredEffect {
    /// Time of the turn that produced it. It is 0 for a grant that the cluster counted, because only responses and
    /// events use it.
    pub stamp: Time,
    /// Shard of that turn; likewise 0 for such a grant.
    pub shard: u16,
    /// Action to take once the record is durable or the cluster has counted the fence.
    pub then: WhenDurable,
}
