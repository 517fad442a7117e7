//! Settings of the cluster that a seed chooses.

use crate::random::Random;

/// Delays, failures and outages of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterSettings {
    /// Share of acquires with scope Quorum, in percent.
    pub(crate) quorum_percent: u64,
    /// Largest delay of a transaction on its way to the cluster, and of its answer on the way back.
    pub(crate) delay_max_us: u64,
    /// Share of transactions whose answer is lost, in percent.
    pub(crate) lost_percent: u64,
    /// Mean time between two outages; `None` without outages.
    pub(crate) outage_gap_us: Option<u64>,
    pub(crate) outage_max_us: u64,
    /// Share of outages in which the members reject the user instead of being silent, in percent.
    pub(crate) stranger_percent: u64,
    /// Share of failures that are refusals, in percent.
    pub(crate) refusal_percent: u64,
    /// Largest number of steps that the server puts into one transaction. `step_count_limit` is the largest
    /// number that the members accept.
    pub(crate) step_count_max: usize,
    pub(crate) step_count_limit: Option<usize>,
    /// Share of server crashes after which the disk is empty, in percent.
    pub(crate) disk_loss_percent: u64,
}

impl ClusterSettings {
    /// Chooses the settings of a seed; `None` if the seed has no cluster.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x0065_7463_6400_6574);
        if !random.percent(35) {
            return None;
        }
        let settings = Self {
            quorum_percent: random.pick(&[100, 60, 30, 10]).unwrap_or(60),
            delay_max_us: random.spread(200, 100_000),
            lost_percent: random.pick(&[0, 2, 10, 40]).unwrap_or(2),
            outage_gap_us: random.percent(60).then(|| random.spread(100_000, 1_500_000)),
            outage_max_us: random.spread(100_000, 8_000_000),
            disk_loss_percent: random.pick(&[0, 30, 60]).unwrap_or(30),
            stranger_percent: random.pick(&[0, 30, 60]).unwrap_or(0),
            refusal_percent: random.pick(&[10, 50, 100]).unwrap_or(10),
            step_count_max: random.pick(&[3, 8, 127]).unwrap_or(3),
            step_count_limit: random.pick(&[None, None, Some(1), Some(2)]).unwrap_or(None),
        };
        // Some seeds have no failures but refusals, which the server must overcome in time.
        let only_refuses = random.once_in(3);
        Some(if only_refuses {
            Self { lost_percent: 10, outage_gap_us: None, refusal_percent: 100, ..settings }
        } else {
            settings
        })
    }
}
