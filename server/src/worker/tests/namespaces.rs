//! Removal of namespaces.

use super::*;
use crate::limits::{NAMESPACE_COUNT_MAX, NAMESPACE_IDLE_MS};
use waymaker_protocol::AcquireTerms;
use waymaker_protocol::message::remove_namespace::NAMESPACE_REMOVED;
use waymaker_protocol::{Bucket, Freeze, Inspect, Release, RemoveNamespace, SetCapacity, Throttle};

/// Opens a namespace of kind flat, acquires and releases a key three times, and loses the connection. Returns the last
/// fence: 3 for a new key, if the shard has removed no key with a fence.
fn use_namespace(rig: &mut Rig, name: &[u8]) -> u64 {
    let key = rig.open(name, NamespaceKind::Flat);
    let mut fence = 0;
    for number in 0..3 {
        let acquire = Acquire { key: b"key", ..Acquire::default() };
        let [(_, Heard::Granted(granted))] = rig.ask(key, 2 + 2 * number, &Request::Acquire(acquire))[..]
        else {
            panic!("the key is free")
        };
        fence = granted.fence;
        rig.ask(key, 3 + 2 * number, &Request::Release(Release { id: granted.id, key: None, own: false }));
    }
    rig.workers[0].handle_lost(key, rig.now);
    fence
}

/// Lets namespaces become idle and end. All workers continue leftover work.
fn pass_idle_time(rig: &mut Rig) {
    for _ in 0..3 {
        rig.pass_ms(NAMESPACE_IDLE_MS);
        do_the_work(rig);
    }
}

/// Lets all workers handle their mail and their timers many times. A check whether a namespace is empty, for example,
/// takes several turns of each shard.
fn do_the_work(rig: &mut Rig) {
    for _ in 0..100 {
        for worker in &mut rig.workers {
            worker.handle_mail(rig.now);
            worker.tick(rig.now);
        }
    }
}

/// The shards are still checking whether `first` is empty when the requests to remove `second`, and `first` once more,
/// arrive.
#[test]
fn each_removal_of_a_namespace_is_answered_while_another_is_in_progress() {
    let mut rig = Rig::new(2);
    use_namespace(&mut rig, b"first");
    use_namespace(&mut rig, b"second");
    let ((one, _), (other, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let remove = |name| Request::RemoveNamespace(RemoveNamespace { name });
    let turn = rig.hold_turn(b"key");
    assert_eq!(rig.ask(one, 2, &remove(b"first")), []);
    assert_eq!(rig.ask(one, 3, &remove(b"second")), []);
    assert_eq!(rig.ask(other, 4, &remove(b"first")), []);
    rig.give_back(turn);
    do_the_work(&mut rig);
    let removed = |number| (number, Heard::Other(NAMESPACE_REMOVED));
    assert_eq!(rig.hear(one), [2, 3].map(removed));
    assert_eq!(rig.hear(other), [removed(4)]);
}

/// A connection opens the namespace while an operator's request to remove it waits for the check of the shards whether
/// the namespace is empty. Then it acquires a key in a shard that has already found the namespace empty, and is lost.
/// The removal must be refused because of the hold.
#[test]
fn a_namespace_with_a_hold_is_not_removed_even_without_connections() {
    let mut rig = Rig::new(2);
    use_namespace(&mut rig, b"other");
    use_namespace(&mut rig, b"a");
    let (operator, _) = rig.connect(SessionRequest::None);
    let remove = |name| Request::RemoveNamespace(RemoveNamespace { name });
    let turn_of_other = rig.hold_turn(b"key");
    assert_eq!(rig.ask(operator, 2, &remove(b"other")), []);
    assert_eq!(rig.ask(operator, 3, &remove(b"a")), []);
    let holder = rig.open(b"a", NamespaceKind::Flat);
    let late = (0..)
        .map(|number| format!("{number}"))
        .find(|name| rig.node.shard_of_key(name.as_bytes()) != rig.node.shard_of_key(b"key"));
    // After this call, all shards except that of `key` have checked whether the namespace `other` is empty. Then
    // another worker gets the turn of the shard of the key `late`. So this shard is the last to check the namespace
    // `a`, whose check begins after that of `other`.
    do_the_work(&mut rig);
    let turn = rig.hold_turn(late.expect("there are more shards").as_bytes());
    rig.give_back(turn_of_other);
    do_the_work(&mut rig);
    let acquire = Request::Acquire(Acquire {
        key: b"key",
        terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
        ..Acquire::default()
    });
    assert!(matches!(rig.ask(holder, 2, &acquire)[..], [(2, Heard::Granted(_))]));
    rig.workers[0].handle_lost(holder, rig.now);
    rig.give_back(turn);
    do_the_work(&mut rig);
    let removed = (2, Heard::Other(NAMESPACE_REMOVED));
    assert_eq!(rig.hear(operator), [removed, (3, Heard::Refused(ErrorCode::BadInput))]);
    let another = rig.open(b"a", NamespaceKind::Flat);
    assert_eq!(rig.ask(another, 2, &acquire), [(2, Heard::Refused(ErrorCode::Busy))]);
}

#[test]
fn an_idle_namespace_is_removed_and_later_fences_continue_above_it() {
    for worker_count in [1, 3] {
        let mut rig = Rig::new(worker_count);
        assert_eq!(use_namespace(&mut rig, b"a"), 3);
        pass_idle_time(&mut rig);
        assert_eq!(rig.node.find_namespace(b"a"), None);
        assert_eq!(use_namespace(&mut rig, b"b"), 6, "no key begins below what was folded");
        assert_eq!(use_namespace(&mut rig, b"a"), 6);
    }
}

#[test]
fn idle_namespaces_make_room_for_another_namespace() {
    let mut rig = Rig::new(1);
    for number in 0..NAMESPACE_COUNT_MAX {
        use_namespace(&mut rig, number.to_string().as_bytes());
    }
    assert_eq!(rig.greet(b"another", NamespaceKind::Flat).1, Heard::Refused(ErrorCode::Overloaded));
    pass_idle_time(&mut rig);
    assert!(matches!(rig.greet(b"another", NamespaceKind::Flat).1, Heard::Welcome(_)));
    assert_eq!(rig.node.find_namespace(b"17"), None);
}

#[test]
fn a_namespace_with_content_is_not_removed() {
    let mut rig = Rig::new(2);
    let held = rig.open(b"held", NamespaceKind::Flat);
    let acquire = Acquire {
        key: b"key",
        terms: AcquireTerms { lease_ms: 3_600_000, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    rig.ask(held, 2, &Request::Acquire(acquire));
    let frozen = rig.open(b"frozen", NamespaceKind::Flat);
    rig.ask(frozen, 2, &Request::Freeze(Freeze { prefix: b"p", thaw: false, ..Freeze::default() }));
    let pool = rig.open(b"pool", NamespaceKind::Pool);
    rig.ask(
        pool,
        2,
        &Request::SetCapacity(SetCapacity { name: b"p", capacity: 3, ..SetCapacity::default() }),
    );
    let limit = rig.open(b"limit", NamespaceKind::Limit);
    let bucket = Bucket { rate: 1, period_ns: 600_000_000_000, burst: 9, cost: 9, name: b"b" };
    rig.ask(limit, 2, &Request::Throttle(Throttle { bucket, refund: false }));
    for key in [held, frozen, pool, limit] {
        rig.workers[0].handle_lost(key, rig.now);
    }
    let connected = rig.open(b"connected", NamespaceKind::Flat);
    rig.ask(connected, 2, &Request::Inspect(Inspect { key: b"k" }));
    pass_idle_time(&mut rig);
    for name in ["held", "frozen", "pool", "limit", "connected"] {
        assert!(rig.node.find_namespace(name.as_bytes()).is_some(), "{name}");
    }
    rig.now = rig.now.after_ms(2 * 3_600_000);
    rig.workers[0].handle_lost(connected, rig.now);
    pass_idle_time(&mut rig);
    for (name, stays) in [("frozen", true), ("pool", true), ("limit", false), ("connected", false)] {
        assert_eq!(rig.node.find_namespace(name.as_bytes()).is_some(), stays, "{name}");
    }
}

/// Returns the namespaces in a page of the list: the name of each, and the number of claims that are held in it.
pub(super) fn listed(output: &[u8]) -> Option<Vec<(Vec<u8>, u64)>> {
    let frame = next_frame(output, FRAME_LEN_MAX).expect("a frame")?;
    let Ok(Response::NamespacesListed(page)) = Response::decode(frame) else { panic!("not a page") };
    Some(page.namespaces.iter().map(|listed| (listed.name.to_vec(), listed.held)).collect())
}
