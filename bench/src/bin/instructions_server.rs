//! A fixed amount of server work for an instruction count under callgrind, like `instructions` for the engine.
//!
//! A separate program, because the compiler makes inlining decisions for a whole program: one more user of the
//! engine in `instructions` would change the counts there.

use std::process::ExitCode;
use waymaker_bench::{inlet, worker};

/// The allocator of waymaker-server. In addition, the counts of the system allocator depend on the layout of the
/// heap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, scenario, count] = arguments.as_slice() else { return usage() };
    let Ok(count) = count.parse::<u64>() else { return usage() };
    let check = match scenario.as_str() {
        "worker_depth_1" => worker::Pairs::new(1).pairs(count),
        "worker_depth_128" => worker::Pairs::new(128).pairs(count),
        "worker_durable" => worker::Pairs::durable(1).pairs(count),
        "inlet" => inlet::Pairs::new().pairs(count),
        _ => return usage(),
    };
    println!("{scenario} {count}: {check}");
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions_server worker_depth_1|worker_depth_128|worker_durable|inlet COUNT");
    ExitCode::from(2)
}
