//! Requests that a client repeats.

use super::*;
use crate::limits::EVERYWHERE_IN_FLIGHT_MAX;
use crate::memory::MemoryUse;
use crate::worker::test_node::test_node_with;
use waymaker_protocol::message::cancel::CANCELLED;
use waymaker_protocol::{Cancel, Namespaces, Release, Watch};

/// The shard learns of the lost connection after the client has repeated the request. The first attempt then leaves its
/// queue, but the client still wants the lock.
#[test]
fn a_repeated_acquire_is_a_new_attempt_while_the_first_still_waits() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    let turn = rig.hold_turn(b"key");
    let key = rig.reconnect(key, &welcome);
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    rig.give_back(turn);
    assert_eq!(rig.hear(key), [], "it waits again");
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    let heard = rig.hear(key);
    assert!(matches!(heard[..], [(2, Heard::Granted(Granted { fence: 2, waited: true, .. }))]), "{heard:?}");
}

/// Another worker has the turn of the shard while the client loses its connection, reconnects, repeats the acquire and
/// cancels it. When that worker serves the shard, the shard learns of the lost connection and of the CANCEL, one
/// directly after the other. The first attempt then ends, and the repeated acquire must not be served in its place.
#[test]
fn a_repeated_acquire_that_is_cancelled_stops_waiting() {
    let mut rig = Rig::new(2);
    let (holder, _) = rig.connect(SessionRequest::None);
    let Heard::Granted(held) = rig.ask(holder, 2, &acquire(b"key"))[0].1 else { panic!() };
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), []);
    let turn = rig.hold_turn(b"key");
    let key = rig.reconnect(key, &welcome);
    let cancel = Request::Cancel(Cancel { acquire_number: 2, key: b"key" });
    rig.say(key, &[frame(2, &acquire(b"key")), frame(3, &cancel)].concat());
    rig.give_back(turn);
    let (cancelled, is_over) = ((3, Heard::Other(CANCELLED)), (2, Heard::Refused(ErrorCode::Cancelled)));
    let heard = rig.hear(key);
    assert!(heard.contains(&cancelled) && heard.contains(&is_over), "{heard:?}");
    rig.ask(holder, 3, &Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(rig.hear(key), [], "the acquire does not wait");
}

/// A request that is refused because of a limit has no effect, so the session keeps nothing of it.
#[test]
fn a_refused_request_is_served_if_the_next_connection_repeats_it() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let turn = rig.hold_turn(b"key");
    let last = 2 + EVERYWHERE_IN_FLIGHT_MAX;
    let page = Request::Namespaces(Namespaces::default());
    for number in 2..last {
        assert_eq!(rig.ask(key, number, &page), []);
    }
    assert_eq!(rig.ask(key, last, &page), [(last, Heard::Refused(ErrorCode::Overloaded))]);
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    let heard = rig.ask(key, last, &page);
    assert!(matches!(heard[..], [(number, Heard::Other(_))] if number == last), "{heard:?}");
}

/// Without the kept answer, the client would not know that it holds the key.
#[test]
fn a_stopping_server_still_answers_a_repeated_granted_acquire() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let granted = rig.ask(key, 2, &acquire(b"key"));
    let key = rig.reconnect(key, &welcome);
    rig.node.set_stopping();
    assert_eq!(rig.ask(key, 2, &acquire(b"key")), granted);
    let refused = rig.ask(key, 3, &acquire(b"another"));
    assert_eq!(refused, [(3, Heard::Refused(ErrorCode::Shutdown))]);
}

/// The watch of the lost connection has no answer yet when the client repeats it. The first answer must not follow the
/// refusal.
#[test]
fn a_watch_repeated_while_memory_is_full_gets_one_answer() {
    let now = Time::from_millis(1_000);
    let memory = Arc::new(MemoryUse::new(Some(1)));
    let mut rig = Rig::of(test_node_with(2, now, Arc::clone(&memory)), now);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"key");
    let watch = Request::Watch(Watch { key: b"key" });
    assert_eq!(rig.ask(key, 2, &watch), []);
    let key = rig.reconnect(key, &welcome);
    memory.note(2);
    let mut heard = rig.ask(key, 2, &watch);
    rig.give_back(turn);
    heard.extend(rig.hear(key));
    assert_eq!(heard, [(2, Heard::Refused(ErrorCode::Cancelled))]);
}
