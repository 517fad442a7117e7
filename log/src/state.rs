//! State of a log.

/// State of the durable log, as a shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogState {
    /// The server has no log, so nothing is recorded.
    #[default]
    Absent,
    /// The log accepts all records.
    Ready,
    /// The disk is full. The server refuses new durable grants, and keeps the room that is left in the log for ends and
    /// renewals.
    NoSpace,
    /// The write in progress has taken longer than `LOG_STALLED_MS`. The server makes no new durable grants until it
    /// ends.
    Slow,
}
