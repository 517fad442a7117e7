//! A general checker finds an order in which all that clients heard can have happened. It knows nothing of the auditor, and
//! the lock that it compares with knows nothing of the server.

use crate::lock_history::operations_of;
use crate::lock_model::LockModel;
use crate::seeds::seed_count;
use porcupine_rs::{CheckResult, Operation, check_operations_info, check_operations_timeout};
use std::time::Duration;
use waymaker_simulator::{Options, record};

/// Operations of a run. The cost of a check may double with each call that has no answer.
const OPERATION_COUNT: u32 = 150;
/// Happenings of each seed, in the mean of many, so that histories are not empty.
const HAPPENING_COUNT_MIN: u64 = 20;
/// A check that takes longer is given up: many calls without an answer have too many orders.
const CHECKED_WITHIN: Duration = Duration::from_secs(10);
/// At most one in so many seeds may have a key whose check was given up.
const SEEDS_PER_UNCHECKED: u64 = 100;

/// What was checked of one seed.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    happening_count: u64,
    /// Keys whose checks were given up.
    unchecked_count: u64,
}

/// Checks what was heard of all keys in the run of a seed. Says how much happened, or what cannot have.
fn check(seed: u64) -> Result<Checked, String> {
    let options = Options { operation_count: Some(OPERATION_COUNT), ..Options::default() };
    let (outcome, history) = record(seed, &options);
    let mut checked = Checked::default();
    for (key, operations) in operations_of(&history) {
        match check_operations_timeout(&operations, CHECKED_WITHIN) {
            CheckResult::Ok => checked.happening_count += operations.len() as u64,
            CheckResult::Unknown => {
                eprintln!("seed {seed}, key {key}: {} happenings are too much to check", operations.len());
                checked.unchecked_count += 1;
            }
            CheckResult::Illegal => {
                let misfit = misfit_of(&operations);
                return Err(format!("seed {seed}, key {key}: cannot have happened: {misfit}"));
            }
        }
    }
    match outcome.failure {
        Some(failure) => Err(format!("seed {seed}: {}", failure.violation.text)),
        None => Ok(checked),
    }
}

/// The first happening that has no place in the longest order that was found.
fn misfit_of(operations: &[Operation<LockModel>]) -> String {
    let (_, info) = check_operations_info(operations);
    let longest = info.partial_linearizations.iter().flatten().max_by_key(|order| order.len());
    let is_placed = |place: &usize| longest.is_some_and(|order| order.contains(place));
    let misfits = (0..operations.len()).filter(|place| !is_placed(place)).map(|place| &operations[place]);
    format!("{:?}", misfits.min_by_key(|misfit| misfit.return_time))
}

#[test]
fn what_clients_heard_of_each_key_can_have_happened_in_some_order() {
    let mut all = Checked::default();
    let mut failures = Vec::new();
    for seed in 0..seed_count() {
        match check(seed) {
            Ok(checked) => {
                all.happening_count += checked.happening_count;
                all.unchecked_count += checked.unchecked_count;
            }
            // A server that found a defect itself must not hide the defects that this checker finds.
            Err(text) => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(all.unchecked_count <= seed_count().div_ceil(SEEDS_PER_UNCHECKED), "too much to check: {all:?}");
    assert!(all.happening_count >= HAPPENING_COUNT_MIN * seed_count(), "the clients do too little: {all:?}");
}
