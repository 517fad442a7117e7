//! Ends of sessions with many connections.

use super::*;
use crate::limits::LANE_ENDS_PER_TURN;

const SESSION_COUNT: usize = 3;
const LEASE_MS: u32 = 10_000;
const SESSION: SessionRequest = SessionRequest::New { lease_ms: LEASE_MS };

/// Opens a session with as many connections as it may have. Each has a hold on the session's lease in every shard.
fn crowded_session(rig: &mut Rig) -> ConnectionKey {
    let keys = rig.crowd(SESSION);
    for key in &keys {
        for (number, name) in (2..).zip(vacancy::names_of_shards(&rig.node)) {
            let request = Acquire { key: &name, shared: true, session_lease: true, ..Acquire::default() };
            let heard = rig.ask(*key, number, &Request::Acquire(request));
            assert!(matches!(heard[..], [(_, Heard::Granted(_))]), "{heard:?}");
        }
    }
    keys[0]
}

/// Returns the number of holds and waiters in all shards.
fn claim_count(node: &Node) -> u32 {
    let turns = node.shards.iter().map(|shard| shard.enter().expect("nobody has it"));
    turns
        .map(|turn| {
            let count = turn.shard.claim_count();
            assert!(turn.leave().is_none(), "nobody left a batch");
            count
        })
        .sum()
}

/// Returns how many holds ended during this call.
fn ended_by(rig: &mut Rig, call: impl FnOnce(&mut Rig)) -> u32 {
    let before = claim_count(&rig.node);
    call(rig);
    before - claim_count(&rig.node)
}

/// Lets the first worker do the rest of its work, and returns the most holds that ended in one call.
fn most_ended_at_once(rig: &mut Rig) -> u32 {
    let mut most = 0;
    while rig.workers[0].next_deadline() <= rig.now {
        most = most.max(ended_by(rig, |rig| rig.workers[0].turn(rig.now)));
    }
    most
}

#[test]
fn sessions_with_many_connections_end_over_several_turns() {
    let mut rig = Rig::new(2);
    for _ in 0..SESSION_COUNT {
        crowded_session(&mut rig);
    }
    let held = claim_count(&rig.node);
    assert!(held > 3 * LANE_ENDS_PER_TURN as u32, "{held} holds end in more turns than there are sessions");
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    let mut most = 0;
    // The steps that go before the end of a session.
    for _ in 0..10 {
        rig.now = rig.now.after_ms(1);
        rig.workers[1].handle_mail(rig.now);
        rig.workers[1].handle_drained(rig.now, rig.now);
        most = most.max(ended_by(&mut rig, |rig| _ = rig.workers[0].handle_mail(rig.now)));
        most = most.max(ended_by(&mut rig, |rig| rig.workers[0].handle_drained(rig.now, rig.now)));
        most = most.max(most_ended_at_once(&mut rig));
    }
    assert_eq!(claim_count(&rig.node), 0, "all sessions have ended");
    assert!(most <= LANE_ENDS_PER_TURN as u32, "{most} holds of {held} ended at once");
}

#[test]
fn a_goodbye_ends_a_session_with_many_connections_over_several_turns() {
    let mut rig = Rig::new(2);
    let key = crowded_session(&mut rig);
    let held = claim_count(&rig.node);
    let goodbye = frame(99, &Request::Goodbye(Goodbye));
    let first = ended_by(&mut rig, |rig| _ = rig.say(key, &goodbye));
    let later = most_ended_at_once(&mut rig);
    assert_eq!(claim_count(&rig.node), 0, "the session has ended");
    let most = first.max(later);
    assert!(most <= LANE_ENDS_PER_TURN as u32, "{most} holds of {held} ended at once");
}

/// Its waiters leave although another session's end is not finished, so no grant follows the farewell.
#[test]
fn a_goodbye_ends_the_lanes_of_its_session_that_have_a_connection_first() {
    let mut rig = Rig::new(2);
    let holder = rig.connect(SessionRequest::None).0;
    rig.ask(holder, 2, &Request::Acquire(Acquire { key: b"held", ..Acquire::default() }));
    let (waiter, _) = rig.connect(SESSION);
    let waits = Acquire { key: b"held", wait_ms: WAIT_FOREVER_MS, ..Acquire::default() };
    assert_eq!(rig.ask(waiter, 2, &Request::Acquire(waits)), []);
    let keys = rig.crowd(SESSION);
    for key in &keys[1..] {
        for (number, name) in (2..).zip(vacancy::names_of_shards(&rig.node)) {
            rig.ask(*key, number, &Request::Inspect(Inspect { key: &name }));
        }
        rig.workers[0].handle_lost(*key, rig.now);
    }
    rig.say(keys[0], &frame(99, &Request::Goodbye(Goodbye)));
    assert_eq!(rig.workers[0].next_deadline(), Time::ZERO, "the end of a session is not finished");
    let ended = ended_by(&mut rig, |rig| _ = rig.say(waiter, &frame(99, &Request::Goodbye(Goodbye))));
    assert_eq!(ended, 1, "the waiter has left");
}

/// A server that stops must not keep the holds of an ended session.
#[test]
fn a_server_that_stops_ends_the_rest_of_a_session_first() {
    let mut rig = Rig::new(2);
    let key = crowded_session(&mut rig);
    rig.say(key, &frame(99, &Request::Goodbye(Goodbye)));
    assert_ne!(claim_count(&rig.node), 0, "there is a rest");
    rig.node.mailboxes[0].post(Mail::Finish);
    rig.workers[0].handle_mail(rig.now);
    assert_eq!(claim_count(&rig.node), 0);
}

#[test]
fn sessions_that_no_shard_knows_end_over_several_turns() {
    let mut rig = Rig::new(1);
    let session_count = 4 * LANE_ENDS_PER_TURN;
    for _ in 0..session_count {
        rig.connect(SESSION);
    }
    while rig.workers[0].poll_dirty().is_some() {}
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    let mut told = Vec::new();
    // The steps that go before the end of a session.
    for _ in 0..10 {
        rig.now = rig.now.after_ms(1);
        rig.workers[0].handle_drained(rig.now, rig.now);
        told.push(std::iter::from_fn(|| rig.workers[0].poll_dirty()).count());
        while rig.workers[0].next_deadline() <= rig.now {
            assert!(told.len() < session_count, "the worker has nothing left to do");
            rig.workers[0].turn(rig.now);
            told.push(std::iter::from_fn(|| rig.workers[0].poll_dirty()).count());
        }
    }
    assert_eq!(told.iter().sum::<usize>(), session_count, "all sessions have ended");
    let most = told.iter().max().expect("there were turns");
    assert!(*most <= LANE_ENDS_PER_TURN, "{most} sessions ended at once");
}
