//! `compare --baseline-bin` compares an older build of Waymaker with the build under test, and gives a verdict for
//! each row. `compare --rights` does so with the server without rights and the same server with them.
//!
//! ```text
//! options -> two servers -> loads x rounds (ABBA) -> paired ratios -> interval of the median -> verdict -> exit code
//! ```

pub mod binary;
pub mod load;
pub mod outcome;
pub mod refusals;
pub mod result;
pub mod statistics;
pub mod table;
pub mod yardstick;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressStyle;
use serde::Serialize;

use self::binary::Binaries;
use self::load::Load;
use self::outcome::Outcome;
use self::result::{JudgedRow, LoadResult};
use self::statistics::Verdict;
use super::Configuration;
use super::front::Front;
use super::identity::{Build, Identity};
use super::options::CompareOptions;
use super::output::Output;
use super::round::Slice;
use super::session::{Contestant, Session};
use crate::faults::Faults;
use crate::machine::Machine;
use crate::system::System;

/// Number of slices in one round.
const SLICES_PER_ROUND: u32 = 2;

/// All results of the two builds.
#[derive(Debug, Serialize)]
pub struct BaselineComparison {
    machine: Machine,
    configuration: Configuration,
    /// True if the server under test has rights, and the baseline none.
    has_rights: bool,
    binaries: Binaries,
    outcome: Outcome,
    wrong_answer_count: u64,
    loads: Vec<LoadResult>,
    notes: Vec<String>,
}

/// Measures both builds. The exit code is 0 if every row passed, 1 if a row failed or a response was wrong, and 2
/// if a row is inconclusive or was not measured.
pub fn run(options: &CompareOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    let options = &refusals::complete(options)?;
    let output = Output::check(options)?;
    crate::pin::pin_current_thread(options.load_core).context("--load-core")?;
    let mut session = Session::new(options, stop)?;
    let binaries = Binaries::of(&session)?;
    session.look_at_disk(options.folder())?;
    let system = options.front.map_or(System::Waymaker, Front::ours);
    let start = |build, option| {
        session
            .start(Identity { system, build }, false, None)
            .with_context(|| format!("{option}: the server does not start"))
    };
    let baseline = if options.rights { "--server-bin" } else { "--baseline-bin" };
    let contestants = [start(Build::Baseline, baseline)?, start(Build::Current, "--server-bin")?];
    let mut comparison = BaselineComparison::new(&session, binaries, &contestants);
    let measured = comparison.measure(&session, &contestants);
    session.bar.finish_and_clear();
    comparison.finish(options, &measured);
    output.publish(&table::markdown(&comparison), &comparison)?;
    comparison.complain(&measured);
    Ok(ExitCode::from(comparison.outcome.exit_code()))
}

impl BaselineComparison {
    /// Creates a comparison without results.
    fn new(session: &Session<'_>, binaries: Binaries, contestants: &[Contestant]) -> Self {
        let mut notes = session.notes.clone();
        if binaries.are_same() && !session.options.rights {
            notes.push(
                "Both builds are the same file; this run shows only the variation of the machine.".to_owned(),
            );
        }
        Self {
            machine: Machine::this(),
            configuration: Configuration::new(session, contestants),
            has_rights: session.options.rights,
            binaries,
            outcome: Outcome::Incomplete,
            wrong_answer_count: 0,
            loads: Vec::new(),
            notes,
        }
    }

    /// Measures one load after the other. An error keeps the loads measured before.
    fn measure(&mut self, session: &Session<'_>, contestants: &[Contestant; 2]) -> Result<()> {
        let began = Instant::now();
        let loads = Load::all(session.options);
        let slices_per_load = u64::from(SLICES_PER_ROUND * session.options.round_count());
        session.bar.set_length(loads.len() as u64 * slices_per_load);
        session
            .bar
            .set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} slices  {msg}  {eta} left")?);
        for (place, load) in loads.into_iter().enumerate() {
            if session.bar.is_hidden() {
                eprintln!("{:6.1} s  {}", began.elapsed().as_secs_f64(), load.title());
            }
            let result = self.loads.push_mut(LoadResult::new(load, contestants[0].identity.system));
            measure_load(session, contestants, result, place as u64 * slices_per_load)
                .with_context(|| load.title())?;
        }
        Ok(())
    }

    /// Evaluates every load that was started.
    fn finish(&mut self, options: &CompareOptions, measured: &Result<()>) {
        if let Err(error) = measured {
            self.notes.push(format!("Incomplete: {error:#}"));
        }
        for load in &mut self.loads {
            load.judge(options.round_count(), options.quick);
        }
        self.wrong_answer_count = self.faults().iter().map(|(_, faults)| faults.count()).sum();
        let verdicts: Vec<Verdict> = self.rows().map(|row| row.verdict).collect();
        self.outcome = Outcome::of(&verdicts, self.wrong_answer_count > 0, measured.is_ok());
    }

    /// Prints to standard error why the exit code is not 0.
    fn complain(&self, measured: &Result<()>) {
        for (identity, faults) in self.faults().iter().filter(|(_, faults)| faults.count() > 0) {
            eprintln!("WRONG: {} responses of {identity}\n{}", faults.count(), faults.describe().trim_end());
        }
        if let Err(error) = measured {
            eprintln!("waymaker-loadgen: {error:#}");
        }
        if self.outcome.exit_code() != 0 {
            eprintln!("{}", table::describe_outcome(self).replace("**", ""));
        }
    }

    /// Returns the rows of all loads.
    fn rows(&self) -> impl Iterator<Item = &JudgedRow> {
        self.loads.iter().flat_map(|load| &load.rows)
    }

    /// Returns the slices of all loads.
    fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.loads.iter().flat_map(|load| load.rounds.slices())
    }

    /// Returns the wrong responses of each build.
    fn faults(&self) -> [(Identity, Faults); 2] {
        let system = self.configuration.front.map_or(System::Waymaker, Front::ours);
        [Build::Baseline, Build::Current].map(|build| {
            let identity = Identity { system, build };
            let mut faults = Faults::default();
            for slice in self.slices().filter(|slice| slice.identity == identity) {
                faults.merge(slice.numbers.faults.clone());
            }
            (identity, faults)
        })
    }
}

/// Measures all rounds of one load.
fn measure_load(
    session: &Session<'_>,
    contestants: &[Contestant; 2],
    result: &mut LoadResult,
    slices_before: u64,
) -> Result<()> {
    let Session { options, bar, seed, .. } = session;
    let LoadResult { load, .. } = *result;
    let title = result.title.clone();
    // A server chooses between sleeping and busy-polling when it starts.
    let spinning = if load.spins() { session.start_spinning(contestants)? } else { Vec::new() };
    let round_count_min = options.round_count();
    let slices_until = |valid_count| slices_before + u64::from(SLICES_PER_ROUND * valid_count);
    let show_progress = |valid_count: u32, tried_count: u32| {
        bar.set_message(format!("{title}: {valid_count} of {tried_count} rounds valid"));
        // An invalid round does not advance the progress bar.
        bar.set_position(slices_until(valid_count));
    };
    result.measure(round_count_min, show_progress, |attempt, build| {
        let contestant = contestants.iter().find(|one| one.identity.build == build);
        let contestant = contestant.context("a server of each build was started")?.or_same_of(&spinning);
        // Both builds get the same keys in the same order.
        let mut plan = load.plan(&contestant.address, options, seed.wrapping_add(u64::from(attempt)))?;
        plan.credentials = contestant.credentials();
        session.slice(contestant, &plan)
    })?;
    bar.set_position(slices_until(round_count_min));
    Ok(())
}
