//! Runs seeds of the simulator until one fails.

use super::build::Simulator;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Number of seeds that one process runs.
const CHUNK_LEN: u64 = 5;
/// A process that runs longer than this counts as hanging, because a server in it does not terminate.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// The failure of the lowest seed that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    /// The rule that was broken, or `crash`, or `hang`.
    pub(crate) rule: String,
}

/// State that all threads share.
struct Search {
    next: u64,
    first: Option<Failure>,
}

/// Runs the seeds from 0 to `seed_count` - 1 in several processes. Returns the failure of the lowest seed
/// that fails.
///
/// # Errors
/// If the simulator cannot be run.
pub(crate) fn first_failure(
    simulator: &Simulator,
    seed_count: u64,
    process_count: usize,
) -> Result<Option<Failure>> {
    let search = Mutex::new(Search { next: 0, first: None });
    let next = || {
        let mut search = search.lock().ok()?;
        let from = search.next;
        let is_over = from >= seed_count || search.first.as_ref().is_some_and(|first| first.seed < from);
        search.next = from + CHUNK_LEN;
        (!is_over).then_some(from)
    };
    let work = |output: &Path| -> Result<()> {
        while let Some(from) = next() {
            let count = CHUNK_LEN.min(seed_count - from);
            if let Some(failure) = run(simulator, from, count, output)?
                && let Ok(mut search) = search.lock()
                && search.first.as_ref().is_none_or(|first| failure.seed < first.seed)
            {
                search.first = Some(failure);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = |number: usize| {
            let output = simulator.path.with_extension(format!("{number}.txt"));
            scope.spawn(move || work(&output))
        };
        let threads: Vec<_> = (0..process_count).map(start).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
    })?;
    Ok(search.into_inner().ok().and_then(|search| search.first))
}

/// Runs seeds in one process, and writes its output to a file.
fn run(simulator: &Simulator, from: u64, count: u64, output: &Path) -> Result<Option<Failure>> {
    let mut command = simulator.command();
    command.args(["--from", &from.to_string(), "--seeds", &count.to_string()]);
    command.stdin(Stdio::null()).stdout(File::create(output)?).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {}", simulator.path.display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begin.elapsed() > HANGS_AFTER {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(10));
    };
    if status.is_some_and(|status| status.success()) {
        return Ok(None);
    }
    let text = fs::read_to_string(output)?;
    if let Some(failure) = text.lines().rev().find_map(parse) {
        return Ok(Some(failure));
    }
    if count == 1 {
        let rule = if status.is_some() { "crash" } else { "hang" };
        return Ok(Some(Failure { seed: from, rule: rule.into() }));
    }
    // The process ended without naming a seed, so each of its seeds is run alone.
    for seed in from..from + count {
        if let Some(failure) = run(simulator, seed, 1, output)? {
            return Ok(Some(failure));
        }
    }
    Ok(None)
}

/// Parses the line `seed 12, event 345: rule: text`.
fn parse(line: &str) -> Option<Failure> {
    let (seed, rest) = line.strip_prefix("seed ")?.split_once(", event ")?;
    let (_, rest) = rest.split_once(": ")?;
    let (rule, _) = rest.split_once(": ")?;
    Some(Failure { seed: seed.parse().ok()?, rule: rule.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_and_the_rule_of_a_failure_are_parsed() {
        let failure = parse("seed 12, event 345: exclusion: a: b").unwrap();
        assert_eq!(failure, Failure { seed: 12, rule: "exclusion".into() });
        assert_eq!(parse("seed 12: 345 events, 7 grants in 8 ms, hash 9"), None);
        assert_eq!(parse("reproduce with: cargo run"), None);
    }
}
