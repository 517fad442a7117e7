//! What is wrong about paths, several keys, pools, buckets, entries, ids and sessions is refused by field, and the
//! connection goes on.

use crate::harness::{Client, Server, each_size, hello_of};
use std::net::TcpStream;
use waymaker_protocol::NamespaceKind::{self, Flat, Lazy, Limit, Pool, Registry, Tree};
use waymaker_protocol::cursor::put_string;
use waymaker_protocol::frame::put_frame;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, Bucket, Cancel, DescribePool,
    ErrorCode, Extend, ForceRelease, Freeze, Hello, Holds, Inspect, Items, KeepAlive, KeyItem, List,
    ListEntries, ListPools, LockId, LookUp, Namespaces, PathItem, PathKey, Register, Release, Request,
    Response, SessionRequest, SetCapacity, Status, Throttle, ThrottleAll, Unregister, Verify, Watch,
};

/// Sends each request, expects its refusal, and then that the connection still serves.
fn assert_refused(server: &Server, kind: NamespaceKind, cases: &[(Request<'_>, ErrorCode, &str, u64)]) {
    let mut client = server.client_of(kind, "bad");
    for (request, code, field, value) in cases {
        let answer = client.ask(*request);
        assert_eq!(answer.refusal(), (*code, *field, *value), "{kind:?} {request:?}");
        assert_goes_on(&mut client);
    }
}

fn assert_goes_on(client: &mut Client<TcpStream>) {
    assert!(matches!(client.ask(Request::KeepAlive(KeepAlive)).response(), Response::KeptAlive(_)));
}

/// The bodies of acquires of a few items, each one of a bool and a string, whatever they are.
fn items_body(count: u16, items: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend_from_slice(&count.to_le_bytes());
    for item in items {
        body.push(0);
        put_string(&mut body, item);
    }
    body
}

/// Like [`assert_refused`], for what no codec would send.
fn assert_bodies_refused(server: &Server, kind: NamespaceKind, opcode: u8, cases: &[(Vec<u8>, &str, u64)]) {
    let mut client = server.client_of(kind, "bad");
    for (number, (body, field, value)) in (1..).zip(cases) {
        let mut frame = Vec::new();
        put_frame(&mut frame, opcode, 0, number, |out| out.extend_from_slice(body));
        client.write(&frame);
        let answer = client.receive();
        assert_eq!(answer.number(), number);
        assert_eq!(answer.refusal(), (ErrorCode::BadInput, *field, *value), "{kind:?} {opcode:#x} {field}");
        assert_goes_on(&mut client);
    }
}

#[test]
fn invalid_path_sets_are_rejected_by_field() {
    for server in each_size() {
        let deep = b"\x01\0d".repeat(65);
        let mut long = vec![0x01, 0x04];
        long.extend([b's'; 1025]);
        let many: Vec<&[u8]> = vec![b"\x01\0d"; 1025];
        let bodies = [
            (items_body(0, &[]), "count", 0),
            (items_body(1025, &many), "count", 1024),
            (items_body(1, &[&deep]), "item.path", 64),
            (items_body(1, &[&long]), "item.path", 1024),
            (items_body(1, &[b"\x05\0cut"]), "item.path", 0),
            (items_body(2, &[b""]), "item.write", 0),
            (items_body(1, &[b"", b""]), "body", 0),
        ];
        assert_bodies_refused(&server, Tree, opcode::ACQUIRE_SET, &bodies);

        let mut buffer = Vec::new();
        let items = Items::new([PathItem { write: true, path: PathKey::default() }], &mut buffer).unwrap();
        let set = AcquireSet { items, ..AcquireSet::default() };
        let options = AcquireOptions { scope: Some(9), ..AcquireOptions::default() };
        let bad = ErrorCode::BadInput;
        let cases = [
            (Request::AcquireSet(AcquireSet::default()), bad, "count", 0),
            (Request::AcquireSet(set.with_terms(|terms| terms.lease_ms = 9)), bad, "lease_ms", 10),
            (
                Request::AcquireSet(set.with_terms(|terms| terms.lease_ms = u32::MAX)),
                bad,
                "release_after_ms",
                0,
            ),
            (Request::AcquireSet(set.with_terms(|terms| terms.session_lease = true)), bad, "flags", 0),
            (Request::AcquireSet(set.with_terms(|terms| terms.options = options)), bad, "scope", 3),
            (Request::Inspect(Inspect { key: b"no path key" }), bad, "key", 0),
            (Request::Verify(Verify { fence: 1, key: b"\xff" }), bad, "key", 0),
            (Request::Cancel(Cancel { acquire_number: 1, key: &deep }), bad, "key", 0),
            (
                Request::Freeze(Freeze { prefix: b"\x01\0d", thaw: false, ..Freeze::default() }),
                bad,
                "prefix",
                0,
            ),
        ];
        assert_refused(&server, Tree, &cases);
        let mut client = server.client_of(Tree, "good");
        let granted = client.ask(Request::AcquireSet(set)).granted();
        assert_eq!(granted.fence, 1, "no refused acquire spent a fence");
    }
}

#[test]
fn invalid_multi_key_acquires_are_rejected_by_field() {
    for server in each_size() {
        let long = [b'k'; 1025];
        let many: Vec<&[u8]> = vec![b"k"; 1025];
        let large = vec![&long[..1024]; 960];
        let bodies = [
            (items_body(0, &[]), "count", 0),
            (items_body(1025, &many), "count", 1024),
            (items_body(1, &[b""]), "item.key", 0),
            (items_body(1, &[&long]), "item.key", 1024),
            (items_body(960, &large), "items", 128 << 10),
            (items_body(3, &[b"a", b"b"]), "item.shared", 0),
        ];
        assert_bodies_refused(&server, Flat, opcode::ACQUIRE_KEYS, &bodies);

        let mut buffer = Vec::new();
        let items = [b"a", b"b"].map(|key| KeyItem { key, shared: false });
        let items = Items::new(items, &mut buffer).unwrap();
        let keys = AcquireKeys { items, ..AcquireKeys::default() };
        let scope = |scope| AcquireOptions { scope: Some(scope), ..AcquireOptions::default() };
        let request_id = AcquireOptions { request_id: Some(b""), ..AcquireOptions::default() };
        let bad = ErrorCode::BadInput;
        let cases = [
            (Request::AcquireKeys(keys.with_terms(|terms| terms.lease_ms = 9)), bad, "lease_ms", 10),
            (Request::AcquireKeys(keys.with_terms(|terms| terms.session_lease = true)), bad, "flags", 0),
            (Request::AcquireKeys(keys.with_terms(|terms| terms.options = scope(9))), bad, "scope", 3),
            (
                Request::AcquireKeys(keys.with_terms(|terms| terms.options = scope(2))),
                ErrorCode::ScopeUnavailable,
                "scope",
                0,
            ),
            (Request::AcquireKeys(keys.with_terms(|terms| terms.options = request_id)), bad, "request_id", 0),
            (Request::Watch(Watch { key: b"" }), bad, "key", 0),
            (Request::Watch(Watch { key: &long }), bad, "key", 1024),
            (Request::Verify(Verify { fence: 1, key: b"" }), bad, "key", 0),
            (Request::Cancel(Cancel { acquire_number: 1, key: b"" }), bad, "key", 0),
            (Request::Holds(Holds { cursor: u64::MAX, count_max: 0 }), bad, "cursor", server_shards(&server)),
        ];
        assert_refused(&server, Flat, &cases);
        let mut client = server.client_of(Flat, "good");
        let answer = client.ask(Request::AcquireKeys(keys));
        let Response::GrantedKeys(granted) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(granted.keys.iter().all(|key| key.fence == 1), "no refused acquire spent a fence");
    }
}

fn server_shards(server: &Server) -> u64 {
    u64::from(server.stranger().open(hello_of(Flat, "asks")).shard_count)
}

#[test]
fn invalid_pool_requests_are_rejected_by_field() {
    for server in each_size() {
        let long = [b'p'; 1025];
        let permits = AcquirePermits { name: b"pool", capacity: 3, permits: 1, ..AcquirePermits::default() };
        let set = SetCapacity { capacity: 1, name: b"pool", ..SetCapacity::default() };
        let bad = ErrorCode::BadInput;
        let ask = Request::AcquirePermits;
        let cases = [
            (ask(AcquirePermits { capacity: 0, ..permits }), bad, "capacity", 0),
            (ask(AcquirePermits { capacity: 0, any_capacity: true, ..permits }), bad, "capacity", 0),
            (ask(AcquirePermits { permits: 0, ..permits }), bad, "permits", 0),
            (ask(AcquirePermits { permits: 4, ..permits }), bad, "permits", 3),
            (ask(AcquirePermits { permits: u64::MAX, ..permits }), bad, "permits", 3),
            (ask(AcquirePermits { name: b"", ..permits }), bad, "name", 0),
            (ask(AcquirePermits { name: &long, ..permits }), bad, "name", 1024),
            (ask(permits.with_terms(|terms| terms.lease_ms = 9)), bad, "lease_ms", 10),
            (ask(permits.with_terms(|terms| terms.session_lease = true)), bad, "flags", 0),
            (Request::SetCapacity(SetCapacity { name: b"", ..set }), bad, "name", 0),
            (Request::DescribePool(DescribePool { name: &long }), bad, "name", 1024),
            (Request::ListPools(ListPools { prefix: &long, ..ListPools::default() }), bad, "prefix", 1024),
            (
                Request::ListPools(ListPools { cursor: u64::MAX, ..ListPools::default() }),
                bad,
                "cursor",
                server_shards(&server),
            ),
            (Request::Cancel(Cancel { acquire_number: 1, key: b"" }), bad, "key", 0),
        ];
        assert_refused(&server, Pool, &cases);
        let mut order = vec![0; 8];
        order.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0].repeat(2));
        order.push(7);
        order.extend_from_slice(b"\0\0\0\0\0\0\0\0\x01\0p");
        assert_bodies_refused(&server, Pool, opcode::ACQUIRE_PERMITS, &[(order, "order", 0)]);
        let mut client = server.client_of(Pool, "good");
        assert_eq!(client.ask(ask(permits)).granted().fence, 1, "no refused acquire spent a fence");
    }
}

#[test]
fn invalid_buckets_are_rejected_by_field() {
    for server in each_size() {
        let long = [b'b'; 1025];
        let good = Bucket { rate: 1, burst: 5, cost: 1, period_ns: 3_600_000_000_000, name: b"bucket" };
        let bad = ErrorCode::BadInput;
        let wrong: [(Bucket<'_>, &str, u64); 6] = [
            (Bucket { rate: 0, ..good }, "rate", 0),
            (Bucket { burst: 0, ..good }, "burst", 0),
            (Bucket { period_ns: 0, ..good }, "period_ns", 0),
            (Bucket { period_ns: u64::MAX, ..good }, "period_ns", u64::MAX >> 1),
            (Bucket { name: b"", ..good }, "name", 0),
            (Bucket { name: &long, ..good }, "name", 1024),
        ];
        let mut cases = vec![(Request::ThrottleAll(ThrottleAll::default()), bad, "count", 0)];
        for (bucket, field, value) in wrong {
            cases.push((Request::Throttle(Throttle { bucket, refund: false }), bad, field, value));
            cases.push((Request::Throttle(Throttle { bucket, refund: true }), bad, field, value));
        }
        let mut twice = Vec::new();
        let buckets = Items::new([good, good], &mut twice).unwrap();
        cases.push((Request::ThrottleAll(ThrottleAll { buckets, refund: false }), bad, "buckets", 0));
        let mut last = Vec::new();
        let buckets = [good, Bucket { name: b"other", period_ns: u64::MAX, ..good }];
        let buckets = Items::new(buckets, &mut last).unwrap();
        cases.push((
            Request::ThrottleAll(ThrottleAll { buckets, refund: false }),
            bad,
            "period_ns",
            u64::MAX >> 1,
        ));
        assert_refused(&server, Limit, &cases);
        let mut many = Vec::from(65_u16.to_le_bytes());
        for _ in 0..65 {
            many.extend_from_slice(&[1; 20]);
            put_string(&mut many, b"b");
        }
        assert_bodies_refused(&server, Limit, opcode::THROTTLE_ALL, &[(many, "count", 64)]);
        let mut client = server.client_of(Limit, "good");
        let answer = client.ask(Request::Throttle(Throttle { bucket: good, refund: false }));
        assert!(
            matches!(answer.response(), Response::Throttled(t) if t.remaining == 4),
            "none took anything"
        );
    }
}

#[test]
fn invalid_registrations_are_rejected_by_field() {
    for server in each_size() {
        let long = [b'e'; 4097];
        let good = Register { lease_ms: 9_000, key: b"key", owner: b"o", ..Register::default() };
        let bad = ErrorCode::BadInput;
        let mut cases = vec![
            (Request::Register(Register { owner: b"", ..good }), bad, "owner", 0),
            (Request::Register(Register { owner: &long[..257], ..good }), bad, "owner", 256),
            (Request::Register(Register { key: &long[..1025], ..good }), bad, "key", 1024),
            (Request::Register(Register { value: &long, ..good }), bad, "value", 4096),
            (Request::Register(Register { type_name: &long[..257], ..good }), bad, "type", 256),
            (Request::LookUp(LookUp { key: &long[..1025] }), bad, "key", 1024),
            (Request::Unregister(Unregister { key: &long[..1025], owner: b"o" }), bad, "key", 1024),
            (
                Request::ListEntries(ListEntries { cursor: u64::MAX, ..ListEntries::default() }),
                bad,
                "cursor",
                server_shards(&server),
            ),
        ];
        assert_refused(&server, Lazy, &cases);
        cases.push((Request::Register(Register { lease_ms: 0, ..good }), bad, "lease_ms", 1));
        assert_refused(&server, Registry, &cases);
        let mut client = server.client_of(Registry, "good");
        let answer = client.ask(Request::Register(good));
        assert!(matches!(answer.response(), Response::Registered(it) if it.fence == 1));
    }
}

/// A claim of each kind in a namespace of its own, and every request that takes an id.
#[test]
fn an_unknown_id_or_an_id_of_another_namespace_is_not_found() {
    for server in each_size() {
        let mut buffer = Vec::new();
        let items = Items::new([PathItem { write: true, path: PathKey::default() }], &mut buffer).unwrap();
        let set = AcquireSet { items, ..AcquireSet::default() };
        let permits = AcquirePermits { name: b"key", capacity: 1, permits: 1, ..AcquirePermits::default() };
        let register = Register { lease_ms: 60_000, key: b"key", owner: b"o", ..Register::default() };
        let acquire = Acquire { key: b"key", ..Acquire::default() };
        for (kind, request) in [
            (Flat, Request::Acquire(acquire)),
            (Tree, Request::AcquireSet(set)),
            (Pool, Request::AcquirePermits(permits)),
            (Registry, Request::Register(register)),
            (Lazy, Request::Register(register)),
        ] {
            let mut foreign = server.stranger();
            let namespace = format!("foreign {}", kind.name());
            foreign.open(Hello { namespace: namespace.as_bytes(), ..hello_of(kind, "f") });
            let answer = foreign.ask(request);
            let held = match answer.response() {
                Response::Granted(granted) => granted.id,
                Response::Registered(registered) => registered.id,
                other => panic!("{other:?}"),
            };
            // The same key here, so that the shard knows it.
            server.client_of(kind, "here").ask(request);
            let guessed = LockId { secret: held.secret ^ 1, ..held };
            let nowhere = LockId { place: u64::MAX, ..held };
            for id in [held, guessed, nowhere, LockId::default()] {
                let mut cases = vec![
                    Request::Release(Release { id, key: None, own: false }),
                    Request::Status(Status { id, key: None }),
                    Request::ForceRelease(ForceRelease { id, reason: b"why" }),
                ];
                if matches!(kind, Flat | Tree | Pool) {
                    cases.push(Request::Extend(Extend { id, ..Extend::default() }));
                }
                let cases: Vec<_> =
                    cases.into_iter().map(|request| (request, ErrorCode::NotFound, "id", 0)).collect();
                assert_refused(&server, kind, &cases);
            }
            let status = foreign.ask(Request::Status(Status { id: held, key: None }));
            assert!(matches!(status.response(), Response::Status(_)), "it is where it was");
        }
    }
}

#[test]
fn every_use_of_an_ended_session_is_answered_session_gone() {
    for server in each_size() {
        for kind in [Flat, Tree, Registry, Lazy, Pool, Limit] {
            let hello = |session| Hello { session, ..hello_of(kind, "session") };
            let mut client = server.stranger();
            let welcome = client.open(hello(SessionRequest::New { lease_ms: 0 }));
            let id = welcome.session_id;
            let mut beyond = server.stranger();
            let answer = beyond.ask(Request::Hello(hello(SessionRequest::Resume { id, lane: 1 })));
            assert_eq!(answer.refusal(), (ErrorCode::BadInput, "lane", 0));
            let mut elsewhere = server.stranger();
            let resume = SessionRequest::Resume { id, lane: 0 };
            let answer =
                elsewhere.ask(Request::Hello(Hello { namespace: b"elsewhere", kind: Flat, ..hello(resume) }));
            assert_eq!(answer.refusal(), (ErrorCode::BadInput, "namespace", 0));
            client.ask(Request::Goodbye(waymaker_protocol::Goodbye));
            for session in [resume, SessionRequest::Join { id }] {
                let mut late = server.stranger();
                let answer = late.ask(Request::Hello(hello(session)));
                assert_eq!(answer.refusal(), (ErrorCode::SessionGone, "session_id", 0));
                assert!(late.try_receive().is_none(), "closed");
            }
        }
        let mut client = server.stranger();
        client.open(Hello { session: SessionRequest::New { lease_ms: 100 }, ..hello_of(Pool, "short") });
        assert_eq!(client.receive().event(), waymaker_protocol::Event::SessionExpired);
        for request in [
            Request::DescribePool(DescribePool { name: b"pool" }),
            Request::List(List::default()),
            Request::Namespaces(Namespaces::default()),
        ] {
            assert_eq!(client.ask(request).refusal(), (ErrorCode::SessionGone, "session", 0));
        }
    }
}
