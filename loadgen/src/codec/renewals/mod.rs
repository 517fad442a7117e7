//! Leases that a connection takes when it opens, and renews from then on. A renewal takes the place of an acquire.

mod consul;
mod redis;
mod waymaker;

pub use consul::ConsulRenewals;
pub use redis::RedisRenewals;
pub use waymaker::WaymakerRenewals;

use crate::plan::Plan;

/// Returns the number of leases of each connection.
fn leases_of_connection(plan: &Plan) -> u32 {
    plan.key_count.div_ceil(plan.connections)
}

/// Returns a key that no other connection uses, in this run or later.
fn key_of(connection: u64, lease: u32) -> String {
    format!("renew-{connection:016x}-{lease:08x}")
}

/// Leases of a connection, used in turn.
#[derive(Debug)]
struct Turns<Lease> {
    leases: Vec<Lease>,
    next: usize,
}

impl<Lease> Turns<Lease> {
    /// Requires at least one lease.
    fn new(leases: Vec<Lease>) -> Self {
        Self { leases, next: 0 }
    }

    fn next(&mut self) -> &Lease {
        let turn = self.next;
        self.next = (turn + 1) % self.leases.len();
        &self.leases[turn]
    }
}
