//! Which core a thread runs on.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread, and all it starts from here on, on one core.
pub fn pin_current_thread(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores
        .set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores))
        .with_context(|| format!("cannot run on core {core}; this machine has {}", core_count()))
}

/// How many cores this process may use.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
