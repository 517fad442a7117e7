//! waymaker-loadgen: see `--help`.

use std::process::ExitCode;

// The allocator of waymaker-server, so that a comparison with the bare servers of this program uses the same
// allocator on both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    waymaker_loadgen::main()
}
