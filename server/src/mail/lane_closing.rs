//! A lane that the shards are closing.

use super::ConnectionKey;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A lane that the shards are closing. Once all of them have closed it, its connection, if it has one, gets `FAREWELL`
/// or `SESSION_EXPIRED`.
#[derive(Debug)]
pub struct LaneClosing {
    pub(crate) worker: u16,
    pub(crate) key: ConnectionKey,
    /// Number of shards that have not closed the lane, plus the number of other lanes of the session whose end this
    /// lane awaits. One more is added until all shards have been asked to close the lane.
    pub(crate) left: AtomicUsize,
    /// Lane of the same session whose end awaits the end of this one. The `FAREWELL` of that lane confirms the end of
    /// the whole session, so it is sent after all lanes are closed.
    pub(crate) awaited_by: Option<Arc<LaneClosing>>,
}
