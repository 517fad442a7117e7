//! Cost of a piece of work, in CPU time and in wall-clock time.

use rustix::time::{ClockId, clock_gettime};

/// Cost of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the thread, in nanoseconds. Includes system calls and page faults, and excludes the time in
    /// which other programs had the core.
    pub processor_ns: u32,
    /// Wall-clock time, in nanoseconds.
    pub wall_ns: u32,
}

impl Cost {
    /// Zero cost.
    pub const ZERO: Self = Self { processor_ns: 0, wall_ns: 0 };

    /// Larger than any real cost.
    pub const MAX: Self = Self { processor_ns: u32::MAX, wall_ns: u32::MAX };

    /// Runs the work and measures its cost.
    pub fn of(work: impl FnOnce()) -> Self {
        let wall_start = read_ns(ClockId::Monotonic);
        let processor_start = read_ns(ClockId::ThreadCPUTime);
        work();
        let processor_ns = read_ns(ClockId::ThreadCPUTime).wrapping_sub(processor_start);
        let wall_ns = read_ns(ClockId::Monotonic).wrapping_sub(wall_start);
        Self { processor_ns, wall_ns }
    }
}

/// Replaces each cost with the smaller cost of two runs. The same work occurs at the same place in each run;
/// interruptions occur at different places.
pub fn keep_smallest(kept: &mut [Cost], run: &[Cost]) {
    for (kept, other) in kept.iter_mut().zip(run) {
        kept.processor_ns = kept.processor_ns.min(other.processor_ns);
        kept.wall_ns = kept.wall_ns.min(other.wall_ns);
    }
}

/// Returns the index and the value of the largest cost.
pub fn dearest(costs_ns: impl Iterator<Item = u32>) -> (usize, u32) {
    costs_ns.enumerate().max_by_key(|(_, cost_ns)| *cost_ns).unwrap_or_default()
}

/// Reads a clock in nanoseconds. Wraps around after four seconds.
fn read_ns(clock: ClockId) -> u32 {
    let time = clock_gettime(clock);
    (time.tv_sec as u32).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_an_interruption_of_one_run() {
        let cost = |processor_ns, wall_ns| Cost { processor_ns, wall_ns };
        let mut kept = [cost(10, 10), cost(8, 900), cost(10, 11)];
        keep_smallest(&mut kept, &[cost(11, 11), cost(9, 12), cost(9, 800)]);
        assert_eq!(kept, [cost(10, 10), cost(8, 12), cost(9, 11)]);
        assert_eq!(dearest(kept.iter().map(|cost| cost.wall_ns)), (1, 12));
    }
}
