//! The decisions of the quorum thread. This module reads no clock and uses no network. The quorum thread, or a
//! simulator, starts one act after the other and passes the results to the requester.

use super::cluster::ClusterError;
use super::counters::{Counters, FinishedQuestion, Reply, Step};
use super::port::QuorumStatus;
use crate::limits::{
    QUORUM_ANSWER_MS, QUORUM_ATTEMPT_MS, QUORUM_PROBE_MAX_MS, QUORUM_PROBE_MS, QUORUM_RETRY_MS,
    QUORUM_TRANSACTION_COUNT_MAX,
};
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::{CounterName, QuorumQuestion, QuorumState, Time};

/// Minimum time between two log messages about failed requests, in milliseconds. The first probe and changes of the
/// availability have messages of their own. Clients can cause some failures and must not fill the log.
const NOTE_MS: u64 = 1_000;

/// The next act of the quorum thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    /// Wait for an order, or for the result of a transaction or probe, at most until this instant.
    Wait(Time),
    /// Send these steps to the cluster in one transaction. The caller passes its result to [`Requester::take_answer`].
    Ask(Vec<Step>),
    /// Probe the cluster with a read. The caller passes its result to [`Requester::take_look`].
    Look,
    /// Deliver the result of a finished question, a group of grants whose fences the cluster has counted or could not
    /// count. The result goes to the workers, or to the log if the grants must be recorded first.
    Deliver(FinishedQuestion),
    /// Log that the value of this counter in etcd is malformed.
    NoteNonsense(CounterName),
}

/// The state of the quorum thread.
///
/// ```text
/// questions -> Requester -> transactions, probes -> the cluster
///                ^                                     |
///                +------- results, probes, time -------+
/// ```
///
/// A question is a group of grants that wait until the cluster has counted their fences. If a question is overdue and
/// no transaction was answered for [`QUORUM_ATTEMPT_MS`], the cluster counts as unavailable. The requester then fails
/// all open questions, and shards refuse new grants of scope quorum. The same applies if etcd rejects the user for a
/// transaction. If it rejects the user for the first probe (a read of one key), the cluster is unavailable too, but
/// open questions stay. The cluster counts as available again when etcd answers a probe without rejecting the user, or
/// when a late response shows that a transaction has succeeded.
#[derive(Debug)]
pub struct Requester {
    counters: Counters,
    status: Arc<QuorumStatus>,
    /// Acts that are decided but not started.
    acts: VecDeque<Act>,
    /// Number of transactions without a result.
    in_flight: usize,
    /// Earliest time of the next transaction after one whose outcome is unknown or that could not be sent.
    retry_at: Option<Time>,
    /// Time of the last response to a transaction, except rejections of the user; at first the time of the start.
    answered_at: Time,
    /// Maximum number of steps in one transaction. It shrinks when etcd refuses a transaction as too large.
    step_count_max: usize,
    /// Time of the next probe, a read of one key that shows whether the cluster responds. The first probe is due as
    /// soon as the requester exists, later ones only while the cluster is unavailable. `None` while no probe is needed
    /// or one is running.
    look_at: Option<Time>,
    is_looking: bool,
    /// Whether the first probe (a read of one key of the cluster) has not finished yet. The first probe opens the
    /// connection, so that no later grant has to wait for it. Later probes are sent only while the cluster is
    /// unavailable.
    is_first_look: bool,
    /// Pause before the next probe, in milliseconds.
    look_pause_ms: u64,
    /// Time of the last log message to which `NOTE_MS` applies.
    noted_at: Option<Time>,
}

impl Requester {
    /// Returns a requester without counters. `run` must differ for each start of a server.
    pub fn new(run: u64, status: Arc<QuorumStatus>, step_count_max: usize, now: Time) -> Self {
        Self {
            counters: Counters::new(run),
            status,
            acts: VecDeque::new(),
            in_flight: 0,
            retry_at: None,
            answered_at: now,
            step_count_max,
            look_at: Some(now),
            is_looking: false,
            is_first_look: true,
            look_pause_ms: QUORUM_PROBE_MS,
            noted_at: None,
        }
    }

    /// Returns the next act, which the caller performs: send a transaction or a probe, deliver a result, log a
    /// malformed counter, or wait. The caller starts the act before it calls `next` again.
    pub fn next(&mut self, now: Time) -> Act {
        // First fail the overdue questions (grants that waited too long for their fences), so that their results are
        // delivered below. If the cluster counts as unavailable from now on, all questions fail, and no transaction
        // starts for them.
        if self.counters.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.expire(now);
        }
        self.acts.extend(self.counters.take_settled().into_iter().map(Act::Deliver));
        if let Some(act) = self.acts.pop_front() {
            return act;
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.is_looking = true;
            return Act::Look;
        }
        self.retry_at.take_if(|at| *at <= now);
        if self.retry_at.is_none() && self.in_flight < QUORUM_TRANSACTION_COUNT_MAX {
            let steps = self.counters.next_steps(self.step_count_max);
            if !steps.is_empty() {
                self.in_flight += 1;
                return Act::Ask(steps);
            }
        }
        let due = [self.counters.next_deadline(), self.retry_at, self.look_at];
        Act::Wait(due.into_iter().flatten().fold(Time::NEVER, Time::min))
    }

    /// Accepts a question from a worker.
    pub fn ask(&mut self, question: QuorumQuestion, now: Time) {
        self.counters.ask(question, now.after_ms(QUORUM_ANSWER_MS));
    }

    /// Accepts the result of a transaction.
    pub fn take_answer(&mut self, steps: &[Step], answer: Result<Vec<Reply>, ClusterError>, now: Time) {
        self.in_flight -= 1;
        match answer {
            Ok(replies) => {
                self.answered_at = now;
                self.set_unavailable(false, now);
                for (step, reply) in steps.iter().zip(replies) {
                    if reply == Reply::Nonsense && self.is_noted(now) {
                        self.acts.push_back(Act::NoteNonsense(step.name.clone()));
                    }
                    self.counters.answered(step, reply);
                }
            }
            Err(ClusterError::Refused { reason }) => {
                self.answered_at = now;
                if self.is_noted(now) {
                    tracing::error!(%reason, "etcd refused a transaction that counts fences; its grants are refused");
                }
                if steps.len() > 1 && is_too_large(&reason) {
                    // The maximum number of steps in a transaction, lowered here, never rises again. The limits of etcd
                    // (`--max-txn-ops` and `--max-request-bytes`) are fixed while a member runs.
                    self.step_count_max = self.step_count_max.min(steps.len() / 2);
                    steps.iter().for_each(|step| self.counters.lost(step));
                } else if steps.len() > 1 {
                    // A single counter may have caused the refusal. Retry each step alone, so that this counter does
                    // not delay the others.
                    steps.iter().for_each(|step| self.counters.suspected(step));
                } else {
                    steps.iter().for_each(|step| self.counters.refused(step));
                }
            }
            Err(error @ ClusterError::Unauthenticated { .. }) => {
                if self.is_noted(now) {
                    tracing::error!(
                        %error,
                        "etcd rejected the user; quorum grants are refused until --quorum-user or --quorum-password is corrected"
                    );
                }
                self.give_up(now);
            }
            Err(error @ (ClusterError::NotSent { .. } | ClusterError::Unknown { .. })) => {
                if self.is_noted(now) {
                    tracing::warn!(%error, "a request to etcd failed; the server retries it");
                }
                steps.iter().for_each(|step| self.counters.lost(step));
                self.retry_at = Some(now.after_ms(QUORUM_RETRY_MS));
            }
        }
    }

    /// Accepts the result of a probe. The cluster is up if it answers, even if it refuses to read the key. If etcd
    /// rejects the user, the cluster is unavailable and further probes become less frequent, because a password check
    /// is expensive for a member.
    pub fn take_look(&mut self, look: Result<(), ClusterError>, now: Time) {
        self.is_looking = false;
        let is_first = std::mem::take(&mut self.is_first_look);
        if !is_first && !self.is_unavailable() {
            // A transaction that succeeded after the start of the probe has already made the cluster available again.
            // Its result is newer than that of the probe.
            return;
        }
        match look {
            Ok(()) | Err(ClusterError::Refused { .. }) => {
                self.look_pause_ms = QUORUM_PROBE_MS;
                self.set_unavailable(false, now);
            }
            Err(error @ ClusterError::Unauthenticated { .. }) => {
                if self.is_noted(now) {
                    tracing::error!(
                        %error,
                        "etcd still rejects the user; quorum grants are refused until --quorum-user or --quorum-password is corrected"
                    );
                }
                self.look_pause_ms = QUORUM_PROBE_MAX_MS.min(2 * self.look_pause_ms);
                self.set_unavailable(true, now);
            }
            Err(error @ (ClusterError::NotSent { .. } | ClusterError::Unknown { .. })) => {
                self.look_pause_ms = QUORUM_PROBE_MS;
                if is_first {
                    tracing::warn!(%error, "etcd is unavailable; quorum grants are refused until it responds");
                }
            }
        }
        self.plan_look(now);
    }

    /// Fails the questions (groups of grants that wait for their fences) whose deadline has passed. If there are any,
    /// and etcd answered no transaction for [`QUORUM_ATTEMPT_MS`], the cluster counts as unavailable, and all questions
    /// fail.
    fn expire(&mut self, now: Time) {
        if self.counters.expire(now) && now.ms_since(self.answered_at) >= QUORUM_ATTEMPT_MS {
            self.give_up(now);
        }
    }

    fn give_up(&mut self, now: Time) {
        self.set_unavailable(true, now);
        self.counters.give_up_all();
    }

    fn is_unavailable(&self) -> bool {
        self.status.state() == QuorumState::Unavailable
    }

    fn set_unavailable(&mut self, is_unavailable: bool, now: Time) {
        if self.is_unavailable() == is_unavailable {
            return;
        }
        self.status.set_unavailable(is_unavailable);
        if is_unavailable {
            tracing::error!("etcd is unavailable; quorum grants are refused until it responds");
        } else {
            tracing::info!("etcd is available again");
        }
        self.plan_look(now);
    }

    /// Plans the next probe if the cluster is unavailable and no probe is running; otherwise cancels a planned one.
    fn plan_look(&mut self, now: Time) {
        let is_needed = self.is_unavailable() && !self.is_looking;
        self.look_at = is_needed.then(|| now.after_ms(self.look_pause_ms));
    }

    /// Returns whether to log a failure now: at most once per `NOTE_MS`. If so, notes the time of the message.
    fn is_noted(&mut self, now: Time) -> bool {
        let is_noted = self.noted_at.is_none_or(|at| now.ms_since(at) >= NOTE_MS);
        if is_noted {
            self.noted_at = Some(now);
        }
        is_noted
    }
}

/// Returns whether etcd refused a transaction because it has too many operations or bytes.
fn is_too_large(reason: &str) -> bool {
    ["too many operations", "request is too large", "received message larger"]
        .iter()
        .any(|text| reason.contains(text))
}

#[cfg(test)]
mod tests;
