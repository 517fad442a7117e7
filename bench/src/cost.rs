//! The cost of a piece of work, in processor time and in time on the clock.

use rustix::time::{ClockId, clock_gettime};

/// The cost of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Processor time of the thread, in nanoseconds. Includes the time of its system calls and page faults, and leaves out the time
    /// in which other programs had the core.
    pub processor_ns: u32,
    /// Time on the clock, in nanoseconds.
    pub wall_ns: u32,
}

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self { processor_ns: 0, wall_ns: 0 };

    /// More than anything costs.
    pub const MAX: Self = Self { processor_ns: u32::MAX, wall_ns: u32::MAX };

    /// Does something and measures it.
    pub fn of(work: impl FnOnce()) -> Self {
        let wall_start = read_ns(ClockId::Monotonic);
        let processor_start = read_ns(ClockId::ThreadCPUTime);
        work();
        let processor_ns = read_ns(ClockId::ThreadCPUTime).wrapping_sub(processor_start);
        let wall_ns = read_ns(ClockId::Monotonic).wrapping_sub(wall_start);
        Self { processor_ns, wall_ns }
    }
}

/// Replaces each cost by the smaller one of two runs: the same work comes at the same place in each run, interruptions come at others.
pub fn keep_smallest(kept: &mut [Cost], run: &[Cost]) {
    for (kept, other) in kept.iter_mut().zip(run) {
        kept.processor_ns = kept.processor_ns.min(other.processor_ns);
        kept.wall_ns = kept.wall_ns.min(other.wall_ns);
    }
}

/// The dearest of all, and its place.
pub fn dearest(costs_ns: impl Iterator<Item = u32>) -> (usize, u32) {
    costs_ns.enumerate().max_by_key(|(_, cost_ns)| *cost_ns).unwrap_or_default()
}

/// A clock in nanoseconds. Wraps around after four seconds.
fn read_ns(clock: ClockId) -> u32 {
    let time = clock_gettime(clock);
    (time.tv_sec as u32).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_of_one_run_does_not_count() {
        let cost = |processor_ns, wall_ns| Cost { processor_ns, wall_ns };
        let mut kept = [cost(10, 10), cost(8, 900), cost(10, 11)];
        keep_smallest(&mut kept, &[cost(11, 11), cost(9, 12), cost(9, 800)]);
        assert_eq!(kept, [cost(10, 10), cost(8, 12), cost(9, 11)]);
        assert_eq!(dearest(kept.iter().map(|cost| cost.wall_ns)), (1, 12));
    }
}
