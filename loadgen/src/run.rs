//! The subcommand `run`: loads one target and reports.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::load;
use crate::options::RunOptions;
use crate::output_file::OutputFile;
use crate::plan::Plan;
use crate::process::Process;
use crate::report::{Numbers, Report};
use crate::scenario;

/// Runs the load; the exit code says whether all responses were correct.
pub fn run(options: &RunOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    let plan = Plan::from_options(options)?;
    let json = OutputFile::check("--json", options.json.as_deref())?;
    if plan.workload.is_scenario() {
        return scenario::run(&plan, json.as_ref(), stop);
    }
    let server = Process::listening_at(plan.socket_address);
    let bar = progress_bar(plan.warmup + plan.duration);
    let outcome = load::run(&plan, server, stop, &|elapsed, answer_count| {
        bar.set_position(elapsed.as_millis() as u64);
        let per_second = answer_count as f64 / elapsed.as_secs_f64().max(1e-9);
        bar.set_message(crate::units::show_rate(per_second));
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    if outcome.is_interrupted {
        eprintln!("interrupted; the numbers cover the time before the interruption");
    }
    let numbers = Numbers::from_outcome(&outcome);
    let has_faults = numbers.faults.count() > 0;
    let report = Report::new(plan, numbers);
    println!("{}", report.describe());
    if let Some(file) = &json {
        file.write_json(&report)?;
    }
    Ok(if has_faults { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Creates a progress bar, which stays hidden unless the output is a terminal.
fn progress_bar(length: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}").expect("a constant template");
    ProgressBar::new(length.as_millis() as u64).with_style(style)
}
