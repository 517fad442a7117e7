//! Prints the dearest single request while each table of a shard grows to millions of records, and fails if it takes
//! more than a millisecond.
//!
//! `growth [SCENARIO]` runs all scenarios, or one, three times each. A request counts with its fastest run, so that an
//! interruption by another program does not count.

use std::process::ExitCode;
use waymaker_bench::growth::{SCENARIOS, keep_smallest};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: u32 = 3;
const DURATION_MAX_NS: u32 = 1_000_000;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let mut is_within = true;
    println!("{:<20} {:>10} {:>12} {:>12} {:>12}", "table", "records", "dearest us", "at record", "mean ns");
    for (what, count, scenario) in SCENARIOS {
        if wanted.as_deref().is_some_and(|wanted| wanted != what) {
            continue;
        }
        let mut kept = scenario(count);
        for _ in 1..RUNS {
            keep_smallest(&mut kept, &scenario(count));
        }
        let dearest = kept.iter().enumerate().max_by_key(|(_, duration_ns)| **duration_ns);
        let (at, dearest_ns) = dearest.map_or((0, 0), |(at, duration_ns)| (at, *duration_ns));
        let mean_ns = kept.iter().map(|duration_ns| u64::from(*duration_ns)).sum::<u64>() / u64::from(count);
        println!("{what:<20} {count:>10} {:>12} {at:>12} {mean_ns:>12}", dearest_ns / 1000);
        is_within &= dearest_ns <= DURATION_MAX_NS;
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
