//! Limits of the requests that a connection has in flight or left for a shard.

use super::leases::large_set;
use super::*;
use crate::limits::{BATCH_COST_MAX, EVERYWHERE_IN_FLIGHT_MAX, LEFT_COST_MAX};
use waymaker_protocol::limits::IN_FLIGHT_MAX;
use waymaker_protocol::message::force_release::FORCE_RELEASED;
use waymaker_protocol::{ForceRelease, Freeze, Inspect, List, Namespaces, Watch};

/// A shard serves broadcasts before later requests of other clients. So a connection with many broadcasts would delay
/// other clients.
#[test]
fn a_connection_may_have_few_broadcast_requests_in_flight() {
    for request in [
        Request::Namespaces(Namespaces::default()),
        Request::Freeze(Freeze { prefix: b"frozen", thaw: false, ..Freeze::default() }),
    ] {
        let mut rig = Rig::new(2);
        let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
        let turn = rig.hold_turn(b"key");
        for number in 2..EVERYWHERE_IN_FLIGHT_MAX + 2 {
            assert_eq!(rig.ask(key, number, &request), []);
        }
        let refused = EVERYWHERE_IN_FLIGHT_MAX + 2;
        assert_eq!(rig.ask(key, refused, &request), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
        assert_eq!(rig.ask(key, 2, &request), [], "a repetition is no new request");
        // The broadcasts of the lost connection still count after the lane was resumed, until the shards have served
        // them.
        let key = rig.reconnect(key, &welcome);
        assert_eq!(rig.ask(key, refused, &request), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
        rig.give_back(turn);
        rig.hear(key);
        for number in refused..refused + 2 * EVERYWHERE_IN_FLIGHT_MAX {
            let answers = rig.ask(key, number, &request);
            assert!(matches!(answers[..], [(_, Heard::Other(_))]), "{answers:?}");
        }
    }
}

/// Sends lists until the maximum number of them waits for the turn of the first shard, which another worker must have.
/// Returns the number of the next request.
fn leave_lists(rig: &mut Rig, key: ConnectionKey) -> u32 {
    let next = 2 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 2..next {
        assert_eq!(rig.ask(key, number, &Request::List(List::default())), []);
    }
    next
}

/// A lease in the shard can end only after the requests that wait for the shard, and long requests take long.
#[test]
fn a_connection_may_have_few_long_requests_waiting_for_a_shard() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    // The first page of a list comes from the first shard. Let another worker have the turn of that shard, so that the
    // lists of this connection must wait for it.
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    let list = Request::List(List::default());
    let refused = leave_lists(&mut rig, key);
    assert_eq!(rig.ask(key, refused, &list), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    let mut buffer = Vec::new();
    let keys = Request::AcquireKeys(both_keys(&mut buffer));
    assert_eq!(rig.ask(key, refused, &keys), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    assert_eq!(rig.ask(key, refused + 1, &acquire(&name)), [], "short requests wait as ever");
    rig.give_back(turn);
    rig.hear(key);
    let answers = rig.ask(key, refused + 2, &list);
    assert!(matches!(answers[..], [(_, Heard::Other(_))]), "{answers:?}");
}

/// To inspect a path, the shard searches all sets of paths that overlap it, and one shard has the whole tree. So each
/// inspection takes long and delays other clients of the shard.
#[test]
fn a_connection_may_have_few_path_inspections_waiting_for_a_shard() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
    // One shard has the whole tree namespace: that of its name. Another worker gets the turn of this shard.
    let turn = rig.hold_turn(NamespaceKind::Tree.name().as_bytes());
    let inspect = Request::Inspect(Inspect { key: b"" });
    let refused = 2 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 2..refused {
        assert_eq!(rig.ask(key, number, &inspect), []);
    }
    assert_eq!(rig.ask(key, refused, &inspect), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    rig.give_back(turn);
    assert_eq!(rig.hear(key).len(), refused as usize - 2);
}

/// An operator may have to end a claim because too many requests wait for it. The server counts FORCE_RELEASE as a long
/// request, because the answer contains the path of the claim, which may be long. Still, the limit on long requests
/// that wait for a shard must not refuse it.
#[test]
fn an_operator_can_end_a_claim_while_long_requests_wait() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
    let (paths, mut buffer) = ([vec![2, 0, b'a', b'b']], Vec::new());
    let set = Request::AcquireSet(large_set(&paths, &mut buffer));
    let Heard::Granted(Granted { id, .. }) = rig.ask(key, 2, &set)[0].1 else { panic!() };
    let turn = rig.hold_turn(NamespaceKind::Tree.name().as_bytes());
    let full = 3 + LEFT_COST_MAX / (BATCH_COST_MAX as u32 / 2);
    for number in 3..full {
        assert_eq!(rig.ask(key, number, &Request::Inspect(Inspect { key: b"" })), []);
    }
    let force = Request::ForceRelease(ForceRelease { id, reason: b"stuck" });
    assert_eq!(rig.ask(key, full, &force), []);
    rig.give_back(turn);
    let answers = rig.hear(key).split_off(full as usize - 3);
    assert_eq!(answers, [(full, Heard::Other(FORCE_RELEASED)), (0, Heard::Other(opcode::REVOKED))]);
}

/// If the long requests of a lost connection did not count, a client could leave any number of them by connecting
/// again.
#[test]
fn long_requests_of_a_lost_connection_count_for_the_resuming_connection() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    let list = Request::List(List::default());
    let refused = leave_lists(&mut rig, key);
    let key = rig.reconnect(key, &welcome);
    for _ in 0..2 {
        assert_eq!(rig.ask(key, refused, &list), [(refused, Heard::Refused(ErrorCode::Overloaded))]);
    }
    rig.give_back(turn);
    assert_eq!(rig.hear(key), [], "nobody asked again");
    let answers = rig.ask(key, refused, &list);
    assert!(matches!(answers[..], [(_, Heard::Other(_))]), "the refused number is new: {answers:?}");
}

/// Another client may get the slot of the lost connection. It must be able to leave as many long requests as any other.
#[test]
fn long_requests_of_a_lost_connection_do_not_count_for_others() {
    let mut rig = Rig::new(2);
    let (lost, _) = rig.connect(SessionRequest::None);
    let name = vacancy::names_of_shards(&rig.node).swap_remove(0);
    let turn = rig.hold_turn(&name);
    leave_lists(&mut rig, lost);
    rig.workers[0].handle_lost(lost, rig.now);
    let (next, _) = rig.connect(SessionRequest::None);
    assert_eq!(next.slot, lost.slot);
    let refused = leave_lists(&mut rig, next);
    rig.give_back(turn);
    let numbers: Vec<_> = rig.hear(next).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (2..refused).collect::<Vec<_>>());
}

/// In one turn, the shard serves only some of the first requests, because each causes many events to watchers. It must
/// serve the others before the later requests of the connection.
#[test]
fn waiting_requests_of_a_connection_are_served_in_order_over_turns() {
    const WATCH_COUNT: u32 = 1024;
    let mut rig = Rig::new(2);
    let ((watcher, _), (asker, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    for number in 2..2 + WATCH_COUNT {
        rig.ask(watcher, number, &Request::Watch(Watch { key: b"watched" }));
    }
    let turn = rig.hold_turn(b"watched");
    let shared = Request::Acquire(Acquire { key: b"watched", shared: true, ..Acquire::default() });
    rig.say(asker, &(2..10).flat_map(|number| frame(number, &shared)).collect::<Vec<_>>());
    rig.say(asker, &(10..12).flat_map(|number| frame(number, &shared)).collect::<Vec<_>>());
    rig.give_back(turn);
    let fences: Vec<_> = rig
        .hear(asker)
        .into_iter()
        .map(|(number, heard)| match heard {
            Heard::Granted(granted) => (number, granted.fence),
            other => panic!("{number}: {other:?}"),
        })
        .collect();
    assert_eq!(fences, (2..12).map(|number| (number, u64::from(number) - 1)).collect::<Vec<_>>());
}

/// If refused requests counted, a client with too many broadcasts could send no request any more.
#[test]
fn refused_broadcast_requests_do_not_count_as_in_flight() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"key");
    for number in 2..2 + EVERYWHERE_IN_FLIGHT_MAX + IN_FLIGHT_MAX {
        rig.ask(key, number, &Request::Namespaces(Namespaces::default()));
    }
    rig.give_back(turn);
    rig.hear(key);
    let turn = rig.hold_turn(b"key");
    for number in 0..IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &Request::Inspect(Inspect { key: b"key" })), []);
    }
    rig.give_back(turn);
}

#[test]
fn waiting_requests_of_a_lost_connection_do_not_count_as_in_flight() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(SessionRequest::New { lease_ms: 0 });
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    let request = Request::AcquireKeys(both_keys(&mut buffer));
    for number in 2..2 + IN_FLIGHT_MAX {
        assert_eq!(rig.ask(key, number, &request), []);
    }
    let key = rig.reconnect(key, &welcome);
    rig.give_back(turn);
    let heard = rig.ask(key, 2 + IN_FLIGHT_MAX, &acquire(b"a"));
    assert!(matches!(heard[..], [(_, Heard::Granted(_))]), "{heard:?}");
}
