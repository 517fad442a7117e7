//! Times in which workers did not run.

/// Longest time that running workers need to serve pending work and to end holds that are due.
pub(super) const LEFT_US: u64 = 50_000;

/// All stalls of workers, in the order of their beginnings.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Stall>);

#[derive(Clone, Copy, Debug)]
struct Stall {
    from_us: u64,
    until_us: u64,
    /// End of this stall and of all before it.
    all_until_us: u64,
}

impl Stalls {
    pub(super) fn note(&mut self, from_us: u64, for_us: u64) {
        let until_us = from_us + for_us;
        let all_until_us = self.0.last().map_or(0, |last| last.all_until_us).max(until_us);
        self.0.push(Stall { from_us, until_us, all_until_us });
    }

    /// Returns when the workers have surely served all work that was pending at `from_us`.
    pub(super) fn latest_us(&self, from_us: u64) -> u64 {
        let start = self.0.partition_point(|stall| stall.all_until_us <= from_us);
        let mut latest_us = from_us + LEFT_US;
        for stall in &self.0[start..] {
            if stall.from_us >= latest_us {
                break;
            }
            latest_us += stall.until_us.saturating_sub(stall.from_us.max(from_us));
        }
        latest_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stall_that_begins_before_pending_work_is_served_postpones_it() {
        let mut stalls = Stalls::default();
        stalls.note(0, 100);
        stalls.note(LEFT_US + 90, 40);
        stalls.note(LEFT_US + 141, 1_000);
        assert_eq!(stalls.latest_us(10), 10 + LEFT_US + 90 + 40);
        assert_eq!(stalls.latest_us(2_000_000), 2_000_000 + LEFT_US);
    }
}
