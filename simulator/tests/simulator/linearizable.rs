//! Linearizability check. A general checker (porcupine) looks for one order of all operations on a lock that
//! explains every response. The checker is independent of the auditor, and its model of a lock is independent
//! of the server.

use crate::lock_history::operations_of;
use crate::lock_model::LockModel;
use crate::seeds::seed_count;
use porcupine_rs::{CheckResult, Operation, check_operations_info, check_operations_timeout};
use std::time::Duration;
use waymaker_simulator::{Options, record};

/// Number of operations in a run. Each call without a response may double the cost of a check.
const OPERATION_COUNT: u32 = 150;
/// Minimum mean number of happenings per seed, so that the histories are not empty.
const HAPPENING_COUNT_MIN: u64 = 20;
/// Time limit of a check. A history with many unanswered calls has too many possible orders.
const CHECKED_WITHIN: Duration = Duration::from_secs(10);
/// At most one of this number of seeds may have a key whose check was given up.
const SEEDS_PER_UNCHECKED: u64 = 100;

/// Result of the checks of one seed.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    happening_count: u64,
    /// Number of keys whose checks were given up.
    unchecked_count: u64,
}

/// Checks the history of every key in the run of a seed. Returns counts, or a description of the happening
/// that fits in no order.
fn check(seed: u64) -> Result<Checked, String> {
    let options = Options { operation_count: Some(OPERATION_COUNT), ..Options::default() };
    let (outcome, history) = record(seed, &options);
    let mut checked = Checked::default();
    for (key, operations) in operations_of(&history) {
        match check_operations_timeout(&operations, CHECKED_WITHIN) {
            CheckResult::Ok => checked.happening_count += operations.len() as u64,
            CheckResult::Unknown => {
                eprintln!("seed {seed}, key {key}: {} happenings are too many to check", operations.len());
                checked.unchecked_count += 1;
            }
            CheckResult::Illegal => {
                let misfit = misfit_of(&operations);
                return Err(format!(
                    "seed {seed}, key {key}: the history is not linearizable; no place for {misfit}"
                ));
            }
        }
    }
    match outcome.failure {
        Some(failure) => Err(format!("seed {seed}: {}", failure.violation.text)),
        None => Ok(checked),
    }
}

/// Describes the first happening that has no place in the longest order that was found.
fn misfit_of(operations: &[Operation<LockModel>]) -> String {
    let (_, info) = check_operations_info(operations);
    let longest = info.partial_linearizations.iter().flatten().max_by_key(|order| order.len());
    let is_placed = |place: &usize| longest.is_some_and(|order| order.contains(place));
    let misfits = (0..operations.len()).filter(|place| !is_placed(place)).map(|place| &operations[place]);
    format!("{:?}", misfits.min_by_key(|misfit| misfit.return_time))
}

#[test]
fn the_responses_for_each_key_are_linearizable() {
    let mut all = Checked::default();
    let mut failures = Vec::new();
    for seed in 0..seed_count() {
        match check(seed) {
            Ok(checked) => {
                all.happening_count += checked.happening_count;
                all.unchecked_count += checked.unchecked_count;
            }
            // The server may panic because of a defect. That must not hide the seeds in which this checker
            // finds the defect.
            Err(text) => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        all.unchecked_count <= seed_count().div_ceil(SEEDS_PER_UNCHECKED),
        "too many checks were given up: {all:?}"
    );
    assert!(
        all.happening_count >= HAPPENING_COUNT_MIN * seed_count(),
        "the histories are too short: {all:?}"
    );
}
