//! A namespace has one kind, which says what it serves.

use crate::harness::{each_size, hello_of};
use std::collections::BTreeMap;
use waymaker_protocol::NamespaceKind::{Flat, Lazy, Limit, Pool, Registry, Tree};
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquirePermits, AcquireSet, Bucket, Cancel, DescribePool, ErrorCode, Extend,
    ForceRelease, Freeze, Heartbeat, Hello, Holds, Inspect, Items, KeepAlive, KeyItem, List, ListEntries,
    ListPools, LockId, LookUp, NamespaceKind, Namespaces, PathItem, PathKey, Register, Release, Request,
    ServerStatus, SetCapacity, Status, Throttle, ThrottleAll, TreeStatistics, Unregister, Unwatch, Verify,
    Watch,
};

const KINDS: [NamespaceKind; 6] = [Flat, Tree, Registry, Lazy, Pool, Limit];

#[test]
fn a_namespace_keeps_the_kind_of_its_first_use() {
    for server in each_size() {
        for kind in KINDS {
            let _first = server.client_of(kind, "first");
            for other in KINDS {
                let mut client = server.stranger();
                let hello = Hello { kind: other, ..hello_of(kind, "later") };
                if other == kind {
                    client.open(hello);
                    continue;
                }
                let answer = client.ask(Request::Hello(hello));
                assert_eq!(answer.refusal(), (ErrorCode::BadInput, "kind", 0));
                assert!(client.try_receive().is_none(), "closed");
            }
        }
    }
}

#[test]
fn each_kind_serves_its_own_requests_and_rejects_others() {
    let claims = [Flat, Tree, Registry, Lazy, Pool];
    let owned = [Registry, Lazy];
    let (mut keys, mut paths, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
    let key_items = Items::new([KeyItem { key: b"k", shared: false }], &mut keys).unwrap();
    let path = PathKey::new(b"\x01\0k").unwrap();
    let path_items = Items::new([PathItem { path, write: false }], &mut paths).unwrap();
    let bucket = Bucket { rate: 1, burst: 1, cost: 0, period_ns: 1, name: b"k" };
    let bucket_items = Items::new([bucket], &mut buckets).unwrap();
    let register = Register { lease_ms: 1_000, key: b"\x01\0k", owner: b"o", ..Register::default() };
    // A key that is a path key as well.
    let key = b"\x01\0k";
    let id = LockId::default();
    let permits = AcquirePermits { name: b"k", capacity: 1, permits: 1, ..AcquirePermits::default() };
    let set = AcquireSet { items: path_items, ..AcquireSet::default() };
    let acquire_keys = AcquireKeys { items: key_items, ..AcquireKeys::default() };
    let throttle_all = ThrottleAll { buckets: bucket_items, refund: false };
    let cases: Vec<(Request<'_>, &[NamespaceKind])> = vec![
        (Request::Acquire(Acquire { key, ..Acquire::default() }), &[Flat]),
        (Request::AcquireKeys(acquire_keys), &[Flat]),
        (Request::AcquireSet(set), &[Tree]),
        (Request::TreeStatistics(TreeStatistics), &[Tree]),
        (Request::AcquirePermits(permits), &[Pool]),
        (Request::DescribePool(DescribePool { name: b"k" }), &[Pool]),
        (Request::SetCapacity(SetCapacity { capacity: 1, name: b"k", ..SetCapacity::default() }), &[Pool]),
        (Request::ListPools(ListPools::default()), &[Pool]),
        (Request::Throttle(Throttle { bucket, refund: false }), &[Limit]),
        (Request::ThrottleAll(throttle_all), &[Limit]),
        (Request::Register(register), &owned),
        (Request::Heartbeat(Heartbeat(register)), &owned),
        (Request::Unregister(Unregister { key, owner: b"o" }), &owned),
        (Request::LookUp(LookUp { key }), &owned),
        (Request::ListEntries(ListEntries::default()), &owned),
        (Request::Release(Release { id, key: None, own: false }), &claims),
        (Request::Status(Status { id, key: None }), &claims),
        (Request::List(List::default()), &claims),
        (Request::Holds(Holds::default()), &claims),
        (Request::Verify(Verify { fence: 1, key }), &claims),
        (Request::ForceRelease(ForceRelease { id, reason: b"" }), &claims),
        (Request::Freeze(Freeze { prefix: b"", thaw: true, ..Freeze::default() }), &claims),
        (Request::Extend(Extend { id, ..Extend::default() }), &[Flat, Tree, Pool]),
        (Request::Cancel(Cancel { acquire_number: 1, key }), &[Flat, Tree, Pool]),
        (Request::Inspect(Inspect { key }), &[Flat, Tree, Registry, Lazy]),
        (Request::Watch(Watch { key }), &[Flat, Registry, Lazy]),
        (Request::Unwatch(Unwatch { watch_number: 1, key }), &[Flat, Registry, Lazy]),
        (Request::Namespaces(Namespaces::default()), &KINDS),
        (Request::KeepAlive(KeepAlive), &KINDS),
        (Request::ServerStatus(ServerStatus), &KINDS),
    ];
    for server in each_size() {
        let mut clients: BTreeMap<u8, _> =
            KINDS.iter().map(|kind| (kind.number(), server.client_of(*kind, "c"))).collect();
        for (request, kinds) in &cases {
            for kind in KINDS {
                let client = clients.get_mut(&kind.number()).expect("one of each");
                let answer = client.ask(*request);
                let refused = matches!(answer.response(), waymaker_protocol::Response::Error(error)
                    if error.code == ErrorCode::BadInput);
                assert_eq!(!refused, kinds.contains(&kind), "{kind:?} {request:?}: {:?}", answer.response());
                if refused {
                    assert_eq!(answer.refusal(), (ErrorCode::BadInput, "kind", 0), "{kind:?} {request:?}");
                }
            }
        }
    }
}
