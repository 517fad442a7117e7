//! The etcd cluster that keeps the counters of scope Quorum. It survives every crash of the server and every
//! loss of its disk.

use crate::etcd::Etcd;
use crate::event::Event;
use crate::key::FullName;
use crate::surroundings::Surroundings;
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

/// Changes of the cluster by one transaction.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Description of two counters that have the same etcd key.
    pub(crate) collision: Option<String>,
    /// Counters with their new values.
    pub(crate) counters: Vec<(FullName, u64)>,
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

    /// Sends a transaction from this start of the server, and decides what happens to it. Returns the number
    /// of the transaction, and the server's time until which the cluster may fail to answer because of it.
    pub(crate) fn ask(
        &mut self,
        around: &mut Surroundings<'_>,
        start: u32,
        steps: Vec<NamedStep>,
    ) -> (u64, Option<u64>) {
        self.sent_count += 1;
        let number = self.sent_count;
        let Some(settings) = around.settings.cluster() else { return (number, None) };
        let is_down = self.is_down(around);
        let mut trouble_ms = None;
        let (applied_us, heard_us, heard);
        if around.calm {
            (applied_us, heard_us, heard) = (Some(CALM_US), 2 * CALM_US, None);
        } else if is_down && self.is_stranger {
            let reason = "invalid user ID or password".to_owned();
            (applied_us, heard) = (None, Some(Err(ClusterError::Unauthenticated { reason })));
            heard_us = around.random.spread(100, settings.delay_max_us);
            let pause_ms = self.pause_ms_while_stranger(steps.is_empty());
            trouble_ms = Some(around.settings.server_ms(around.now_us + heard_us) + pause_ms);
        } else if is_down && self.refuses && around.random.once_in(2) {
            let reason = "etcdserver: permission denied".to_owned();
            (applied_us, heard) = (None, Some(Err(ClusterError::Refused { reason })));
            heard_us = around.random.spread(100, settings.delay_max_us);
        } else if is_down || around.random.percent(settings.lost_percent) {
            let error = if is_down { silence(around) } else { failure(around, settings.refusal_percent) };
            let attempt_us = QUORUM_ATTEMPT_MS * 1000;
            let is_unknown = matches!(error, ClusterError::Unknown { .. });
            heard_us = if is_down && is_unknown { attempt_us } else { around.random.spread(100, attempt_us) };
            applied_us = match around.random.below(3) {
                _ if !is_unknown => None,
                0 => None,
                1 => Some(around.random.below(heard_us)),
                _ => Some(heard_us + around.random.spread(100, LATE_MAX_US)),
            };
            // A single step may be the cause of the refusal. The server must still get the other steps
            // counted.
            let is_retried_apart = matches!(error, ClusterError::Refused { .. }) && steps.len() > 1;
            heard = Some(Err(error));
            if !is_retried_apart {
                trouble_ms = Some(around.settings.server_ms(around.now_us + heard_us));
            }
        } else {
            let there_us = around.random.spread(50, settings.delay_max_us);
            let back_us = around.random.spread(50, settings.delay_max_us);
            let is_too_large = settings.step_count_limit.is_some_and(|limit| steps.len() > limit);
            let reason = "etcdserver: too many operations in txn request".to_owned();
            applied_us = (!is_too_large).then_some(there_us);
            heard = is_too_large.then_some(Err(ClusterError::Refused { reason }));
            heard_us = there_us + back_us;
        }
        let count = steps.len();
        if count == 0 && !(is_down && self.is_stranger) {
            self.look_pause_ms = 0;
        }
        around.trace.note(around.now_us, 40, number, || {
            format!("cluster   receives transaction {number} with {count} steps: applied after {applied_us:?} us, answered after {heard_us} us with {heard:?}")
        });
        if let Some(heard) = heard {
            self.heard.insert(number, heard);
        }
        if let Some(applied_us) = applied_us {
            self.unapplied.insert(number, steps);
            around.after(applied_us, Event::Apply(number));
        }
        around.after(heard_us, Event::Counted(start, number));
        (number, trouble_ms)
    }

    /// Applies a transaction that arrives.
    pub(crate) fn carry_out(&mut self, around: &mut Surroundings<'_>, transaction: u64) -> Changes {
        let mut changes = Changes::default();
        let Some(steps) = self.unapplied.remove(&transaction) else { return changes };
        changes.collision = steps.iter().find_map(|(namespace, step)| self.collision(namespace, step));
        let heard = self.apply(&steps);
        let replies = heard.iter().flatten();
        for ((namespace, step), reply) in steps.into_iter().zip(replies) {
            around.trace.note(around.now_us, 41, step.fence.get(), || {
                format!("cluster   {transaction}: {step:?}: {reply:?}")
            });
            if let Reply::Written { .. } = reply {
                changes.counters.push(((namespace, step.name.key), step.fence.get()));
            }
        }
        self.heard.entry(transaction).or_insert(heard);
        changes
    }

    /// Returns a description if another counter has the same etcd key as this one.
    fn collision(&mut self, namespace: &[u8], step: &Step) -> Option<String> {
        let key = etcd_key(PREFIX, namespace, &step.name);
        let name = (namespace.into(), step.name.key.clone());
        let owner = self.owners.entry(key).or_insert_with(|| FullName::clone(&name));
        (*owner != name).then(|| format!("the counters {owner:?} and {name:?} have the same key"))
    }

    /// Returns whether an outage is under way.
    fn is_down(&self, around: &Surroundings<'_>) -> bool {
        !around.calm && around.now_us < self.down_until_us
    }

    /// Begins an outage, except at the beginning of the run, and plans the next one. Returns the server's time
    /// of the end of the outage.
    pub(crate) fn interrupt(&mut self, around: &mut Surroundings<'_>) -> Option<u64> {
        let settings = around.settings.cluster().filter(|_| !around.calm)?;
        let gap_us = settings.outage_gap_us?;
        let (mut down_us, mut until_ms) = (0, None);
        if around.now_us > 0 {
            down_us = around.random.spread(10_000, settings.outage_max_us);
            self.down_until_us = around.now_us + down_us;
            self.is_stranger = around.random.percent(settings.stranger_percent);
            self.refuses = around.random.once_in(3);
            until_ms = Some(around.settings.server_ms(self.down_until_us));
            around.trace.note(around.now_us, 42, down_us, || {
                format!("cluster   does not answer for {} ms", down_us / 1000)
            });
        }
        let next_us = down_us + around.random.between(1, 2 * gap_us);
        around.after(next_us, Event::Outage);
        until_ms
    }
}

/// Chooses the failure of a transaction during an outage.
fn silence(around: &mut Surroundings<'_>) -> ClusterError {
    match around.random.once_in(3) {
        true => ClusterError::NotSent { reason: "cannot connect".to_owned() },
        false => ClusterError::Unknown { reason: "no answer".to_owned() },
    }
}

/// Chooses the failure of a single transaction.
fn failure(around: &mut Surroundings<'_>, refusal_percent: u64) -> ClusterError {
    let is_refused = around.random.percent(refusal_percent);
    match around.random.below(10) {
        _ if is_refused => ClusterError::Refused { reason: "etcdserver: permission denied".to_owned() },
        0 => ClusterError::NotSent { reason: "etcdserver: no leader".to_owned() },
        _ => ClusterError::Unknown { reason: "etcdserver: leader changed".to_owned() },
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
