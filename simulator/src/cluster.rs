//! The etcd cluster that keeps the counters of scope Quorum. It survives every crash of the server and every
//! loss of its disk.

use crate::etcd::Etcd;
use crate::key::FullName;
use crate::world::{Event, World};
use std::collections::BTreeMap;
use waymaker_server::limits::{QUORUM_ATTEMPT_MS, QUORUM_PROBE_MAX_MS, QUORUM_PROBE_MS};
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::codec::{etcd_key, replies_of, txn_of};
use waymaker_server::quorum::counters::{Reply, Step};

/// Prefix of the name of each counter.
const PREFIX: &str = "waymaker/";

/// Longest time between the expected answer of a transaction and its late application.
const LATE_MAX_US: u64 = 3_000_000;
/// Duration of a transaction in the calm phase.
const CALM_US: u64 = 200;

/// Result of a transaction or a probe, as the thread that sent it receives it. A probe is a transaction
/// without steps.
pub(crate) type TransactionResult = Result<Vec<Reply>, ClusterError>;

/// A step, with the name of the namespace of its counter.
pub(crate) type NamedStep = (Box<[u8]>, Step);

/// The cluster with all its members.
#[derive(Debug, Default)]
pub(crate) struct SimulatedCluster {
    etcd: Etcd,
    /// The counter that each etcd key belongs to.
    owners: BTreeMap<Vec<u8>, FullName>,
    sent_count: u64,
    /// Transactions on their way to the cluster.
    unapplied: BTreeMap<u64, Vec<NamedStep>>,
    /// Results on their way back.
    heard: BTreeMap<u64, TransactionResult>,
    /// Until this time the cluster does not answer, or its members reject the user.
    down_until_us: u64,
    is_stranger: bool,
    /// True if the cluster refuses about half of the transactions during the outage instead of being silent.
    refuses: bool,
    /// Pause of the thread after its last probe if the user was rejected; otherwise 0.
    look_pause_ms: u64,
}

impl SimulatedCluster {
    /// Returns the time for which the thread may pause after the members rejected its user. Each such probe
    /// doubles the pause, even if the cluster answers other transactions between two probes.
    fn pause_ms_while_stranger(&mut self, is_look: bool) -> u64 {
        if is_look {
            let pause_ms = self.look_pause_ms.max(QUORUM_PROBE_MS);
            self.look_pause_ms = QUORUM_PROBE_MAX_MS.min(2 * pause_ms);
        }
        self.look_pause_ms
    }

    /// Takes the result of a transaction.
    pub(crate) fn hear(&mut self, transaction: u64) -> Option<TransactionResult> {
        self.heard.remove(&transaction)
    }

    /// Applies a transaction as servers encode it. A transaction without steps is a probe and changes
    /// nothing.
    fn apply(&mut self, steps: &[NamedStep]) -> TransactionResult {
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
    /// Sends a transaction from this start of the server, and decides what happens to it.
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
            // A single step may be the cause of the refusal. The server must still get the other steps
            // counted.
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
            format!("cluster   receives transaction {number} with {count} steps: applied after {applied_us:?} us, answered after {heard_us} us with {heard:?}")
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

    /// Applies a transaction that arrives at the cluster.
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

    /// Checks that no two counters have the same etcd key.
    fn judge_owner(&mut self, namespace: &[u8], step: &Step) {
        let key = etcd_key(PREFIX, namespace, &step.name);
        let name = (namespace.into(), step.name.key.clone());
        let owner = self.cluster.owners.entry(key).or_insert_with(|| FullName::clone(&name));
        if *owner != name {
            let text = format!("the counters {owner:?} and {name:?} have the same key");
            self.auditor.accuse("fence-counted", || text);
        }
    }

    /// Chooses the failure of a transaction during an outage.
    fn silence(&mut self) -> ClusterError {
        match self.random.once_in(3) {
            true => ClusterError::NotSent { reason: "cannot connect".to_owned() },
            false => ClusterError::Unknown { reason: "no answer".to_owned() },
        }
    }

    /// Chooses the failure of a single transaction.
    fn failure(&mut self, refusal_percent: u64) -> ClusterError {
        let is_refused = self.random.percent(refusal_percent);
        match self.random.below(10) {
            _ if is_refused => ClusterError::Refused { reason: "etcdserver: permission denied".to_owned() },
            0 => ClusterError::NotSent { reason: "etcdserver: no leader".to_owned() },
            _ => ClusterError::Unknown { reason: "etcdserver: leader changed".to_owned() },
        }
    }

    /// Returns whether an outage is under way.
    fn is_cluster_down(&self) -> bool {
        !self.calm && self.now_us < self.cluster.down_until_us
    }

    /// Begins an outage, except at the beginning of the run, and plans the next one.
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
