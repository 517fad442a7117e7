//! Settings of the parts that survive a crash of the server: the log and its speed, the cluster, and the
//! frequency of crashes and stops.

mod cluster;

use crate::random::Random;
pub(crate) use cluster::ClusterSettings;
use waymaker_log::limits::LOG_GROUP_LEN_MAX;

/// Settings of a server with a log, a cluster, or both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durability {
    /// True if the server has a log. Without a log, a crash or a stop loses everything.
    pub(crate) has_log: bool,
    pub(crate) cluster: Option<ClusterSettings>,
    /// Share of acquires with scope Local, in percent.
    pub(crate) local_percent: u64,
    /// Usual duration of a sync.
    pub(crate) sync_min_us: u64,
    pub(crate) sync_max_us: u64,
    /// True if the log thread often pauses between a sync and its mail to the workers. A crash in this pause
    /// keeps the records and loses the responses.
    pub(crate) tells_late: bool,
    /// Mean time between two crashes or stops of the server; `None` without them.
    pub(crate) disaster_us: Option<u64>,
    /// Share of these that are clean stops, in percent.
    pub(crate) clean_percent: u64,
    /// Share of starts before which the machine is rebooted, in percent.
    pub(crate) reboot_percent: u64,
    /// Share of crashes that are power failures, which lose unsynced data, in percent.
    pub(crate) power_percent: u64,
    /// Longest time between the end of the server and its next start.
    pub(crate) down_max_us: u64,
    /// True if the number of workers may change at each start.
    pub(crate) changes_workers: bool,
    /// Largest number of record bytes in a frame of the log. Below 300, most multi-key claims need several
    /// frames, and long records are stored in parts.
    pub(crate) records_max: Option<usize>,
    /// Number of record bytes after which a group of the log is full.
    pub(crate) group_len_max: usize,
    /// Mean time between two periods in which the disk is full, and longest duration of a period; `None`
    /// without them.
    pub(crate) full_us: Option<(u64, u64)>,
    /// Share of starts after which an operation of the disk fails, in percent. `failure_before` limits the
    /// number of that operation.
    pub(crate) failure_percent: u64,
    pub(crate) failure_before: u64,
    /// Share of crashes after which a file of the log is damaged, in percent.
    pub(crate) damage_percent: u64,
    /// Number of visitors: clients that create and remove namespaces of their own.
    pub(crate) visitor_count: usize,
}

impl Durability {
    /// Chooses the settings of a seed; `None` if nothing survives the server. They have their own random
    /// source, so that the other choices of the seed do not depend on them.
    pub(crate) fn new(seed: u64, cluster: Option<ClusterSettings>) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x0064_6973_6b00_6c6f);
        let has_log = random.percent(60);
        if !has_log && cluster.is_none() {
            return None;
        }
        let local_percent = random.pick(&[100, 100, 90, 60, 0]).unwrap_or(100);
        let durability = Self {
            has_log,
            cluster,
            local_percent: if has_log { local_percent } else { 0 },
            sync_min_us: 20,
            sync_max_us: random.spread(60, 60_000),
            tells_late: false,
            disaster_us: random.percent(85).then(|| random.spread(40_000, 1_000_000)),
            clean_percent: random.pick(&[0, 30, 70]).unwrap_or(30),
            reboot_percent: random.pick(&[0, 40, 100]).unwrap_or(40),
            power_percent: random.pick(&[0, 50, 100]).unwrap_or(50),
            down_max_us: random.spread(1_000, 1_000_000),
            changes_workers: random.once_in(2),
            records_max: random.percent(75).then(|| random.spread(60, 1_000) as usize),
            group_len_max: random.pick(&[LOG_GROUP_LEN_MAX, LOG_GROUP_LEN_MAX, 400, 1]).unwrap_or(400),
            full_us: None,
            failure_percent: 0,
            failure_before: 0,
            damage_percent: 0,
            visitor_count: 0,
        };
        Some(
            Self {
                full_us: random
                    .percent(50)
                    .then(|| (random.spread(10_000, 1_000_000), random.spread(20_000, 8_000_000))),
                failure_percent: random.pick(&[0, 0, 20, 60]).unwrap_or(0),
                failure_before: random.spread(10, 3_000),
                damage_percent: random.pick(&[0, 0, 30]).unwrap_or(0),
                ..durability
            }
            .with_slow_disk(random)
            .with_visitors(random)
            .with_late_words(random),
        )
    }

    /// Slows down the disk, so that many requests wait for each sync and a crash loses more.
    fn with_slow_disk(self, random: &mut Random) -> Self {
        if random.percent(70) {
            return self;
        }
        let sync_min_us = random.spread(2_000, 20_000);
        Self { sync_min_us, sync_max_us: 3 * sync_min_us, ..self }
    }

    fn with_visitors(self, random: &mut Random) -> Self {
        Self { visitor_count: random.pick(&[0, 0, 0, 2]).unwrap_or(0), ..self }
    }

    fn with_late_words(self, random: &mut Random) -> Self {
        Self { tells_late: random.once_in(4), ..self }
    }

    /// Chooses the duration of the next sync. A few syncs take far longer than most.
    pub(crate) fn choose_sync_us(&self, random: &mut Random) -> u64 {
        match random.below(200) {
            0 => random.spread(100_000, 2_000_000),
            1..=5 => random.spread(10_000, 300_000),
            _ => random.spread(self.sync_min_us, self.sync_max_us),
        }
    }
}
