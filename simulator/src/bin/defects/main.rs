//! The command `defects`, which plants deliberate defects in a copy of the sources and requires that a check
//! finds each; see `--help`.

mod build;
mod defect;
mod finding;
mod instructions;
mod seeds;
mod sources;
mod switch;
mod table;

use anyhow::{Result, bail, ensure};
use build::Cargo;
use clap::Parser;
use defect::{Defect, Finder};
use finding::{Finding, find};
use sources::Sources;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use table::{Row, Table, with_commas};

const EXAMPLES: &str = "\
Examples:
  defects --check                      Check that every defect matches the sources and compiles
  defects boost_is_ignored             Plant the defect of boost_is_ignored.toml and search for it
  defects --sample 12 --seed TEXT      Search for 12 defects that TEXT chooses
  defects --record                     Search for all defects and record the results";

/// Plant the deliberate defects of simulator/defects, and require that a check finds each of them.
///
/// Each defect is a file NAME.toml with the promise that it breaks, the replacements of source text that
/// cause it, and the checks that must find it. Most defects must be found by seeds of the simulator.
///
/// The program copies the sources to target/defects and builds them once with all defects. The environment
/// variable PLANTED_DEFECT chooses the active defect of that build. Without the variable no defect is active,
/// and all checks must pass.
#[derive(Debug, Parser)]
#[command(name = "defects", after_help = EXAMPLES)]
struct Arguments {
    /// Defects to plant [default: all]
    names: Vec<String>,
    /// Plant only COUNT of the defects that the simulator finds within 100 seeds according to the recorded
    /// table; `--seed` chooses them. A sampled defect may need more seeds than recorded
    #[arg(long, value_name = "COUNT", conflicts_with = "names")]
    sample: Option<usize>,
    /// Text that chooses the sample, for example a commit hash
    #[arg(long, value_name = "TEXT", default_value = "", requires = "sample")]
    seed: String,
    /// Only check that every defect matches the sources and compiles
    #[arg(long, conflicts_with_all = ["sample", "record"])]
    check: bool,
    /// Write the results to simulator/defects/README.md
    #[arg(long)]
    record: bool,
    /// Number of seeds within which the simulator must find a defect
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    seeds: u64,
    /// Number of processes that run seeds in parallel [default: number of processors]
    #[arg(long, value_name = "COUNT")]
    processes: Option<usize>,
}

/// State of one run of the command.
struct Runner {
    arguments: Arguments,
    cargo: Cargo,
    process_count: usize,
    recorded: Table,
    /// The recorded table, updated with the results of this run.
    table: Table,
    /// Path of simulator/defects/README.md.
    readme: PathBuf,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            println!("\n{} failed:", failures.len());
            failures.iter().for_each(|failure| println!("  {failure}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<Vec<String>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let folder = workspace.join("simulator/defects");
    let all = defect::read_all(&folder)?;
    let readme = folder.join("README.md");
    let recorded = Table::parse(&fs::read_to_string(&readme).unwrap_or_default());
    let chosen = choose(&arguments, &recorded, all.clone())?;
    let target = workspace.join("target/defects");
    fs::create_dir_all(&target)?;
    let lock = fs::File::create(target.join("lock"))?;
    ensure!(lock.try_lock().is_ok(), "another process is already planting defects in {}", target.display());
    let mut sources = Sources::copy(&workspace, &target.join("workspace"))?;
    let misfits: Vec<String> =
        all.iter().filter_map(|defect| Some(format!("{:#}", sources.check(defect).err()?))).collect();
    if !misfits.is_empty() {
        return Ok(misfits);
    }
    let cargo = Cargo::new(sources.root(), &target.join("target"));
    let begin = Instant::now();
    // Only the sample is searched for, but all defects are compiled.
    let planted = if arguments.names.is_empty() { &all } else { &chosen };
    let failures = build(&mut sources, &cargo, planted)?;
    let (count, compiled) = (planted.len(), planted.len() - failures.len());
    println!("{count} defects match and {compiled} of them compile ({} s)", begin.elapsed().as_secs());
    if arguments.check || !failures.is_empty() {
        return Ok(failures);
    }
    let mut table = recorded.clone();
    table.rows.retain(|(name, finder), _| {
        let defect = all.iter().find(|defect| defect.name == *name);
        defect.is_some_and(|defect| defect.found_by.iter().any(|one| one.to_string() == *finder))
    });
    let process_count =
        arguments.processes.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
    let mut runner = Runner {
        process_count: process_count.unwrap_or(1),
        arguments,
        cargo,
        recorded,
        table,
        readme,
        failures: Vec::new(),
    };
    runner.pass_without_defects(&chosen)?;
    for defect in &chosen {
        runner.cargo.choose(&defect.name);
        runner.search(defect)?;
    }
    Ok(runner.failures)
}

/// Returns the defects that the arguments select.
fn choose(arguments: &Arguments, recorded: &Table, mut all: Vec<Defect>) -> Result<Vec<Defect>> {
    if let Some(count) = arguments.sample {
        all.retain(|defect| recorded.is_found_soon(&defect.name, &Finder::Simulator.to_string()));
        return Ok(defect::sample(all, count, &arguments.seed));
    }
    for name in &arguments.names {
        ensure!(
            all.iter().any(|defect| defect.name == *name),
            "there is no defect {name} in simulator/defects"
        );
    }
    Ok(all
        .into_iter()
        .filter(|defect| arguments.names.is_empty() || arguments.names.contains(&defect.name))
        .collect())
}

/// Plants and builds the defects. Returns a message for each defect that does not compile.
fn build(sources: &mut Sources, cargo: &Cargo, defects: &[Defect]) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    let mut defects: Vec<&Defect> = defects.iter().collect();
    loop {
        let lines = sources.plant(&defects)?;
        let ended = cargo.build()?;
        if ended.is_ok {
            return Ok(failures);
        }
        let errors = lines.errors(&ended.text);
        ensure!(!errors.is_empty(), "the sources do not compile without a defect:\n{}", ended.text);
        defects.retain(|defect| !errors.contains_key(&*defect.name));
        failures.extend(errors.iter().map(|(name, error)| format!("{name} does not compile: {error}")));
    }
}

impl Runner {
    /// Requires that each check that must find one of the defects passes without a defect.
    fn pass_without_defects(&mut self, chosen: &[Defect]) -> Result<()> {
        let mut finders: Vec<&Finder> = Vec::new();
        for finder in chosen.iter().flat_map(|defect| &defect.found_by) {
            if !finders.contains(&finder) {
                finders.push(finder);
            }
        }
        for finder in finders {
            let begin = Instant::now();
            match find(&self.cargo, finder, self.arguments.seeds, self.process_count)? {
                Finding::No => println!("no defect: {finder} passes ({} s)", begin.elapsed().as_secs()),
                Finding::Yes { rule, seed_count } => {
                    bail!("{finder} fails without a defect: {rule}, seeds {seed_count:?}")
                }
            }
            if *finder == Finder::Simulator {
                self.count_instructions()?;
            }
        }
        Ok(())
    }

    fn count_instructions(&mut self) -> Result<()> {
        let Some(count) = instructions::of_a_seed(&self.cargo.simulator().path)? else {
            println!(
                "*** SKIPPED instructions of the simulator: valgrind is not installed (Debian: apt-get install valgrind)"
            );
            if std::env::var("CI").is_ok_and(|ci| ci == "true") {
                self.failures.push("the instructions of the simulator were not counted".into());
            }
            return Ok(());
        };
        println!("{} instructions per seed", with_commas(count));
        if let Some(recorded) = self.recorded.instructions
            && count > recorded + recorded / 2
            && !self.arguments.record
        {
            let (count, recorded) = (with_commas(count), with_commas(recorded));
            self.failures.push(format!(
                "a seed needs {count} instructions, more than 1.5 times the recorded {recorded}"
            ));
        }
        self.table.instructions = Some(count);
        Ok(())
    }

    /// Requires that each check in `found_by` finds the planted defect.
    fn search(&mut self, defect: &Defect) -> Result<()> {
        for finder in &defect.found_by {
            let begin = Instant::now();
            let found = find(&self.cargo, finder, self.arguments.seeds, self.process_count)?;
            self.judge(defect, finder, found, begin.elapsed().as_secs());
            if self.arguments.record {
                fs::write(&self.readme, self.table.write())?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, defect: &Defect, finder: &Finder, found: Finding, seconds: u64) {
        let Defect { name, promise, missed_because, .. } = defect;
        let finder_name = finder.to_string();
        let missed_because = missed_because.as_deref().filter(|_| *finder == Finder::Simulator);
        let (seed_count, rule) = match (found, missed_because) {
            (Finding::No, None) => {
                println!("{name}: NOT FOUND by {finder} in {seconds} s: {promise}");
                self.failures.push(format!("{name} is not found by {finder}"));
                return;
            }
            (Finding::No, Some(reason)) => (None, format!("missed: {reason}")),
            (Finding::Yes { rule, seed_count }, None) => (seed_count, rule),
            (Finding::Yes { rule, seed_count }, Some(_)) => {
                println!(
                    "{name} is found although its file has `expected = \"missed\"`; remove that line and the reason"
                );
                (seed_count, rule)
            }
        };
        let seeds = seed_count.map(|count| format!("{count} seeds, ")).unwrap_or_default();
        println!("{name}: {finder}, {seeds}{rule}, {seconds} s: {promise}");
        if let Some(count) = seed_count
            && self.recorded.is_slower(name, &finder_name, count)
            && !self.arguments.record
            && self.arguments.sample.is_none()
        {
            self.failures.push(format!(
                "{name} needs {count} seeds, which is more than twice the recorded number and more than 20 above it"
            ));
        }
        let row = Row { seed_count, rule, promise: promise.clone() };
        self.table.rows.insert((name.clone(), finder_name), row);
    }
}
