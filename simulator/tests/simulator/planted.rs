//! Each planted defect is found.

use waymaker_engine::planted::Bug;
use waymaker_simulator::planted::first_to_find;

/// Seeds within which a defect must be found: as many as the test without defects runs.
const SEED_COUNT: u64 = 500;

/// Shows only if the power is cut in the middle of a start, which takes no time in the simulator: `log_crashes` finds it.
const FOUND_ELSEWHERE: [Bug; 1] = [Bug::UnsyncedIsBelieved];

#[test]
fn every_planted_defect_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL.iter().filter(|bug| !FOUND_ELSEWHERE.contains(bug)) {
        match first_to_find(*bug, SEED_COUNT)
            .and_then(|found| found.failure.map(|failure| (found.seed, failure)))
        {
            Some((seed, failure)) => println!("{bug:?}: seed {seed}, rule {}", failure.violation.rule),
            None => missed.push(*bug),
        }
    }
    assert!(missed.is_empty(), "not found within {SEED_COUNT} seeds: {missed:?}");
}
