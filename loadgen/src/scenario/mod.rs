//! Scenarios: workloads with several phases, and their effect on bystanders.

mod bystanders;
mod churn;
mod client;
mod crowd;
mod expiry_storm;
mod held_guards;
pub(crate) mod idle;
mod readers_storm;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::faults::Faults;
use crate::footprint::{Footprint, show_mebibytes};
use crate::grpc::held_streams;
use crate::machine::Machine;
use crate::options::WorkloadName;
use crate::output_file::OutputFile;
use crate::plan::Plan;
use crate::process::Process;

/// Results of a scenario.
trait Findings: Serialize {
    /// Formats the results for people, one line each.
    fn describe(&self) -> Vec<String>;

    /// Returns the wrong responses.
    fn faults(&self) -> &Faults;
}

impl Findings for Footprint {
    fn describe(&self) -> Vec<String> {
        let [before, after] = [self.before_bytes, self.after_bytes].map(show_mebibytes);
        vec![format!(
            "memory      {:.0} bytes of the server for each of {} ({before} without them, {after} with them)",
            self.bytes_each, self.count
        )]
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

#[derive(Serialize)]
struct Report<'a, F> {
    machine: &'a Machine,
    plan: &'a Plan,
    result: &'a F,
}

/// Runs the scenario and reports. The exit code says whether all responses were correct.
pub fn run(plan: &Plan, json: Option<&OutputFile>, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    plan.check()?;
    let server = Process::listening_at(plan.socket_address);
    match plan.workload {
        WorkloadName::Churn => report(plan, json, &churn::run(plan, stop)?),
        WorkloadName::ExpiryStorm => report(plan, json, &expiry_storm::run(plan, stop)?),
        WorkloadName::ReadersStorm => report(plan, json, &readers_storm::run(plan, stop)?),
        WorkloadName::HeldGuards => report(plan, json, &held_guards::run(plan, server)?),
        WorkloadName::Idle => report(plan, json, &idle::measure(plan, server)?),
        WorkloadName::HeldStreams => report(plan, json, &held_streams::measure(plan, server)?),
        _ => bail!("the workload {} is not a scenario", plan.workload.name()),
    }
}

fn report(plan: &Plan, json: Option<&OutputFile>, findings: &impl Findings) -> Result<ExitCode> {
    let machine = Machine::this();
    println!("{}\n{}\n", plan.describe(), machine.describe());
    for line in findings.describe() {
        println!("{line}");
    }
    let faults = findings.faults();
    match faults.count() {
        0 => println!("responses   all checked, none wrong"),
        count => println!("WRONG       {count} responses\n{}", faults.describe().trim_end()),
    }
    if let Some(file) = json {
        file.write_json(&Report { machine: &machine, plan, result: findings })?;
    }
    Ok(if faults.count() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
