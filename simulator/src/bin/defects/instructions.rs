//! Counts the instructions of the simulator's seeds. Unlike time, they depend neither on the machine nor on
//! its load.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of seeds that are counted.
const SEED_COUNT: u64 = 10;

/// Returns the mean number of instructions per seed, or `None` if valgrind is not installed.
///
/// # Errors
/// If valgrind fails.
pub(crate) fn of_a_seed(simulator: &Path) -> Result<Option<u64>> {
    let has_valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !has_valgrind.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let counts = simulator.with_extension("callgrind");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display())).arg(simulator);
    command.args(["--seeds", &SEED_COUNT.to_string()]).stdin(Stdio::null());
    let output = command.output().context("cannot run valgrind")?;
    ensure!(output.status.success(), "valgrind failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&counts).context("the output of valgrind is missing")?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    let total: u64 = total.context("the output of valgrind has no total")?.trim().parse()?;
    Ok(Some(total / SEED_COUNT))
}
