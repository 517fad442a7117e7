//! Leases that a connection takes when it is opened and renews from then on: what an acquire is to others is a renewal here.

mod consul;
mod redis;
mod waymaker;

pub use consul::ConsulRenewals;
pub use redis::RedisRenewals;
pub use waymaker::WaymakerRenewals;

use crate::plan::Plan;

/// How many leases each connection has.
fn leases_of_connection(plan: &Plan) -> u32 {
    plan.key_count.div_ceil(plan.connections)
}

/// Keys that no other connection has, now or later.
fn key_of(connection: u64, lease: u32) -> String {
    format!("renew-{connection:016x}-{lease:08x}")
}

/// The leases of a connection, each in its turn.
#[derive(Debug)]
struct Turns<Lease> {
    leases: Vec<Lease>,
    next: usize,
}

impl<Lease> Turns<Lease> {
    /// At least one.
    fn new(leases: Vec<Lease>) -> Self {
        Self { leases, next: 0 }
    }

    fn next(&mut self) -> &Lease {
        let turn = self.next;
        self.next = (turn + 1) % self.leases.len();
        &self.leases[turn]
    }
}
