//! waymaker-loadgen: see `--help`.

use std::process::ExitCode;

// That of our server, so that the bare servers it is compared with have the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    waymaker_loadgen::main()
}
