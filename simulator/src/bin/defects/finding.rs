//! Runs a check and reports whether it finds the planted defect.

use super::build::Cargo;
use super::defect::Finder;
use super::seeds::first_failure;
use anyhow::{Result, ensure};
use std::process::Command;

/// Number of short runs within which the linearizability checker must find a defect.
const HISTORY_COUNT: u64 = 300;
/// Text in the message of the linearizability checker about a history that has no valid order.
const NOT_LINEARIZABLE: &str = "the history is not linearizable";

/// Result of the search for a defect.
#[derive(Debug)]
pub(crate) enum Finding {
    No,
    Yes {
        /// The rule that was broken.
        rule: String,
        /// Number of seeds that were needed; `None` if the check does not run seeds.
        seed_count: Option<u64>,
    },
}

/// Builds and runs a check.
///
/// # Errors
/// If a program cannot be run.
pub(crate) fn find(cargo: &Cargo, finder: &Finder, seed_count: u64, process_count: usize) -> Result<Finding> {
    match finder {
        Finder::Simulator => Ok(match first_failure(&cargo.simulator(), seed_count, process_count)? {
            None => Finding::No,
            Some(failure) => Finding::Yes { rule: failure.rule, seed_count: Some(failure.seed + 1) },
        }),
        Finder::Linearizability => {
            let command = || {
                let mut command = cargo.test("waymaker-simulator", "simulator");
                command.env("SIM_SEEDS", HISTORY_COUNT.to_string());
                command
            };
            test(cargo, command, "linearizable::", Some(NOT_LINEARIZABLE))
        }
        Finder::Model(name) => test(cargo, || cargo.model(name), "", None),
        Finder::Test { package, target, filter } => test(cargo, || cargo.test(package, target), filter, None),
    }
}

/// Builds the tests of a target and runs the tests whose names contain `filter`. If `says` is given, a
/// failure counts only if the output contains that text.
fn test(cargo: &Cargo, command: impl Fn() -> Command, filter: &str, says: Option<&str>) -> Result<Finding> {
    let built = cargo.run(command().arg("--no-run"))?;
    ensure!(built.is_ok, "the tests do not compile:\n{}", built.text);
    let ended = cargo.run(command().args(["--", filter]))?;
    let is_found = !ended.is_ok && says.is_none_or(|says| ended.text.contains(says));
    let rule = || if ended.hangs { "hang".into() } else { failed_test(&ended.text) };
    Ok(if is_found { Finding::Yes { rule: rule(), seed_count: None } } else { Finding::No })
}

/// Returns the name of the first test that failed.
fn failed_test(text: &str) -> String {
    let name = |line: &str| Some(line.strip_prefix("---- ")?.strip_suffix(" stdout ----")?.to_owned());
    text.lines().find_map(name).unwrap_or_else(|| "crash".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_failed_test_is_found() {
        assert_eq!(failed_test("running\n---- rigs::a_test stdout ----\nthread"), "rigs::a_test");
        assert_eq!(failed_test("Killed"), "crash");
    }
}
