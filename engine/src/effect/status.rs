//! Claims, keys, pools and registrations in the form of responses.

use crate::ids::{ClaimId, Fence};
use std::sync::Arc;

/// The claim that blocks a request, and the number of waiters. If no claim blocks the request, all fields but
/// `waiter_count` are zero, false or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// Whether the claim that blocks the request is held. Otherwise the claim waits, its fence is not durable yet, or
    /// no claim blocks the request.
    pub held: bool,
    /// Whether the claim that blocks the request is shared, so that other readers may hold the key together with it. If
    /// not, the claim is exclusive.
    pub shared: bool,
    /// Time for which the claim that blocks the request has been held or has waited; for a registration, the time since
    /// it was registered or last renewed.
    pub age_ms: u64,
    /// Remaining lease or wait; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Number of claims that wait for the key, pool or tree, without the refused claim.
    pub waiter_count: u32,
    /// Owner of the claim that blocks the request; empty if the client may not see it.
    pub owner: Arc<[u8]>,
}

/// State of a live claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStatus {
    /// Whether the claim is held. If not, it waits in a queue, or until its fence is durable.
    pub held: bool,
    /// Whether the claim is shared with other readers.
    pub shared: bool,
    /// Whether the hold lasts as long as its session.
    pub session_lease: bool,
    /// Fence of the grant; 0 while the claim waits.
    pub fence: Fence,
    /// Remaining lease or wait; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Time for which the claim has been held or has waited; for a registration, the time since it was registered or
    /// last renewed.
    pub age_ms: u64,
    /// Priority of the acquire.
    pub priority: u32,
    /// Time for which the claim waited before its grant. 0 while it waits, and for a restored hold.
    pub waited_ms: u64,
    /// Key of the claim. For a set of paths, the first path that no other path of the set covers. If that path is
    /// longer than a key may be, it is cut to whole segments.
    pub key: Vec<u8>,
}

/// State of one key, or of the paths that overlap one path. Of a pool, only the fence is set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// Newest fence of the key; for a path, of its whole tree namespace. For an unknown key, the value at which its
    /// counter would start; the first grant would get a higher fence.
    pub fence: Fence,
    /// Number of holders. If too many held paths overlap the path to visit all of them, the number of those paths.
    pub holder_count: u32,
    /// Number of waiters. If too many awaited paths overlap the path to visit all of them, the number of those paths.
    pub waiter_count: u32,
    /// First holders in the order of their grants, at most
    /// [`INSPECT_HOLDER_COUNT_MAX`](crate::limits::INSPECT_HOLDER_COUNT_MAX).
    pub holders: Vec<HeldLock>,
    /// First waiters in the order in which they are served, at most
    /// [`INSPECT_HOLDER_COUNT_MAX`](crate::limits::INSPECT_HOLDER_COUNT_MAX).
    pub waiters: Vec<WaitingClaim>,
}

/// One waiting claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingClaim {
    /// Id of the claim, or of the whole multi-key claim; all zeros if the client may not see it.
    pub id: ClaimId,
    /// Whether the claim would share the key with other readers.
    pub shared: bool,
    /// Arrival number of the claim. Among the waiters of a shard, a claim that arrived later has a higher number; there
    /// are gaps.
    pub ticket: u64,
    /// Time for which the claim has waited.
    pub age_ms: u64,
    /// Remaining wait; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Priority of the acquire.
    pub priority: u32,
    /// Owner of the claim; empty if the client may not see it.
    pub owner: Arc<[u8]>,
}

/// One hold, or one waiting claim of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Id of the hold or of the waiting claim; all zeros if the client may not see it. Each key of a waiting multi-key
    /// claim has the id of the whole claim.
    pub id: ClaimId,
    /// Whether the claim is shared with other readers.
    pub shared: bool,
    /// Fence of the grant; 0 for a waiting claim.
    pub fence: Fence,
    /// Time for which the claim has been held or has waited; for a registration, the time since it was registered or
    /// last renewed.
    pub held_ms: u64,
    /// Remaining lease or wait; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Priority of the acquire.
    pub priority: u32,
    /// Key of the claim. For a set of paths, the first path that no other path of the set covers. If that path is
    /// longer than a key may be, it is cut to whole segments.
    pub key: Vec<u8>,
    /// Owner of the claim; empty if the client may not see it.
    pub owner: Arc<[u8]>,
    /// Request id of the acquire; empty if there is none, or if the client may not see it.
    pub request_id: Vec<u8>,
    /// Metadata of the acquire, or the value of a registration; empty if the client may not see it.
    pub metadata: Vec<u8>,
}

/// One page of the claims in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// Claims of this page.
    pub locks: Vec<HeldLock>,
    /// Number of the claim record with which the next page begins; `None` after the last page of this shard.
    pub next: Option<u32>,
}

/// A claim that an operator ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceReleased {
    /// Id of the claim.
    pub id: ClaimId,
    /// Whether the claim was not held yet: it waited, or its fence was not durable.
    pub was_waiting: bool,
    /// Fence of the hold; 0 if `was_waiting`.
    pub fence: Fence,
    /// Key of the claim. For a set of paths, the first path that no other path of the set covers. If that path is
    /// longer than a key may be, it is cut to whole segments.
    pub key: Vec<u8>,
    /// Owner of the claim.
    pub owner: Arc<[u8]>,
    /// Owner of the lane that ended the claim.
    pub by: Arc<[u8]>,
    /// Reason that the operator gave.
    pub reason: Arc<[u8]>,
}

/// Result of registering a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Id of the hold.
    pub id: ClaimId,
    /// Fence of the registration. A renewal keeps it; a new registration of the key gets a higher one.
    pub fence: Fence,
    /// Remaining lease. Negative in a lazy namespace if the lease has expired.
    pub remaining_ms: i64,
    /// Whether the request renewed an existing registration of the same owner.
    pub renewed: bool,
}

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Id of the hold; all zeros if the client may not see it.
    pub id: ClaimId,
    /// Fence of the registration. A renewal keeps it; a new registration of the key gets a higher one.
    pub fence: Fence,
    /// Time since the key was registered or last renewed.
    pub age_ms: u64,
    /// Remaining lease. Zero or negative if the lease has expired: in a lazy namespace, or just before the registration
    /// ends.
    pub remaining_ms: i64,
    /// The key.
    pub key: Vec<u8>,
    /// Owner of the key; empty if the client may not see it.
    pub owner: Arc<[u8]>,
    /// Registered value; empty if the client may not see it.
    pub value: Vec<u8>,
    /// Registered type.
    pub type_name: Vec<u8>,
}

/// One page of the registrations in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RegistrationPage {
    /// Registrations of this page.
    pub registrations: Vec<Registration>,
    /// Number of the claim record with which the next page begins; `None` after the last page of this shard.
    pub next: Option<u32>,
}

/// State of a pool of permits.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// Number of permits; 0 if there is no such pool.
    pub capacity: u64,
    /// Number of permits that are held.
    pub held: u64,
    /// Newest fence of the pool. For an unknown pool, the value at which its counter would start; the first grant would
    /// get a higher fence.
    pub fence: Fence,
    /// Whether waiters are served in the order of their timestamps instead of their arrival.
    pub by_timestamp: bool,
    /// Whether a request set the capacity, instead of the first claim. Such a pool stays without any claim.
    pub is_set: bool,
    /// Number of claims that hold permits.
    pub holder_count: u32,
    /// Number of claims that wait.
    pub waiter_count: u32,
    /// First holders in the order of their grants, at most
    /// [`INSPECT_HOLDER_COUNT_MAX`](crate::limits::INSPECT_HOLDER_COUNT_MAX).
    pub holders: Vec<PermitHolder>,
    /// First waiters in the order in which they are served, at most
    /// [`INSPECT_HOLDER_COUNT_MAX`](crate::limits::INSPECT_HOLDER_COUNT_MAX).
    pub waiters: Vec<PermitHolder>,
}

/// One pool of a page.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListedPool {
    /// Name of the pool.
    pub name: Vec<u8>,
    /// State of the pool, without the lists of holders and waiters.
    pub status: PoolStatus,
}

/// One page of the pools in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolPage {
    /// Pools of this page.
    pub pools: Vec<ListedPool>,
    /// Number of the pool at which the next page begins; `None` after the last page of this shard.
    pub next: Option<u32>,
}

/// One claim for permits, held or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    /// Id of the claim; all zeros if the client may not see it.
    pub id: ClaimId,
    /// Number of permits that the claim holds or waits for.
    pub permits: u64,
    /// Fence of the grant; 0 while the claim waits.
    pub fence: Fence,
    /// Arrival number of the claim. Among the waiters of a shard, a claim that arrived later has a higher number; there
    /// are gaps.
    pub ticket: u64,
    /// Time for which the permits have been held, or the claim has waited.
    pub age_ms: u64,
    /// Remaining lease or wait; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Owner of the claim; empty if the client may not see it.
    pub owner: Arc<[u8]>,
}

/// Statistics of a tree namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TreeStatistics {
    /// Number of acquires since the server process started whose sets were granted or began to wait, plus the number of
    /// restored holds.
    pub set_count: u64,
    /// Number of waiting sets.
    pub waiting_set_count: u64,
    /// Number of held sets, including sets whose fence is not durable yet.
    pub held_set_count: u64,
    /// Number of paths in the tree that are marked as waiting. The paths of a large set are added and marked over
    /// several turns. A path that another path of the same set covers is not added.
    pub waiting_path_count: u64,
    /// Number of paths in the tree that are marked as held, including paths of sets whose fence is not durable yet. The
    /// paths of a large set are added and marked over several turns. A path that another path of the same set covers is
    /// not added.
    pub held_path_count: u64,
    /// Number of distinct paths of all sets.
    pub distinct_path_count: u64,
    /// Sum of the numbers of segments of all paths, and one for the namespace itself. A segment that several paths
    /// share counts for each of them.
    pub segment_count: u64,
    /// Number of distinct segments, and one for the namespace itself.
    pub distinct_segment_count: u64,
}
