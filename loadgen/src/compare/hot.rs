//! One contended key: the time from a release to the grant of the next waiter.

use anyhow::Result;
use serde::Serialize;

use super::options::CompareOptions;
use super::round::Rounds;
use super::row::slice_plan;
use super::session::{Contestant, Session};
use crate::address::Address;
use crate::options::{Window, WorkloadName};
use crate::plan::Plan;
use crate::report::Numbers;
use crate::system::System;

/// Number of contending connections.
pub const WAITERS: u32 = 64;

/// Hand-over times of each target, and its round trip for comparison.
#[derive(Clone, Debug, Serialize)]
pub struct HotRow {
    /// All connections contend for one key.
    pub hot: Rounds,
    /// One connection, one request at a time, without contention.
    pub round_trip: Rounds,
}

/// Returns the plan of a slice in which all connections contend for one key.
pub fn hot_plan(address: &Address, options: &CompareOptions, seed: u64) -> Result<Plan> {
    Ok(Plan {
        workload: WorkloadName::Hot,
        key_count: 1,
        connections: WAITERS,
        window: Window::Sliding,
        ..slice_plan(address, options, seed)?
    })
}

impl HotRow {
    /// Measures the systems that hold locks.
    pub fn measure(session: &Session<'_>, contestants: &[Contestant], rounds: u32) -> Result<Self> {
        let holders: Vec<&Contestant> =
            contestants.iter().filter(|contestant| contestant.identity.system != System::Echo).collect();
        let hot = Rounds::measure(session, &holders, rounds, |contestant, seed| {
            hot_plan(&contestant.address, session.options, seed)
        })?;
        let round_trip = Rounds::measure(session, &holders, rounds, |contestant, seed| {
            slice_plan(&contestant.address, session.options, seed)
        })?;
        Ok(Self { hot, round_trip })
    }

    /// Returns the median of the hand-over's p50.
    pub fn hand_over_p50_ns(&self, system: System) -> Option<f64> {
        self.hot.median(system, |numbers| Some(numbers.hand_over?.p50_ns as f64))
    }

    /// Returns the median of the hand-over's p99.
    pub fn hand_over_p99_ns(&self, system: System) -> Option<f64> {
        self.hot.median(system, |numbers| Some(numbers.hand_over?.p99_ns as f64))
    }

    /// Returns the median of the round trip's p50.
    pub fn round_trip_p50_ns(&self, system: System) -> Option<f64> {
        self.round_trip.median(system, |numbers: &Numbers| Some(numbers.latency.p50_ns as f64))
    }
}
