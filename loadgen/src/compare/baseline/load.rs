//! The loads that both builds serve, and by which numbers the builds are compared in each.

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
    /// All loads for these options: the rows of `compare`, and the hot key for ephemeral locks of the binary protocol.
    pub fn all(options: &CompareOptions) -> Vec<Self> {
        let has_hot_key = options.front.is_none() && options.scope == Scope::Ephemeral;
        let rows = Row::all(options).into_iter().map(Self::Pairs);
        rows.chain(has_hot_key.then_some(Self::HotKey)).collect()
    }

    /// The name in tables.
    pub fn title(self) -> String {
        match self {
            Self::Pairs(row) => row.title(),
            Self::HotKey => format!("hot key, {WAITERS} connections"),
        }
    }

    /// True if neither server nor client ever sleeps.
    pub fn spins(self) -> bool {
        matches!(self, Self::Pairs(row) if row.busy_poll)
    }

    /// True if the load keeps a rate; otherwise it sends as fast as the server answers.
    pub fn has_rate(self) -> bool {
        matches!(self, Self::Pairs(row) if row.rate.is_some())
    }

    /// The numbers by which the builds are compared; each becomes one row of the table.
    pub fn yardsticks(self) -> &'static [Yardstick] {
        match self {
            Self::HotKey => &[Yardstick::HandOverP50],
            // Requests a second say nothing at a fixed rate, nor the processor time of a server that spins.
            Self::Pairs(row) if row.rate.is_some() => &[Yardstick::ServerCpu],
            Self::Pairs(row) if row.busy_poll => &[Yardstick::LatencyP50],
            // The client of a front end costs more than the server, so requests a second alone would show little.
            Self::Pairs(row) if row.front.is_some() => &[Yardstick::Requests, Yardstick::ServerCpu],
            Self::Pairs(_) => &[Yardstick::Requests],
        }
    }

    /// One slice of this load.
    pub fn plan(self, address: &Address, options: &CompareOptions, seed: u64) -> Result<Plan> {
        match self {
            Self::Pairs(row) => row.plan(address, options, seed),
            Self::HotKey => hot_plan(address, options, seed),
        }
    }
}
