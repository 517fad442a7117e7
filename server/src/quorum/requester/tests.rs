//! Tests of the requester.

use super::super::counters::StoredCounter;
use super::super::port::QuorumPort;
use super::*;
use waymaker_engine::{ClaimId, ClaimIx, Fence, LaneAddress, LaneSlot, QuorumMember, Reserved};

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

fn name(key: &str) -> CounterName {
    CounterName { namespace: 0, key: key.as_bytes().into() }
}

fn question(key: &str) -> QuorumQuestion {
    let lane = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };
    let reserved = Reserved {
        shard: 0,
        lane,
        slot: ClaimIx::new(0),
        secret: 0,
        fence: Fence::new(1),
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

    /// Takes the results that are ready for delivery. Returns for each finished question (a group of grants that waited
    /// for their fences) whether the cluster counted the fences.
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
    // A late result finishes no question, because all its questions have already failed.
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
    for text in ["too many operations in txn request", "request is too large", "received message larger"] {
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
    // etcd accepts the user again and rejects it once more. The probes are then as frequent as after the first
    // rejection.
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
    let found = Reply::Found(Some(StoredCounter { revision: 5, fence: Fence::new(9), attempt }));
    requester.take_answer(&steps, Ok(vec![found]), at(1));
    let steps = requester.steps(at(1));
    assert_eq!((steps[0].since, steps[0].fence.get()), (5, 10));
}
