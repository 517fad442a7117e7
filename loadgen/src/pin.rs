//! Pinning of threads to cores.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Pins the calling thread, and all threads it starts later, to one core.
pub fn pin_current_thread(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores)).with_context(|| {
        format!(
            "cannot pin a thread to core {core}; this process may use {} cores, numbered from 0",
            core_count()
        )
    })
}

/// Returns the number of cores that this process may use.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
