//! CPU time of the server, the load generator and all other processes during one measurement.

use std::time::Instant;

use procfs::CurrentSI;
use serde::Serialize;

use crate::process::{Process, own_cpu_ns};
use crate::units::as_ns;

/// Unit of `/proc/stat`: USER_HZ is 100 on every relevant Linux platform.
const TICK_NS: u64 = 10_000_000;

/// CPU use in cores; 1.0 is one fully busy core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuShares {
    /// Used by the server; `None` if its process is unknown.
    pub server: Option<f64>,
    /// Used by this process.
    pub load: f64,
    /// Used by all other processes of the machine, and by its host; `None` if the server's share is unknown.
    pub other: Option<f64>,
}

/// CPU times at one moment.
#[derive(Clone, Copy, Debug)]
pub struct CpuSample {
    at: Instant,
    server_ns: Option<u64>,
    load_ns: u64,
    machine_ns: Option<u64>,
}

impl CpuSample {
    /// Reads the CPU times now.
    pub fn take(server: Option<Process>) -> Self {
        Self {
            server_ns: server.and_then(Process::cpu_ns),
            load_ns: own_cpu_ns(),
            machine_ns: machine_cpu_ns(),
            at: Instant::now(),
        }
    }

    /// Returns the CPU use between this sample and a later one.
    pub fn shares_until(&self, later: &Self) -> CpuShares {
        let elapsed_ns = as_ns(later.at - self.at).max(1) as f64;
        let share = |before: u64, after: u64| after.saturating_sub(before) as f64 / elapsed_ns;
        let option_share = |before: Option<u64>, after: Option<u64>| Some(share(before?, after?));
        let server = option_share(self.server_ns, later.server_ns);
        let load = share(self.load_ns, later.load_ns);
        let machine = option_share(self.machine_ns, later.machine_ns);
        let other = machine.zip(server).map(|(machine, server)| (machine - server - load).max(0.0));
        CpuShares { server, load, other }
    }
}

/// Returns the time in which any core was not idle.
fn machine_cpu_ns() -> Option<u64> {
    let total = procfs::KernelStats::current().ok()?.total;
    // The time of guests is already contained in user and nice.
    let busy = total.user + total.nice + total.system + total.irq? + total.softirq? + total.steal?;
    Some(busy * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::{CpuSample, machine_cpu_ns};

    #[test]
    fn machine_time_is_at_least_the_time_of_this_process() {
        assert!(machine_cpu_ns().is_some());
        let before = CpuSample::take(None);
        let shares = before.shares_until(&CpuSample::take(None));
        assert_eq!((shares.server, shares.other), (None, None));
        assert!(shares.load >= 0.0);
    }
}
