//! What the server answers to questions, owned.

use std::time::Duration;

use waymaker_protocol as wire;
use waymaker_protocol::{LockId, NamespaceKind, Readiness};

use crate::contention::finite;

pub use waymaker_protocol::LockState;

/// The state of one key, as of when the server answered. A key nobody ever took has zeros everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// The newest fence of the key.
    pub fence: u64,
    /// How many hold it. Exact, even where `holders` is cut short.
    pub holder_count: u32,
    /// How many wait. Exact, even where `waiters` is cut short.
    pub waiter_count: u32,
    /// The first of the holders, at most 64.
    pub holders: Vec<Holder>,
    /// The first of the waiters, at most 64, in the order in which they are served.
    pub waiters: Vec<Waiter>,
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
    /// Time left of its lease; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// The owner; may be empty.
    pub owner: Vec<u8>,
}

/// One claim that waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Id of the claim, by which it can be ended while it waits.
    pub id: LockId,
    /// It would share the key with other readers.
    pub shared: bool,
    /// Its place in the order of arrival: of two that wait for this key with equal priority, the smaller is served first.
    pub ticket: u64,
    /// How long it has waited.
    pub age: Duration,
    /// Time left of its wait; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// The priority it was asked for with.
    pub priority: u32,
    /// The owner; may be empty.
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
        let waiter = |waiter: &wire::Waiter<'_>| Waiter {
            id: waiter.id,
            shared: waiter.shared,
            ticket: waiter.ticket,
            age: Duration::from_millis(waiter.age_ms),
            remaining: finite(waiter.remaining_ms),
            priority: waiter.priority,
            owner: waiter.owner.to_vec(),
        };
        Self {
            fence: inspected.fence,
            holder_count: inspected.holder_count,
            waiter_count: inspected.waiter_count,
            holders: inspected.holders.iter().map(holder).collect(),
            waiters: inspected.waiters.iter().map(waiter).collect(),
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
    /// Time left of the lease if held, of the wait if waiting. `None` if it has no end.
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
    /// Time left of its lease; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// The priority it was asked for with.
    pub priority: u32,
    /// Its key.
    pub key: Vec<u8>,
    /// The owner; may be empty.
    pub owner: Vec<u8>,
    /// The id of its request; may be empty.
    pub request_id: Vec<u8>,
    /// As given at the acquire; may be empty.
    pub metadata: Vec<u8>,
}

impl From<&wire::ListedLock<'_>> for HeldLock {
    fn from(lock: &wire::ListedLock<'_>) -> Self {
        Self {
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
        }
    }
}

/// One claim that waits, at the time of the server's response. A claim on several keys is listed once for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingClaim {
    /// Id of the claim. [`Operator::force_release`](crate::Operator::force_release) ends the wait by it.
    pub id: LockId,
    /// Whether the claim would share the key with other readers.
    pub shared: bool,
    /// Time for which the claim has waited.
    pub age: Duration,
    /// Time left of the wait; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Priority of the claim.
    pub priority: u32,
    /// Key that the claim waits for: a key, the name of a pool, or the path key of a tree.
    pub key: Vec<u8>,
    /// Owner; may be empty.
    pub owner: Vec<u8>,
    /// Id of the request; may be empty.
    pub request_id: Vec<u8>,
    /// Metadata of the acquire; may be empty.
    pub metadata: Vec<u8>,
}

impl From<&wire::ListedLock<'_>> for WaitingClaim {
    fn from(claim: &wire::ListedLock<'_>) -> Self {
        Self {
            id: claim.id,
            shared: claim.shared,
            // In a list of claims that wait, this is the age of the wait.
            age: Duration::from_millis(claim.held_ms),
            remaining: finite(claim.remaining_ms),
            priority: claim.priority,
            key: claim.key.to_vec(),
            owner: claim.owner.to_vec(),
            request_id: claim.request_id.to_vec(),
            metadata: claim.metadata.to_vec(),
        }
    }
}

/// The answer to whether a grant is still the newest of its key, as of when the server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// There was no later grant of the key.
    pub is_newest: bool,
    /// It is the newest and still held.
    pub is_held: bool,
    /// The newest fence of the key.
    pub newest_fence: u64,
}

impl From<wire::Verified> for Verification {
    fn from(verified: wire::Verified) -> Self {
        let wire::Verified { newest, held, newest_fence, .. } = verified;
        Self { is_newest: newest, is_held: held, newest_fence }
    }
}

/// A claim that an operator has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedClaim {
    /// The fence it was granted; 0 if it was waiting.
    pub fence: u64,
    /// Its key; the first of several paths.
    pub key: Vec<u8>,
    /// The owner; may be empty.
    pub owner: Vec<u8>,
    /// It had not been granted yet.
    pub was_waiting: bool,
}

impl From<wire::ForceReleased<'_>> for ReleasedClaim {
    fn from(released: wire::ForceReleased<'_>) -> Self {
        Self {
            fence: released.fence,
            key: released.key.to_vec(),
            owner: released.owner.to_vec(),
            was_waiting: released.was_waiting,
        }
    }
}

/// The result of a freeze or a thaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeOutcome {
    /// It was not so before.
    pub changed: bool,
    /// How many prefixes of the namespace are frozen now.
    pub frozen_count: u16,
}

impl From<wire::Frozen> for FreezeOutcome {
    fn from(frozen: wire::Frozen) -> Self {
        let wire::Frozen { changed, frozen_count } = frozen;
        Self { changed, frozen_count }
    }
}

/// One namespace of the server, with what happened in it since the server began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// Its name.
    pub name: Vec<u8>,
    /// Its rules.
    pub kind: NamespaceKind,
    /// How many claims are held now.
    pub held: u64,
    /// How many claims wait now.
    pub waiting: u64,
    /// How many waits ended before the grant.
    pub timeouts: u64,
    /// How many holds ended with their lease.
    pub expired: u64,
    /// How many holds were taken away.
    pub revoked: u64,
}

impl From<&wire::ListedNamespace<'_>> for NamespaceStatus {
    fn from(listed: &wire::ListedNamespace<'_>) -> Self {
        let wire::ListedNamespace { name, kind, held, waiting, timeouts, expired, revoked } = *listed;
        Self { name: name.to_vec(), kind, held, waiting, timeouts, expired, revoked }
    }
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Time since the start of the server.
    pub uptime: Duration,
    /// Whether the server serves new claims.
    pub readiness: Readiness,
    /// Version of the server.
    pub version: String,
    /// Listeners with their addresses, such as `binary=127.0.0.1:7420`.
    pub listeners: Vec<String>,
    /// Reasons for which the server is degraded or not ready.
    pub reasons: Vec<ServerReason>,
}

/// A reason for which a server is degraded or not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReason {
    /// Code for programs, such as `recovering`. Later servers may have more codes.
    pub code: String,
    /// Sentence for people.
    pub message: String,
    /// Time until the reason is over, if the server knows it.
    pub remaining: Option<Duration>,
}

impl From<wire::ServerStatusAnswer<'_>> for ServerStatus {
    fn from(answer: wire::ServerStatusAnswer<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let reasons = answer.reasons.iter().map(|reason| ServerReason {
            code: text(reason.code),
            message: text(reason.message),
            remaining: Some(reason.remaining_ms).filter(|ms| *ms > 0).map(Duration::from_millis),
        });
        Self {
            uptime: Duration::from_millis(answer.uptime_ms),
            readiness: answer.readiness,
            version: text(answer.version),
            listeners: text(answer.addresses).split_whitespace().map(str::to_owned).collect(),
            reasons: reasons.collect(),
        }
    }
}

/// The state of one pool, as of when the server answered. One that nobody ever used has zeros everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// How many permits it has; 0 if there is no such pool.
    pub capacity: u64,
    /// How many of them are held; more than the capacity after it was made smaller.
    pub held: u64,
    /// The newest fence of the pool.
    pub fence: u64,
    /// Those who wait are served by the timestamps that they brought, not as they arrived.
    pub by_timestamp: bool,
    /// The capacity was set by an operator, not by the first who came.
    pub is_set: bool,
    /// How many hold permits. Exact, even where `holders` is cut short.
    pub holder_count: u32,
    /// How many wait. Exact, even where `waiters` is cut short.
    pub waiter_count: u32,
    /// The first of the holders, at most 64.
    pub holders: Vec<PermitStatus>,
    /// The first of the waiters, at most 64, in the order in which they are served.
    pub waiters: Vec<PermitStatus>,
}

/// One pool of a list, at the time of the server's response. [`Semaphore::describe`](crate::Semaphore::describe) also names the holders and
/// waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// Name of the pool.
    pub name: Vec<u8>,
    /// Number of permits of the pool.
    pub capacity: u64,
    /// Number of permits that are held. It is above the capacity after the capacity was lowered.
    pub held: u64,
    /// Newest fence of the pool.
    pub fence: u64,
    /// If true, waiters are served by their timestamps. Otherwise they are served in order of arrival.
    pub by_timestamp: bool,
    /// If true, an operator set the capacity. Such a pool also stays without holders and waiters.
    pub is_set: bool,
    /// Number of holders.
    pub holder_count: u32,
    /// Number of waiters.
    pub waiter_count: u32,
}

impl From<&wire::ListedPool<'_>> for PoolSummary {
    fn from(listed: &wire::ListedPool<'_>) -> Self {
        Self {
            name: listed.name.to_vec(),
            capacity: listed.capacity,
            held: listed.held,
            fence: listed.fence,
            by_timestamp: listed.order == wire::PoolOrder::Timestamp,
            is_set: listed.is_set,
            holder_count: listed.holder_count,
            waiter_count: listed.waiter_count,
        }
    }
}

/// One who holds permits, or waits for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitStatus {
    /// Id of the claim.
    pub id: LockId,
    /// How many permits.
    pub permits: u64,
    /// The fence it was granted; 0 while waiting.
    pub fence: u64,
    /// Its place in the order of arrival while it waits; `None` once it is held.
    pub ticket: Option<u64>,
    /// How long it has been held, or has waited.
    pub age: Duration,
    /// Time left of its lease, or of its wait. `None` if it has no end.
    pub remaining: Option<Duration>,
    /// The owner; may be empty.
    pub owner: Vec<u8>,
}

impl From<wire::PoolDescribed<'_>> for PoolStatus {
    fn from(described: wire::PoolDescribed<'_>) -> Self {
        let holder = |holder: &wire::PermitHolder<'_>| PermitStatus {
            id: holder.id,
            permits: holder.permits,
            fence: holder.fence,
            ticket: None,
            age: Duration::from_millis(holder.age_ms),
            remaining: finite(holder.remaining_ms),
            owner: holder.owner.to_vec(),
        };
        let waiter = |waiter: &wire::PermitWaiter<'_>| PermitStatus {
            id: waiter.id,
            permits: waiter.permits,
            fence: 0,
            ticket: Some(waiter.ticket),
            age: Duration::from_millis(waiter.age_ms),
            remaining: finite(waiter.remaining_ms),
            owner: waiter.owner.to_vec(),
        };
        Self {
            capacity: described.capacity,
            held: described.held,
            fence: described.fence,
            by_timestamp: described.order == wire::PoolOrder::Timestamp,
            is_set: described.is_set,
            holder_count: described.holder_count,
            waiter_count: described.waiter_count,
            holders: described.holders.iter().map(holder).collect(),
            waiters: described.waiters.iter().map(waiter).collect(),
        }
    }
}
