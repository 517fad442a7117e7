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
/// A check that takes longer would say nothing.
const CHECKED_WITHIN: Duration = Duration::from_secs(60);

/// Checks what was heard of all keys in the run of a seed. Says how much happened, or what cannot have.
fn check(seed: u64) -> Result<usize, String> {
    let options = Options { operation_count: Some(OPERATION_COUNT), ..Options::default() };
    let (outcome, history) = record(seed, &options);
    let mut happening_count = 0;
    for (key, operations) in operations_of(&history) {
        happening_count += operations.len();
        match check_operations_timeout(&operations, CHECKED_WITHIN) {
            CheckResult::Ok => {}
            CheckResult::Unknown => return Err(format!("seed {seed}, key {key}: too much to check")),
            CheckResult::Illegal => {
                let misfit = misfit_of(&operations);
                return Err(format!("seed {seed}, key {key}: cannot have happened: {misfit}"));
            }
        }
    }
    match outcome.failure {
        Some(failure) => Err(format!("seed {seed}: {}", failure.violation.text)),
        None => Ok(happening_count),
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
    let mut happening_count = 0;
    let mut failures = Vec::new();
    for seed in 0..seed_count() {
        match check(seed) {
            Ok(count) => happening_count += count as u64,
            // A server that found a defect itself must not hide the defects that this checker finds.
            Err(text) => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        happening_count >= HAPPENING_COUNT_MIN * seed_count(),
        "only {happening_count} happenings: the clients do too little"
    );
}
