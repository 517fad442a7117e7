//! A lane that the shards are closing.

use super::ConnectionKey;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A lane that the shards are closing. Its connection gets the last frame once all of them have closed it.
#[derive(Debug)]
pub struct LaneClosing {
    pub(crate) worker: u16,
    pub(crate) key: ConnectionKey,
    /// Number of shards that have not closed the lane, plus the number of lanes for which this one waits. It is one
    /// higher until all shards have been asked to close the lane.
    pub(crate) left: AtomicUsize,
    /// Lane that waits for this one. Its `FAREWELL` confirms the end of the whole session, so it is sent after all
    /// lanes are closed.
    pub(crate) awaited_by: Option<Arc<LaneClosing>>,
}
