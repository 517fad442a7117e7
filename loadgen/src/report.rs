//! What a `run` prints and writes.

use serde::Serialize;

use crate::cpu::CpuShares;
use crate::faults::Faults;
use crate::latencies::Percentiles;
use crate::load::Outcome;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::units::{show_percent, show_rate};
use crate::workload::Allowed;

/// A core that is busy for so much of the time has nothing left to give.
pub const CPU_FULL: f64 = 0.95;
/// Where others keep more of a core busy, what is measured is also them.
pub const OTHER_CPU_MAX: f64 = 0.1;
/// An open loop that answers less than so much of its rate does not keep up.
pub const RATE_REACHED: f64 = 0.99;

/// The numbers of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Numbers {
    /// For how long it was measured.
    pub measured_seconds: f64,
    /// Acquires and releases.
    pub requests_per_second: f64,
    /// Half of them.
    pub pairs_per_second: f64,
    /// Acquires that were answered busy and sent again; not among the requests.
    pub polls_per_second: f64,
    /// Of each request, or in workloads that contend of each acquire.
    pub latency: Percentiles,
    /// How many of them there were, a second.
    pub timed_per_second: f64,
    /// From one release to the next grant.
    pub hand_over: Option<Percentiles>,
    /// What the limiter gave.
    pub allowed: Option<Allowed>,
    /// Who kept how many cores busy.
    pub cpu: CpuShares,
    /// What was wrong.
    pub faults: Faults,
}

impl Numbers {
    /// The numbers of an outcome.
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

    /// Whether this client was what kept the load from being larger.
    pub fn is_load_bound(&self, plan: &Plan) -> bool {
        let load_is_full = self.cpu.load >= CPU_FULL * f64::from(plan.threads);
        // A client that spins is always busy, which says nothing.
        !plan.spin && plan.rate.is_none() && load_is_full && self.cpu.server.is_none_or(|cpu| cpu < CPU_FULL)
    }
}

/// One `run`, complete.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    plan: Plan,
    result: Numbers,
}

impl Report {
    /// Of this load, on this machine.
    pub fn new(plan: Plan, numbers: Numbers) -> Self {
        Self { machine: Machine::this(), plan, result: numbers }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let Self { machine, plan, result } = self;
        let mut lines = vec![format!("{}", plan.describe()), machine.describe(), String::new()];
        let requests = show_rate(result.requests_per_second);
        match result.allowed {
            Some(allowed) => {
                lines.push(format!("throughput  {requests} requests"));
                lines.push(format!(
                    "allowed     {} of {}, at most {} can be right",
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
            lines.push(format!("polls       {} acquires answered busy", show_rate(result.polls_per_second)));
        }
        let server = result.cpu.server.map_or_else(
            || "unknown (no process of this machine that may be looked at listens there)".to_owned(),
            show_percent,
        );
        lines
            .push(format!("processor   server {server}, load {} of one core", show_percent(result.cpu.load)));
        if result.is_load_bound(plan) {
            lines.push(
                "note        the load was the bottleneck, not the server: its core was full".to_owned(),
            );
        }
        if let Some(other) = result.cpu.other.filter(|other| *other > OTHER_CPU_MAX) {
            lines.push(format!(
                "note        something else kept {} of one core busy: the numbers are worth little",
                show_percent(other)
            ));
        }
        if let Some(rate) = plan.rate
            && result.requests_per_second < RATE_REACHED * rate as f64
        {
            lines.push(format!("note        the rate of {} was not reached", show_rate(rate as f64)));
        }
        match result.faults.count() {
            0 => lines.push("answers     all checked, none wrong".to_owned()),
            count => {
                lines.push(format!("WRONG       {count} answers\n{}", result.faults.describe().trim_end()));
            }
        }
        lines.join("\n")
    }
}
