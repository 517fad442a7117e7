//! `compare`: measures several targets side by side.
//!
//! Numbers of a small virtual machine drift by a third within minutes. So targets take turns in slices of less than a
//! second, each between two looks at the distance of the cores; only slices of one distance are compared, and what is
//! quoted is the median of ratios between neighbours, never the ratio of two averages.

pub mod goals;
pub mod hot;
pub mod memory;
pub mod ping_pong;
pub mod round;
pub mod row;
pub mod server;
pub mod session;
pub mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use self::goals::Goal;
use self::hot::HotRow;
use self::memory::Memory;
use self::round::Rounds;
use self::row::Row;
use self::server::Programs;
use self::session::{Contestant, Session};
use crate::address::System;
use crate::faults::Faults;
use crate::machine::Machine;
use crate::options::CompareOptions;
use crate::report::write_json;

/// Rounds of the hot row: its numbers are of another kind and need no ratio.
const HOT_ROUNDS_MAX: u32 = 3;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Comparison {
    machine: Machine,
    configuration: Configuration,
    #[serde(skip)]
    systems: Vec<System>,
    rows: Vec<RowResult>,
    memory: Vec<Memory>,
    hot: Option<HotRow>,
    goals: Vec<Goal>,
    notes: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
struct Configuration {
    seed: u64,
    round_count: u32,
    slice_ms: u64,
    key_count: u64,
    server_core: usize,
    load_core: usize,
    targets: Vec<String>,
}

/// One row, measured.
#[derive(Debug, Serialize)]
pub struct RowResult {
    row: Row,
    rounds: Rounds,
}

/// Says by its exit code whether all answers were right; goals that were missed are no error.
pub fn run(options: &CompareOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    let options = &if options.quick { quick(options) } else { options.clone() };
    crate::pin::pin_current_thread(options.load_core).context("--load-core")?;
    let mut session = Session {
        options,
        seed: options.seed.unwrap_or_else(crate::plan::draw_seed),
        programs: if options.spawn { Some(Programs::find(options.server_bin.as_deref())?) } else { None },
        stop: Arc::clone(stop),
        bar: ProgressBar::new(0),
        notes: Vec::new(),
    };
    let contestants = session.contestants()?;
    let mut comparison = Comparison::new(&session, &contestants);
    let measured = comparison.measure(&session, &contestants);
    comparison.goals = goals::judge(&comparison);
    session.bar.finish_and_clear();
    if let Err(error) = &measured {
        comparison.notes.push(format!("Incomplete: {error:#}"));
    }
    let text = table::markdown(&comparison);
    print!("{text}");
    if let Some(path) = &options.markdown {
        std::fs::write(path, &text)
            .with_context(|| format!("--markdown: cannot write {}", path.display()))?;
    }
    if let Some(path) = &options.json {
        write_json(path, &comparison)?;
    }
    let faults = comparison.faults();
    if faults.count() > 0 {
        eprintln!("WRONG: {} answers\n{}", faults.count(), faults.describe().trim_end());
        return Ok(ExitCode::FAILURE);
    }
    measured.map(|()| ExitCode::SUCCESS)
}

fn quick(options: &CompareOptions) -> CompareOptions {
    CompareOptions {
        rounds: 1,
        slice: Duration::from_millis(50),
        keys: options.keys.min(20_000),
        ..options.clone()
    }
}

impl Comparison {
    /// Of nothing yet.
    fn new(session: &Session<'_>, contestants: &[Contestant]) -> Self {
        let options = session.options;
        let mut notes = session.notes.clone();
        if options.quick {
            notes.push("Quick: too short to measure anything.".to_owned());
        }
        Self {
            machine: Machine::this(),
            configuration: Configuration {
                seed: session.seed,
                round_count: options.rounds,
                slice_ms: options.slice.as_millis() as u64,
                key_count: options.keys,
                server_core: options.server_core,
                load_core: options.load_core,
                targets: contestants.iter().map(|one| one.address.to_string()).collect(),
            },
            systems: contestants.iter().map(|one| one.system).collect(),
            rows: Vec::new(),
            memory: Vec::new(),
            hot: None,
            goals: Vec::new(),
            notes,
        }
    }

    /// Measures one part after the other. What was measured stays, whatever becomes of the rest.
    fn measure(&mut self, session: &Session<'_>, contestants: &[Contestant]) -> Result<()> {
        let options = session.options;
        let rows = Row::all(options);
        let hot_rounds = options.rounds.min(HOT_ROUNDS_MAX);
        let holder_count = contestants.iter().filter(|one| one.system != System::Echo).count() as u64;
        let slice_count = (rows.len() * contestants.len()) as u64 * u64::from(options.rounds)
            + holder_count * (2 * u64::from(hot_rounds) + u64::from(options.spawn));
        session.bar.set_length(slice_count);
        session
            .bar
            .set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} slices  {msg}  {eta} left")?);
        for row in rows {
            session.bar.set_message(row.title());
            let rounds = measure_row(session, contestants, &row).with_context(|| row.title())?;
            self.rows.push(RowResult { row, rounds });
        }
        session.bar.set_message("hot key");
        if holder_count > 0 {
            self.hot = Some(HotRow::measure(session, contestants, hot_rounds).context("hot key")?);
        }
        session.bar.set_message("memory");
        for contestant in contestants.iter().filter(|one| one.system != System::Echo && one.server.is_some())
        {
            self.memory.push(memory::measure(session, contestant.system).context("memory")?);
        }
        Ok(())
    }
}

fn measure_row(session: &Session<'_>, contestants: &[Contestant], row: &Row) -> Result<Rounds> {
    // Our server sleeps or spins from its start on; the others only know one way.
    let spinning = match (row.busy_poll, contestants.iter().find(|one| one.system == System::Waymaker)) {
        (true, Some(ours)) if ours.server.is_some() => Some(session.start(System::Waymaker, true)?),
        _ => None,
    };
    let of_row: Vec<&Contestant> = contestants
        .iter()
        .map(|one| spinning.as_ref().filter(|other| other.system == one.system).unwrap_or(one))
        .collect();
    Rounds::measure(session, &of_row, session.options.rounds, |contestant, seed| {
        row.plan(&contestant.address, session.options, seed)
    })
}

impl Comparison {
    /// Wrong answers of all slices.
    fn faults(&self) -> Faults {
        let rows = self.rows.iter().map(|result| &result.rounds);
        let hot = self.hot.iter().flat_map(|hot| [&hot.hot, &hot.round_trip]);
        let mut faults = Faults::default();
        for slice in rows.chain(hot).flat_map(|rounds| &rounds.rounds).flat_map(|round| &round.slices) {
            faults.merge(slice.numbers.faults.clone());
        }
        faults
    }
}
