//! Frames after the end of a connection, and on the next connection of its lane.

use super::*;
use waymaker_engine::Limits;
use waymaker_protocol::limits::IN_FLIGHT_MAX;
use waymaker_protocol::message::goodbye::FAREWELL;
use waymaker_protocol::{Goodbye, Release, Watch};

#[test]
fn a_welcome_announces_the_limits_of_the_server() {
    let mut rig = Rig::new(2);
    let (_, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let Limits { lease_default_ms, lease_min_ms, lease_max_ms, .. } = rig.node.limits;
    assert_eq!(
        (welcome.lease_default_ms, welcome.lease_min_ms, welcome.lease_max_ms),
        (lease_default_ms, lease_min_ms, lease_max_ms)
    );
    assert_eq!((welcome.in_flight_max, welcome.frame_len_max), (IN_FLIGHT_MAX, FRAME_LEN_MAX as u32));
    assert_eq!((welcome.session_lease_ms, welcome.resumed), (10_000, false));
    assert_eq!((welcome.worker, welcome.worker_count), (0, 2));
    assert_eq!(usize::from(welcome.shard_count), rig.node.shards.len());
}

/// The request still waits for the turns of its shards when its connection is lost. The client does not repeat it on
/// the next connection, so it must not be granted.
#[test]
fn a_request_of_a_lost_connection_is_not_served_for_the_next() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    assert_eq!(rig.ask(key, 2, &Request::AcquireKeys(both_keys(&mut buffer))), []);
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    assert_eq!(rig.hear(key), []);
    let heard = rig.ask(key, 3, &acquire(b"b"));
    assert!(matches!(heard[..], [(3, Heard::Granted(Granted { fence: 1, .. }))]), "{heard:?}");
}

/// Other workers post events to a lane without knowing whether it has a connection. An event of the lost connection
/// must not get in front of the welcome of the next one.
#[test]
fn the_first_frame_on_a_resumed_lane_is_its_welcome() {
    let mut rig = Rig::new(2);
    let (other, _) = rig.connect(SessionRequest::None);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    rig.ask(key, 2, &Request::Watch(Watch { key: b"key" }));
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(other, 2, &acquire(b"key")), []);
    rig.workers[0].handle_lost(key, rig.now);
    rig.node.mailboxes[1].post(turn);
    assert!(rig.workers[1].handle_mail(rig.now), "the event is in the mailbox of the first worker");
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (key, _) = rig.connect(resume);
    rig.workers[0].handle_mail(rig.now);
    assert_eq!(rig.hear(key), [], "the watch ended with its connection");
}

/// Another worker has the turn of the shard, which has therefore not served the acquire when the connection is lost.
#[test]
fn an_acquire_waiting_for_a_shard_is_dropped_with_its_connection() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (lost, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(lost, 2, &acquire(b"key")), []);
    rig.workers[0].handle_lost(lost, rig.now);
    rig.give_back(turn);
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let heard = rig.ask(holder, 4, &acquire(b"key"));
    assert!(matches!(heard[..], [(4, Heard::Granted(_))]), "{heard:?}");
}

/// The connection stays open until `FAREWELL` is written. The lock for which the connection waited may become free
/// before that.
#[test]
fn no_grant_follows_a_farewell() {
    let mut rig = Rig::new(1);
    let (holder, _) = rig.connect(SessionRequest::None);
    let (key, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    rig.say(key, &frame(3, &Request::Goodbye(Goodbye)));
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let last_words = rig.take_output(key).expect("it is answered");
    assert_eq!(heard(&last_words), [(3, Heard::Other(FAREWELL))]);
    let heard = rig.ask(holder, 4, &acquire(b"key"));
    assert!(matches!(heard[..], [(4, Heard::Granted(Granted { fence: 2, .. }))]), "{heard:?}");
}

/// Another worker has the turn of the shard. The acquire is left for that worker, which has not served it when the
/// session ends.
#[test]
fn no_answer_to_an_acquire_follows_a_session_gone_response() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    rig.ask(holder, 2, &acquire(b"key"));
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let (leaver, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    let turn = rig.hold_turn(b"key");
    let Request::Acquire(waits) = acquire(b"key") else { panic!() };
    let waits = Request::Acquire(waits.with_terms(|terms| terms.notify_queued = true));
    assert_eq!(rig.ask(key, 2, &waits), []);
    rig.say(leaver, &frame(2, &Request::Goodbye(Goodbye)));
    let told = rig.ask(key, 2, &waits);
    assert!(told.contains(&(2, Heard::Refused(ErrorCode::SessionGone))), "{told:?}");
    rig.give_back(turn);
    assert_eq!(rig.hear(key), []);
}
