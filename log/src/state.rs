//! State of a log.

/// State of the durable log, as a shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogState {
    /// The server has no log, so nothing is recorded.
    #[default]
    Absent,
    /// The log accepts all records.
    Ready,
    /// The log has no room for new grants. It accepts ends and renewals.
    NoSpace,
    /// The write in progress has taken longer than `LOG_STALLED_MS`. The server makes no new durable grants until it
    /// ends.
    Slow,
}
