//! What a seed makes of what outlives the server: whether there is a log and how slow it is, whether there is a cluster, and
//! how often the whole server ends.

use crate::cluster::ClusterSettings;
use crate::random::Random;
use waymaker_server::limits::LOG_GROUP_LEN_MAX;

/// A server with a log, a cluster, or both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durability {
    /// Without one all that it has is gone with the server.
    pub(crate) has_log: bool,
    pub(crate) cluster: Option<ClusterSettings>,
    /// Acquires under scope Local, of a hundred.
    pub(crate) local_percent: u64,
    /// How long a sync takes, most of the time.
    pub(crate) sync_min_us: u64,
    pub(crate) sync_max_us: u64,
    /// The log thread often pauses behind a sync, before its mail to the workers. A crash in the pause keeps the records and loses the responses.
    pub(crate) tells_late: bool,
    /// The mean time between two ends of the server; there may be none.
    pub(crate) disaster_us: Option<u64>,
    /// Ends that are in order, of a hundred.
    pub(crate) clean_percent: u64,
    /// Starts on a machine that was booted in between, of a hundred.
    pub(crate) reboot_percent: u64,
    /// Crashes that take what the disk had not synced with them, of a hundred.
    pub(crate) power_percent: u64,
    /// How long the server is gone.
    pub(crate) down_max_us: u64,
    /// The number of workers may be another one after each start.
    pub(crate) changes_workers: bool,
    /// Maximum number of bytes of records in a frame of the log. Below 300 most claims over several keys need several frames, and
    /// long records are stored in parts.
    pub(crate) records_max: Option<usize>,
    /// Bytes of records after which a group of the log is full.
    pub(crate) group_len_max: usize,
    /// The mean time between two times in which the disk is full, and how long each takes at most; there may be none.
    pub(crate) full_us: Option<(u64, u64)>,
    /// Starts after which some operation of the disk fails, of a hundred, and before which operation.
    pub(crate) failure_percent: u64,
    pub(crate) failure_before: u64,
    /// Crashes after which a file of the log is damaged, of a hundred.
    pub(crate) damage_percent: u64,
    /// Clients that come and go in namespaces of their own.
    pub(crate) visitor_count: usize,
}

impl Durability {
    /// What this seed chooses. It has a source of its own, so that a seed without any stays as it is.
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

    /// On a slow disk much waits for each sync, and a crash loses what is not durable yet.
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

    /// How long the next sync takes: now and then far longer than most.
    pub(crate) fn choose_sync_us(&self, random: &mut Random) -> u64 {
        match random.below(200) {
            0 => random.spread(100_000, 2_000_000),
            1..=5 => random.spread(10_000, 300_000),
            _ => random.spread(self.sync_min_us, self.sync_max_us),
        }
    }
}
