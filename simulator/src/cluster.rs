//! The cluster that keeps the counters of scope Quorum: it outlives every server, and whatever becomes of its disk.

use crate::random::Random;
use crate::world::{Event, World};
use std::collections::BTreeMap;
use waymaker_server::limits::QUORUM_ATTEMPT_MS;
use waymaker_server::quorum::counters::{Found, Reply, Step};

/// How much later than its answer is expected a transaction may be applied.
const LATE_MAX_US: u64 = 3_000_000;
/// How long a transaction takes when nothing goes wrong any more.
const CALM_US: u64 = 200;

/// What a seed makes of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterSettings {
    /// Acquires under scope Quorum, of a hundred.
    pub(crate) quorum_percent: u64,
    /// How long a transaction takes there, and its answer back, at most.
    delay_max_us: u64,
    /// Transactions of which nobody hears, of a hundred.
    lost_percent: u64,
    /// The mean time between two times in which nothing answers; there may be none.
    outage_gap_us: Option<u64>,
    outage_max_us: u64,
    /// Crashes of the server after which its disk is empty, of a hundred.
    pub(crate) disk_loss_percent: u64,
}

impl ClusterSettings {
    /// What this seed chooses, if it has a cluster.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let random = &mut Random::new(seed ^ 0x0065_7463_6400_6574);
        random.percent(35).then(|| Self {
            quorum_percent: random.pick(&[100, 60, 30, 10]).unwrap_or(60),
            delay_max_us: random.spread(200, 100_000),
            lost_percent: random.pick(&[0, 2, 10, 40]).unwrap_or(2),
            outage_gap_us: random.percent(60).then(|| random.spread(100_000, 1_500_000)),
            outage_max_us: random.spread(100_000, 8_000_000),
            disk_loss_percent: random.pick(&[0, 30, 60]).unwrap_or(30),
        })
    }
}

/// What the thread that asked hears of a transaction.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What the cluster says to each step.
    Said(Vec<Reply>),
    /// Nothing: it was applied, or will be, or not.
    Lost,
    /// It is not applied, and never will be.
    Refused,
}

/// A step, with the name of the namespace of its counter.
pub(crate) type NamedStep = (Box<[u8]>, Step);

/// A counter: the name of its namespace, and its key there.
pub(crate) type FullName = (Box<[u8]>, Box<[u8]>);

/// All its members.
#[derive(Debug, Default)]
pub(crate) struct SimulatedCluster {
    revision: i64,
    counters: BTreeMap<FullName, Found>,
    sent_count: u64,
    /// What is on its way to it.
    unapplied: BTreeMap<u64, Vec<NamedStep>>,
    /// What is on its way back.
    heard: BTreeMap<u64, Heard>,
    /// Nothing answers until then.
    down_until_us: u64,
}

impl SimulatedCluster {
    /// What the asker hears.
    pub(crate) fn hear(&mut self, transaction: u64) -> Option<Heard> {
        self.heard.remove(&transaction)
    }

    /// What `etcd` does with a step.
    fn apply(&mut self, (namespace, step): NamedStep) -> Reply {
        let name = (namespace, step.name.key.clone());
        let found = self.counters.get(&name).copied();
        if found.map_or(0, |found| found.revision) != step.since {
            return Reply::Found(found);
        }
        let found = Found { revision: self.revision, fence: step.fence, attempt: step.attempt };
        self.counters.insert(name, found);
        Reply::Written { revision: self.revision }
    }
}

impl World {
    /// A server of this start sends a transaction. What becomes of it is decided here.
    pub(crate) fn ask_cluster(&mut self, start: u32, steps: Vec<NamedStep>) -> u64 {
        self.cluster.sent_count += 1;
        let number = self.cluster.sent_count;
        let Some(settings) = self.settings.cluster() else { return number };
        let is_down = self.is_cluster_down();
        let (applied_us, heard_us, heard);
        if self.calm {
            (applied_us, heard_us, heard) = (Some(CALM_US), 2 * CALM_US, None);
        } else if is_down || self.random.percent(settings.lost_percent) {
            let attempt_us = QUORUM_ATTEMPT_MS * 1000;
            let is_refused = !is_down && self.random.once_in(10);
            heard_us = if is_down { attempt_us } else { self.random.spread(100, attempt_us) };
            applied_us = match self.random.below(3) {
                _ if is_refused => None,
                0 => None,
                1 => Some(self.random.below(heard_us)),
                _ => Some(heard_us + self.random.spread(100, LATE_MAX_US)),
            };
            heard = Some(if is_refused { Heard::Refused } else { Heard::Lost });
            let trouble_ms = self.settings.server_ms(self.now_us + heard_us);
            self.auditor.note_trouble(trouble_ms);
        } else {
            let there_us = self.random.spread(50, settings.delay_max_us);
            let back_us = self.random.spread(50, settings.delay_max_us);
            (applied_us, heard_us, heard) = (Some(there_us), there_us + back_us, None);
        }
        let count = steps.len();
        self.trace.note(self.now_us, 40, number, || {
            format!("cluster   is asked {number}: {count} steps, applied in {applied_us:?} us, in {heard_us} us: {heard:?}")
        });
        if let Some(heard) = heard {
            self.cluster.heard.insert(number, heard);
        }
        if let Some(applied_us) = applied_us {
            self.cluster.unapplied.insert(number, steps);
            self.after(applied_us, Event::Apply(number));
        }
        self.after(heard_us, Event::Counted(start, number));
        number
    }

    /// A transaction arrives at the cluster.
    pub(crate) fn apply(&mut self, transaction: u64) {
        let Some(steps) = self.cluster.unapplied.remove(&transaction) else { return };
        self.cluster.revision += 1;
        let mut replies = Vec::new();
        for (namespace, step) in steps {
            let reply = self.cluster.apply((namespace.clone(), step.clone()));
            self.trace.note(self.now_us, 41, step.fence, || {
                format!("cluster   {transaction}: {step:?}: {reply:?}")
            });
            if let Reply::Written { .. } = reply {
                self.auditor.note_counted(namespace, step.name.key, step.fence);
            }
            replies.push(reply);
        }
        self.cluster.heard.entry(transaction).or_insert(Heard::Said(replies));
    }

    /// Nothing answers.
    pub(crate) fn is_cluster_down(&self) -> bool {
        !self.calm && self.now_us < self.cluster.down_until_us
    }

    /// Nothing answers for a while, if this is not the beginning of the run.
    pub(crate) fn interrupt_cluster(&mut self) {
        let Some(settings) = self.settings.cluster().filter(|_| !self.calm) else { return };
        let Some(gap_us) = settings.outage_gap_us else { return };
        let mut down_us = 0;
        if self.now_us > 0 {
            down_us = self.random.spread(10_000, settings.outage_max_us);
            self.cluster.down_until_us = self.now_us + down_us;
            let until_ms = self.settings.server_ms(self.cluster.down_until_us);
            self.auditor.note_trouble(until_ms);
            self.trace.note(self.now_us, 42, down_us, || {
                format!("cluster   does not answer for {} ms", down_us / 1000)
            });
        }
        let next_us = down_us + self.random.between(1, 2 * gap_us);
        self.after(next_us, Event::Outage);
    }
}
