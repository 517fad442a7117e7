//! A fixed amount of client work for an instruction count under callgrind, like `instructions` for the engine.

use std::process::ExitCode;
use waymaker_bench::client_lane;

/// The counts of the system allocator would depend on the layout of the heap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, scenario, count] = arguments.as_slice() else { return usage() };
    let Ok(count) = count.parse() else { return usage() };
    let check = match scenario.as_str() {
        "client_lane" => client_lane::Pairs::new().pairs(count),
        _ => return usage(),
    };
    println!("{scenario} {count}: {check}");
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions_client client_lane COUNT");
    ExitCode::from(2)
}
