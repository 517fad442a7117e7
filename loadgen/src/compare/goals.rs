//! What we want at least, and whether it was reached.

use serde::Serialize;

use super::Comparison;
use super::beside::Beside;
use super::round::Rounds;
use super::row::{FIXED_RATE, is_row};
use crate::address::System;
use crate::options::Window;
use crate::report::Numbers;
use crate::scope::Scope;

/// Throughput against another, in bursts: row, other, at least.
const THROUGHPUT: [(&str, System, f64); 4] = [
    ("50x1", System::Redis, 1.10),
    ("50x1", System::Echo, 0.92),
    ("50x16", System::Redis, 1.9),
    ("50x128", System::Redis, 4.5),
];
/// The same of durable locks.
const LOCAL_THROUGHPUT: [(&str, System, f64); 3] =
    [("50x1", System::Redis, 1.5), ("50x16", System::Redis, 1.5), ("50x1", System::Etcd, 10.0)];
/// Median latency of one durable request beyond that of an echo that syncs.
const LOCAL_EXTRA_NS: f64 = 30_000.0;
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
    match comparison.configuration.scope {
        Scope::Ephemeral => judge_ephemeral(comparison),
        Scope::Local => judge_local(comparison),
    }
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
    let row = comparison.rows.iter().find(|result| is_row(&result.row, shape, Window::Burst, busy_poll))?;
    Some(&row.rounds)
}

fn judge_throughput(comparison: &Comparison, wanted: &[(&str, System, f64)]) -> Vec<Goal> {
    let judge = |&(shape, reference, bound): &(&str, System, f64)| {
        let ratio = find(comparison, shape, false)
            .and_then(|rounds| {
                rounds.ratio(System::Waymaker, reference, |numbers| Some(numbers.requests_per_second))
            })
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
    let memory = comparison
        .memory
        .iter()
        .find(|memory| memory.system == System::Waymaker.name())
        .map(|memory| memory.bytes_per_lock);
    goals.push(Goal::at_most(format!("held lock: at most {BYTES_PER_LOCK} bytes"), memory, BYTES_PER_LOCK));
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
