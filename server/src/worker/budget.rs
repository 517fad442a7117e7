//! Limit of the time that the requests of one connection may use without a break.

/// Time that one connection may use before the other connections of its worker have their turn.
///
/// The worker calls `is_spent` between two batches, and only if bytes of the connection are left. So a budget may read
/// a clock: connections with few requests cause no reading.
pub trait Budget {
    /// Called before a batch of maximum cost is served, so that a budget that reads a clock starts its measurement
    /// before this batch.
    fn begin(&mut self) {}

    /// Whether the time is used up.
    fn is_spent(&mut self) -> bool;
}

/// A budget that is never spent.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Budget for Unlimited {
    #[inline]
    fn is_spent(&mut self) -> bool {
        false
    }
}

/// A budget of a connection that is already spent. The worker checks a budget only between two batches of requests, so
/// it still serves one batch.
#[derive(Clone, Copy, Debug)]
pub struct Spent;

impl Budget for Spent {
    fn is_spent(&mut self) -> bool {
        true
    }
}
