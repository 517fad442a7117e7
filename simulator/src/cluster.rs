//! The cluster that keeps the counters of scope Quorum: it outlives every server, and whatever becomes of its disk.

use crate::etcd::Etcd;
use crate::random::Random;
use crate::world::{Event, World};
use std::collections::BTreeMap;
use waymaker_server::limits::{QUORUM_ATTEMPT_MS, QUORUM_PROBE_MAX_MS, QUORUM_PROBE_MS};
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::codec::{etcd_key, replies_of, txn_of};
use waymaker_server::quorum::counters::{Reply, Step};

/// What stands before the name of each counter.
const PREFIX: &str = "waymaker/";

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
    /// Outages in which members answer that they do not accept the user, of a hundred.
    pub(crate) stranger_percent: u64,
    /// Failures that are refusals, of a hundred.
    refusal_percent: u64,
    /// Steps of one transaction that the server sends at most, and that members take; all if there is no limit.
    pub(crate) step_count_max: usize,
    step_count_limit: Option<usize>,
    /// Crashes of the server after which its disk is empty, of a hundred.
    pub(crate) disk_loss_percent: u64,
}

impl ClusterSettings {
    /// What this seed chooses, if it has a cluster.
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
        // Without other trouble, refusals have to be overcome in time.
        let only_refuses = random.once_in(3);
        Some(if only_refuses {
            Self { lost_percent: 10, outage_gap_us: None, refusal_percent: 100, ..settings }
        } else {
            settings
        })
    }
}

/// What the thread that asked hears of a transaction, or of a look.
pub(crate) type Heard = Result<Vec<Reply>, ClusterError>;

/// A step, with the name of the namespace of its counter.
pub(crate) type NamedStep = (Box<[u8]>, Step);

/// A counter: the name of its namespace, and its key there.
pub(crate) type FullName = (Box<[u8]>, Box<[u8]>);

/// All its members.
#[derive(Debug, Default)]
pub(crate) struct SimulatedCluster {
    etcd: Etcd,
    /// Which counter has each key.
    owners: BTreeMap<Vec<u8>, FullName>,
    sent_count: u64,
    /// What is on its way to it.
    unapplied: BTreeMap<u64, Vec<NamedStep>>,
    /// What is on its way back.
    heard: BTreeMap<u64, Heard>,
    /// Nothing answers until then, or members do not accept the user.
    down_until_us: u64,
    is_stranger: bool,
    /// Meanwhile about half of the transactions are refused instead.
    refuses: bool,
    /// Pause behind the last look of the asker if the user was not accepted; otherwise 0.
    look_pause_ms: u64,
}

impl SimulatedCluster {
    /// Returns for how long the asker may pause after members did not accept its user. Each such look makes the pause twice as long, also
    /// if the cluster answers well between two looks.
    fn pause_ms_while_stranger(&mut self, is_look: bool) -> u64 {
        if is_look {
            let pause_ms = self.look_pause_ms.max(QUORUM_PROBE_MS);
            self.look_pause_ms = QUORUM_PROBE_MAX_MS.min(2 * pause_ms);
        }
        self.look_pause_ms
    }

    /// What the asker hears.
    pub(crate) fn hear(&mut self, transaction: u64) -> Option<Heard> {
        self.heard.remove(&transaction)
    }

    /// Carries out a transaction as servers encode it. One without steps is a look, which changes nothing.
    fn apply(&mut self, steps: &[NamedStep]) -> Heard {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let keys = steps.iter().map(|(namespace, step)| etcd_key(PREFIX, namespace, &step.name));
        let refused =
            || ClusterError::Refused { reason: "etcdserver: duplicate key given in txn request".to_owned() };
        let response =
            self.etcd.apply(&txn_of(keys.zip(steps.iter().map(|(_, step)| step)))).ok_or_else(refused)?;
        let nonsense = || ClusterError::Unknown { reason: "etcd sent a malformed response".to_owned() };
        replies_of(&response, steps.len()).ok_or_else(nonsense)
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
        } else if is_down && self.cluster.is_stranger {
            let reason = "invalid user ID or password".to_owned();
            (applied_us, heard) = (None, Some(Err(ClusterError::Unauthenticated { reason })));
            heard_us = self.random.spread(100, settings.delay_max_us);
            let pause_ms = self.cluster.pause_ms_while_stranger(steps.is_empty());
            let trouble_ms = self.settings.server_ms(self.now_us + heard_us) + pause_ms;
            self.auditor.note_trouble(trouble_ms);
        } else if is_down && self.cluster.refuses && self.random.once_in(2) {
            let reason = "etcdserver: permission denied".to_owned();
            (applied_us, heard) = (None, Some(Err(ClusterError::Refused { reason })));
            heard_us = self.random.spread(100, settings.delay_max_us);
        } else if is_down || self.random.percent(settings.lost_percent) {
            let error = if is_down { self.silence() } else { self.failure(settings.refusal_percent) };
            let attempt_us = QUORUM_ATTEMPT_MS * 1000;
            let is_unknown = matches!(error, ClusterError::Unknown { .. });
            heard_us = if is_down && is_unknown { attempt_us } else { self.random.spread(100, attempt_us) };
            applied_us = match self.random.below(3) {
                _ if !is_unknown => None,
                0 => None,
                1 => Some(self.random.below(heard_us)),
                _ => Some(heard_us + self.random.spread(100, LATE_MAX_US)),
            };
            // One step of several may be the cause. The others have to be counted all the same.
            let is_retried_apart = matches!(error, ClusterError::Refused { .. }) && steps.len() > 1;
            heard = Some(Err(error));
            if !is_retried_apart {
                let trouble_ms = self.settings.server_ms(self.now_us + heard_us);
                self.auditor.note_trouble(trouble_ms);
            }
        } else {
            let there_us = self.random.spread(50, settings.delay_max_us);
            let back_us = self.random.spread(50, settings.delay_max_us);
            let is_too_large = settings.step_count_limit.is_some_and(|limit| steps.len() > limit);
            let reason = "etcdserver: too many operations in txn request".to_owned();
            applied_us = (!is_too_large).then_some(there_us);
            heard = is_too_large.then_some(Err(ClusterError::Refused { reason }));
            heard_us = there_us + back_us;
        }
        let count = steps.len();
        if count == 0 && !(is_down && self.cluster.is_stranger) {
            self.cluster.look_pause_ms = 0;
        }
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
        for (namespace, step) in &steps {
            self.judge_owner(namespace, step);
        }
        let heard = self.cluster.apply(&steps);
        let replies = heard.iter().flatten();
        for ((namespace, step), reply) in steps.into_iter().zip(replies) {
            self.trace.note(self.now_us, 41, step.fence, || {
                format!("cluster   {transaction}: {step:?}: {reply:?}")
            });
            if let Reply::Written { .. } = reply {
                self.auditor.note_counted(namespace, step.name.key, step.fence);
            }
        }
        self.cluster.heard.entry(transaction).or_insert(heard);
    }

    /// No two counters have the same key.
    fn judge_owner(&mut self, namespace: &[u8], step: &Step) {
        let key = etcd_key(PREFIX, namespace, &step.name);
        let name = (namespace.into(), step.name.key.clone());
        let owner = self.cluster.owners.entry(key).or_insert_with(|| FullName::clone(&name));
        if *owner != name {
            let text = format!("the counters {owner:?} and {name:?} have one key");
            self.auditor.accuse("fence-counted", || text);
        }
    }

    /// The failure of a transaction while no member answers.
    fn silence(&mut self) -> ClusterError {
        match self.random.once_in(3) {
            true => ClusterError::NotSent { reason: "cannot connect".to_owned() },
            false => ClusterError::Unknown { reason: "no answer".to_owned() },
        }
    }

    /// The failure of one transaction of many.
    fn failure(&mut self, refusal_percent: u64) -> ClusterError {
        let is_refused = self.random.percent(refusal_percent);
        match self.random.below(10) {
            _ if is_refused => ClusterError::Refused { reason: "etcdserver: permission denied".to_owned() },
            0 => ClusterError::NotSent { reason: "etcdserver: no leader".to_owned() },
            _ => ClusterError::Unknown { reason: "etcdserver: leader changed".to_owned() },
        }
    }

    /// Nothing answers.
    fn is_cluster_down(&self) -> bool {
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
            self.cluster.is_stranger = self.random.percent(settings.stranger_percent);
            self.cluster.refuses = self.random.once_in(3);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_while_the_user_is_not_accepted() {
        let mut cluster = SimulatedCluster::default();
        let pauses_ms = [true, false, true].map(|is_look| cluster.pause_ms_while_stranger(is_look));
        assert_eq!(pauses_ms, [2, 2, 4].map(|factor| factor * QUORUM_PROBE_MS));
        let last_ms = (0..20).map(|_| cluster.pause_ms_while_stranger(true)).last();
        assert_eq!(last_ms, Some(QUORUM_PROBE_MAX_MS));
    }
}
