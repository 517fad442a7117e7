//! State that an earlier server left in its log, beside the state of the shards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::{Answer, ClaimId, Time};
use waymaker_protocol::{NamespaceKind, SessionId};

/// Restored state that is not in the shards.
#[derive(Debug, Default)]
pub struct Restored {
    /// Shards of restored claims that are in another shard than their id names, because the earlier server had another
    /// number of shards.
    pub claims: BTreeMap<ClaimId, u16>,
    /// Restored sessions for each worker. A worker takes its sessions when it is created.
    pub(crate) sessions: Vec<Mutex<Vec<RestoredSession>>>,
    /// Time of the restore, for which the remaining leases in `RestoredLane::answers` were computed.
    pub(crate) stamp: Time,
}

/// A session with at least one restored hold.
#[derive(Debug)]
pub(crate) struct RestoredSession {
    pub(crate) id: SessionId,
    pub(crate) lease_ms: u32,
    /// Identity of the session's client, if the log contains it.
    pub(crate) identity: Option<Arc<str>>,
    /// Lanes by their numbers. `None` for a lane whose namespace the log does not contain.
    pub(crate) lanes: BTreeMap<u16, Option<RestoredLane>>,
}

/// One lane of a restored session.
#[derive(Debug)]
pub(crate) struct RestoredLane {
    pub(crate) namespace: u16,
    pub(crate) kind: NamespaceKind,
    pub(crate) namespace_shard: u16,
    /// Shards in which the lane has holds.
    pub(crate) known_to: Vec<u16>,
    /// Grants of the restored holds, by request number. They are sent again if the client repeats its request.
    pub(crate) answers: BTreeMap<u32, Answer>,
}

impl Restored {
    /// Takes the restored sessions of this worker. Later calls for the same worker return none.
    pub(crate) fn take_sessions(&self, worker: u16) -> Vec<RestoredSession> {
        let sessions = self.sessions.get(usize::from(worker));
        sessions
            .map(|own| std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }
}
