//! What we want at least, and whether it was reached.

use serde::Serialize;

use super::Comparison;
use super::beside::Beside;
use super::front::Front;
use super::round::Rounds;
use super::row::{FIXED_RATE, is_row};
use crate::address::System;
use crate::options::{Window, WorkloadName};
use crate::report::Numbers;
use crate::scope::Scope;

/// A row, another system, and how many times its number at least.
type AtLeast = (&'static str, System, f64);
/// Throughput against another, in bursts.
const THROUGHPUT: [AtLeast; 4] = [
    ("50x1", System::Redis, 1.10),
    ("50x1", System::Echo, 0.92),
    ("50x16", System::Redis, 1.9),
    ("50x128", System::Redis, 4.5),
];
/// The same of durable locks.
const LOCAL_THROUGHPUT: [AtLeast; 3] =
    [("50x1", System::Redis, 1.5), ("50x16", System::Redis, 1.5), ("50x1", System::Etcd, 10.0)];
/// Acquires that a cluster counts, against writes of the cluster.
const QUORUM_THROUGHPUT: [AtLeast; 1] = [("50x1", System::Etcd, 0.9)];
/// The same of calls by gRPC.
const GRPC_THROUGHPUT: [AtLeast; 4] = [
    ("50x1", System::GrpcEcho, 0.85),
    ("8x16", System::GrpcEcho, 0.85),
    ("50x1", System::Etcd, 4.0),
    ("8x16", System::Etcd, 8.0),
];
/// The same of streams.
const GRPC_STREAM_THROUGHPUT: [AtLeast; 2] = [("50x1", System::Etcd, 4.0), ("8x16", System::Etcd, 8.0)];
/// The same of Locktopus.
const LOCKTOPUS_THROUGHPUT: [AtLeast; 1] = [("50x1", System::WebSocketEcho, 0.8)];
/// Processor time of the server for a call by gRPC, against the bare server, at most.
const GRPC_COST: f64 = 1.2;
/// Memory of a held stream, and of an idle WebSocket, at most.
const BYTES_PER_STREAM: f64 = 12.0 * 1024.0;
const BYTES_PER_WEBSOCKET: f64 = 6.0 * 1024.0;
/// Requests of our client library against those of the raw connection.
const LIBRARY_THROUGHPUT: f64 = 0.95;
/// Median latency of one durable request beyond that of an echo that syncs.
const LOCAL_EXTRA_NS: f64 = 30_000.0;
/// Median latency of one acquire that a cluster counts beyond that of a write of the cluster.
const QUORUM_EXTRA_NS: f64 = 150_000.0;
/// 99th percentile of requests in memory beside durable ones, against alone, at most.
const BESIDE_RATIO: f64 = 1.5;
/// Median latency of one connection that is polled, against Redis, at most.
const BUSY_LATENCY: f64 = 0.5;
/// Memory of a held lock with a key of 16 bytes, at most.
const BYTES_PER_LOCK: f64 = 112.0;
/// What a hand-over may take beyond a round trip.
const HAND_OVER_EXTRA_NS: f64 = 50_000.0;

/// One goal.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What is wanted.
    pub what: String,
    /// What was measured.
    pub measured: Option<f64>,
    /// It was reached; `None` if it was not measured.
    pub is_met: Option<bool>,
}

impl Goal {
    fn at_least(what: String, measured: Option<f64>, bound: f64) -> Self {
        Self { what, measured, is_met: measured.map(|measured| measured >= bound) }
    }

    fn at_most(what: String, measured: Option<f64>, bound: f64) -> Self {
        Self { what, measured, is_met: measured.map(|measured| measured <= bound) }
    }

    /// `met`, `missed` or `not measured`.
    pub fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }
}

/// All of them.
pub fn judge(comparison: &Comparison) -> Vec<Goal> {
    if let Some(library) = &comparison.library {
        let ratio = library.ratio().map(|spread| spread.median);
        let what = "1x1: requests of the client library at least 0.95 x those of the raw connection";
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
        "1x1: p50 at most that of a put of etcd + 150 us (measured: ns beyond it)".to_owned(),
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
        "1x1: p50 at most that of an echo that syncs + 30 us (measured: ns beyond it)".to_owned(),
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
        // Of a front end there is one row of each shape.
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
            let what = format!("{shape}: server processor time of a call at most {GRPC_COST} x grpc-echo");
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
        format!("at {FIXED_RATE} requests/s: server processor time of a request below redis"),
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

/// Processor time of the server for one request.
pub fn server_ns_per_request(numbers: &Numbers) -> Option<f64> {
    Some(numbers.cpu.server? * 1e9 / numbers.requests_per_second)
}
