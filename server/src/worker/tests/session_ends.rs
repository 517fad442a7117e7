//! Ends of sessions with many connections.

use super::super::test_node::test_node_with_log;
use super::several_turns::claim_count;
use super::*;
use crate::limits::{LANE_ENDS_PER_TICK, SERVED_COST_MAX};
use crate::log::LogOrder;
use crate::mail::Batch;
use waymaker_log::{Record, Records};
use waymaker_protocol::message::goodbye::FAREWELL;
use waymaker_protocol::message::keep_alive::KEPT_ALIVE;
use waymaker_protocol::{
    AcquireOptions, AcquireTerms, Bucket, Goodbye, Inspect, KeepAlive, Release, Throttle,
};

const SESSION_COUNT: usize = 3;
const LEASE_MS: u32 = 10_000;
/// Milliseconds that a test allows from the expiry of a session to its end. In this time, all new connections are
/// accepted and all sockets are read, because a client may be resuming or renewing the session.
const STEPS_MS: u32 = 20;
const SESSION: SessionRequest = SessionRequest::New { lease_ms: LEASE_MS };

/// Opens a session with the maximum number of connections. Each of them has a hold on the session lease in every
/// shard.
fn crowded_session(rig: &mut Rig) -> Vec<ConnectionKey> {
    let keys = rig.crowd(SESSION);
    for key in &keys {
        for (number, name) in (2..).zip(vacancy::names_of_shards(&rig.node)) {
            let request = Acquire {
                key: &name,
                shared: true,
                terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
            };
            let heard = rig.ask(*key, number, &Request::Acquire(request));
            assert!(matches!(heard[..], [(_, Heard::Granted(_))]), "{heard:?}");
        }
    }
    keys
}

/// Returns the number of holds and waiters that ended during this call.
fn ended_by(rig: &mut Rig, call: impl FnOnce(&mut Rig)) -> u32 {
    let before = claim_count(&rig.node);
    call(rig);
    before - claim_count(&rig.node)
}

/// Lets the first worker do the rest of its work. Returns the largest number of holds and waiters that ended in one
/// tick.
fn most_ended_at_once(rig: &mut Rig) -> u32 {
    let mut most = 0;
    while rig.workers[0].next_deadline() <= rig.now {
        most = most.max(ended_by(rig, |rig| rig.workers[0].tick(rig.now)));
    }
    most
}

/// The worker that serves the request tells the shard to which session the lane belongs. Otherwise the shard would not
/// end the hold with the session.
#[test]
fn a_hold_granted_by_another_worker_ends_with_its_session() {
    let (node, orders) = test_node_with_log(2, Time::from_millis(1_000));
    let mut rig = Rig::of(node, Time::from_millis(1_000));
    let (key, welcome) = rig.connect(SESSION);
    let turn = rig.hold_turn(b"key");
    let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
    let request = Acquire {
        key: b"key",
        terms: AcquireTerms { session_lease: true, options, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    assert_eq!(rig.ask(key, 2, &Request::Acquire(request)), []);
    rig.give_back(turn);
    let mut sessions = Vec::new();
    let orders: Vec<_> = orders.try_iter().collect();
    for order in &orders {
        let LogOrder::Batch(batch) = order else { panic!("{order:?}") };
        for record in Records::check(&batch.records, batch.record_count).expect("whole records") {
            if let Record::Held(hold) = Record::decode(record).expect("a record") {
                sessions.push(hold.session.map(|session| (session.place, session.secret, session.lease_ms)));
            }
        }
    }
    let id = welcome.session_id;
    assert_eq!(sessions, [Some((id.place, id.secret, LEASE_MS))], "the log knows the session of the hold");
    durable::make_durable_all(&rig, orders);
    rig.workers[0].handle_mail(rig.now);
    let heard = rig.hear(key);
    assert!(matches!(heard[..], [(2, Heard::Granted(_))]), "{heard:?}");
    assert_eq!(claim_count(&rig.node), 1);
    rig.ask(key, 3, &Request::Goodbye(Goodbye));
    while rig.workers[0].next_deadline() <= rig.now {
        rig.workers[0].tick(rig.now);
    }
    assert_eq!(claim_count(&rig.node), 0);
}

#[test]
fn sessions_with_many_connections_end_over_several_turns() {
    let mut rig = Rig::new(2);
    for _ in 0..SESSION_COUNT {
        crowded_session(&mut rig);
    }
    let held = claim_count(&rig.node);
    assert!(held > 3 * LANE_ENDS_PER_TICK as u32, "{held} holds end in more turns than there are sessions");
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    let mut most = 0;
    // Before a session ends, all new connections are accepted, and then all sockets are read in a later millisecond. In
    // each round of this loop, a millisecond passes and both workers read their sockets.
    for _ in 0..10 {
        rig.now = rig.now.after_ms(1);
        rig.workers[1].handle_mail(rig.now);
        rig.workers[1].handle_drained(rig.now, rig.now);
        most = most.max(ended_by(&mut rig, |rig| _ = rig.workers[0].handle_mail(rig.now)));
        most = most.max(ended_by(&mut rig, |rig| rig.workers[0].handle_drained(rig.now, rig.now)));
        most = most.max(most_ended_at_once(&mut rig));
    }
    assert_eq!(claim_count(&rig.node), 0, "all sessions have ended");
    assert!(most <= LANE_ENDS_PER_TICK as u32, "{most} holds of {held} ended at once");
}

#[test]
fn a_goodbye_ends_a_session_with_many_connections_over_several_turns() {
    let mut rig = Rig::new(2);
    let key = crowded_session(&mut rig)[0];
    let held = claim_count(&rig.node);
    let goodbye = frame(99, &Request::Goodbye(Goodbye));
    let first = ended_by(&mut rig, |rig| _ = rig.say(key, &goodbye));
    let later = most_ended_at_once(&mut rig);
    assert_eq!(claim_count(&rig.node), 0, "the session has ended");
    let most = first.max(later);
    assert!(most <= LANE_ENDS_PER_TICK as u32, "{most} holds of {held} ended at once");
}

/// The waiters of the session that said `GOODBYE` end although another session is still ending. So no grant follows
/// `FAREWELL`.
#[test]
fn a_goodbye_first_ends_the_connected_lanes_of_its_session() {
    let mut rig = Rig::new(2);
    let holder = rig.connect(SessionRequest::None).0;
    rig.ask(holder, 2, &Request::Acquire(Acquire { key: b"held", ..Acquire::default() }));
    let (waiter, _) = rig.connect(SESSION);
    let waits = Acquire {
        key: b"held",
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
        ..Acquire::default()
    };
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

/// A stopping server must not keep the holds of an ended session.
#[test]
fn a_stopping_server_first_ends_the_rest_of_an_ended_session() {
    let mut rig = Rig::new(2);
    let key = crowded_session(&mut rig)[0];
    rig.say(key, &frame(99, &Request::Goodbye(Goodbye)));
    assert_ne!(claim_count(&rig.node), 0, "there is a rest");
    rig.node.mailboxes[0].post(Mail::Finish);
    rig.workers[0].handle_mail(rig.now);
    assert_eq!(claim_count(&rig.node), 0);
}

#[test]
fn sessions_unknown_to_all_shards_end_over_several_turns() {
    let mut rig = Rig::new(1);
    let session_count = 4 * LANE_ENDS_PER_TICK;
    for _ in 0..session_count {
        rig.connect(SESSION);
    }
    while rig.workers[0].poll_dirty().is_some() {}
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    let mut told = Vec::new();
    // Before a session ends, all new connections are accepted, and then all sockets are read in a later millisecond. In
    // each round of this loop, a millisecond passes and the worker reads its sockets.
    for _ in 0..10 {
        rig.now = rig.now.after_ms(1);
        rig.workers[0].handle_drained(rig.now, rig.now);
        told.push(std::iter::from_fn(|| rig.workers[0].poll_dirty()).count());
        while rig.workers[0].next_deadline() <= rig.now {
            assert!(told.len() < session_count, "the worker has nothing left to do");
            rig.workers[0].tick(rig.now);
            told.push(std::iter::from_fn(|| rig.workers[0].poll_dirty()).count());
        }
    }
    assert_eq!(told.iter().sum::<usize>(), session_count, "all sessions have ended");
    let most = told.iter().max().expect("there were turns");
    assert!(*most <= LANE_ENDS_PER_TICK, "{most} sessions ended at once");
}

/// Opens a session with the maximum number of connections. Every shard knows each of them.
fn known_session(rig: &mut Rig) -> Vec<ConnectionKey> {
    let keys = rig.crowd(SESSION);
    for key in &keys {
        for (number, name) in (2..).zip(vacancy::names_of_shards(&rig.node)) {
            rig.ask(*key, number, &Request::Inspect(Inspect { key: &name }));
        }
    }
    keys
}

/// Lets the first worker do one turn of the rest of its work. Returns false if there is none.
fn tick(rig: &mut Rig) -> bool {
    let is_due = rig.workers[0].next_deadline() <= rig.now;
    if is_due {
        rig.workers[0].tick(rig.now);
    }
    is_due
}

/// A client that has received the farewell can acquire every lock that the session held.
#[test]
fn the_farewell_is_sent_when_no_hold_of_the_session_is_left() {
    let mut rig = Rig::new(2);
    let key = crowded_session(&mut rig)[0];
    let goodbye = frame(99, &Request::Goodbye(Goodbye));
    // The server reads no frame after GOODBYE.
    rig.say(key, &[goodbye, frame(100, &Request::KeepAlive(KeepAlive))].concat());
    while claim_count(&rig.node) > 0 {
        assert_eq!(rig.hear(key), [], "the connection is open and is told nothing yet");
        assert!(!rig.workers[0].wants_read(key));
        assert!(tick(&mut rig), "there is work left");
    }
    while tick(&mut rig) {}
    assert_eq!(rig.hear(key), [(99, Heard::Other(FAREWELL))]);
    assert!(rig.take_output(key).is_none(), "the connection is closed");
}

/// The session of the `GOODBYE` has lanes without a connection too. They are closed before the lanes of the other
/// session.
#[test]
fn a_goodbye_is_answered_while_another_large_session_ends() {
    let mut rig = Rig::new(2);
    let (first, welcome) = rig.connect(SESSION);
    let (second, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    let hold = Acquire {
        key: b"key",
        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    rig.ask(second, 2, &Request::Acquire(hold));
    rig.workers[0].handle_lost(second, rig.now);
    let others = known_session(&mut rig);
    rig.say(others[0], &frame(99, &Request::Goodbye(Goodbye)));
    assert_eq!(rig.ask(first, 99, &Request::Goodbye(Goodbye)), [(99, Heard::Other(FAREWELL))]);
    assert_eq!(claim_count(&rig.node), 0);
    assert_eq!(rig.hear(others[0]), [], "the end of the other session is not finished");
}

/// A session with many connections, one of which waits for the hold of another client.
struct Waiting {
    rig: Rig,
    leaver: ConnectionKey,
    waiter: ConnectionKey,
    holder: ConnectionKey,
    release: Vec<u8>,
}

impl Waiting {
    fn new() -> Self {
        let mut rig = Rig::new(2);
        let holder = rig.connect(SessionRequest::None).0;
        let heard = rig.ask(holder, 2, &Request::Acquire(Acquire { key: b"held", ..Acquire::default() }));
        let [(2, Heard::Granted(granted))] = heard[..] else { panic!("{heard:?}") };
        let release = frame(3, &Request::Release(Release { id: granted.id, key: None, own: false }));
        let keys = known_session(&mut rig);
        let waits = Acquire {
            key: b"held",
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        assert_eq!(rig.ask(keys[0], 98, &Request::Acquire(waits)), []);
        let leaver = *keys.last().expect("a connection");
        Self { rig, leaver, waiter: keys[0], holder, release }
    }

    /// Ends the session, and releases the hold before all connections of the session have left. Returns the frames that
    /// the waiter gets before the release, and those after it.
    fn end_session(&mut self, told: impl FnOnce(&mut Rig, ConnectionKey)) -> [Vec<(u32, Heard)>; 2] {
        let Self { rig, leaver, waiter, holder, release } = self;
        rig.say(*leaver, &frame(99, &Request::Goodbye(Goodbye)));
        told(rig, *waiter);
        let early = rig.hear(*waiter);
        rig.say(*holder, release);
        while tick(rig) {}
        [early, rig.hear(*waiter)]
    }
}

const SESSION_ENDED: (u32, Heard) = (0, Heard::Other(opcode::SESSION_EXPIRED));

#[test]
fn a_waiter_gets_no_grant_after_the_end_of_its_session() {
    let [early, late] = Waiting::new().end_session(|_, _| {});
    assert_eq!(early, [], "not all of its waiters have left");
    assert_eq!(late.last(), Some(&SESSION_ENDED), "{late:?}");
}

/// After the response SESSION_GONE, the client may repeat its acquire on another connection. So the waiters of the
/// ended session must leave their queues before it.
#[test]
fn a_client_gets_no_grant_after_a_session_gone_response() {
    let [early, late] = Waiting::new().end_session(|rig, waiter| {
        rig.say(waiter, &frame(99, &Request::KeepAlive(KeepAlive)));
    });
    assert_eq!(early, [SESSION_ENDED, (99, Heard::Refused(ErrorCode::SessionGone))]);
    assert_eq!(late, []);
}

/// The lane ends exactly once, although both its session and its connection end.
#[test]
fn a_connection_lost_while_its_session_ends_leaves_no_state() {
    let mut rig = Rig::new(2);
    let leaver = crowded_session(&mut rig)[0];
    let (bystander, _) = rig.connect(SESSION);
    rig.say(leaver, &frame(99, &Request::Goodbye(Goodbye)));
    rig.workers[0].handle_lost(leaver, rig.now);
    // The new connection gets the slot of the lost lane. The end of the old session must not touch it.
    let (next, _) = rig.connect(SESSION);
    assert_eq!(next.slot, leaver.slot);
    for (key, name) in [(bystander, b"a"), (next, b"b")] {
        let hold = Acquire {
            key: name,
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let heard = rig.ask(key, 2, &Request::Acquire(hold));
        assert!(matches!(heard[..], [(2, Heard::Granted(_))]), "{heard:?}");
    }
    while tick(&mut rig) {}
    assert_eq!(claim_count(&rig.node), 2, "the holds of the other sessions are left");
    assert_eq!((rig.hear(bystander), rig.hear(next)), (vec![], vec![]));
}

/// Other lanes get the free slots before the shards know that the session has ended.
#[test]
fn unconnected_lanes_are_reused_while_their_session_ends() {
    let mut rig = Rig::new(2);
    let keys = crowded_session(&mut rig);
    keys[1..].iter().for_each(|key| rig.workers[0].handle_lost(*key, rig.now));
    rig.say(keys[0], &frame(99, &Request::Goodbye(Goodbye)));
    let next: Vec<_> = keys[1..].iter().map(|_| rig.connect(SESSION).0).collect();
    for key in &next {
        assert!(keys.iter().any(|old| old.slot == key.slot), "the slot is new");
        let hold = Acquire {
            key: b"key",
            shared: true,
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        };
        let heard = rig.ask(*key, 2, &Request::Acquire(hold));
        assert!(matches!(heard[..], [(2, Heard::Granted(_))]), "{heard:?}");
    }
    assert_ne!(claim_count(&rig.node), next.len() as u32, "the end of the session is not finished");
    while tick(&mut rig) {}
    assert_eq!(claim_count(&rig.node), next.len() as u32, "the holds of the other sessions are left");
    assert!(next.iter().all(|key| rig.hear(*key).is_empty()));
}

/// Lanes without a connection have no waiters, so no grant can follow the report.
#[test]
fn a_session_end_is_reported_before_its_unconnected_lanes_are_closed() {
    let mut rig = Rig::new(2);
    let keys = crowded_session(&mut rig);
    let (last, lost) = keys.split_last().expect("connections");
    lost.iter().for_each(|key| rig.workers[0].handle_lost(*key, rig.now));
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    for _ in 0..STEPS_MS {
        rig.now = rig.now.after_ms(1);
        rig.workers[1].handle_mail(rig.now);
        rig.workers[1].handle_drained(rig.now, rig.now);
        rig.workers[0].handle_mail(rig.now);
        rig.workers[0].handle_drained(rig.now, rig.now);
        if rig.hear(*last) == [SESSION_ENDED] {
            return assert_ne!(claim_count(&rig.node), 0, "it was told last");
        }
    }
    panic!("the session has not ended");
}

/// The last frame of the expiring session may arrive in a socket that was read shortly before, and is read only with
/// the next reading. The session must then be renewed.
#[test]
fn a_session_that_expires_while_others_end_can_still_be_renewed() {
    let mut rig = Rig::new(1);
    let keys: Vec<_> = (0..4 * LANE_ENDS_PER_TICK).map(|_| rig.connect(SESSION).0).collect();
    let (late, _) = rig.connect(SessionRequest::New { lease_ms: LEASE_MS + STEPS_MS });
    while rig.workers[0].poll_dirty().is_some() {}
    rig.now = rig.now.after_ms(u64::from(LEASE_MS));
    while !rig.workers[0].has_dirty() {
        rig.now = rig.now.after_ms(1);
        rig.workers[0].handle_drained(rig.now, rig.now);
    }
    assert!(rig.workers[0].next_deadline() <= rig.now, "some of them are left");
    rig.now = rig.now.after_ms(u64::from(STEPS_MS));
    while tick(&mut rig) && !rig.workers[0].wants_drain() {}
    assert!(keys.iter().all(|key| rig.hear(*key) == [SESSION_ENDED]), "no more sockets had to be read");
    assert_eq!(
        rig.ask(late, 2, &Request::KeepAlive(KeepAlive)),
        [(2, Heard::Other(KEPT_ALIVE))],
        "its client renews it"
    );
}

/// Ends the session of a waiter while another worker has the turn of the shard in which it waits. That worker grants
/// the lock before it closes the lane. Returns the frames that the waiter gets.
fn hear_end_behind_grant(end: impl FnOnce(&mut Rig, ConnectionKey, &Welcome)) -> Vec<(u32, Heard)> {
    let mut rig = Rig::new(2);
    let holder = rig.connect(SessionRequest::None).0;
    let heard = rig.ask(holder, 2, &acquire(b"held"));
    let [(2, Heard::Granted(granted))] = heard[..] else { panic!("{heard:?}") };
    let (waiter, welcome) = rig.connect(SESSION);
    assert_eq!(rig.ask(waiter, 2, &acquire(b"held")), []);
    let held_turn = rig.hold_turn(b"held");
    rig.ask(holder, 3, &Request::Release(Release { id: granted.id, key: None, own: false }));
    end(&mut rig, waiter, &welcome);
    while tick(&mut rig) {}
    rig.give_back(held_turn);
    rig.hear(waiter)
}

fn say_goodbye(rig: &mut Rig, key: ConnectionKey) {
    rig.say(key, &frame(99, &Request::Goodbye(Goodbye)));
}

#[test]
fn the_farewell_is_the_last_frame_if_another_worker_closes_the_lane() {
    let heard = hear_end_behind_grant(|rig, waiter, _| say_goodbye(rig, waiter));
    assert!(matches!(heard[..], [(2, Heard::Granted(_)), (99, Heard::Other(FAREWELL))]), "{heard:?}");
}

#[test]
fn a_session_end_follows_the_last_grant_of_another_worker() {
    let heard = hear_end_behind_grant(|rig, _, welcome| {
        let (other, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
        say_goodbye(rig, other);
    });
    assert!(matches!(heard[..], [(2, Heard::Granted(_)), SESSION_ENDED]), "{heard:?}");
}

#[test]
fn no_grant_follows_session_gone_if_another_worker_closes_the_lane() {
    let heard = hear_end_behind_grant(|rig, waiter, welcome| {
        let (other, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
        say_goodbye(rig, other);
        rig.say(waiter, &frame(98, &Request::KeepAlive(KeepAlive)));
    });
    assert_eq!(heard, [SESSION_ENDED, (98, Heard::Refused(ErrorCode::SessionGone))]);
}

/// A client that has received the farewell can acquire every lock that the session held.
#[test]
fn the_farewell_waits_until_another_worker_has_closed_all_lanes() {
    let mut rig = Rig::new(2);
    let (first, welcome) = rig.connect(SESSION);
    let (second, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    let hold = Acquire {
        key: b"held",
        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    rig.ask(second, 2, &Request::Acquire(hold));
    let held_turn = rig.hold_turn(b"held");
    say_goodbye(&mut rig, first);
    while tick(&mut rig) {}
    assert_eq!(rig.hear(first), [], "the other connection has a hold");
    rig.give_back(held_turn);
    assert_eq!(rig.hear(first), [(99, Heard::Other(FAREWELL))]);
    assert_eq!(claim_count(&rig.node), 0);
}

/// A waiter of an ended session must not stay in its queue, where it would keep other clients from the lock.
#[test]
fn a_client_has_left_every_queue_before_a_session_gone_response() {
    let mut waiting = Waiting::new();
    let (other, _) = waiting.rig.connect(SessionRequest::None);
    let Waiting { rig, leaver, waiter, holder, release } = &mut waiting;
    say_goodbye(rig, *leaver);
    rig.say(*waiter, &frame(99, &Request::KeepAlive(KeepAlive)));
    assert_eq!(rig.hear(*waiter), [SESSION_ENDED, (99, Heard::Refused(ErrorCode::SessionGone))]);
    rig.say(*holder, release);
    let heard = rig.ask(other, 2, &Request::Acquire(Acquire { key: b"held", ..Acquire::default() }));
    assert!(matches!(heard[..], [(2, Heard::Granted(_))]), "{heard:?}");
}

/// No connection would receive the grant.
#[test]
fn a_request_waiting_for_turns_is_not_served_after_its_session_end() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SESSION);
    let (leaver, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    let held_turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    assert_eq!(rig.ask(key, 2, &Request::AcquireKeys(both_keys(&mut buffer))), []);
    say_goodbye(&mut rig, leaver);
    while tick(&mut rig) {}
    rig.give_back(held_turn);
    assert_eq!(rig.hear(key), [SESSION_ENDED]);
    assert_eq!(claim_count(&rig.node), 0);
}

/// The client repeats an acquire for which its lost connection waited. The session ends before the shard knows of the
/// loss.
#[test]
fn a_repeated_acquire_is_not_served_after_its_session_end() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    rig.ask(holder, 2, &acquire(b"key"));
    let (key, welcome) = rig.connect(SESSION);
    let (leaver, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    let held_turn = rig.hold_turn(b"key");
    let key = rig.reconnect(key, &welcome);
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    say_goodbye(&mut rig, leaver);
    while tick(&mut rig) {}
    rig.give_back(held_turn);
    assert_eq!(rig.hear(key), [SESSION_ENDED]);
    assert_eq!(claim_count(&rig.node), 1, "the hold of the other client is left");
}

#[test]
fn a_lease_that_waits_for_unread_sockets_is_overdue_in_the_metrics() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    rig.ask(
        key,
        2,
        &Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() },
            ..Acquire::default()
        }),
    );
    let due = rig.now.after_ms(10);
    rig.now = due.after_ms(7);
    rig.workers[0].handle_drained(rig.now, rig.now);
    assert_eq!(rig.node.metrics.workers[0].oldest_due(), due, "the other worker has not read");
    rig.workers[1].handle_drained(rig.now, rig.now);
    rig.workers[0].handle_drained(rig.now, rig.now);
    assert_eq!(rig.node.metrics.workers[0].oldest_due(), Time::NEVER);
}

#[test]
fn a_worker_asked_to_read_up_to_a_deadline_reads_until_then() {
    let mut rig = Rig::new(2);
    let due = rig.now.after_ms(5);
    for asked in [rig.now, due] {
        rig.node.mailboxes[0].post(Mail::Drain { asker: 1, due: asked });
    }
    rig.workers[0].handle_mail(rig.now);
    rig.workers[0].handle_drained(rig.now, due);
    assert!(rig.workers[0].wants_drain(), "the second question is open");
    rig.workers[0].handle_drained(due, due);
    assert!(!rig.workers[0].wants_drain());
}

/// Another worker has the turn of a shard and has not closed the lane there. A stopping server does not wait for it.
#[test]
fn nothing_follows_the_answer_to_a_goodbye_when_the_server_stops() {
    for session in [SessionRequest::None, SESSION] {
        let mut rig = Rig::new(2);
        let (key, _) = rig.connect_to(NamespaceKind::Limit, session);
        let turn = rig.hold_turn(b"b");
        let bucket = Bucket { rate: 1, period_ns: 1_000_000_000, burst: 9, cost: 1, name: b"b" };
        assert_eq!(rig.ask(key, 2, &Request::Throttle(Throttle { bucket, refund: false })), []);
        assert_eq!(rig.ask(key, 3, &Request::Goodbye(Goodbye)), []);
        rig.node.mailboxes[0].post(Mail::Finish);
        rig.workers[0].handle_mail(rig.now);
        rig.give_back(turn);
        assert_eq!(rig.hear(key), [(3, Heard::Other(FAREWELL))]);
        assert_eq!(rig.take_output(key), None, "the connection is over");
    }
}

/// After all workers have ended, no worker would take a turn that was passed to it, so the turn would never be given
/// back.
#[test]
fn workers_that_finish_pass_no_shard_turn_to_each_other() {
    let mut rig = Rig::new(2);
    let (shard, pass) = match rig.hold_turn(b"key") {
        Mail::Turn { shard, pass } => (shard, pass),
        other => panic!("{other:?}"),
    };
    let mut turn = rig.node.shards[usize::from(shard)].resume(pass);
    turn.left.extend((0..=SERVED_COST_MAX).map(|_| Batch::Count));
    rig.node.mailboxes[0].post(Mail::Finish);
    rig.workers[0].handle_mail(rig.now);
    rig.node.mailboxes[1].post(Mail::Finish);
    rig.node.mailboxes[1].post(Mail::Turn { shard, pass: turn.pass_on() });
    rig.workers[1].handle_mail(rig.now);
    assert_eq!(claim_count(&rig.node), 0, "no turn is held");
}

/// A turn ends a part of the holds of a lane, and leaves the rest to later turns.
#[test]
fn the_farewell_follows_the_end_of_every_hold_of_the_session() {
    const HOLD_COUNT: u32 = 1000;
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect(SESSION);
    for number in 0..HOLD_COUNT {
        let hold = Acquire {
            key: &number.to_le_bytes(),
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        rig.ask(key, number + 2, &Request::Acquire(hold));
    }
    assert_eq!(claim_count(&rig.node), HOLD_COUNT);
    say_goodbye(&mut rig, key);
    while rig.hear(key).is_empty() {
        assert!(tick(&mut rig), "there is work left");
    }
    assert_eq!(claim_count(&rig.node), 0);
}
