//! The subcommand `compare`: measures several targets side by side.
//!
//! Results on a small virtual machine drift by a third within minutes. Therefore targets take turns in slices of
//! less than a second, and each slice is between two measurements of the latency between the cores. Only slices
//! with the same core distance are compared. The reported number is the median of ratios between neighbouring
//! slices, never the ratio of two averages.

pub mod baseline;
pub mod beside;
pub mod cost;
pub mod front;
pub mod goals;
pub mod hot;
pub mod identity;
pub mod library;
pub mod memory;
pub mod options;
pub mod other_load;
mod output;
pub mod ping_pong;
pub mod round;
pub mod row;
pub mod session;
pub mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use indicatif::ProgressStyle;
use serde::Serialize;

use self::beside::Beside;
use self::front::Front;
use self::goals::Goal;
use self::hot::HotRow;
use self::library::Library;
use self::memory::Memory;
use self::options::CompareOptions;
use self::output::Output;
use self::round::Rounds;
use self::row::{Row, references};
use self::session::{Contestant, Session};
use crate::faults::Faults;
use crate::machine::Machine;
use crate::scope::Scope;
use crate::system::System;

/// Maximum number of rounds of the hot row, which needs no ratios.
const HOT_ROUNDS_MAX: u32 = 3;

/// All results of a comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    machine: Machine,
    configuration: Configuration,
    #[serde(skip)]
    systems: Vec<System>,
    rows: Vec<RowResult>,
    memory: Vec<Memory>,
    hot: Option<HotRow>,
    beside: Option<Beside>,
    library: Option<Library>,
    goals: Vec<Goal>,
    notes: Vec<String>,
}

/// Options and choices of one comparison.
#[derive(Debug, Serialize)]
struct Configuration {
    scope: Scope,
    front: Option<Front>,
    seed: u64,
    round_count: u32,
    slice_ms: u64,
    key_count: u64,
    key_size: u16,
    server_core: usize,
    load_core: usize,
    targets: Vec<String>,
}

impl Configuration {
    /// Returns the configuration of a session that measures these contestants.
    fn new(session: &Session<'_>, contestants: &[Contestant]) -> Self {
        let options = session.options;
        Self {
            scope: options.scope,
            front: options.front,
            seed: session.seed,
            round_count: options.round_count(),
            slice_ms: options.slice_length().as_millis() as u64,
            key_count: options.keys,
            key_size: options.key_size(),
            server_core: options.server_core,
            load_core: options.load_core,
            targets: contestants.iter().map(|one| one.address.to_string()).collect(),
        }
    }
}

/// Results of one row.
#[derive(Debug, Serialize)]
pub struct RowResult {
    row: Row,
    rounds: Rounds,
}

/// Runs the comparison. The exit code says whether all responses were correct; missed goals are not errors.
pub fn run(options: &CompareOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    if options.has_verdict() {
        return baseline::run(options, stop);
    }
    let options = &options.complete()?;
    let output = Output::check(options)?;
    crate::pin::pin_current_thread(options.load_core).context("--load-core")?;
    let mut session = Session::new(options, stop)?;
    let contestants = session.contestants()?;
    let mut comparison = Comparison::new(&session, &contestants);
    let measured = comparison.measure(&session, &contestants);
    comparison.goals = goals::judge(&comparison);
    session.bar.finish_and_clear();
    if let Err(error) = &measured {
        comparison.notes.push(format!("Incomplete: {error:#}"));
    }
    output.publish(&table::markdown(&comparison), &comparison)?;
    let faults = comparison.faults();
    if faults.count() > 0 {
        eprintln!("WRONG: {} responses\n{}", faults.count(), faults.describe().trim_end());
        return Ok(ExitCode::FAILURE);
    }
    measured.map(|()| ExitCode::SUCCESS)
}

impl Comparison {
    /// Creates a comparison without results.
    fn new(session: &Session<'_>, contestants: &[Contestant]) -> Self {
        let options = session.options;
        let mut notes = session.notes.clone();
        if options.quick {
            notes.push("Quick run: the slices are too short for meaningful numbers.".to_owned());
        }
        if options.front.is_none() && contestants.iter().any(|one| one.identity.system == System::Etcd) {
            notes.push(
                "etcd is measured with only one request at a time on each connection, because it is too slow \
                 for more."
                    .to_owned(),
            );
        }
        Self {
            machine: Machine::this(),
            configuration: Configuration::new(session, contestants),
            systems: contestants.iter().map(|one| one.identity.system).collect(),
            rows: Vec::new(),
            memory: Vec::new(),
            hot: None,
            beside: None,
            library: None,
            goals: Vec::new(),
            notes,
        }
    }

    /// Measures one part after the other. Keeps the results so far if a later part fails.
    fn measure(&mut self, session: &Session<'_>, contestants: &[Contestant]) -> Result<()> {
        let options = session.options;
        let rows = if options.library { Vec::new() } else { Row::all(options) };
        let slices_of_rows: usize = rows
            .iter()
            .map(|row| contestants.iter().filter(|one| row.includes(one.identity.system)).count())
            .sum();
        let slice_count = slices_of_rows as u64 * u64::from(options.round_count())
            + match (options.front, options.scope) {
                _ if options.library => Library::SLICE_COUNT * u64::from(options.round_count()),
                (Some(front), _) => Self::footprints(front, contestants).count() as u64,
                (None, Scope::Ephemeral) => Self::slices_of_holders(options, contestants),
                (None, Scope::Local) => Beside::slice_count(options, contestants),
                (None, Scope::Quorum) => 0,
            };
        session.bar.set_length(slice_count);
        session
            .bar
            .set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} slices  {msg}  {eta} left")?);
        for row in rows {
            session.bar.set_message(row.title());
            let rounds = measure_row(session, contestants, &row).with_context(|| row.title())?;
            self.rows.push(RowResult { row, rounds });
        }
        match (options.front, options.scope) {
            _ if options.library => {
                session.bar.set_message("client library");
                self.library = Some(Library::measure(session, contestants).context("client library")?);
                Ok(())
            }
            (Some(front), _) => self.measure_footprints(front, session, contestants),
            (None, Scope::Ephemeral) => self.measure_holders(session, contestants),
            (None, Scope::Quorum) => Ok(()),
            (None, Scope::Local) => {
                session.bar.set_message("ephemeral beside local");
                self.beside = Beside::measure(session, contestants).context("ephemeral beside local")?;
                Ok(())
            }
        }
    }

    /// Measures what only lock servers have: the hot key and memory.
    fn measure_holders(&mut self, session: &Session<'_>, contestants: &[Contestant]) -> Result<()> {
        session.bar.set_message("hot key");
        if contestants.iter().any(|one| one.identity.system != System::Echo) {
            let rounds = session.options.round_count().min(HOT_ROUNDS_MAX);
            self.hot = Some(HotRow::measure(session, contestants, rounds).context("hot key")?);
        }
        session.bar.set_message("memory");
        for contestant in
            contestants.iter().filter(|one| one.identity.system != System::Echo && one.server.is_some())
        {
            self.memory.push(memory::measure(session, contestant.identity.system).context("memory")?);
        }
        Ok(())
    }

    /// Measures the memory per item of a front end.
    fn measure_footprints(
        &mut self,
        front: Front,
        session: &Session<'_>,
        contestants: &[Contestant],
    ) -> Result<()> {
        session.bar.set_message("memory");
        for contestant in Self::footprints(front, contestants) {
            self.memory.push(memory::measure(session, contestant.identity.system).context("memory")?);
        }
        Ok(())
    }

    /// Returns the contestants whose memory is measured for a front end: Waymaker and the bare server.
    fn footprints(front: Front, contestants: &[Contestant]) -> impl Iterator<Item = &Contestant> {
        contestants
            .iter()
            .filter(move |_| front.footprint().is_some())
            .filter(|one| one.server.is_some() && one.identity.system != System::Etcd)
    }

    fn slices_of_holders(options: &CompareOptions, contestants: &[Contestant]) -> u64 {
        let holder_count =
            contestants.iter().filter(|one| one.identity.system != System::Echo).count() as u64;
        let hot_rounds = options.round_count().min(HOT_ROUNDS_MAX);
        holder_count * (2 * u64::from(hot_rounds) + u64::from(options.spawn))
    }
}

fn measure_row(session: &Session<'_>, contestants: &[Contestant], row: &Row) -> Result<Rounds> {
    // Waymaker chooses between sleeping and busy-polling when it starts; other systems have no such choice.
    let spinning = if row.busy_poll { session.start_spinning(contestants)? } else { Vec::new() };
    let of_row = contestants.iter().filter(|one| row.includes(one.identity.system));
    let of_row: Vec<&Contestant> = of_row.map(|one| one.or_same_of(&spinning)).collect();
    Rounds::measure(session, &of_row, session.options.round_count(), |contestant, seed| {
        row.plan(&contestant.address, session.options, seed)
    })
}

impl Comparison {
    /// Returns the systems that ratios are reported for.
    fn references(&self) -> &'static [System] {
        references(self.configuration.scope, self.configuration.front)
    }

    /// Returns the wrong responses of all slices.
    fn faults(&self) -> Faults {
        let rows = self.rows.iter().map(|result| &result.rounds);
        let hot = self.hot.iter().flat_map(|hot| [&hot.hot, &hot.round_trip]);
        let beside = self.beside.iter().map(|beside| &beside.rounds);
        let library = self.library.iter().map(|library| &library.rounds);
        let mut faults = Faults::default();
        for rounds in rows.chain(hot).chain(beside).chain(library) {
            faults.merge(rounds.faults());
        }
        for memory in &self.memory {
            faults.merge(memory.footprint.faults.clone());
        }
        for numbers in self.beside.iter().flat_map(|beside| &beside.local) {
            faults.merge(numbers.faults.clone());
        }
        faults
    }
}
