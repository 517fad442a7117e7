//! Lock servers of all kinds against each other: the same shapes of load for each, as far as it offers them.
//!
//! ```text
//! options -> entrants (servers) -> loads x rounds x entrants -> slices -> result -> table, JSON, page
//! ```
//!
//! Like targets of `compare`, contestants take turns in short slices. What goes wrong with one of them is what its
//! measurement says; the others go on.

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
use crate::address::System;
use crate::compare::options::CompareOptions;
use crate::compare::session::Session;
use crate::machine::Machine;
use crate::scope::Scope;

/// Rounds and slices where nothing is said.
const ROUNDS: u32 = 3;
const SLICE: Duration = Duration::from_secs(1);
/// The same of a quick one.
const SLICE_QUICK: Duration = Duration::from_millis(100);

/// Whether these options are those of a contest: they ask for its page, or for a system that nothing else compares.
pub fn is_asked_for(options: &CompareOptions) -> bool {
    let is_compared = |system| match system {
        System::Consul | System::Postgres | System::Slock => false,
        System::Etcd => options.front.is_some() || options.scope == Scope::Local,
        _ => true,
    };
    let mut systems = options.targets.iter().filter_map(|target| system_of(target));
    options.html.is_some() || systems.any(|system| !is_compared(system))
}

/// Says by its exit code whether everything was measured that there is, with right answers.
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

/// Defaults filled in, and less of everything where they say `--quick`. Refuses what a contest does not have.
fn complete(options: &CompareOptions) -> Result<CompareOptions> {
    for (option, is_given) in [
        ("--front", options.front.is_some()),
        ("--rows", !options.rows.is_empty()),
        ("--markdown", options.markdown.is_some()),
    ] {
        if is_given {
            bail!(
                "{option}: a contest of lock servers has no such thing; leave it out, or leave out --html and the systems \
                 that only a contest has (consul, postgres, slock, and etcd without --scope local)"
            );
        }
    }
    if options.dir.is_some() && !options.spawn {
        bail!("--dir is where servers write that --spawn starts");
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

/// One contest while it takes place.
#[derive(Debug)]
struct Event<'a> {
    session: &'a Session<'a>,
    entrants: &'a mut Entrants,
    contest: Contest,
    output: Output,
    began: Instant,
    /// What went wrong, for the end.
    failures: Vec<String>,
}

impl<'a> Event<'a> {
    /// Nothing is measured yet.
    fn new(session: &'a Session<'a>, entrants: &'a mut Entrants, output: Output) -> Self {
        let options = session.options;
        let mut notes = session.notes.clone();
        if options.quick {
            notes.push("Quick: too short to measure anything.".to_owned());
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

    /// Measures one load after the other, until it is ended early. What was measured is written after each.
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
                    self.contest.notes.push(format!("Memory of {name} is not known: {error:#}."));
                    self.failures.push(format!("{name}, memory: {error:#}"));
                }
            }
            self.session.bar.inc(1);
        }
        self.contest.notes.extend(distances.describe());
        self.contest.is_partial = self.is_stopped();
        Ok(())
    }

    /// All rounds of one load; `false` where it was ended early.
    fn measure_load(&mut self, load: Load, distances: &mut slices::Distances) -> bool {
        let session = self.session;
        let mut of_each: Vec<Slices> = Vec::new();
        let mut rest = Duration::ZERO;
        for entrant in &mut self.entrants.running {
            let load = load.of(entrant.contestant.identity.system);
            let mut slices = Slices::begin(load, entrant, &self.contest);
            // A quick contest measures nothing that an earlier load could change.
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
                    Some(format!("wrong answers: {}", measured.faults.join("; ")))
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

    /// How far it is, also where there is no terminal for a bar.
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

    /// Writes and prints what there is.
    fn finish(&mut self) -> Result<()> {
        let written = self.write();
        print!("{}", table::text(&self.contest));
        written
    }

    /// Says what went wrong.
    fn exit_code(&self) -> ExitCode {
        for failure in &self.failures {
            eprintln!("FAILED: {failure}");
        }
        if self.contest.is_partial {
            eprintln!("ended early: what was measured until then is above, and in the files");
        }
        if self.failures.is_empty() && !self.contest.is_partial {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// What does the same again: the command line, with the seed where it was drawn.
fn command_line(seed: u64) -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    words.insert(0, "waymaker-loadgen".to_owned());
    if !words.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}
