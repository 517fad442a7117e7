//! Output of a `run`.

use serde::Serialize;

use crate::cpu::CpuShares;
use crate::faults::Faults;
use crate::latencies::Percentiles;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::threads::Outcome;
use crate::units::{show_percent, show_rate};
use crate::workload::Allowed;

/// CPU use above which a core counts as fully busy.
pub const CPU_FULL: f64 = 0.95;
/// CPU use of other processes, in cores, above which they distort the measurement.
pub const OTHER_CPU_MAX: f64 = 0.1;
/// Share of its rate below which an open loop does not keep up.
pub const RATE_REACHED: f64 = 0.99;

/// Results of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Numbers {
    /// Length of the measurement.
    pub measured_seconds: f64,
    /// Acquires and releases per second.
    pub requests_per_second: f64,
    /// Half of the requests per second.
    pub pairs_per_second: f64,
    /// Acquires per second that were answered busy and sent again; not included in the requests.
    pub polls_per_second: f64,
    /// Latency of each request; in workloads with contention, of each acquire.
    pub latency: Percentiles,
    /// Number of these latencies per second.
    pub timed_per_second: f64,
    /// Time from a release to the next grant.
    pub hand_over: Option<Percentiles>,
    /// Tokens that the limiter allowed.
    pub allowed: Option<Allowed>,
    /// CPU use of the server, the load generator and other processes.
    pub cpu: CpuShares,
    /// Wrong responses.
    pub faults: Faults,
}

impl Numbers {
    /// Computes the results of an outcome.
    pub fn from_outcome(outcome: &Outcome) -> Self {
        let seconds = outcome.measured.as_secs_f64().max(1e-9);
        let requests_per_second = outcome.request_count as f64 / seconds;
        Self {
            measured_seconds: seconds,
            requests_per_second,
            pairs_per_second: requests_per_second / 2.0,
            polls_per_second: outcome.poll_count as f64 / seconds,
            latency: outcome.latency.percentiles(),
            timed_per_second: outcome.latency.percentiles().count as f64 / seconds,
            hand_over: outcome.hand_over.as_ref().map(crate::latencies::Latencies::percentiles),
            allowed: outcome.allowed,
            cpu: outcome.cpu,
            faults: outcome.faults.clone(),
        }
    }

    /// Whether the load generator was the bottleneck.
    pub fn is_load_bound(&self, plan: &Plan) -> bool {
        let load_is_full = self.cpu.load >= CPU_FULL * f64::from(plan.threads);
        // A spinning client is always busy, so its CPU use carries no information.
        !plan.spin && plan.rate.is_none() && load_is_full && self.cpu.server.is_none_or(|cpu| cpu < CPU_FULL)
    }
}

/// Plan, machine and results of one `run`.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    plan: Plan,
    result: Numbers,
}

impl Report {
    /// Creates the report of a load on this machine.
    pub fn new(plan: Plan, numbers: Numbers) -> Self {
        Self { machine: Machine::this(), plan, result: numbers }
    }

    /// Formats the report for people.
    pub fn describe(&self) -> String {
        let Self { machine, plan, result } = self;
        let mut lines = vec![format!("{}", plan.describe()), machine.describe(), String::new()];
        let requests = show_rate(result.requests_per_second);
        match result.allowed {
            Some(allowed) => {
                lines.push(format!("throughput  {requests} requests"));
                lines.push(format!(
                    "allowed     {} of {}, the limit is {}",
                    allowed.allowed_count, allowed.asked_count, allowed.allowed_count_max
                ));
            }
            None => {
                let pairs = show_rate(result.pairs_per_second);
                lines.push(format!("throughput  {requests} requests ({pairs} pairs)"));
            }
        }
        let of_what = if plan.workload.contends() { "acquire   " } else { "latency   " };
        lines.push(format!("{of_what}  {}", result.latency.describe()));
        if let Some(hand_over) = &result.hand_over {
            lines.push(format!("hand-over   {}", hand_over.describe()));
        }
        if result.polls_per_second > 0.0 {
            lines.push(format!(
                "polls       {} acquires answered busy and retried",
                show_rate(result.polls_per_second)
            ));
        }
        let server = result.cpu.server.map_or_else(
            || "unknown (the server is not a process of this machine that this user may inspect)".to_owned(),
            show_percent,
        );
        lines
            .push(format!("CPU         server {server}, load {} of one core", show_percent(result.cpu.load)));
        if result.is_load_bound(plan) {
            lines.push(
                "note        the load generator was the bottleneck: its core was fully busy, the server was \
                 not"
                .to_owned(),
            );
        }
        if let Some(other) = result.cpu.other.filter(|other| *other > OTHER_CPU_MAX) {
            lines.push(format!(
                "note        other processes used {} of one core during the run; the numbers are unreliable",
                show_percent(other)
            ));
        }
        if let Some(rate) = plan.rate
            && result.requests_per_second < RATE_REACHED * rate as f64
        {
            lines.push(format!(
                "note        the server did not keep up with the rate of {}",
                show_rate(rate as f64)
            ));
        }
        match result.faults.count() {
            0 => lines.push("responses   all checked, none wrong".to_owned()),
            count => {
                lines.push(format!("WRONG       {count} responses\n{}", result.faults.describe().trim_end()));
            }
        }
        lines.join("\n")
    }
}
