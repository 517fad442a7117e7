//! What a contest found: all that the text, the JSON file and the page are made of.

use serde::{Deserialize, Serialize};

use crate::latencies::{Latencies, Percentiles};
use crate::machine::Machine;

/// Everything that was found.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contest {
    /// Where it was measured, and when.
    pub machine: Machine,
    /// The command line that does it again.
    pub command: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Rounds of each measurement; in each every contestant has one slice.
    pub rounds: u32,
    /// Length of one slice.
    pub slice_ms: u64,
    /// How long all of it took.
    pub took_s: f64,
    /// It was ended early: what is here was measured, and more was planned.
    pub is_partial: bool,
    /// In the order in which they were asked for; the first is the one that others are compared with.
    pub contestants: Vec<Contestant>,
    /// Of each shape, each load of it, and each contestant, in this order.
    pub measurements: Vec<Measurement>,
    /// Memory of the servers.
    pub memory: Vec<Memory>,
    /// What should be read beside the numbers.
    pub notes: Vec<String>,
}

/// A system that takes part, or would have.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contestant {
    /// The scheme of its addresses, such as `redis`.
    pub name: String,
    /// As the server says it.
    pub version: String,
    /// How a lock is taken and given back there.
    pub lock: String,
    /// What a lock of it outlives, such as the server's end.
    pub outlives: String,
    /// Why it does not take part.
    pub absent: Option<String>,
}

/// What the connections do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContestShape {
    /// Acquire a random key and release it, nobody in the way.
    Pair,
    /// All contend for one key.
    HandOver,
    /// Readers and few writers over few keys.
    ReadMostly,
    /// Many wait for one key.
    ManyWaiters,
    /// Many leases are renewed at a fixed rate while pairs go on.
    Renewals,
}

/// One load of one contestant.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measurement {
    /// What the connections did.
    pub shape: ContestShape,
    /// The name of who was loaded.
    pub contestant: String,
    /// How many connections there were.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Requests a second; `None`: each connection sends the next one once it has its answer.
    pub rate: Option<u64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of one load.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Measured>),
    /// The system does not offer this; why.
    NotOffered(String),
    /// It could not be measured; why.
    Failed(String),
}

/// The figures of one load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// Answers a second, the median of all rounds.
    pub requests_per_s: f64,
    /// The same of each round.
    pub rounds: Vec<f64>,
    /// From a request to its answer, of all rounds together.
    pub latency: Distribution,
    /// From one holder's release to the next one's grant, where that is measured.
    pub hand_over: Option<Distribution>,
    /// From when a renewal was due to its answer, where leases are renewed beside.
    pub renewal: Option<Distribution>,
    /// Time of processors that the server took for each answer, where its process is known.
    pub server_cpu_us_per_request: Option<f64>,
    /// Answers that were wrong, in words; whatever else is said here is not to be trusted then.
    pub faults: Vec<String>,
}

/// Latencies.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Distribution {
    /// The points that tables name.
    pub percentiles: Percentiles,
    /// For a plot: percentiles (50.0, 99.9, ...), rising, and the latency in nanoseconds at each.
    pub curve: Vec<(f64, u64)>,
}

/// Points of a curve between a percentile and the one with one nine more.
const POINTS_PER_NINE: u32 = 8;
/// Nines of the last point of a curve.
const NINES_MAX: u32 = 5;

impl Distribution {
    /// Of what was measured. The curve ends where single latencies begin.
    pub fn of(latencies: &Latencies) -> Self {
        let points = (0..=NINES_MAX * POINTS_PER_NINE)
            .map(|point| 10_f64.powf(-f64::from(point) / f64::from(POINTS_PER_NINE)))
            .take_while(|rest| latencies.count() as f64 * rest >= 1.0);
        let curve = points.map(|rest| ((1.0 - rest) * 100.0, latencies.at(1.0 - rest))).collect();
        Self { percentiles: latencies.percentiles(), curve }
    }
}

/// How much memory locks take.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Memory {
    /// The name of whose server it is.
    pub contestant: String,
    /// How many locks were held.
    pub lock_count: u64,
    /// What the server's resident memory grew by, divided by their number.
    pub bytes_per_lock: f64,
}
