//! Owned copies of the server's responses to queries.

use std::time::Duration;

use waymaker_protocol as wire;
use waymaker_protocol::{LockId, NamespaceKind, Readiness};

use crate::contention::finite;

pub use waymaker_protocol::LockState;

/// State of one key, or of the paths of a tree that overlap one path, at the time of the server's response. If nobody
/// holds the key or waits for it, only `fence` may be set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// Newest fence of the key; the next grant has a larger one. For a key that the server does not remember, this is a
    /// number that no earlier fence of the key exceeds.
    pub fence: u64,
    /// Number of holders. For a key, it is exact even if `holders` is cut short. For a path with very many overlapping
    /// paths, the number of these paths.
    pub holder_count: u32,
    /// Number of waiters. For a key, it is exact even if `waiters` is cut short. For a path with very many overlapping
    /// paths, the number of these paths.
    pub waiter_count: u32,
    /// Holders in the order of their grants, at most the first 64.
    pub holders: Vec<Holder>,
    /// First waiters, at most 64, in the order in which they are served.
    pub waiters: Vec<Waiter>,
}

/// One hold of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the hold; zero if this client may not inspect the hold.
    pub id: LockId,
    /// Whether the hold is shared with other readers.
    pub shared: bool,
    /// Fence of the hold.
    pub fence: u64,
    /// Time for which the hold has lasted.
    pub held: Duration,
    /// Remaining lease; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Owner that the client set, or else the address of its connection; empty if this client may not inspect the
    /// claim.
    pub owner: Vec<u8>,
}

/// One claim that waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Id of the claim, by which the wait can be ended; zero if this client may not inspect the claim.
    pub id: LockId,
    /// Whether the claim would share the key with other readers.
    pub shared: bool,
    /// Ticket, which rises in the order in which claims began to wait. Of two waiters for this key with equal priority,
    /// the one with the smaller ticket is first in the queue.
    pub ticket: u64,
    /// Time for which the claim has waited.
    pub age: Duration,
    /// Remaining wait; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Priority of the claim.
    pub priority: u32,
    /// Owner that the client set, or else the address of its connection; empty if this client may not inspect the
    /// claim.
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

/// State of one live claim, at the time of the server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStatus {
    /// State of the claim: waiting or held.
    pub state: LockState,
    /// Whether the claim shares the key with other readers.
    pub shared: bool,
    /// Whether the claim uses the lease of a session.
    pub session_lease: bool,
    /// Fence of the hold; 0 while the claim waits.
    pub fence: u64,
    /// Remaining lease of a hold, or remaining wait of a waiter. `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Time since the grant, or since the wait began.
    pub age: Duration,
    /// Priority of the claim.
    pub priority: u32,
    /// Key of the claim. Of a waiting claim for several keys, the smallest key. Of a set of paths, the first path that
    /// no other path of the set covers; of a path key above 1,024 bytes, only the first whole segments.
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

/// One held lock, at the time of the server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Id of the hold; zero if this client may not inspect the hold.
    pub id: LockId,
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Fence of the lock.
    pub fence: u64,
    /// Time for which the lock has been held.
    pub held: Duration,
    /// Remaining lease; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Priority of the claim.
    pub priority: u32,
    /// Key of the lock, name of its pool, or first path of its set that no other path of the set covers. Of a path key
    /// above 1,024 bytes, only the first whole segments.
    pub key: Vec<u8>,
    /// Owner that the client set, or else the address of its connection; empty if this client may not inspect the
    /// claim.
    pub owner: Vec<u8>,
    /// Request id of the acquire; empty if the acquire had none, or if this client may not inspect the claim.
    pub request_id: Vec<u8>,
    /// Metadata of the acquire, or the value of a registration. Empty if there is none, or if this client may not
    /// inspect the claim.
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
    /// Id of the claim, by which [`Operator::force_release`](crate::Operator::force_release) ends the wait; zero if
    /// this client may not inspect the claim.
    pub id: LockId,
    /// Whether the claim would share the key with other readers.
    pub shared: bool,
    /// Time for which the claim has waited.
    pub age: Duration,
    /// Time left of the wait; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Priority of the claim.
    pub priority: u32,
    /// Key that the claim waits for: a key, the name of a pool, or the first path of a set that no other path of the
    /// set covers. Of a path key above 1,024 bytes, only the first whole segments.
    pub key: Vec<u8>,
    /// Owner that the client set, or else the address of its connection; empty if this client may not inspect the
    /// claim.
    pub owner: Vec<u8>,
    /// Request id of the acquire; empty if the acquire had none, or if this client may not inspect the claim.
    pub request_id: Vec<u8>,
    /// Metadata of the acquire; empty if the acquire had none, or if this client may not inspect the claim.
    pub metadata: Vec<u8>,
}

impl From<&wire::ListedLock<'_>> for WaitingClaim {
    fn from(claim: &wire::ListedLock<'_>) -> Self {
        Self {
            id: claim.id,
            shared: claim.shared,
            // In a list of waiting claims, `held_ms` contains the age of the wait.
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

/// Result of [`Client::verify`](crate::Client::verify), at the time of the server's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Whether the fence is the newest one of the key.
    pub is_newest: bool,
    /// Whether the fence is the newest one of the key, and the hold with this fence still exists.
    pub is_held: bool,
    /// Newest fence of the key. For a key that the server does not remember, a number that no earlier fence of the key
    /// exceeds.
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
    /// Fence of the hold; 0 if the claim was waiting.
    pub fence: u64,
    /// Key of the claim. Of a waiting claim for several keys, the smallest key. Of a set of paths, the first path that
    /// no other path of the set covers; of a path key above 1,024 bytes, only the first whole segments.
    pub key: Vec<u8>,
    /// Owner that the client set, or else the address of its connection.
    pub owner: Vec<u8>,
    /// Whether the claim was still waiting.
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

/// Result of a freeze or a thaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeOutcome {
    /// Whether the request changed anything.
    pub changed: bool,
    /// Number of frozen prefixes of the namespace after the request.
    pub frozen_count: u16,
}

impl From<wire::Frozen> for FreezeOutcome {
    fn from(frozen: wire::Frozen) -> Self {
        let wire::Frozen { changed, frozen_count } = frozen;
        Self { changed, frozen_count }
    }
}

/// One namespace of the server. `timeouts`, `expired` and `revoked` count from the start of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// Name of the namespace.
    pub name: Vec<u8>,
    /// Kind of the namespace, which determines its rules.
    pub kind: NamespaceKind,
    /// Number of held claims and registrations. A held claim for several keys counts once for each key.
    pub held: u64,
    /// Number of waiting claims, including grants whose fence is not durable yet. A waiting claim for several keys
    /// counts once.
    pub waiting: u64,
    /// Number of waits whose time limit expired before the grant.
    pub timeouts: u64,
    /// Number of holds and registrations whose lease expired. Lazy registrations do not count.
    pub expired: u64,
    /// Number of holds and registrations that an operator ended with
    /// [`Operator::force_release`](crate::Operator::force_release).
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
    /// Degree to which the server grants new claims.
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
    /// Time until this reason for being degraded or not ready no longer applies, if the server knows that time.
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

/// State of one pool, at the time of the server's response. If the pool does not exist, `fence` may still be set, and
/// all other fields are zero, false or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// Number of permits of the pool; 0 if there is no such pool.
    pub capacity: u64,
    /// Number of held permits; may exceed the capacity after the capacity was lowered.
    pub held: u64,
    /// Newest fence of the pool; the next grant has a larger one.
    pub fence: u64,
    /// Whether waiters are served by the timestamps of their requests. Otherwise they are served in order of arrival.
    pub by_timestamp: bool,
    /// Whether [`Semaphore::set_capacity`](crate::Semaphore::set_capacity) set the capacity. Otherwise the first
    /// acquire set it.
    pub is_set: bool,
    /// Number of holders. It is exact even if `holders` is cut short.
    pub holder_count: u32,
    /// Number of waiters. It is exact even if `waiters` is cut short.
    pub waiter_count: u32,
    /// Holders in the order of their grants, at most the first 64.
    pub holders: Vec<PermitStatus>,
    /// First waiters, at most 64, in the order in which they are served.
    pub waiters: Vec<PermitStatus>,
}

/// One pool of a list, at the time of the server's response. [`Semaphore::describe`](crate::Semaphore::describe) also
/// names the first holders and waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// Name of the pool.
    pub name: Vec<u8>,
    /// Number of permits of the pool.
    pub capacity: u64,
    /// Number of permits that are held; may exceed the capacity after the capacity was lowered.
    pub held: u64,
    /// Newest fence of the pool.
    pub fence: u64,
    /// Whether waiters are served by their timestamps. Otherwise they are served in order of arrival.
    pub by_timestamp: bool,
    /// Whether [`Semaphore::set_capacity`](crate::Semaphore::set_capacity) set the capacity. Such a pool stays even
    /// without holders and waiters.
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

/// One holder of permits, or one waiter for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitStatus {
    /// Id of the claim; zero if this client may not inspect it.
    pub id: LockId,
    /// Number of permits.
    pub permits: u64,
    /// Fence of the hold; 0 while the claim waits.
    pub fence: u64,
    /// Number of the claim in the order in which claims of the pool began to wait; a later claim has a higher number.
    /// `None` once the claim holds its permits.
    pub ticket: Option<u64>,
    /// Time since the grant, or since the wait began.
    pub age: Duration,
    /// Remaining lease or remaining wait; `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Owner that the client set, or else the address of its connection; empty if this client may not inspect the
    /// claim.
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
