//! Fill levels of token buckets.

use std::time::Duration;

/// Fill level of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Number of remaining tokens.
    pub remaining: u64,
    /// Time until the bucket is full, if no tokens are taken.
    pub reset_after: Duration,
}
