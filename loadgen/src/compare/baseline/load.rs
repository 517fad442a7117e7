//! Loads of a comparison of two builds, and the numbers compared in each.

use anyhow::Result;
use serde::Serialize;

use super::yardstick::Yardstick;
use crate::address::Address;
use crate::compare::hot::{WAITERS, hot_plan};
use crate::compare::options::CompareOptions;
use crate::compare::row::Row;
use crate::plan::Plan;
use crate::scope::Scope;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Pairs of random keys: a row of `compare`.
    Pairs(Row),
    /// All connections contend for one key.
    HotKey,
}

impl Load {
    /// Returns all loads for these options: the rows of `compare`, and the hot key for ephemeral locks of the
    /// binary protocol.
    pub fn all(options: &CompareOptions) -> Vec<Self> {
        let has_hot_key = options.front.is_none() && options.scope == Scope::Ephemeral;
        let rows = Row::all(options).into_iter().map(Self::Pairs);
        rows.chain(has_hot_key.then_some(Self::HotKey)).collect()
    }

    /// Returns the name in tables.
    pub fn title(self) -> String {
        match self {
            Self::Pairs(row) => row.title(),
            Self::HotKey => format!("hot key, {WAITERS} connections"),
        }
    }

    /// Whether server and client busy-poll.
    pub fn spins(self) -> bool {
        matches!(self, Self::Pairs(row) if row.busy_poll)
    }

    /// Whether the load has a fixed rate; otherwise it sends as fast as the server responds.
    pub fn has_rate(self) -> bool {
        matches!(self, Self::Pairs(row) if row.rate.is_some())
    }

    /// Returns the numbers by which the builds are compared; each becomes one row of the table.
    pub fn yardsticks(self) -> &'static [Yardstick] {
        match self {
            Self::HotKey => &[Yardstick::HandOverP50],
            // At a fixed rate, requests per second carry no information; for a busy-polling server, CPU time
            // carries none.
            Self::Pairs(row) if row.rate.is_some() => &[Yardstick::ServerCpu],
            Self::Pairs(row) if row.busy_poll => &[Yardstick::LatencyP50],
            // The client of a front end costs more than the server, so requests per second alone would hide most
            // differences.
            Self::Pairs(row) if row.front.is_some() => &[Yardstick::Requests, Yardstick::ServerCpu],
            Self::Pairs(_) => &[Yardstick::Requests],
        }
    }

    /// Returns the plan of one slice of this load.
    pub fn plan(self, address: &Address, options: &CompareOptions, seed: u64) -> Result<Plan> {
        match self {
            Self::Pairs(row) => row.plan(address, options, seed),
            Self::HotKey => hot_plan(address, options, seed),
        }
    }
}
