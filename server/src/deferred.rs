//! Effects that wait until a record is durable in the log or a fence is counted by the cluster.

use waymaker_engine::{Time, WhenDurable};

/// One deferred response, event or grant.
#[derive(Debug)]
pub struct DeferredEffect {
    /// Time of the turn that produced the effect. It is 0 for a grant whose fence the cluster counted: the mail about
    /// such a grant has no stamp.
    pub stamp: Time,
    /// Shard of that turn. It is 0 for a grant whose fence the cluster counted: the grant itself names its shard.
    pub shard: u16,
    /// Action to take once the record is durable or the cluster has counted the fence.
    pub then: WhenDurable,
}
