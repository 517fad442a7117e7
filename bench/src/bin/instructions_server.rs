//! A fixed amount of work of the server for an instruction count under callgrind, as `instructions` is for the engine.
//!
//! A program of its own: the compiler inlines with a view to a whole program, so one more user of the engine in
//! `instructions` would change the counts there.

use std::process::ExitCode;
use waymaker_bench::{inlet, worker};

/// As the server does. Beside that, counts of the system's allocator depend on how the heap came to be laid out.
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
