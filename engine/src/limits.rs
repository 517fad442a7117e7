//! Every limit of the engine in one place. A table that is full refuses by name; nothing grows without end.

/// What bounds one shard. The server divides what holds for a node by the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most claims, waiting or held. Bounds memory: 64 bytes each and what hangs on them.
    pub claim_count_max: u32,
    /// Most free keys whose counter is kept; beyond it the least used fold into the floor.
    pub idle_key_count_max: u32,
    /// Most waiters of one key.
    pub waiter_count_per_key_max: u32,
    /// Most claims of one lane in this shard that hang on the lane: waiting, on its session's lease, or to be released
    /// when its connection is lost.
    pub linked_claim_count_per_lane_max: u32,
    /// Most paths of sets, held or waiting, of one lane in this shard. The first path of each set does not count.
    pub path_count_per_lane_max: u32,
    /// Nodes of one tree namespace from which on new sets are refused. Its paths and each prefix of them are nodes. Bounds
    /// memory: about 100 bytes each, and up to 500 where sets wait.
    pub node_count_per_tree_max: u32,
    /// The same for all tree namespaces of the shard together.
    pub node_count_max: u32,
    /// A set of several paths with more segments than this enters its tree over several turns.
    pub large_set_segment_count: u32,
    /// Most pools whose capacity was set: these stay without holders and waiters. Bounds memory: about 200 bytes each and the name.
    pub set_pool_count_max: u32,
    /// Most buckets that are not full.
    pub bucket_count_max: u32,
    /// Buckets up to this count are kept though they may be full again, since one that is asked often is soon needed once
    /// more; beyond it full ones are forgotten.
    pub kept_bucket_count: u32,
    /// The lease that a lease of 0 asks for.
    pub lease_default_ms: u32,
    /// The shortest lease.
    pub lease_min_ms: u32,
    /// The longest lease; longer ones are clamped.
    pub lease_max_ms: u32,
    /// By how much one step of priority moves a waiter ahead of its arrival.
    pub priority_step_ms: u32,
    /// The most that priority moves a waiter ahead, so that nobody is held back for longer.
    pub priority_boost_max_ms: u32,
    /// Expiries, grants and other follow-up work that one turn does before it serves requests. What is left waits for the
    /// next turn, so that no fan-out holds a shard for long. At least [`WORK_PER_TURN_MIN`].
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

/// The follow-up work of one turn, unless it is limited otherwise.
pub const WORK_PER_TURN: u32 = 256;

/// The least follow-up work of a turn. With less, late waits use up every step of the grants that they wait for.
pub const WORK_PER_TURN_MIN: u32 = 4;

/// Requests of a batch that are prefetched together: enough to hide the waiting for memory, few enough that what was
/// brought is still near when it is used.
pub const PREFETCH_COUNT: usize = 32;

/// Longest key in bytes.
pub const KEY_LEN_MAX: usize = 1024;
/// Longest owner in bytes.
pub const OWNER_LEN_MAX: usize = 256;
/// Longest request id in bytes.
pub const REQUEST_ID_LEN_MAX: usize = 256;
/// Longest metadata in bytes.
pub const METADATA_LEN_MAX: usize = 4096;
/// Longest type of what is registered in bytes.
pub const TYPE_NAME_LEN_MAX: usize = 256;
/// Most items of one claim.
pub const ITEM_COUNT_MAX: usize = 1024;
/// Most keys that one lane watches in one shard, and most lanes that watch one key.
pub const WATCH_COUNT_MAX: usize = 1024;
/// Most prefixes that are frozen at a time.
pub const FREEZE_COUNT_MAX: usize = 64;
/// Frozen prefixes of a server at which a client is refused that may not freeze its whole namespace. The others are left to operators.
pub const FREEZE_COUNT_OF_PREFIXES_MAX: usize = FREEZE_COUNT_MAX * 3 / 4;
/// How long after the end of its lease a lazy lock stays its owner's.
pub const LAZY_GRACE_MS: i64 = 5_000;
/// How long after the end of its lease a lazy lock is forgotten.
pub const LAZY_FORGET_MS: i64 = 48 * 3_600_000;
/// The longest lease of what is registered; longer ones are clamped. Ten years.
pub const REGISTRY_LEASE_MAX_MS: i64 = 10 * 365 * 86_400_000;
/// Paths of a set whose rights are compared. For a set of more paths that another identity took, a client needs a right for every key.
pub const COMPARED_PATH_COUNT_MAX: usize = 32;
/// Most holders, and most waiters, that an inspection names.
pub const INSPECT_HOLDER_COUNT_MAX: usize = 64;
/// Most paths, held or awaited, that are looked at to tell which sets overlap a path, so that it never takes long.
pub const OVERLAP_SCAN_COUNT_MAX: usize = 1024;
/// Most nodes that are looked at to find these paths: most paths share their prefixes with others.
pub const OVERLAP_NODE_COUNT_MAX: usize = 4 * OVERLAP_SCAN_COUNT_MAX;
/// Most claims, or pools, that one step of a listing looks at, so that a listing never holds a shard for long.
pub const LIST_SCAN_COUNT_MAX: u32 = 4096;
/// Most lanes that one step of a count of claims looks at.
pub const LANE_SCAN_COUNT_MAX: u32 = 1024;
/// Most keys of which a shard counts the waits.
pub const CONTENDED_KEY_COUNT_MAX: usize = 32;
/// Length of a window of counted waits. One or two windows are shown.
pub const CONTENTION_WINDOW_MS: u64 = 60_000;
/// Most waiters of a key that are compared to find the oldest one.
pub const COMPARED_WAITER_COUNT_MAX: usize = 16;
/// Positions in a queue ordered by priority are counted up to here.
pub const POSITION_COUNT_MAX: usize = 1024;
/// Idle keys that the clock hand looks at for each new key while there are too many.
pub const CLOCK_HAND_STEPS: u32 = 32;
/// Buckets that the clock hand looks at for each new one while more are kept than need be.
pub const BUCKET_SWEEP_STEPS: u32 = 8;
/// Buckets that it looks at for each new one while there is no room for it.
pub const BUCKET_SWEEP_STEPS_FULL: u32 = 256;
/// Most shards: an id has so many bits for it.
pub const SHARD_COUNT_MAX: usize = 1 << 14;

const _: () = {
    let limits_are_ordered =
        CLOCK_HAND_STEPS > 1 && (LIST_SCAN_COUNT_MAX as usize) >= INSPECT_HOLDER_COUNT_MAX;
    assert!(limits_are_ordered, "the clock hand must evict faster than keys arrive");
    assert!(BUCKET_SWEEP_STEPS > 1, "buckets must be removed faster than they are created");
    assert!(WORK_PER_TURN >= WORK_PER_TURN_MIN);
    assert!(SHARD_COUNT_MAX <= u16::MAX as usize + 1);
};
