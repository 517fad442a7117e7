//! Processor time of server, load and everything else over one measurement.

use std::fs;
use std::time::Instant;

use serde::Serialize;

use crate::process::{Process, own_cpu_ns};
use crate::units::as_ns;

/// What `/proc/stat` counts in: USER_HZ is 100 on every platform of Linux that matters here.
const TICK_NS: u64 = 10_000_000;

/// Cores that were kept busy: 1.0 is one whole core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuShares {
    /// By the server; `None` where its process is not known.
    pub server: Option<f64>,
    /// By this process.
    pub load: f64,
    /// By anything else on the machine, or by its host; `None` where the server's part is not known.
    pub other: Option<f64>,
}

/// Processor times at one moment.
#[derive(Clone, Copy, Debug)]
pub struct CpuSample {
    at: Instant,
    server_ns: Option<u64>,
    load_ns: u64,
    machine_ns: Option<u64>,
}

impl CpuSample {
    /// Now.
    pub fn take(server: Option<Process>) -> Self {
        Self {
            server_ns: server.and_then(Process::cpu_ns),
            load_ns: own_cpu_ns(),
            machine_ns: machine_cpu_ns(),
            at: Instant::now(),
        }
    }

    /// What was kept busy until a later sample.
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

/// Time in which any core was not idle.
fn machine_cpu_ns() -> Option<u64> {
    let statistics = fs::read_to_string("/proc/stat").ok()?;
    let line = statistics.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is contained in user and nice.
    let busy: u64 =
        ticks.iter().take(8).enumerate().filter(|(field, _)| !matches!(field, 3 | 4)).map(|(_, n)| n).sum();
    (ticks.len() >= 8).then_some(busy * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::{CpuSample, machine_cpu_ns};

    #[test]
    fn the_machine_is_never_less_busy_than_this_process() {
        assert!(machine_cpu_ns().is_some());
        let before = CpuSample::take(None);
        let shares = before.shares_until(&CpuSample::take(None));
        assert_eq!((shares.server, shares.other), (None, None));
        assert!(shares.load >= 0.0);
    }
}
