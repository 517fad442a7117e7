//! Limits of the durable log: times, and the maximum length of records that are written in one group.

/// Initial capacity of the buffer for a batch of log records, in bytes. It suffices for one grant or a few releases.
pub const LOG_BATCH_LEN: usize = 256;
/// Length of its records, in bytes, from which on a log group is full. All records of a group are written and synced
/// together; later batches go into the next group.
pub const LOG_GROUP_LEN_MAX: usize = 256 * 1024;
/// Time after the start or a flush of records until an idle server appends one frame without records, in milliseconds.
/// That frame records that the frames before it are durable, and when they became durable.
pub const LOG_IDLE_MS: u64 = 500;
/// Minimum number of full log segments for a compaction into a snapshot. While the disk is full, one segment is enough.
pub const LOG_COMPACT_SEGMENT_COUNT: u64 = 2;
/// Time between a failed compaction and the next try, in milliseconds. The server tries earlier if free space is
/// reported or another segment becomes full.
pub const LOG_COMPACT_RETRY_MS: u64 = 60_000;
/// Pause between two log groups while the disk is full, in milliseconds. Fewer and larger groups make the spare and
/// reserve segments last longer.
pub const LOG_NO_SPACE_PACE_MS: u64 = 50;
/// Time after which the log retries to append frames for which the disk had no room, in milliseconds. The log retries
/// earlier if free space is reported.
pub const LOG_NO_ROOM_RETRY_MS: u64 = 1_000;
/// Time between two checks whether a full disk has free space again, in milliseconds.
pub const LOG_LOOK_MS: u64 = 1_000;
/// Time that a stopping server waits for room on a full disk to write the rest of its log, in milliseconds. After it,
/// the server ends with an error and does not write the rest.
pub const LOG_STOP_GRACE_MS: u64 = 1_000;
/// Duration of a write to the log from which on the server reports it as slow, in milliseconds. A write appends a group
/// of records and syncs it.
pub const LOG_SLOW_MS: u64 = 1_000;
/// Duration of a write to the log, in milliseconds, from which on the server refuses new durable grants. (A durable
/// grant is reported only after its record is durable.)
pub const LOG_STALLED_MS: u64 = 10_000;
