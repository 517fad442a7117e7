//! Limits of the engine; other modules have a few of their own. A refusal because of a full table names the limit that
//! was reached.

/// Limits of one shard. For claims, idle keys, pools with a set capacity, and buckets, the server divides the limit of
/// the whole node by the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of claims, waiting or held. Bounds memory: 64 bytes for each claim, and more for its optional
    /// parts.
    pub claim_count_max: u32,
    /// Number of free keys with a fence counter of their own from which the shard removes some counters with each new
    /// key: those of keys not used lately. The shard raises the floor, the fence at which the counter of an unknown key
    /// starts, at least to the removed counters.
    pub idle_key_count_max: u32,
    /// Maximum number of waiters of one key, one pool, or one tree namespace.
    pub waiter_count_per_key_max: u32,
    /// Maximum number of linked claims of one lane in this shard. Linked claims are waiters, claims whose fence is not
    /// durable yet, holds on the session's lease, and holds that end with the connection.
    pub linked_claim_count_per_lane_max: u32,
    /// Maximum number of paths in all sets of paths that one lane holds or awaits in this shard. The first path of each
    /// set does not count.
    pub path_count_per_lane_max: u32,
    /// Number of nodes of a tree namespace from which the shard refuses new sets of paths. Each distinct path or prefix
    /// of a path is a node. Bounds memory: about 100 bytes for each node, and up to 500 if sets wait for its path.
    pub node_count_per_tree_max: u32,
    /// Number of nodes of all tree namespaces of the shard together, from which the shard refuses new sets of paths.
    pub node_count_max: u32,
    /// Number of segments in all paths of one set beyond which a set of several paths is added to its tree over several
    /// turns.
    pub large_set_segment_count: u32,
    /// Maximum number of pools whose capacity was set by a request to set it, instead of by their first claim. The
    /// shard keeps such a pool even without holders and waiters. Bounds memory: about 200 bytes for each pool, and its
    /// name.
    pub set_pool_count_max: u32,
    /// Maximum number of buckets in memory. Full buckets are removed to make room for new ones, because a full bucket
    /// behaves like a new one.
    pub bucket_count_max: u32,
    /// Number of buckets from which the shard also removes some full buckets whenever it adds a bucket. Below this
    /// number, it keeps full buckets, because a frequently used bucket is soon needed again.
    pub kept_bucket_count: u32,
    /// Lease of a hold in milliseconds if the acquire or extend requests a lease of 0, unless the namespace has a
    /// default of its own. Does not apply to registrations, or to holds that last as long as their session.
    pub lease_default_ms: u32,
    /// Shortest lease of a hold in milliseconds; shorter ones are refused. Does not apply to registrations.
    pub lease_min_ms: u32,
    /// Longest lease of a hold in milliseconds; longer ones are clamped. Does not apply to registrations, or to sets of
    /// paths without a lease.
    pub lease_max_ms: u32,
    /// Time in milliseconds by which one step of priority moves a waiter ahead of its arrival.
    pub priority_step_ms: u32,
    /// Longest time in milliseconds by which priority moves a waiter ahead. This limit bounds the delay of the waiters
    /// that are overtaken.
    pub priority_boost_max_ms: u32,
    /// Maximum number of steps of follow-up work in one turn, such as expiries, and grants after a release. The rest
    /// waits for later turns, so no fan-out holds a shard for long. At least [`WORK_PER_TURN_MIN`].
    pub work_per_turn: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            claim_count_max: CLAIM_COUNT_MAX,
            idle_key_count_max: 1 << 20,
            waiter_count_per_key_max: WAITER_COUNT_PER_KEY_MAX,
            linked_claim_count_per_lane_max: 100_000,
            path_count_per_lane_max: 1 << 20,
            node_count_per_tree_max: 1 << 22,
            node_count_max: 1 << 23,
            large_set_segment_count: 1024,
            set_pool_count_max: 1 << 16,
            bucket_count_max: 1 << 22,
            kept_bucket_count: 1 << 20,
            lease_default_ms: LEASE_DEFAULT_MS,
            lease_min_ms: LEASE_MIN_MS,
            lease_max_ms: LEASE_MAX_MS,
            priority_step_ms: 10_000,
            priority_boost_max_ms: 60_000,
            work_per_turn: WORK_PER_TURN,
        }
    }
}

/// Default of [`Limits::claim_count_max`].
pub const CLAIM_COUNT_MAX: u32 = 1 << 24;
/// Default of [`Limits::waiter_count_per_key_max`].
pub const WAITER_COUNT_PER_KEY_MAX: u32 = 100_000;
/// Default of [`Limits::lease_default_ms`].
pub const LEASE_DEFAULT_MS: u32 = 30_000;
/// Default of [`Limits::lease_min_ms`].
pub const LEASE_MIN_MS: u32 = 10;
/// Default of [`Limits::lease_max_ms`].
pub const LEASE_MAX_MS: u32 = 86_400_000;

/// Default of `Limits::work_per_turn`.
pub const WORK_PER_TURN: u32 = 256;

/// Minimum of `Limits::work_per_turn`. A quarter of the steps is reserved for unfinished grants; below 4, that would be
/// no step. A wait that times out while grants of its key are unfinished is checked in each turn until they are
/// finished. Such checks could then take all steps in every turn, and the grants would never be finished.
pub const WORK_PER_TURN_MIN: u32 = 4;

/// Number of requests of a batch that are prefetched together. The number is large enough to hide memory latency, and
/// small enough that prefetched lines are still cached when they are used.
pub const PREFETCH_COUNT: usize = 32;

/// Longest key in bytes, and longest name of a pool or bucket. Path keys of tree namespaces may be longer.
pub const KEY_LEN_MAX: usize = 1024;
/// Longest owner in bytes.
pub const OWNER_LEN_MAX: usize = 256;
/// Longest request id in bytes.
pub const REQUEST_ID_LEN_MAX: usize = 256;
/// Longest metadata in bytes.
pub const METADATA_LEN_MAX: usize = 4096;
/// Longest type of a registration in bytes.
pub const TYPE_NAME_LEN_MAX: usize = 256;
/// Maximum number of keys, or of paths, of one claim.
pub const ITEM_COUNT_MAX: usize = 1024;
/// Maximum number of watches of one lane in one shard, and of watches of one key.
pub const WATCH_COUNT_MAX: usize = 1024;
/// Maximum number of prefixes of a server that are frozen at the same time, in all namespaces together.
pub const FREEZE_COUNT_MAX: usize = 64;
/// Number of frozen prefixes of a server from which a client that may not freeze its whole namespace can freeze no
/// further prefix. The rest is reserved for clients that may (operators).
pub const FREEZE_COUNT_OF_PREFIXES_MAX: usize = FREEZE_COUNT_MAX * 3 / 4;
/// Grace period in milliseconds after the expiry of a registration in a lazy namespace. During this period, the key
/// still belongs to the owner of the registration. Later, other owners may take the key.
pub const LAZY_GRACE_MS: i64 = 5_000;
/// Time in milliseconds from the expiry of a registration in a lazy namespace until the registration is removed.
pub const LAZY_FORGET_MS: i64 = 48 * 3_600_000;
/// Longest lease of a registration in milliseconds: ten years. Longer ones are clamped.
pub const REGISTRY_LEASE_MAX_MS: i64 = 10 * 365 * 86_400_000;
/// Maximum number of paths of a set for which the shard compares each path with the rights of a client. To see or
/// release a larger set of another identity, the client needs the right for every key of the namespace. A forced
/// release needs the right even for a set of the same identity.
pub const COMPARED_PATH_COUNT_MAX: usize = 32;
/// Maximum number of holders, and of waiters, in the response about a key, a path or a pool.
pub const INSPECT_HOLDER_COUNT_MAX: usize = 64;
/// Maximum number of held or awaited paths that a search for sets with overlapping paths visits.
pub const OVERLAP_SCAN_COUNT_MAX: usize = 1024;
/// Maximum number of nodes at and below a given path that a search for held paths overlapping this path visits. Most
/// paths share their prefixes with others, so a few times the maximum number of paths suffices.
pub const OVERLAP_NODE_COUNT_MAX: usize = 4 * OVERLAP_SCAN_COUNT_MAX;
/// Maximum number of claims or pools that one step of a listing, or of the search for the first holders, visits, so
/// that it does not hold a shard for long.
pub const LIST_SCAN_COUNT_MAX: u32 = 4096;
/// Maximum number of lanes that one step of counting the claims of namespaces visits.
pub const LANE_SCAN_COUNT_MAX: u32 = 1024;
/// Maximum number of keys for which a shard counts the waits in one window of time, to find its most contended keys.
pub const CONTENDED_KEY_COUNT_MAX: usize = 32;
/// Minimum length in milliseconds of the windows of time in which a shard counts waits, to find its most contended
/// keys. A window ends with the first wait or list after this time. The counts of the newest one or two windows are
/// shown.
pub const CONTENTION_WINDOW_MS: u64 = 60_000;
/// Maximum number of waiters of a key that are compared to find the oldest one.
pub const COMPARED_WAITER_COUNT_MAX: usize = 16;
/// Highest number of waiters before a claim that is counted one by one for its queue position. The positions of the
/// last waiter of a key and of a waiting set of paths need no counting, so they may be higher.
pub const POSITION_COUNT_MAX: usize = 1024;
/// Number of key records that the clock hand (the search for idle keys to evict) visits for each new key, and for each
/// key of a multi-key acquire, while there are too many idle keys.
pub const CLOCK_HAND_STEPS: u32 = 32;
/// Number of bucket records that the clock hand (the search for full buckets to remove) visits for each new bucket
/// while there are at least `Limits::kept_bucket_count` buckets.
pub const BUCKET_SWEEP_STEPS: u32 = 8;
/// Number of further bucket records that the clock hand (the search for full buckets to remove) visits for each new
/// bucket if the table is still full after `BUCKET_SWEEP_STEPS` records.
pub const BUCKET_SWEEP_STEPS_FULL: u32 = 256;
/// Maximum number of shards. Claim ids reserve 16 bits for the shard, which is more than enough.
pub const SHARD_COUNT_MAX: usize = 1 << 14;

const _: () = {
    let limits_are_ordered =
        CLOCK_HAND_STEPS > 1 && (LIST_SCAN_COUNT_MAX as usize) >= INSPECT_HOLDER_COUNT_MAX;
    assert!(limits_are_ordered, "the clock hand must evict faster than keys arrive");
    assert!(BUCKET_SWEEP_STEPS > 1, "buckets must be removed faster than they are created");
    assert!(WORK_PER_TURN >= WORK_PER_TURN_MIN);
    assert!(SHARD_COUNT_MAX <= u16::MAX as usize + 1);
};
