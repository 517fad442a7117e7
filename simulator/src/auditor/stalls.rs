//! When workers did not run.

/// How long it takes at most until workers that run have served what was left to them, and ended what is due.
pub(super) const LEFT_US: u64 = 50_000;

/// Every time that a worker was kept from running, in the order of their beginnings.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Stall>);

#[derive(Clone, Copy, Debug)]
struct Stall {
    from_us: u64,
    until_us: u64,
    /// When this one and all before it are over.
    all_until_us: u64,
}

impl Stalls {
    pub(super) fn note(&mut self, from_us: u64, for_us: u64) {
        let until_us = from_us + for_us;
        let all_until_us = self.0.last().map_or(0, |last| last.all_until_us).max(until_us);
        self.0.push(Stall { from_us, until_us, all_until_us });
    }

    /// When all is served that was left to the workers at that time.
    pub(super) fn latest_us(&self, from_us: u64) -> u64 {
        let mut latest_us = from_us;
        loop {
            let next_us = from_us + LEFT_US + self.sum_us(from_us, latest_us);
            if next_us == latest_us {
                return latest_us;
            }
            latest_us = next_us;
        }
    }

    /// How long workers did not run between the first instant and the second, all together: no longer was anything put off
    /// by them, even what needed one worker after the other.
    pub(super) fn sum_us(&self, from_us: u64, to_us: u64) -> u64 {
        let met = self.0.iter().rev().take_while(|stall| stall.all_until_us > from_us);
        met.map(|stall| stall.until_us.min(to_us).saturating_sub(stall.from_us.max(from_us))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_count_for_as_long_as_they_lie_in_between() {
        let mut stalls = Stalls::default();
        stalls.note(10, 100);
        stalls.note(20, 10);
        stalls.note(50, 20);
        assert_eq!(stalls.sum_us(0, 1_000), 130);
        assert_eq!(stalls.sum_us(25, 60), 5 + 35 + 10);
        assert_eq!(stalls.sum_us(110, 1_000), 0);
    }
}
