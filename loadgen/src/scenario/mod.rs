//! Workloads that are a story with a beginning and an end: who comes, what happens to them, and what others notice.

mod bystanders;
mod churn;
mod client;
mod crowd;
mod expiry_storm;
mod readers_storm;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::faults::Faults;
use crate::machine::Machine;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::report::write_json;

/// What one such workload showed.
trait Findings: Serialize {
    /// For people, a line each.
    fn describe(&self) -> Vec<String>;

    /// What was wrong.
    fn faults(&self) -> &Faults;
}

#[derive(Serialize)]
struct Report<'a, F> {
    machine: &'a Machine,
    plan: &'a Plan,
    result: &'a F,
}

/// Plays it and reports. Says by its exit code whether all was right.
pub fn run(plan: &Plan, json: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    plan.check()?;
    match plan.workload {
        WorkloadName::Churn => report(plan, json, &churn::run(plan, stop)?),
        WorkloadName::ExpiryStorm => report(plan, json, &expiry_storm::run(plan, stop)?),
        WorkloadName::ReadersStorm => report(plan, json, &readers_storm::run(plan, stop)?),
        _ => bail!("the workload {} is no scenario", plan.workload.name()),
    }
}

fn report(plan: &Plan, json: Option<&Path>, findings: &impl Findings) -> Result<ExitCode> {
    let machine = Machine::this();
    println!("{}\n{}\n", plan.describe(), machine.describe());
    for line in findings.describe() {
        println!("{line}");
    }
    let faults = findings.faults();
    match faults.count() {
        0 => println!("answers     all checked, none wrong"),
        count => println!("WRONG       {count} answers\n{}", faults.describe().trim_end()),
    }
    if let Some(path) = json {
        write_json(path, &Report { machine: &machine, plan, result: findings })?;
    }
    Ok(if faults.count() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
