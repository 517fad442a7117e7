//! waymaker-loadgen: see `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    waymaker_loadgen::main()
}
