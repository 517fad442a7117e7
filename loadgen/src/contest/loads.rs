//! Loads of a contest, and the plan of one slice of each.

use std::time::Duration;

use anyhow::Result;

use super::entrants::{Entrant, polls};
use super::result::ContestShape;
use crate::compare::options::CompareOptions;
use crate::compare::row::slice_plan;
use crate::options::{RedisRelease, Window, WorkloadName};
use crate::plan::Plan;
use crate::system::System;
use crate::units::show_rate;

/// Request rates per second: the first for all systems, the second for fast systems.
const RATES: [u64; 2] = [1_000, 10_000];
/// Number of keys of the read-mostly load.
const READ_KEYS: u32 = 100;
/// Percentage of shared acquires.
const READ_PERCENT: u8 = 90;
/// Renewals per second.
pub const RENEWAL_RATE: u64 = 1_000;
/// Pauses of a polling client: with few connections, and with many.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// Largest number of connections that counts as few.
const FEW_CONNECTIONS: u32 = 16;

/// With more waiters, some never get a turn within a slice.
const WAITERS_MAX_ETCD: u32 = 100;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Shape of the load.
    pub shape: ContestShape,
    /// Number of connections.
    pub connections: u32,
    /// Number of requests in flight on each.
    pub depth: u32,
    /// Requests per second; `None` is a closed loop.
    pub rate: Option<u64>,
}

impl Load {
    /// Returns all loads in the order of a report. A rate comes after the closed loop, which shows whether the
    /// system can reach it.
    pub fn all(options: &CompareOptions) -> Vec<Self> {
        let load = |shape, connections| Self { shape, connections, depth: 1, rate: None };
        let pair = |connections| load(ContestShape::Pair, connections);
        let mut loads: Vec<Self> = [1, 8, 50, 200].map(pair).to_vec();
        loads.push(Self { depth: 16, ..pair(50) });
        loads.extend(RATES.map(|rate| Self { rate: Some(rate), ..pair(50) }));
        loads.push(load(ContestShape::HandOver, FEW_CONNECTIONS));
        loads.push(load(ContestShape::ReadMostly, 50));
        loads.push(load(ContestShape::ManyWaiters, if options.quick { 50 } else { 500 }));
        loads.push(load(ContestShape::Renewals, 8));
        loads
    }

    /// Returns the load adapted to this system. Before etcd grants the first waiter, all waiters have written
    /// their wait to its store.
    pub fn of(self, system: System) -> Self {
        match (self.shape, system) {
            (ContestShape::ManyWaiters, System::Etcd) => {
                Self { connections: self.connections.min(WAITERS_MAX_ETCD), ..self }
            }
            _ => self,
        }
    }

    /// Returns a short title.
    pub fn title(&self) -> String {
        format!("{}, {}", shape_title(self.shape), self.describe())
    }

    /// Returns a short description without the shape.
    pub fn describe(&self) -> String {
        let Self { connections, depth, .. } = self;
        let rate = self.rate.map_or(String::new(), |rate| format!(" at {}", show_rate(rate as f64)));
        format!("{connections} x {depth}{rate}")
    }

    /// Returns why this system does not offer the load.
    pub fn not_offered(&self, system: System) -> Option<&'static str> {
        match (self.shape, system) {
            (ContestShape::ReadMostly, System::Redis | System::Etcd | System::Consul) => {
                Some("no shared locks")
            }
            (ContestShape::Renewals, System::Postgres) => Some("a lock lasts as long as its connection"),
            (ContestShape::Renewals, System::Slock) => {
                Some("renewals of slock are not implemented in this program")
            }
            (ContestShape::Pair, System::Postgres) if self.depth > 1 => {
                Some("one request at a time on each connection")
            }
            _ => None,
        }
    }

    /// Returns the plan of one slice.
    pub fn plan(&self, entrant: &Entrant, seed: u64) -> Result<Plan> {
        let mut plan = slice_plan(&entrant.contestant.address, &entrant.options, seed)?;
        (plan.connections, plan.depth, plan.rate) = (self.connections, self.depth, self.rate);
        plan.window = Window::Sliding;
        plan.redis_release = RedisRelease::Script;
        match self.shape {
            ContestShape::Pair | ContestShape::Renewals => {}
            ContestShape::HandOver | ContestShape::ManyWaiters => {
                (plan.workload, plan.key_count) = (WorkloadName::Hot, 1);
            }
            ContestShape::ReadMostly => {
                (plan.workload, plan.key_count) = (WorkloadName::Rw, READ_KEYS);
                (plan.shape.read_percent, plan.shape.item_count) = (READ_PERCENT, 1);
            }
        }
        if polls(entrant.contestant.identity.system) {
            plan.poll_interval = POLL_INTERVALS[usize::from(self.connections > FEW_CONNECTIONS)];
        }
        plan.check().map(|()| plan)
    }

    /// Returns the plan of the renewals that run beside the pairs.
    pub fn renewal_plan(entrant: &Entrant, seed: u64) -> Result<Plan> {
        let plan = Plan {
            workload: WorkloadName::Renew,
            connections: 8,
            depth: 1,
            key_count: Self::lease_count(entrant.contestant.identity.system, entrant.options.quick),
            rate: Some(RENEWAL_RATE),
            window: Window::Sliding,
            // Sleeps between requests, because the pairs share the core.
            keeps_samples: true,
            ..slice_plan(&entrant.contestant.address, &entrant.options, seed)?
        };
        plan.check().map(|()| plan)
    }

    /// Returns the number of held leases. Systems in which each lease is a session or a commit hold fewer.
    pub fn lease_count(system: System, is_quick: bool) -> u32 {
        match (system, is_quick) {
            (_, true) => 80,
            (System::Etcd | System::Consul, false) => 1_000,
            (_, false) => 10_000,
        }
    }
}

/// Returns a short name of the shape.
pub fn shape_title(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::Pair => "pairs",
        ContestShape::HandOver => "hand-over",
        ContestShape::ReadMostly => "read mostly",
        ContestShape::ManyWaiters => "many waiters",
        ContestShape::Renewals => "renewals",
    }
}
