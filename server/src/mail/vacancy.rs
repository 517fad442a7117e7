//! The question that a worker asks shards about a session without connections: does the session still have a claim? If
//! no shard has one, the worker ends the session early, unless a client has resumed it.

use std::sync::atomic::AtomicUsize;
use waymaker_engine::{LaneAddress, Time};
use waymaker_protocol::SessionId;

/// Question of a worker to shards: does any of them have a claim of this session, which has no connection? Each answer
/// without a claim decrements `left`. At 0, the worker gets `Mail::Vacant` and ends the session early, unless a client
/// has resumed it.
#[derive(Debug)]
pub struct Vacancy {
    /// Worker of the session.
    pub(crate) worker: u16,
    pub(crate) session: SessionId,
    /// Time at which the session lost its last connection.
    pub(crate) left_at: Time,
    pub(crate) lanes: Vec<LaneAddress>,
    /// Number of shards with a lane of the session that have not confirmed yet that they have no claim of it. It stays
    /// above 0 if one of them has a claim.
    pub(crate) left: AtomicUsize,
}

impl Vacancy {
    /// Returns the number of lanes of the session. A shard that answers the question looks up the claims of each lane,
    /// so this number is the cost of the answer.
    pub(crate) fn lane_count(&self) -> usize {
        self.lanes.len()
    }
}
