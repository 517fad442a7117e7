//! Contest of lock servers: the same loads for each system, as far as it supports them.
//!
//! ```text
//! options -> entrants (servers) -> loads x rounds x entrants -> slices -> result -> table, JSON, page
//! ```
//!
//! Like targets of `compare`, contestants take turns in short slices. If a contestant fails, its measurement
//! records the failure and the other contestants continue.

pub mod entrants;
pub mod loads;
pub mod memory;
pub mod output;
pub mod page;
pub mod result;
pub mod slices;
pub mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressStyle;

use self::entrants::{Entrants, system_of};
use self::loads::Load;
use self::output::Output;
use self::result::{Contest, Outcome};
use self::slices::Slices;
use crate::compare::options::CompareOptions;
use crate::compare::session::Session;
use crate::machine::Machine;
use crate::scope::Scope;
use crate::system::System;

/// Default number of rounds, and default length of a slice.
const ROUNDS: u32 = 3;
const SLICE: Duration = Duration::from_secs(1);
/// Length of a slice in a quick run.
const SLICE_QUICK: Duration = Duration::from_millis(100);

/// Whether these options select a contest: they name its page, or a system that only a contest compares, and they
/// ask for no verdict.
pub fn is_asked_for(options: &CompareOptions) -> bool {
    let is_compared = |system| match system {
        System::Consul | System::Postgres | System::Slock => false,
        System::Etcd => options.front.is_some() || options.scope == Scope::Local,
        _ => true,
    };
    let mut systems = options.targets.iter().filter_map(|target| system_of(target));
    !options.has_verdict() && (options.html.is_some() || systems.any(|system| !is_compared(system)))
}

/// Runs the contest. The exit code says whether everything was measured and all responses were correct.
pub fn run(options: &CompareOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    let options = &complete(options)?;
    let output = Output::check(options)?;
    crate::pin::pin_current_thread(options.load_core).context("--load-core")?;
    let mut session = Session::new(options, stop)?;
    let mut entrants = Entrants::gather(&mut session)?;
    let mut event = Event::new(&session, &mut entrants, output);
    let measured = event.measure();
    session.bar.finish_and_clear();
    event.finish()?;
    measured?;
    Ok(event.exit_code())
}

/// Returns the options with defaults filled in, and with the shortened settings of `--quick`. Returns an error for
/// options that a contest does not support.
fn complete(options: &CompareOptions) -> Result<CompareOptions> {
    for (option, is_given) in [
        ("--front", options.front.is_some()),
        ("--rows", !options.rows.is_empty()),
        ("--markdown", options.markdown.is_some()),
    ] {
        if is_given {
            bail!(
                "{option} does not work in a contest of lock servers; leave it out, or leave out --html and the \
                 systems \
                 that only a contest compares (consul, postgres, slock, and etcd without --scope local)"
            );
        }
    }
    if options.dir.is_some() && !options.spawn {
        bail!("--dir has no effect without --spawn; add --spawn, or leave out --dir");
    }
    let mut options = options.clone();
    options.rounds.get_or_insert(ROUNDS);
    options.slice.get_or_insert(if options.quick { SLICE_QUICK } else { SLICE });
    if options.quick {
        options.rounds = Some(1);
        options.keys = options.keys.min(20_000);
    }
    Ok(options)
}

/// A running contest.
#[derive(Debug)]
struct Event<'a> {
    session: &'a Session<'a>,
    entrants: &'a mut Entrants,
    contest: Contest,
    output: Output,
    began: Instant,
    /// Failures, reported at the end.
    failures: Vec<String>,
}

impl<'a> Event<'a> {
    /// Creates a contest without results.
    fn new(session: &'a Session<'a>, entrants: &'a mut Entrants, output: Output) -> Self {
        let options = session.options;
        let mut notes = session.notes.clone();
        if options.quick {
            notes.push("Quick run: the slices are too short for meaningful numbers.".to_owned());
        }
        notes.extend(entrants.notes());
        let contest = Contest {
            machine: Machine::this(),
            command: command_line(session.seed),
            seed: session.seed,
            rounds: options.round_count(),
            slice_ms: options.slice_length().as_millis() as u64,
            took_s: 0.0,
            is_partial: true,
            contestants: entrants.contestants.clone(),
            measurements: Vec::new(),
            memory: Vec::new(),
            notes,
        };
        let failures = entrants.failures.clone();
        Self { session, entrants, contest, output, began: Instant::now(), failures }
    }

    /// Measures one load after the other, until the contest is interrupted. Writes the results after each load.
    fn measure(&mut self) -> Result<()> {
        let loads = Load::all(self.session.options);
        let bar = &self.session.bar;
        let slices = loads.len() * self.entrants.running.len() * self.session.options.round_count() as usize;
        bar.set_length((slices + self.entrants.running.len()) as u64);
        bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {eta} left")?);
        let mut distances = slices::Distances::default();
        for load in loads {
            self.say(&load.title());
            let is_whole = self.measure_load(load, &mut distances);
            self.write()?;
            if !is_whole {
                return Ok(());
            }
        }
        self.say("memory");
        for entrant in &self.entrants.running {
            if self.is_stopped() {
                return Ok(());
            }
            let name = &entrant.name;
            match memory::measure(self.session, entrant) {
                Ok(Ok(memory)) => self.contest.memory.push(memory),
                Ok(Err(why)) => self.contest.notes.push(format!("Memory of {name}: {why}.")),
                Err(error) => {
                    self.contest.notes.push(format!("Memory of {name} is unknown: {error:#}."));
                    self.failures.push(format!("{name}, memory: {error:#}"));
                }
            }
            self.session.bar.inc(1);
        }
        self.contest.notes.extend(distances.describe());
        self.contest.is_partial = self.is_stopped();
        Ok(())
    }

    /// Measures all rounds of one load; returns `false` if the contest was interrupted.
    fn measure_load(&mut self, load: Load, distances: &mut slices::Distances) -> bool {
        let session = self.session;
        let mut of_each: Vec<Slices> = Vec::new();
        let mut rest = Duration::ZERO;
        for entrant in &mut self.entrants.running {
            let load = load.of(entrant.contestant.identity.system);
            let mut slices = Slices::begin(load, entrant, &self.contest);
            // The numbers of a quick contest mean nothing, so it keeps its servers.
            if !slices.is_settled() && !session.options.quick {
                match entrant.renew(session) {
                    Ok(needed) => rest = rest.max(needed),
                    Err(error) => slices.fail(&error),
                }
            }
            of_each.push(slices);
        }
        std::thread::sleep(rest);
        for round in 0..session.options.round_count() {
            for (entrant, slices) in self.entrants.running.iter().zip(&mut of_each) {
                if self.is_stopped() {
                    break;
                }
                let position = session.bar.position();
                let load = load.of(entrant.contestant.identity.system);
                slices.take_turn(session, entrant, load, round, distances);
                session.bar.set_position(position + 1);
            }
        }
        for (entrant, slices) in self.entrants.running.iter().zip(of_each) {
            let load = load.of(entrant.contestant.identity.system);
            let Some(measurement) = slices.finish(load, entrant) else { continue };
            let why = match &measurement.outcome {
                Outcome::Failed(why) => Some(why.clone()),
                Outcome::Measured(measured) if !measured.faults.is_empty() => {
                    Some(format!("wrong responses: {}", measured.faults.join("; ")))
                }
                Outcome::Measured(_) | Outcome::NotOffered(_) => None,
            };
            self.failures.extend(why.map(|why| format!("{}, {}: {why}", entrant.name, load.title())));
            self.contest.measurements.push(measurement);
        }
        !self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.session.stop.load(Ordering::Relaxed)
    }

    /// Reports progress, also without a terminal.
    fn say(&self, what: &str) {
        self.session.bar.set_message(what.to_owned());
        if self.session.bar.is_hidden() {
            eprintln!("{:6.1} s  {what}", self.began.elapsed().as_secs_f64());
        }
    }

    fn write(&mut self) -> Result<()> {
        self.contest.took_s = self.began.elapsed().as_secs_f64();
        self.output.write(&self.contest)
    }

    /// Writes and prints the results.
    fn finish(&mut self) -> Result<()> {
        let written = self.write();
        print!("{}", table::text(&self.contest));
        written
    }

    /// Prints the failures and returns the exit code.
    fn exit_code(&self) -> ExitCode {
        for failure in &self.failures {
            eprintln!("FAILED: {failure}");
        }
        if self.contest.is_partial {
            eprintln!("interrupted; the results so far are above and in the files");
        }
        if self.failures.is_empty() && !self.contest.is_partial {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Returns the command line that repeats this contest, with the seed added if it was random.
fn command_line(seed: u64) -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    words.insert(0, "waymaker-loadgen".to_owned());
    if !words.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}
