//! Results of a contest: the source of the text, the JSON file and the page.

use serde::{Deserialize, Serialize};

use crate::latencies::{Latencies, Percentiles};
use crate::machine::Machine;

/// All results.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contest {
    /// Machine and date of the measurement.
    pub machine: Machine,
    /// Command line that repeats the contest.
    pub command: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of rounds of each measurement; in each round every contestant has one slice.
    pub rounds: u32,
    /// Length of one slice, in milliseconds.
    pub slice_ms: u64,
    /// Duration of the whole contest, in seconds.
    pub took_s: f64,
    /// Whether the contest was interrupted, so that some planned measurements are missing.
    pub is_partial: bool,
    /// Contestants in the requested order; the others are compared with the first.
    pub contestants: Vec<Contestant>,
    /// Measurements, ordered by shape, load and contestant.
    pub measurements: Vec<Measurement>,
    /// Memory of the servers.
    pub memory: Vec<Memory>,
    /// Notes for readers of the numbers.
    pub notes: Vec<String>,
}

/// A system that takes part, or is missing.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contestant {
    /// Name of the contestant, such as `redis`.
    pub name: String,
    /// Version that the server reports.
    pub version: String,
    /// How a lock is acquired and released.
    pub lock: String,
    /// Failures that a lock survives, such as a crash of the server.
    pub outlives: String,
    /// Why the system is missing; `None` if it takes part.
    pub absent: Option<String>,
}

/// Shape of a load.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContestShape {
    /// Acquires and releases of random keys, without contention.
    Pair,
    /// All contend for one key.
    HandOver,
    /// Readers and few writers on few keys.
    ReadMostly,
    /// Many connections wait for one key.
    ManyWaiters,
    /// Many leases are renewed at a fixed rate while pairs run.
    Renewals,
}

/// One load of one contestant.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measurement {
    /// Shape of the load.
    pub shape: ContestShape,
    /// Name of the contestant.
    pub contestant: String,
    /// Number of connections.
    pub connections: u32,
    /// Number of requests in flight on each.
    pub depth: u32,
    /// Requests per second; `None` is a closed loop, in which each connection sends the next request after a
    /// response.
    pub rate: Option<u64>,
    /// Outcome of the load.
    pub outcome: Outcome,
}

/// Outcome of one load.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The load was measured.
    Measured(Box<Measured>),
    /// The system does not offer this load; with the reason.
    NotOffered(String),
    /// The load could not be measured; with the reason.
    Failed(String),
}

/// Numbers of one load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// Responses per second, median of all rounds.
    pub requests_per_s: f64,
    /// Responses per second of each round.
    pub rounds: Vec<f64>,
    /// Time from a request to its response, over all rounds.
    pub latency: Distribution,
    /// Time from a release to the next grant, if it is measured.
    pub hand_over: Option<Distribution>,
    /// Time from the due time of a renewal to its response, if leases are renewed.
    pub renewal: Option<Distribution>,
    /// CPU time of the server per response in microseconds, if its process is known.
    pub server_cpu_us_per_request: Option<f64>,
    /// Wrong responses, in words. If there are any, the other numbers of this load are not trustworthy.
    pub faults: Vec<String>,
}

/// Latencies.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Distribution {
    /// Percentiles for tables.
    pub percentiles: Percentiles,
    /// Points for a plot: rising percentiles (50.0, 99.9, ...), and the latency in nanoseconds at each.
    pub curve: Vec<(f64, u64)>,
}

/// Number of points of a curve per nine.
const POINTS_PER_NINE: u32 = 8;
/// Number of nines of the last point of a curve.
const NINES_MAX: u32 = 5;

impl Distribution {
    /// Returns the distribution of these latencies. The curve ends before it would show single latencies.
    pub fn of(latencies: &Latencies) -> Self {
        let points = (0..=NINES_MAX * POINTS_PER_NINE)
            .map(|point| 10_f64.powf(-f64::from(point) / f64::from(POINTS_PER_NINE)))
            .take_while(|rest| latencies.count() as f64 * rest >= 1.0);
        let curve = points.map(|rest| ((1.0 - rest) * 100.0, latencies.at(1.0 - rest))).collect();
        Self { percentiles: latencies.percentiles(), curve }
    }
}

/// Memory of held locks.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Memory {
    /// Name of the contestant.
    pub contestant: String,
    /// Number of held locks.
    pub lock_count: u64,
    /// Growth of the server's resident memory, divided by the number of locks.
    pub bytes_per_lock: f64,
}
