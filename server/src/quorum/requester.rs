//! The decisions of the quorum thread. This module reads no clock and uses no network. The quorum thread, or a
//! simulator, performs one act after the other and passes the results to the requester.

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

/// Minimum time between two log messages about failures, in milliseconds. Clients can cause some failures and must not
/// fill the log.
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
    /// Deliver the result of a finished question to the workers or the log.
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
/// If the cluster answers nothing for too long, it counts as unavailable. The requester then refuses all open questions
/// until a probe succeeds.
#[derive(Debug)]
pub struct Requester {
    counters: Counters,
    status: Arc<QuorumStatus>,
    /// Acts that are decided but not started.
    acts: VecDeque<Act>,
    /// Number of transactions without a result.
    in_flight: usize,
    /// Earliest time of the next transaction, after a failure.
    retry_at: Option<Time>,
    /// Time of the last answer from the cluster.
    answered_at: Time,
    /// Maximum number of steps in one transaction. It shrinks when etcd refuses a transaction as too large.
    step_count_max: usize,
    /// Time of the next probe; `None` while the cluster is available or a probe is running.
    look_at: Option<Time>,
    is_looking: bool,
    /// Whether the first probe has not finished yet. The first probe opens the connection, so that no question has to
    /// wait for that.
    is_first_look: bool,
    /// Pause before the next probe, in milliseconds.
    look_pause_ms: u64,
    /// Time of the last log message about a failure.
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

    /// Returns the next act. The caller starts the act before it calls `next` again.
    pub fn next(&mut self, now: Time) -> Act {
        // First fail overdue questions: such a question must not start another transaction.
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
                    tracing::error!(%reason, "etcd refused to count fences; the grants are refused");
                }
                if steps.len() > 1 && is_too_large(&reason) {
                    // `--max-txn-ops` and `--max-request-bytes` are fixed while a member runs, so the limit does not
                    // grow again.
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
                    tracing::error!(%error, "no grants of scope quorum: correct --quorum-user or --quorum-password");
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

    /// Accepts the result of a probe. Any response shows that the cluster is up, even a refusal to read the key. If
    /// etcd rejects the user, probes become less frequent, because a password check is expensive for a member.
    pub fn take_look(&mut self, look: Result<(), ClusterError>, now: Time) {
        self.is_looking = false;
        let is_first = std::mem::take(&mut self.is_first_look);
        if !is_first && !self.is_unavailable() {
            // The result of a transaction has already made the cluster available again; it is newer information.
            return;
        }
        match look {
            Ok(()) | Err(ClusterError::Refused { .. }) => {
                self.look_pause_ms = QUORUM_PROBE_MS;
                self.set_unavailable(false, now);
            }
            Err(error @ ClusterError::Unauthenticated { .. }) => {
                if self.is_noted(now) {
                    tracing::error!(%error, "still no grants of scope quorum: correct --quorum-user or --quorum-password");
                }
                self.look_pause_ms = QUORUM_PROBE_MAX_MS.min(2 * self.look_pause_ms);
                self.set_unavailable(true, now);
            }
            Err(ClusterError::NotSent { .. } | ClusterError::Unknown { .. }) => {
                self.look_pause_ms = QUORUM_PROBE_MS;
                if is_first {
                    tracing::warn!("etcd does not answer; no grants of scope quorum until it does");
                }
            }
        }
        self.plan_look(now);
    }

    /// Fails the questions whose deadline has passed. If the cluster has not answered anything else recently, it counts
    /// as unavailable, and all questions fail.
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
            tracing::error!("etcd does not answer: no grants of scope quorum until it does");
        } else {
            tracing::info!("etcd answers again");
        }
        self.plan_look(now);
    }

    /// Plans the next probe if the cluster is unavailable.
    fn plan_look(&mut self, now: Time) {
        let is_needed = self.is_unavailable() && !self.is_looking;
        self.look_at = is_needed.then(|| now.after_ms(self.look_pause_ms));
    }

    /// Returns whether to log a failure now: at most once per `NOTE_MS`.
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
mod tests {
    use super::super::counters::StoredCounter;
    use super::super::port::QuorumPort;
    use super::*;
    use waymaker_engine::{ClaimId, ClaimIx, LaneAddress, QuorumMember, Reserved};

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn name(key: &str) -> CounterName {
        CounterName { namespace: 0, key: key.as_bytes().into() }
    }

    fn question(key: &str) -> QuorumQuestion {
        let lane = LaneAddress { worker: 0, slot: 0, generation: 0 };
        let reserved = Reserved {
            shard: 0,
            lane,
            slot: ClaimIx::new(0),
            secret: 0,
            fence: 1,
            is_counted: true,
            since: Time::NEVER,
        };
        let id = ClaimId { place: 0, secret: 0 };
        let member = QuorumMember { reserved, id, counter: Some(name(key)) };
        QuorumQuestion { at: Time::ZERO, members: Box::new([member]), multi_key: None }
    }

    /// Returns a requester whose first probe has succeeded.
    fn ready(step_count_max: usize) -> Requester {
        let (port, _orders) = QuorumPort::new();
        let mut requester = Requester::new(7, Arc::clone(port.status()), step_count_max, at(0));
        assert_eq!(requester.next(at(0)), Act::Look);
        requester.take_look(Ok(()), at(0));
        requester
    }

    /// Returns a requester with open questions for `count` counters.
    fn asked(step_count_max: usize, count: u64) -> Requester {
        let mut requester = ready(step_count_max);
        (0..count).for_each(|number| requester.ask(question(&format!("key-{number}")), at(0)));
        requester
    }

    fn reason(text: &str) -> String {
        text.to_owned()
    }

    fn silent() -> ClusterError {
        ClusterError::Unknown { reason: reason("no answer") }
    }

    fn not_sent() -> ClusterError {
        ClusterError::NotSent { reason: reason("no leader") }
    }

    fn refused() -> ClusterError {
        ClusterError::Refused { reason: reason("etcdserver: permission denied") }
    }

    fn stranger() -> ClusterError {
        ClusterError::Unauthenticated { reason: reason("invalid user ID or password") }
    }

    fn written(steps: &[Step]) -> Vec<Reply> {
        steps.iter().map(|_| Reply::Written { revision: 1 }).collect()
    }

    impl Requester {
        fn steps(&mut self, now: Time) -> Vec<Step> {
            match self.next(now) {
                Act::Ask(steps) => steps,
                other => panic!("{other:?} is no transaction"),
            }
        }

        /// Returns whether the cluster counted, for each finished question.
        fn settled(&mut self, now: Time) -> Vec<bool> {
            let mut settled = Vec::new();
            loop {
                match self.next(now) {
                    Act::Deliver(over) => settled.push(over.fences.is_some()),
                    Act::Wait(_) => return settled,
                    other => {
                        // Return the act to the queue.
                        self.acts.push_front(other);
                        return settled;
                    }
                }
            }
        }
    }

    #[test]
    fn counted_questions_are_delivered() {
        let mut requester = asked(8, 3);
        let steps = requester.steps(at(0));
        assert_eq!(steps.len(), 3);
        assert_eq!(requester.next(at(0)), Act::Wait(at(QUORUM_ANSWER_MS)));
        requester.take_answer(&steps, Ok(written(&steps)), at(5));
        assert_eq!(requester.settled(at(5)), [true; 3]);
        assert_eq!(requester.next(at(5)), Act::Wait(Time::NEVER));
    }

    #[test]
    fn transactions_in_flight_and_their_steps_are_bounded() {
        let mut requester = asked(2, 100);
        let in_flight: Vec<_> = (0..QUORUM_TRANSACTION_COUNT_MAX).map(|_| requester.steps(at(0))).collect();
        assert!(in_flight.iter().all(|steps| steps.len() == 2));
        assert!(matches!(requester.next(at(0)), Act::Wait(_)));
        requester.take_answer(&in_flight[0], Ok(written(&in_flight[0])), at(0));
        assert_eq!(requester.settled(at(0)), [true; 2]);
        assert_eq!(requester.steps(at(0)).len(), 2);
        assert!(matches!(requester.next(at(0)), Act::Wait(_)));
    }

    #[test]
    fn after_a_failure_the_same_steps_are_retried_after_a_pause() {
        for error in [silent(), not_sent()] {
            let mut requester = asked(8, 2);
            let steps = requester.steps(at(0));
            requester.take_answer(&steps, Err(error), at(10));
            requester.ask(question("another"), at(10));
            assert_eq!(requester.next(at(10)), Act::Wait(at(10 + QUORUM_RETRY_MS)));
            let again = requester.steps(at(10 + QUORUM_RETRY_MS));
            assert_eq!((again.len(), again.contains(&steps[0]), again.contains(&steps[1])), (3, true, true));
        }
    }

    #[test]
    fn failed_transactions_do_not_use_up_the_limit_in_flight() {
        let mut requester = asked(8, 1);
        for failure in 0..2 * QUORUM_TRANSACTION_COUNT_MAX as u64 {
            let now = at(failure * QUORUM_RETRY_MS);
            let steps = requester.steps(now);
            requester.take_answer(&steps, Err(not_sent()), now);
        }
    }

    #[test]
    fn a_silent_cluster_is_unavailable_until_a_probe_succeeds() {
        let mut requester = asked(8, 1);
        let steps = requester.steps(at(0));
        requester.ask(question("later"), at(100));
        let now = at(QUORUM_ANSWER_MS);
        assert_eq!(requester.settled(now), [false; 2], "also what had more time");
        assert_eq!(requester.status.state(), QuorumState::Unavailable);
        let mut look_at = QUORUM_ANSWER_MS;
        for _ in 0..5 {
            assert_eq!(requester.next(at(look_at)), Act::Wait(at(look_at + QUORUM_PROBE_MS)));
            look_at += QUORUM_PROBE_MS;
            assert_eq!(requester.next(at(look_at)), Act::Look);
            assert_eq!(requester.next(at(look_at)), Act::Wait(Time::NEVER), "one look at a time");
            requester.take_look(Err(silent()), at(look_at));
        }
        look_at += QUORUM_PROBE_MS;
        assert_eq!(requester.next(at(look_at)), Act::Look);
        requester.take_look(Ok(()), at(look_at));
        assert_eq!(requester.status.state(), QuorumState::Ready);
        assert_eq!(requester.next(at(look_at)), Act::Wait(Time::NEVER));
        // The requester ignores a late result.
        requester.take_answer(&steps, Ok(written(&steps)), at(look_at));
        assert!(requester.settled(at(look_at)).is_empty());
    }

    #[test]
    fn an_expired_question_fails_alone_while_the_cluster_answers() {
        let mut requester = asked(1, 1);
        requester.steps(at(0));
        requester.ask(question("later"), at(QUORUM_ANSWER_MS - 1));
        let steps = requester.steps(at(QUORUM_ANSWER_MS - 1));
        requester.ask(question("last"), at(QUORUM_ANSWER_MS - 1));
        requester.take_answer(&steps, Ok(written(&steps)), at(QUORUM_ANSWER_MS - QUORUM_ATTEMPT_MS + 1));
        assert_eq!(requester.settled(at(QUORUM_ANSWER_MS)), [true, false]);
        assert_eq!(requester.status.state(), QuorumState::Ready);
    }

    #[test]
    fn a_late_answer_makes_the_cluster_available_again() {
        let mut requester = asked(8, 1);
        let steps = requester.steps(at(0));
        assert_eq!(requester.settled(at(QUORUM_ANSWER_MS)), [false]);
        requester.take_answer(&steps, Ok(written(&steps)), at(QUORUM_ANSWER_MS + 1));
        assert_eq!(requester.status.state(), QuorumState::Ready);
        assert_eq!(requester.next(at(QUORUM_ANSWER_MS + 1)), Act::Wait(Time::NEVER));
    }

    #[test]
    fn a_failed_probe_is_ignored_if_the_cluster_has_answered_since() {
        let mut requester = asked(8, 1);
        let steps = requester.steps(at(0));
        requester.settled(at(QUORUM_ANSWER_MS));
        let now = at(QUORUM_ANSWER_MS + QUORUM_PROBE_MS);
        assert_eq!(requester.next(now), Act::Look);
        requester.take_answer(&steps, Ok(written(&steps)), now);
        requester.take_look(Err(stranger()), now);
        assert_eq!(requester.status.state(), QuorumState::Ready);
        assert_eq!(requester.next(now), Act::Wait(Time::NEVER));
    }

    #[test]
    fn a_transaction_that_is_too_large_is_halved_permanently() {
        for text in ["too many operations in txn request", "request is too large", "received message larger"]
        {
            let too_large = ClusterError::Refused { reason: format!("etcdserver: {text}") };
            let mut requester = asked(9, 9);
            for count in [9, 4, 2] {
                let steps = requester.steps(at(0));
                assert_eq!(steps.len(), count);
                requester.take_answer(&steps, Err(too_large.clone()), at(0));
            }
            for _ in 0..9 {
                let steps = requester.steps(at(0));
                assert_eq!(steps.len(), 1);
                requester.take_answer(&steps, Ok(written(&steps)), at(0));
                assert_eq!(requester.settled(at(0)), [true]);
            }
            assert_eq!(requester.next(at(0)), Act::Wait(Time::NEVER));
        }
    }

    #[test]
    fn a_counter_refused_by_etcd_is_isolated_and_refused_alone() {
        let mut requester = asked(8, 3);
        let steps = requester.steps(at(0));
        requester.take_answer(&steps, Err(refused()), at(0));
        for expected in [true, false, true] {
            let steps = requester.steps(at(0));
            assert_eq!(steps.len(), 1, "a suspect is alone");
            let answer = if expected { Ok(written(&steps)) } else { Err(refused()) };
            requester.take_answer(&steps, answer, at(0));
            assert_eq!(requester.settled(at(0)), [expected]);
        }
        assert_eq!(requester.status.state(), QuorumState::Ready, "the cluster answers");
    }

    #[test]
    fn a_refusal_by_the_cluster_counts_as_an_answer() {
        let mut requester = asked(1, 2);
        let steps = requester.steps(at(0));
        requester.steps(at(0));
        requester.take_answer(&steps, Err(refused()), at(QUORUM_ANSWER_MS - 1));
        assert_eq!(requester.settled(at(QUORUM_ANSWER_MS)), [false; 2]);
        assert_eq!(requester.status.state(), QuorumState::Ready);
    }

    #[test]
    fn probes_become_rare_while_etcd_rejects_the_user() {
        let mut requester = asked(8, 1);
        let steps = requester.steps(at(0));
        requester.take_answer(&steps, Err(stranger()), at(0));
        assert_eq!(requester.settled(at(0)), [false]);
        assert_eq!(requester.status.state(), QuorumState::Unavailable);
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let Act::Wait(until) = requester.next(now) else { panic!("no pause") };
            pauses.push(until.ms_since(now));
            now = until;
            assert_eq!(requester.next(now), Act::Look);
            requester.take_look(Err(stranger()), now);
        }
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        // etcd accepts the user and rejects it later: the probes are as frequent as at first.
        let Act::Wait(until) = requester.next(now) else { panic!("no pause") };
        assert_eq!(requester.next(until), Act::Look);
        requester.take_look(Err(refused()), until);
        assert_eq!(requester.status.state(), QuorumState::Ready);
        requester.ask(question("k"), until);
        let steps = requester.steps(until);
        requester.take_answer(&steps, Err(stranger()), until);
        assert_eq!(requester.settled(until), [false]);
        assert_eq!(requester.next(until), Act::Wait(until.after_ms(QUORUM_PROBE_MS)));
    }

    #[test]
    fn a_user_rejected_at_the_start_makes_the_cluster_unavailable() {
        let (port, _orders) = QuorumPort::new();
        let mut requester = Requester::new(7, Arc::clone(port.status()), 8, at(0));
        requester.ask(question("k"), at(0));
        assert_eq!(requester.next(at(0)), Act::Look);
        assert_eq!(requester.steps(at(0)).len(), 1, "nobody waits for the first look");
        requester.take_look(Err(stranger()), at(1));
        assert_eq!(requester.status.state(), QuorumState::Unavailable);
        assert_eq!(requester.next(at(1)), Act::Wait(at(1 + 2 * QUORUM_PROBE_MS)));
    }

    #[test]
    fn a_failed_first_probe_does_not_make_the_cluster_unavailable() {
        let (port, _orders) = QuorumPort::new();
        let mut requester = Requester::new(7, Arc::clone(port.status()), 8, at(0));
        assert_eq!(requester.next(at(0)), Act::Look);
        requester.take_look(Err(not_sent()), at(1));
        assert_eq!(requester.status.state(), QuorumState::Ready);
        assert_eq!(requester.next(at(1)), Act::Wait(Time::NEVER));
    }

    #[test]
    fn an_invalid_counter_is_logged_once_a_second_and_always_refused() {
        let mut requester = ready(8);
        let mut noted = 0;
        for ms in (0..2_000).step_by(100) {
            requester.ask(question("k"), at(ms));
            let steps = requester.steps(at(ms));
            requester.take_answer(&steps, Ok(vec![Reply::Nonsense]), at(ms));
            if let Some(Act::NoteNonsense(counter)) = requester.acts.front() {
                assert_eq!(*counter, name("k"));
                requester.acts.clear();
                noted += 1;
            }
            assert_eq!(requester.settled(at(ms)), [false]);
        }
        assert_eq!(noted, 2);
    }

    #[test]
    fn a_counter_changed_by_another_server_is_retried_at_once() {
        let mut requester = asked(8, 1);
        let steps = requester.steps(at(0));
        let attempt = super::super::counters::Attempt { run: 8, number: 1 };
        let found = Reply::Found(Some(StoredCounter { revision: 5, fence: 9, attempt }));
        requester.take_answer(&steps, Ok(vec![found]), at(1));
        let steps = requester.steps(at(1));
        assert_eq!((steps[0].since, steps[0].fence), (5, 10));
    }
}
