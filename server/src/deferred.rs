//! Effects that wait until the log has synced a record, or until the cluster has counted the fence of a grant.

use waymaker_engine::{Time, WhenDurable};

/// One deferred response, event or grant.
#[derive(Debug)]
pub struct DeferredEffect {
    /// Time of the shard turn that produced the effect. It is 0 for a grant that waited for the cluster, because the
    /// mail about such a grant contains no such time.
    pub stamp: Time,
    /// Shard whose turn produced the effect. It is 0 for a grant that waited for the cluster, because the grant itself
    /// names its shard.
    pub shard: u16,
    /// Action to take once the log has synced the record or the cluster has counted the fence.
    pub then: WhenDurable,
}
