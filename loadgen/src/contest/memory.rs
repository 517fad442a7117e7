//! Memory of a held lock, for each contestant: a new server, filled with locks.

use anyhow::{Context, Result};

use super::entrants::{Entrant, start};
use super::result::Memory;
use crate::codec::{Consul, Redis, Slock, Waymaker};
use crate::compare::memory::{LEASE_MS, batched, fill};
use crate::compare::row::slice_plan;
use crate::compare::session::Session;
use crate::grpc::held_locks;
use crate::system::System;

/// Number of locks held if locks are quick to acquire.
const LOCK_COUNT: u32 = 100_000;
/// Number of locks held if each is a commit.
const LOCK_COUNT_SLOW: u32 = 5_000;
const LOCK_COUNT_QUICK: u32 = 500;

/// Fills a new server. The inner error is the reason why memory is not measured.
pub fn measure(session: &Session<'_>, entrant: &Entrant) -> Result<Result<Memory, &'static str>> {
    let system = entrant.contestant.identity.system;
    let (Some(programs), Some(_)) = (&session.programs, &entrant.contestant.server) else {
        return Ok(Err("not measured; it needs a separate server, started with --spawn"));
    };
    if system == System::Postgres {
        return Ok(Err("its locks are in shared memory that the server reserves when it starts"));
    }
    let contestant = start(programs, system, &entrant.options)?;
    let mut plan = slice_plan(&contestant.address, &entrant.options, session.seed)?;
    plan.lease_ms = LEASE_MS;
    plan.key_count = match system {
        _ if entrant.options.quick => LOCK_COUNT_QUICK,
        System::Etcd | System::Consul => LOCK_COUNT_SLOW,
        _ => LOCK_COUNT,
    };
    let filled = match system {
        System::Waymaker => fill::<Waymaker>(&contestant, &batched(plan)),
        System::Redis => fill::<Redis>(&contestant, &batched(plan)),
        System::Slock => fill::<Slock>(&contestant, &batched(plan)),
        System::Consul => fill::<Consul>(&contestant, &plan),
        System::Etcd => held_locks::measure(&plan, contestant.process),
        _ => return Ok(Err("not measured")),
    };
    let footprint = filled.with_context(|| format!("filling {}", contestant.address))?;
    Ok(Ok(Memory {
        contestant: entrant.name.clone(),
        lock_count: u64::from(footprint.count),
        bytes_per_lock: footprint.bytes_each,
    }))
}
