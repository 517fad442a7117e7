//! State of a log.

/// State of the durable log, as the shards see it when they decide about a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogState {
    /// The server has no log, so nothing is recorded.
    #[default]
    Absent,
    /// The log accepts all records.
    Ready,
    /// The disk is full. The server refuses new durable grants, so that the room left in the log is used for records of
    /// ended and renewed holds.
    NoSpace,
    /// The write in progress has taken `LOG_STALLED_MS` or longer. The server refuses new durable grants until that
    /// write has ended.
    Slow,
}
