//! Prints the most expensive turn of each kind of follow-up work, and the request that causes it. Fails if a turn
//! takes more than half a millisecond of CPU time, or a request more than two milliseconds.
//!
//! `follow_up [SCENARIO]` runs all scenarios, or one, three times each. Each turn counts with its cheapest run, so
//! that interruptions by other programs do not count. Run it with `MIMALLOC_ALLOW_THP=0`, because clearing a huge
//! page can take 5 ms.

use std::process::ExitCode;
use waymaker_bench::cost::{Cost, dearest, keep_smallest};
use waymaker_bench::follow_up::SCENARIOS;

/// The allocator of waymaker-server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: u32 = 3;
const TURN_MAX_NS: u32 = 500_000;
const REQUEST_MAX_NS: u32 = 2_000_000;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let mut is_within = true;
    println!(
        "{:<28} {:>10} {:>12} {:>8} {:>12} {:>8} {:>10} {:>10}",
        "scenario", "claims", "request us", "turns", "slowest us", "at turn", "wall us", "total us"
    );
    for (what, count, scenario) in SCENARIOS {
        if wanted.as_deref().is_some_and(|wanted| wanted != what) {
            continue;
        }
        let mut kept = scenario(count);
        for _ in 1..RUNS {
            let run = scenario(count);
            keep_smallest(&mut kept.turns, &run.turns);
            keep_smallest(kept.request.as_mut_slice(), run.request.as_slice());
        }
        let Cost { processor_ns: request_ns, .. } =
            kept.request.unwrap_or(Cost { processor_ns: 0, wall_ns: 0 });
        let (at, turn_ns) = dearest(kept.turns.iter().map(|cost| cost.processor_ns));
        let (_, wall_ns) = dearest(kept.turns.iter().map(|cost| cost.wall_ns));
        let total_us = kept.turns.iter().map(|cost| u64::from(cost.processor_ns)).sum::<u64>() / 1000;
        println!(
            "{what:<28} {count:>10} {:>12} {:>8} {:>12} {at:>8} {:>10} {total_us:>10}",
            request_ns / 1000,
            kept.turns.len(),
            turn_ns / 1000,
            wall_ns / 1000,
        );
        is_within &= turn_ns <= TURN_MAX_NS && request_ns <= REQUEST_MAX_NS;
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
