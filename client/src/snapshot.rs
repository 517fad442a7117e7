//! What the server answers to questions, owned.

use std::time::Duration;

use waymaker_protocol as wire;
use waymaker_protocol::LockId;

use crate::contention::finite;

pub use waymaker_protocol::LockState;

/// The state of one key, as of when the server answered. A key nobody ever took has zeros everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// The newest fence of the key.
    pub fence: u64,
    /// How many hold it. Exact, even where `holders` is cut short.
    pub holder_count: u32,
    /// How many wait.
    pub waiter_count: u32,
    /// The first of the holders, at most 64.
    pub holders: Vec<Holder>,
}

/// One hold of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the hold.
    pub id: LockId,
    /// Shared with other readers.
    pub shared: bool,
    /// The fence it was granted.
    pub fence: u64,
    /// How long it has been held.
    pub held: Duration,
    /// What is left of its lease; `None` where it has no end.
    pub remaining: Option<Duration>,
    /// For whom; may be empty.
    pub owner: Vec<u8>,
}

impl From<wire::Inspected<'_>> for KeyStatus {
    fn from(inspected: wire::Inspected<'_>) -> Self {
        let holder = |holder: &wire::Holder<'_>| Holder {
            id: holder.id,
            shared: holder.shared,
            fence: holder.fence,
            held: Duration::from_millis(holder.held_ms),
            remaining: finite(holder.remaining_ms),
            owner: holder.owner.to_vec(),
        };
        Self {
            fence: inspected.fence,
            holder_count: inspected.holder_count,
            waiter_count: inspected.waiter_count,
            holders: inspected.holders.iter().map(holder).collect(),
        }
    }
}

/// The state of one live claim, as of when the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStatus {
    /// Waiting or held.
    pub state: LockState,
    /// Shared with other readers.
    pub shared: bool,
    /// Its lease is a session's.
    pub session_lease: bool,
    /// 0 while waiting.
    pub fence: u64,
    /// What is left: of the lease if held, of the wait if waiting. `None` where it has no end.
    pub remaining: Option<Duration>,
    /// How long ago it was granted, or began to wait.
    pub age: Duration,
    /// The priority it was asked for with.
    pub priority: u32,
    /// Its key.
    pub key: Vec<u8>,
}

impl From<wire::StatusAnswer<'_>> for ClaimStatus {
    fn from(status: wire::StatusAnswer<'_>) -> Self {
        Self {
            state: status.state,
            shared: status.shared,
            session_lease: status.session_lease,
            fence: status.fence,
            remaining: finite(status.remaining_ms),
            age: Duration::from_millis(status.age_ms),
            priority: status.priority,
            key: status.key.to_vec(),
        }
    }
}

/// One lock that is held, as of when the server listed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Id of the hold.
    pub id: LockId,
    /// Shared with other readers.
    pub shared: bool,
    /// The fence it was granted.
    pub fence: u64,
    /// How long it has been held.
    pub held: Duration,
    /// What is left of its lease; `None` where it has no end.
    pub remaining: Option<Duration>,
    /// The priority it was asked for with.
    pub priority: u32,
    /// Its key.
    pub key: Vec<u8>,
    /// For whom; may be empty.
    pub owner: Vec<u8>,
    /// The id of its request; may be empty.
    pub request_id: Vec<u8>,
    /// As given at the acquire; may be empty.
    pub metadata: Vec<u8>,
}

/// Some of the locks of a list, and where the next ones are.
#[derive(Debug)]
pub(crate) struct LockPage {
    /// 0 after the last page.
    pub(crate) next: u64,
    pub(crate) locks: Vec<HeldLock>,
}

impl From<wire::Listed<'_>> for LockPage {
    fn from(listed: wire::Listed<'_>) -> Self {
        let lock = |lock: &wire::ListedLock<'_>| HeldLock {
            id: lock.id,
            shared: lock.shared,
            fence: lock.fence,
            held: Duration::from_millis(lock.held_ms),
            remaining: finite(lock.remaining_ms),
            priority: lock.priority,
            key: lock.key.to_vec(),
            owner: lock.owner.to_vec(),
            request_id: lock.request_id.to_vec(),
            metadata: lock.metadata.to_vec(),
        };
        Self { next: listed.next, locks: listed.locks.iter().map(lock).collect() }
    }
}
