//! Performance goals, and whether a comparison met them.

use serde::Serialize;

use super::Comparison;
use super::beside::Beside;
use super::front::Front;
use super::round::Rounds;
use super::row::{FIXED_RATE, is_row};
use crate::options::{Window, WorkloadName};
use crate::report::Numbers;
use crate::scope::Scope;
use crate::system::System;

/// A row, a reference system, and the minimum ratio to it.
type AtLeast = (&'static str, System, f64);
/// Minimum ratios of throughput for locks in memory, in bursts.
const THROUGHPUT: [AtLeast; 4] = [
    ("50x1", System::Redis, 1.10),
    ("50x1", System::Echo, 0.92),
    ("50x16", System::Redis, 1.9),
    ("50x128", System::Redis, 4.5),
];
/// Minimum ratios of throughput for durable locks.
const LOCAL_THROUGHPUT: [AtLeast; 3] =
    [("50x1", System::Redis, 1.5), ("50x16", System::Redis, 1.5), ("50x1", System::Etcd, 10.0)];
/// Minimum ratio of quorum acquires to writes of the cluster.
const QUORUM_THROUGHPUT: [AtLeast; 1] = [("50x1", System::Etcd, 0.9)];
/// Minimum ratios of throughput for gRPC calls.
const GRPC_THROUGHPUT: [AtLeast; 4] = [
    ("50x1", System::GrpcEcho, 0.85),
    ("8x16", System::GrpcEcho, 0.85),
    ("50x1", System::Etcd, 4.0),
    ("8x16", System::Etcd, 8.0),
];
/// Minimum ratios of throughput for gRPC streams.
const GRPC_STREAM_THROUGHPUT: [AtLeast; 2] = [("50x1", System::Etcd, 4.0), ("8x16", System::Etcd, 8.0)];
/// Minimum ratio of throughput for Locktopus.
const LOCKTOPUS_THROUGHPUT: [AtLeast; 1] = [("50x1", System::WebSocketEcho, 0.8)];
/// Maximum ratio of the server's CPU time per gRPC call to the bare server.
const GRPC_COST: f64 = 1.2;
/// Maximum memory of a held stream and of an idle WebSocket.
const BYTES_PER_STREAM: f64 = 12.0 * 1024.0;
const BYTES_PER_WEBSOCKET: f64 = 6.0 * 1024.0;
/// Minimum ratio of the client library's requests to the requests of the raw connection.
const LIBRARY_THROUGHPUT: f64 = 0.95;
/// Maximum median latency of a durable request beyond the latency of a syncing echo server.
const LOCAL_EXTRA_NS: f64 = 30_000.0;
/// Maximum median latency of a quorum acquire beyond the latency of a write of the cluster.
const QUORUM_EXTRA_NS: f64 = 150_000.0;
/// Maximum ratio of the 99th percentile of requests in memory: beside a durable load to alone.
const BESIDE_RATIO: f64 = 1.5;
/// Maximum ratio of the median latency of one busy-polling connection to Redis.
const BUSY_LATENCY: f64 = 0.5;
/// Maximum memory of a held lock with a key of 16 bytes.
const BYTES_PER_LOCK: f64 = 112.0;
/// Maximum time of a hand-over beyond a round trip.
const HAND_OVER_EXTRA_NS: f64 = 50_000.0;

/// One goal.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// Description of the goal.
    pub what: String,
    /// Measured value; `None` if it was not measured.
    pub measured: Option<f64>,
    /// Whether the goal was met; `None` if it was not measured.
    pub is_met: Option<bool>,
}

impl Goal {
    fn at_least(what: String, measured: Option<f64>, bound: f64) -> Self {
        Self { what, measured, is_met: measured.map(|measured| measured >= bound) }
    }

    fn at_most(what: String, measured: Option<f64>, bound: f64) -> Self {
        Self { what, measured, is_met: measured.map(|measured| measured <= bound) }
    }

    /// Returns `met`, `missed` or `not measured`.
    pub fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }
}

/// Evaluates all goals of a comparison.
pub fn judge(comparison: &Comparison) -> Vec<Goal> {
    if let Some(library) = &comparison.library {
        let ratio = library.ratio().map(|spread| spread.median);
        let what = "1x1: requests of the client library at least 0.95 x the raw connection";
        return vec![Goal::at_least(what.to_owned(), ratio, LIBRARY_THROUGHPUT)];
    }
    match (comparison.configuration.front, comparison.configuration.scope) {
        (Some(front), _) => judge_front(comparison, front),
        (None, Scope::Ephemeral) => judge_ephemeral(comparison),
        (None, Scope::Local) => judge_local(comparison),
        (None, Scope::Quorum) => judge_quorum(comparison),
    }
}

fn judge_quorum(comparison: &Comparison) -> Vec<Goal> {
    let extra = find(comparison, "1x1", false)
        .and_then(|rounds| {
            rounds.difference(System::Waymaker, System::Etcd, |numbers| Some(numbers.latency.p50_ns as f64))
        })
        .map(|spread| spread.median);
    let mut goals = judge_throughput(comparison, &QUORUM_THROUGHPUT);
    goals.push(Goal::at_most(
        "1x1: p50 at most the p50 of an etcd put + 150 us (measured: ns beyond it)".to_owned(),
        extra,
        QUORUM_EXTRA_NS,
    ));
    goals
}

fn judge_local(comparison: &Comparison) -> Vec<Goal> {
    let mut goals = judge_throughput(comparison, &LOCAL_THROUGHPUT);
    let extra = find(comparison, "1x1", false)
        .and_then(|rounds| {
            rounds.difference(System::Waymaker, System::Echo, |numbers| Some(numbers.latency.p50_ns as f64))
        })
        .map(|spread| spread.median);
    goals.push(Goal::at_most(
        "1x1: p50 at most the p50 of a syncing echo server + 30 us (measured: ns beyond it)".to_owned(),
        extra,
        LOCAL_EXTRA_NS,
    ));
    let ratio = comparison.beside.as_ref().and_then(Beside::p99_ratio).map(|spread| spread.median);
    goals.push(Goal::at_most(
        format!("ephemeral beside a saturated local load: p99 at most {BESIDE_RATIO} x alone"),
        ratio,
        BESIDE_RATIO,
    ));
    goals
}

fn find<'a>(comparison: &'a Comparison, shape: &str, busy_poll: bool) -> Option<&'a Rounds> {
    let row = comparison.rows.iter().find(|result| {
        // A front end has only one row of each shape.
        let window = if result.row.front.is_some() { result.row.window } else { Window::Burst };
        is_row(&result.row, shape, window, busy_poll)
    })?;
    Some(&row.rounds)
}

fn judge_front(comparison: &Comparison, front: Front) -> Vec<Goal> {
    let wanted: &[AtLeast] = match front {
        Front::Grpc => &GRPC_THROUGHPUT,
        Front::GrpcStream => &GRPC_STREAM_THROUGHPUT,
        Front::Locktopus => &LOCKTOPUS_THROUGHPUT,
    };
    let mut goals = judge_throughput(comparison, wanted);
    match front {
        Front::Grpc => goals.extend(["50x1", "8x16"].map(|shape| {
            let ratio = find(comparison, shape, false)
                .and_then(|rounds| rounds.ratio(System::Grpc, System::GrpcEcho, server_ns_per_request))
                .map(|spread| spread.median);
            let what = format!("{shape}: server CPU per call at most {GRPC_COST} x grpc-echo");
            Goal::at_most(what, ratio, GRPC_COST)
        })),
        Front::GrpcStream => goals.push(judge_memory(comparison, System::Grpc, BYTES_PER_STREAM)),
        Front::Locktopus => goals.push(judge_memory(comparison, System::Locktopus, BYTES_PER_WEBSOCKET)),
    }
    goals
}

fn judge_memory(comparison: &Comparison, system: System, bound: f64) -> Goal {
    let memory = comparison.memory.iter().find(|memory| memory.system == system.name());
    let what = match comparison.configuration.front.and_then(Front::footprint) {
        None => "held lock",
        Some(WorkloadName::Idle) => "idle WebSocket",
        Some(_) => "held stream",
    };
    let measured = memory.map(|memory| memory.footprint.bytes_each);
    Goal::at_most(format!("{what}: at most {bound} bytes"), measured, bound)
}

fn judge_throughput(comparison: &Comparison, wanted: &[AtLeast]) -> Vec<Goal> {
    let ours = comparison.configuration.front.map_or(System::Waymaker, Front::ours);
    let judge = |&(shape, reference, bound): &AtLeast| {
        let ratio = find(comparison, shape, false)
            .and_then(|rounds| rounds.ratio(ours, reference, |numbers| Some(numbers.timed_per_second)))
            .map(|spread| spread.median);
        Goal::at_least(format!("{shape}: at least {bound} x {}", reference.name()), ratio, bound)
    };
    wanted.iter().map(judge).collect()
}

fn judge_ephemeral(comparison: &Comparison) -> Vec<Goal> {
    let mut goals = judge_throughput(comparison, &THROUGHPUT);
    let busy = find(comparison, "1x1", true)
        .and_then(|rounds| {
            rounds.ratio(System::Waymaker, System::Redis, |numbers| Some(numbers.latency.p50_ns as f64))
        })
        .map(|spread| spread.median);
    goals.push(Goal::at_most(
        format!("1x1 busy polling: p50 at most {BUSY_LATENCY} x redis"),
        busy,
        BUSY_LATENCY,
    ));
    let cpu = comparison
        .rows
        .iter()
        .find(|result| result.row.rate.is_some())
        .and_then(|result| result.rounds.ratio(System::Waymaker, System::Redis, server_ns_per_request))
        .map(|spread| spread.median);
    goals.push(Goal::at_most(
        format!("at {FIXED_RATE} requests/s: server CPU per request below redis"),
        cpu,
        1.0,
    ));
    goals.push(judge_memory(comparison, System::Waymaker, BYTES_PER_LOCK));
    let extra = comparison.hot.as_ref().and_then(|hot| {
        Some(hot.hand_over_p50_ns(System::Waymaker)? - hot.round_trip_p50_ns(System::Waymaker)?)
    });
    goals.push(Goal::at_most(
        "hot key, 64 waiters: hand-over p50 at most a round trip + 50 us (measured: ns beyond the round trip)".to_owned(),
        extra,
        HAND_OVER_EXTRA_NS,
    ));
    goals
}

/// Returns the CPU time of the server per request, in nanoseconds.
pub fn server_ns_per_request(numbers: &Numbers) -> Option<f64> {
    Some(numbers.cpu.server? * 1e9 / numbers.requests_per_second)
}
