//! Prints the most expensive single request while each table of a shard grows to millions of records. Fails if a
//! request takes more than a millisecond of CPU time.
//!
//! `growth [SCENARIO]` runs all scenarios, or one, three times each. Each request counts with its cheapest run, so
//! that interruptions by other programs do not count.
//!
//! Run it with `MIMALLOC_ALLOW_THP=0`. Otherwise some requests include the time in which the kernel clears a huge
//! page. On a virtual machine that can take 5 ms if the host has not yet backed the page with memory.

use std::process::ExitCode;
use waymaker_bench::cost::{dearest, keep_smallest};
use waymaker_bench::growth::SCENARIOS;

/// The allocator of waymaker-server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: u32 = 3;
const PROCESSOR_MAX_NS: u32 = 1_000_000;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let mut is_within = true;
    println!(
        "{:<20} {:>10} {:>14} {:>10} {:>10} {:>10} {:>10}",
        "table", "records", "CPU us", "at record", "wall us", "at record", "mean ns"
    );
    for (what, count, scenario) in SCENARIOS {
        if wanted.as_deref().is_some_and(|wanted| wanted != what) {
            continue;
        }
        let mut kept = scenario(count);
        for _ in 1..RUNS {
            keep_smallest(&mut kept, &scenario(count));
        }
        let (processor_at, processor_ns) = dearest(kept.iter().map(|cost| cost.processor_ns));
        let (wall_at, wall_ns) = dearest(kept.iter().map(|cost| cost.wall_ns));
        let mean_ns = kept.iter().map(|cost| u64::from(cost.wall_ns)).sum::<u64>() / u64::from(count);
        let (processor_us, wall_us) = (processor_ns / 1000, wall_ns / 1000);
        println!(
            "{what:<20} {count:>10} {processor_us:>14} {processor_at:>10} {wall_us:>10} {wall_at:>10} {mean_ns:>10}"
        );
        is_within &= processor_ns <= PROCESSOR_MAX_NS;
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
