//! Leases, and the reading of sockets before they expire.

use super::*;
use crate::clock::Moment;
use crate::expiries::ExpiryCount;
use waymaker_protocol::message::registry::REGISTERED;
use waymaker_protocol::{AcquireSet, AcquireTerms, Inspect, PathItem, PathKey, Register};

#[test]
fn expired_registrations_are_counted_by_type() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect_to(NamespaceKind::Registry, SessionRequest::None);
    for (number, type_name, lease_ms) in [(2, &b"a"[..], 10), (3, b"b", 10), (4, b"b", 10), (5, b"b", 9_000)]
    {
        let name = [number as u8];
        let entry = Register { lease_ms, key: &name, owner: b"o", type_name, ..Register::default() };
        assert_eq!(rig.ask(key, number, &Request::Register(entry)), [(number, Heard::Other(REGISTERED))]);
    }
    assert_eq!(rig.node.expiries.read(), []);
    rig.now = rig.now.after_ms(10);
    rig.workers[0].handle_drained(rig.now, rig.now);
    let namespace = rig.node.expiries.read().first().map_or(0, |first| first.namespace);
    let counted = |type_name: &[u8], count| ExpiryCount { namespace, type_name: Box::from(type_name), count };
    assert_eq!(rig.node.expiries.read(), [counted(b"a", 1), counted(b"b", 2)]);
}

/// A registration may survive a restart of the server, so its owner must be able to renew it until the server ends.
#[test]
fn a_stopping_server_renews_registrations_and_accepts_no_new_ones() {
    let mut rig = Rig::new(1);
    let (key, _) = rig.connect_to(NamespaceKind::Registry, SessionRequest::None);
    let register =
        |key| Request::Register(Register { lease_ms: 9_000, key, owner: b"o", ..Register::default() });
    assert_eq!(rig.ask(key, 2, &register(b"known")), [(2, Heard::Other(REGISTERED))]);
    rig.node.set_stopping();
    assert_eq!(rig.ask(key, 3, &register(b"known")), [(3, Heard::Other(REGISTERED))]);
    assert_eq!(rig.ask(key, 4, &register(b"new")), [(4, Heard::Refused(ErrorCode::Shutdown))]);
}

#[test]
fn a_lease_of_the_session_needs_a_session() {
    let terms = AcquireTerms { session_lease: true, ..AcquireTerms::default() };
    let acquire = Request::Acquire(Acquire { key: b"key", terms, ..Acquire::default() });
    let mut buffer = Vec::new();
    let keys = Request::AcquireKeys(AcquireKeys { terms, ..both_keys(&mut buffer) });
    let mut rig = Rig::new(2);
    let (without, _) = rig.connect(SessionRequest::None);
    for (number, request) in [(2, &acquire), (3, &keys)] {
        assert_eq!(rig.ask(without, number, request), [(number, Heard::Refused(ErrorCode::BadInput))]);
    }
    let (with, _) = rig.connect(SessionRequest::New { lease_ms: 10_000 });
    let heard = rig.ask(with, 2, &acquire);
    assert!(matches!(heard[..], [(2, Heard::Granted(Granted { session_lease: true, .. }))]), "{heard:?}");
}

/// Returns the remaining lease of the only hold of a key, as another client sees it.
fn remaining_ms(rig: &mut Rig, key: &[u8]) -> u32 {
    let (asker, _) = rig.connect(SessionRequest::None);
    rig.say(asker, &frame(2, &Request::Inspect(Inspect { key })));
    let output = rig.take_output(asker).expect("the connection is open");
    let answer = next_frame(&output, FRAME_LEN_MAX).expect("frames").expect("an answer");
    let Ok(Response::Inspected(inspected)) = Response::decode(answer) else { panic!("{answer:?}") };
    let [holder] = &inspected.holders[..] else { panic!("{inspected:?}") };
    holder.remaining_ms
}

#[test]
fn other_clients_see_the_session_lease_of_a_hold() {
    const LEASE_MS: u32 = 10_000;
    for is_left in [false, true] {
        let mut rig = Rig::new(2);
        let (key, _) = rig.connect(SessionRequest::New { lease_ms: LEASE_MS });
        let turn = is_left.then(|| rig.hold_turn(b"key"));
        rig.ask(key, 2, &vacancy::held(b"key"));
        turn.into_iter().for_each(|turn| rig.give_back(turn));
        assert_eq!(remaining_ms(&mut rig, b"key"), LEASE_MS, "another worker serves it: {is_left}");
    }
}

/// Returns an acquire of these paths for writing. If they are many, the shard needs several turns to add them to the
/// tree.
pub(super) fn large_set<'a>(paths: &'a [Vec<u8>], buffer: &'a mut Vec<u8>) -> AcquireSet<'a> {
    let item = |path| PathItem { write: true, path: PathKey::new(path).expect("a path key") };
    let items = paths.iter().map(|path| item(path));
    AcquireSet { items: Items::new(items, buffer).expect("not too many"), ..AcquireSet::default() }
}

#[test]
fn leftover_work_does_not_delay_reading_sockets_before_expiries() {
    for session in [SessionRequest::None, SessionRequest::New { lease_ms: 100 }] {
        let mut rig = Rig::new(1);
        let (holder, _) = rig.connect(session);
        if session == SessionRequest::None {
            let lease = Acquire {
                key: b"key",
                terms: AcquireTerms { lease_ms: 100, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            rig.ask(holder, 2, &Request::Acquire(lease));
        } else {
            rig.workers[0].handle_lost(holder, rig.now);
        }
        let (flooder, _) = rig.connect_to(NamespaceKind::Tree, SessionRequest::None);
        let paths: Vec<_> =
            (0..1024_u16).map(|number| [[2, 0], number.to_le_bytes()].concat().repeat(8)).collect();
        rig.ask(flooder, 2, &Request::AcquireSet(large_set(&paths, &mut Vec::new())));
        rig.now = rig.now.after_ms(100);
        rig.workers[0].tick(rig.now);
        // Before a session ends, all new connections are accepted, because a client may be resuming the session on one
        // of them. Then all sockets are read, in a later millisecond. The tick above does the first step, and the tick
        // below begins the second.
        rig.now = rig.now.after_ms(1);
        rig.workers[0].tick(rig.now);
        assert_eq!(rig.workers[0].next_deadline(), Time::ZERO, "work is left over");
        assert!(rig.workers[0].wants_drain(), "{session:?}");
    }
}

/// A worker sets (arms) a timer for the end of the next lease in a shard. If another worker takes the turn of the shard
/// first and ends that lease, this worker does not learn of it. When this worker then sets a later time, the outdated
/// earlier time stays set too.
#[test]
fn a_worker_armed_twice_reads_its_sockets_for_the_earlier_deadline() {
    let mut rig = Rig::new(1);
    let (now, later) = (rig.now, rig.now.after_ms(100));
    rig.workers[0].state.timers.arm(0, now.after_ms(10), now.after_ms(10));
    rig.workers[0].state.timers.arm(0, later, later);
    rig.now = now.after_ms(20);
    rig.workers[0].tick(rig.now);
    assert!(rig.workers[0].wants_drain());
    rig.workers[0].handle_drained(rig.now, rig.now);
    assert!(!rig.workers[0].wants_drain());
}

/// Leases begin at ten points within a millisecond. The worker gets the time every tenth of a millisecond.
#[test]
fn a_lease_lasts_in_full_and_expires_after_at_most_two_reads() {
    const MILLISECOND_NS: u64 = 1_000_000;
    const STEP_NS: u64 = MILLISECOND_NS / 10;
    const LEASE_MS: u32 = 10;
    let moment = |nanos: u64| Moment::of(nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32);
    for begin in (2_000 * MILLISECOND_NS..2_001 * MILLISECOND_NS).step_by(STEP_NS as usize) {
        let mut rig = Rig::new(1);
        let (key, _) = rig.connect(SessionRequest::None);
        let acquire = Acquire {
            key: b"k",
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        rig.workers[0].handle_bytes(key, &frame(2, &Request::Acquire(acquire)), moment(begin));
        assert!(
            matches!(rig.hear(key)[..], [(2, Heard::Granted(granted))] if granted.remaining_ms == LEASE_MS)
        );
        let mut drain_count = 0;
        let end = (begin..).step_by(STEP_NS as usize).find(|nanos| {
            let worker = &mut rig.workers[0];
            worker.tick(moment(*nanos));
            if worker.wants_drain() {
                drain_count += 1;
                worker.handle_drained(moment(*nanos).passed, moment(*nanos));
            }
            !rig.hear(key).is_empty()
        });
        let lease = end.expect("it ends") - begin;
        let lease_ns = u64::from(LEASE_MS) * MILLISECOND_NS;
        assert!(
            (lease_ns..lease_ns + MILLISECOND_NS).contains(&lease),
            "begun at {begin} ns, {lease} ns long"
        );
        // The worker reads all sockets once when the timer moves to a finer level of the shard's timer wheel, and once
        // when the lease ends.
        assert!(drain_count <= 2, "begun at {begin} ns, read {drain_count} times");
    }
}
