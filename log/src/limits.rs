//! Limits of the durable log: times, and lengths of what is written together.

/// Initial capacity of a batch of log records, in bytes: a grant or a few releases.
pub const LOG_BATCH_LEN: usize = 256;
/// Length of records after which a log group is closed, in bytes. Later records go into the next group.
pub const LOG_GROUP_LEN_MAX: usize = 256 * 1024;
/// Time after the last frame of the log until a frame that confirms its durability, in milliseconds.
pub const LOG_IDLE_MS: u64 = 500;
/// Number of full log segments that are compacted into a snapshot together.
pub const LOG_COMPACT_SEGMENT_COUNT: u64 = 2;
/// Time between a failed compaction and the next try, in milliseconds. Reported free space or another full segment
/// shortens it.
pub const LOG_COMPACT_RETRY_MS: u64 = 60_000;
/// Pause between two log groups while the disk is full, in milliseconds, so that the reserved space lasts.
pub const LOG_NO_SPACE_PACE_MS: u64 = 50;
/// Time until the log retries frames that did not fit the disk, in milliseconds. Reported free space shortens it.
pub const LOG_NO_ROOM_RETRY_MS: u64 = 1_000;
/// Interval of the check whether a full disk has free space again, in milliseconds.
pub const LOG_LOOK_MS: u64 = 1_000;
/// Time that a stopping server waits for space in its log before it ends without it, in milliseconds.
pub const LOG_STOP_GRACE_MS: u64 = 1_000;
/// Duration of a sync above which the server logs it, in milliseconds.
pub const LOG_SLOW_MS: u64 = 1_000;
/// Duration of a running sync above which the server refuses durable grants, in milliseconds.
pub const LOG_STALLED_MS: u64 = 10_000;
