//! What operators ask and do: verify, force-release, freeze, namespaces; and what a client that came back asks.

use crate::harness::{Client, Server, each_size, hello_of, wait_until};
use std::collections::BTreeSet;
use std::net::TcpStream;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, Event, Extend, ForceRelease,
    Freeze, Frozen, Hello, Holds, Inspect, Items, KeyItem, LockId, NamespaceKind, Namespaces, PathItem,
    PathKey, Register, Release, Request, Response, RevokeReason, SessionRequest, Verified, Verify,
};

fn verify(client: &mut Client<TcpStream>, key: &[u8], fence: u64) -> Verified {
    let answer = client.ask(Request::Verify(Verify { fence, key }));
    let Response::Verified(verified) = answer.response() else { panic!("{:?}", answer.response()) };
    verified
}

fn freeze(client: &mut Client<TcpStream>, prefix: &[u8], thaw: bool) -> Frozen {
    let answer = client.ask(Request::Freeze(Freeze { prefix, thaw, ..Freeze::default() }));
    let Response::Frozen(frozen) = answer.response() else { panic!("{:?}", answer.response()) };
    frozen
}

/// Ends a claim, and says its fence, its key, its owner and whether it waited.
fn force(client: &mut Client<TcpStream>, id: LockId, reason: &[u8]) -> (u64, Vec<u8>, Vec<u8>, bool) {
    let answer = client.ask(Request::ForceRelease(ForceRelease { id, reason }));
    let Response::ForceReleased(released) = answer.response() else { panic!("{:?}", answer.response()) };
    (released.fence, released.key.to_vec(), released.owner.to_vec(), released.was_waiting)
}

fn queue_for(client: &mut Client<TcpStream>, request: Request<'_>) -> (u32, LockId) {
    let number = client.send(request);
    let queued = client.receive();
    let Event::Queued { id, .. } = queued.event() else { panic!("{:?}", queued.event()) };
    assert_eq!(queued.number(), number);
    (number, id)
}

fn waiting(key: &[u8]) -> Acquire<'_> {
    Acquire {
        key,
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
        ..Acquire::default()
    }
}

fn waiting_for_keys<'a>(keys: &[&'a [u8]], buffer: &'a mut Vec<u8>) -> AcquireKeys<'a> {
    let items = Items::new(keys.iter().map(|key| KeyItem { key, shared: false }), buffer).unwrap();
    AcquireKeys {
        items,
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
    }
}

#[test]
fn verify_reports_whether_a_fence_is_the_newest_and_still_held() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| server.client(name));
        let is = |verified: Verified| (verified.newest, verified.held, verified.newest_fence);
        assert_eq!(is(verify(&mut b, b"key", 0)), (false, false, 0), "nobody ever held it");
        assert_eq!(is(verify(&mut b, b"key", 1)), (false, false, 0));
        let held = a.acquire(b"key", 0);
        assert_eq!(is(verify(&mut b, b"key", 1)), (true, true, 1));
        assert_eq!(is(verify(&mut b, b"key", 2)), (false, false, 1));
        a.release(held.id);
        assert_eq!(is(verify(&mut b, b"key", 1)), (true, false, 1), "nobody took it since");
        let shared = Acquire { key: b"key", shared: true, ..Acquire::default() };
        let first = a.ask(Request::Acquire(shared)).granted();
        b.ask(Request::Acquire(shared)).granted();
        assert_eq!(is(verify(&mut b, b"key", 1)), (false, false, 3));
        assert_eq!(is(verify(&mut b, b"key", 2)), (false, false, 3), "a later reader came");
        a.release(first.id);
        assert_eq!(is(verify(&mut b, b"key", 3)), (true, true, 3));

        let mut pools = server.client_of(NamespaceKind::Pool, "a");
        let permits = AcquirePermits { name: b"key", capacity: 2, permits: 1, ..AcquirePermits::default() };
        pools.ask(Request::AcquirePermits(permits)).granted();
        assert_eq!(is(verify(&mut pools, b"key", 1)), (true, true, 1));
        let mut entries = server.client_of(NamespaceKind::Registry, "a");
        let register = Register { lease_ms: 9_000, owner: b"a", ..Register::default() };
        entries.ask(Request::Register(register));
        assert_eq!(is(verify(&mut entries, b"", 1)), (true, true, 1));
    }
}

#[test]
fn a_forced_release_gives_the_holder_a_reason_and_grants_the_next() {
    for server in each_size() {
        let [mut holder, mut waiter, mut operator] =
            ["the holder", "w", "op"].map(|name| server.client(name));
        let held = holder.acquire(b"key", 0);
        let (number, _) = queue_for(&mut waiter, Request::Acquire(waiting(b"key")));
        let released = force(&mut operator, held.id, b"it hangs");
        assert_eq!(released, (1, b"key".to_vec(), b"the holder".to_vec(), false));
        let told = holder.receive();
        let revoked = Event::Revoked { id: held.id, reason: RevokeReason::Forced, message: b"it hangs" };
        assert_eq!((told.number(), told.event()), (0, revoked));
        let answer = waiter.receive();
        assert_eq!((answer.number(), answer.granted().fence), (number, 2));
        let extend = holder.ask(Request::Extend(Extend { id: held.id, lease_ms: 0, key: None, own: false }));
        assert_eq!(extend.error().code, ErrorCode::NotFound);
        let twice = operator.ask(Request::ForceRelease(ForceRelease { id: held.id, reason: b"" }));
        assert_eq!(twice.refusal(), (ErrorCode::NotFound, "id", 0));
    }
}

#[test]
fn a_waiter_removed_by_an_operator_is_answered_and_leaves_all_queues() {
    for server in each_size() {
        let [mut holder, mut waiter, mut operator] = ["h", "w", "op"].map(|name| server.client(name));
        let held = holder.acquire(b"key", 0);
        let (number, id) = queue_for(&mut waiter, Request::Acquire(waiting(b"key")));
        assert_eq!(force(&mut operator, id, b""), (0, b"key".to_vec(), b"w".to_vec(), true));
        let answer = waiter.receive();
        assert_eq!((answer.number(), answer.error().code), (number, ErrorCode::Cancelled));

        let mut buffer = Vec::new();
        let several = waiting_for_keys(&[b"a", b"key", b"z"], &mut buffer);
        let (number, id) = queue_for(&mut waiter, Request::AcquireKeys(several));
        assert!(force(&mut operator, id, b"").3);
        let answer = waiter.receive();
        assert_eq!((answer.number(), answer.error().code), (number, ErrorCode::Cancelled));
        holder.release(held.id);
        for key in [&b"a"[..], b"key", b"z"] {
            let acquire = Acquire {
                key,
                terms: AcquireTerms { wait_ms: 10_000, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            operator.ask(Request::Acquire(acquire)).granted();
        }
    }
}

#[test]
fn operator_actions_are_logged_in_order() {
    let server = Server::start_logged(&["--workers", "2"]);
    let [mut holder, mut operator] = ["hold\"er", "root"].map(|name| server.client(name));
    let ids = [b"one", b"two"].map(|key| holder.acquire(key, 0).id);
    let mut bytes = Vec::new();
    Request::Freeze(Freeze { prefix: b"jobs/", thaw: false, ..Freeze::default() }).encode(50, &mut bytes);
    for (number, id) in (51..).zip(ids) {
        Request::ForceRelease(ForceRelease { id, reason: b"why not" }).encode(number, &mut bytes);
    }
    Request::Freeze(Freeze { prefix: b"jobs/", thaw: true, ..Freeze::default() }).encode(53, &mut bytes);
    operator.write(&bytes);
    for _ in 0..4 {
        assert!(operator.receive().number() >= 50);
    }
    let line = |key| {
        ["force-release", key, "fence=1", "holder=\"hold\\\"er\"", "owner=\"root\"", "reason=\"why not\""]
    };
    let (one, two) = (line("key=\"one\""), line("key=\"two\""));
    let places = server.log_places(&[
        &["freeze result=done", "key=\"jobs/\"", "owner=\"root\"", "changed=true"],
        &one,
        &two,
        &["thaw result=done", "key=\"jobs/\"", "owner=\"root\"", "changed=true"],
    ]);
    // Two keys may lie in shards that different workers served.
    assert!(places[0] < places[3], "{places:?}");
    let alone = Server::start_logged(&["--workers", "1"]);
    let mut client = alone.client("root");
    let ids = [b"one", b"two"].map(|key| client.acquire(key, 0).id);
    let mut bytes = Vec::new();
    for (number, id) in (51..).zip(ids) {
        Request::ForceRelease(ForceRelease { id, reason: b"" }).encode(number, &mut bytes);
    }
    client.write(&bytes);
    let places = alone.log_places(&[&["key=\"one\""], &["key=\"two\""]]);
    assert!(places[0] < places[1], "{places:?}");
}

#[test]
fn a_frozen_prefix_keeps_waiters_and_holders_and_refuses_tries() {
    for server in each_size() {
        let [mut holder, mut waiter, mut several, mut operator] =
            ["h", "w", "s", "op"].map(|name| server.client(name));
        let held = holder.acquire(b"jobs/1", 0);
        let first = freeze(&mut operator, b"jobs/", false);
        assert_eq!((first.changed, first.frozen_count), (true, 1));
        let again = freeze(&mut operator, b"jobs/", false);
        assert_eq!((again.changed, again.frozen_count), (false, 1));
        assert_eq!(freeze(&mut operator, b"elsewhere", false).frozen_count, 2);

        let attempt = Acquire { key: b"jobs/2", ..Acquire::default() };
        assert_eq!(waiter.ask(Request::Acquire(attempt)).refusal(), (ErrorCode::Frozen, "key", 0));
        assert_eq!(waiter.acquire(b"job", 0).fence, 1, "it does not begin with the prefix");
        let mut buffer = Vec::new();
        let mut tries = waiting_for_keys(&[b"jobs/2", b"other"], &mut buffer);
        tries.terms.wait_ms = 0;
        assert_eq!(several.ask(Request::AcquireKeys(tries)).refusal(), (ErrorCode::Frozen, "key", 0));

        let extend = Extend { id: held.id, lease_ms: 40_000, key: None, own: false };
        assert!(matches!(holder.ask(Request::Extend(extend)).response(), Response::Extended(_)));
        let (one, _) = queue_for(&mut waiter, Request::Acquire(waiting(b"jobs/1")));
        let (two, _) = queue_for(&mut waiter, Request::Acquire(waiting(b"jobs/2")));
        let mut buffer = Vec::new();
        let keys: [&[u8]; 3] = [b"jobs/3", b"elsewhere", b"other"];
        let (all, _) = queue_for(&mut several, Request::AcquireKeys(waiting_for_keys(&keys, &mut buffer)));
        holder.release(held.id);
        let answer = holder.ask(Request::Inspect(Inspect { key: b"jobs/1" }));
        let Response::Inspected(inspected) = answer.response() else { panic!() };
        assert_eq!((inspected.holder_count, inspected.waiter_count), (0, 1), "it is free, and frozen");

        let thawed = freeze(&mut operator, b"jobs/", true);
        assert_eq!((thawed.changed, thawed.frozen_count), (true, 1));
        assert!(!freeze(&mut operator, b"jobs/", true).changed);
        let mut granted =
            [waiter.receive(), waiter.receive()].map(|answer| (answer.number(), answer.granted().fence));
        granted.sort_unstable();
        assert_eq!(granted, [(one, 2), (two, 1)]);
        let answer = holder.ask(Request::Inspect(Inspect { key: b"jobs/3" }));
        let Response::Inspected(inspected) = answer.response() else { panic!() };
        assert_eq!((inspected.holder_count, inspected.waiter_count), (0, 1), "one of its keys is frozen");
        assert_eq!(freeze(&mut operator, b"elsewhere", true).frozen_count, 0);
        let answer = several.receive();
        assert_eq!(answer.number(), all);
        assert!(matches!(answer.response(), Response::GrantedKeys(granted) if granted.keys.len() == 3));
    }
}

#[test]
fn a_freeze_applies_to_one_namespace_of_any_kind() {
    for server in each_size() {
        let whole = PathItem { write: true, path: PathKey::default() };
        let mut buffer = Vec::new();
        let items = Items::new([whole], &mut buffer).unwrap();
        let cases = [
            (NamespaceKind::Flat, Request::Acquire(waiting(b"key"))),
            (
                NamespaceKind::Tree,
                Request::AcquireSet(AcquireSet {
                    items,
                    terms: AcquireTerms {
                        wait_ms: WAIT_FOREVER_MS,
                        notify_queued: true,
                        ..AcquireTerms::default()
                    },
                }),
            ),
            (
                NamespaceKind::Pool,
                Request::AcquirePermits(AcquirePermits {
                    name: b"key",
                    capacity: 1,
                    permits: 1,
                    terms: AcquireTerms {
                        wait_ms: WAIT_FOREVER_MS,
                        notify_queued: true,
                        ..AcquireTerms::default()
                    },
                    ..AcquirePermits::default()
                }),
            ),
        ];
        for (kind, acquire) in cases {
            let [mut client, mut operator] = ["c", "op"].map(|name| server.client_of(kind, name));
            assert_eq!(freeze(&mut operator, b"", false), Frozen { changed: true, frozen_count: 1 });
            let (number, _) = queue_for(&mut client, acquire);
            let mut elsewhere = server.stranger();
            elsewhere.open(Hello { namespace: kind.name().repeat(2).as_bytes(), ..hello_of(kind, "c") });
            assert_eq!(elsewhere.ask(acquire).granted().fence, 1, "another namespace of kind {kind:?}");
            freeze(&mut operator, b"", true);
            let answer = client.receive();
            assert_eq!((answer.number(), answer.granted().fence), (number, 1), "{kind:?}");
        }
        for kind in [NamespaceKind::Registry, NamespaceKind::Lazy] {
            let [mut client, mut operator] = ["c", "op"].map(|name| server.client_of(kind, name));
            let register = |key| {
                Request::Register(Register { lease_ms: 9_000, key, owner: b"o", ..Register::default() })
            };
            assert!(matches!(client.ask(register(b"old")).response(), Response::Registered(_)));
            freeze(&mut operator, b"", false);
            let renewed = client.ask(register(b"old"));
            assert!(matches!(renewed.response(), Response::Registered(it) if it.renewed));
            assert_eq!(client.ask(register(b"new")).error().code, ErrorCode::Frozen);
        }
    }
}

#[test]
fn the_number_of_frozen_prefixes_is_limited() {
    let server = Server::start(&["--workers", "2"]);
    let mut operator = server.client("op");
    for number in 0..64_u8 {
        assert_eq!(freeze(&mut operator, &[number], false).frozen_count, u16::from(number) + 1);
    }
    let refused =
        operator.ask(Request::Freeze(Freeze { prefix: b"one more", thaw: false, ..Freeze::default() }));
    assert_eq!(refused.refusal(), (ErrorCode::Overloaded, "frozen prefixes", 64));
    let long = [b'p'; 1025];
    let refused = operator.ask(Request::Freeze(Freeze { prefix: &long, thaw: false, ..Freeze::default() }));
    assert_eq!(refused.refusal(), (ErrorCode::BadInput, "prefix", 1024));
    let mut tree = server.client_of(NamespaceKind::Tree, "op");
    let refused = tree.ask(Request::Freeze(Freeze { prefix: b"\x01\0a", thaw: false, ..Freeze::default() }));
    assert_eq!(refused.refusal(), (ErrorCode::BadInput, "prefix", 0));
}

/// The counters of the namespaces, by name: held, waiting, timeouts, expired, revoked.
fn counters(client: &mut Client<TcpStream>, count_max: u16) -> Vec<(String, NamespaceKind, [u64; 5])> {
    let (mut all, mut cursor) = (Vec::new(), 0);
    loop {
        let answer = client.ask(Request::Namespaces(Namespaces { cursor, count_max }));
        let Response::NamespacesListed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(count_max == 0 || page.namespaces.len() <= usize::from(count_max));
        for namespace in &page.namespaces {
            let name = String::from_utf8_lossy(namespace.name).into_owned();
            let counters =
                [namespace.held, namespace.waiting, namespace.timeouts, namespace.expired, namespace.revoked];
            all.push((name, namespace.kind, counters));
        }
        cursor = page.next;
        if cursor == 0 {
            return all;
        }
    }
}

#[test]
fn namespaces_are_listed_with_their_counters() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| server.client(name));
        let ids: Vec<_> = (0..20_u8).map(|number| a.acquire(&[number], 0).id).collect();
        b.ask(Request::Acquire(waiting(&[3]).with_terms(|terms| terms.wait_ms = 10)));
        assert_eq!(b.receive().error().code, ErrorCode::Timeout);
        queue_for(&mut b, Request::Acquire(waiting(&[3])));
        force(&mut b, ids[4], b"");
        assert!(matches!(a.receive().event(), Event::Revoked { .. }));
        a.acquire(b"short", 10);
        assert!(matches!(a.receive().event(), Event::Expired { .. }));
        let mut pools = server.client_of(NamespaceKind::Pool, "p");
        let permits = AcquirePermits { name: b"pool", capacity: 9, permits: 9, ..AcquirePermits::default() };
        pools.ask(Request::AcquirePermits(permits)).granted();
        server.client_of(NamespaceKind::Limit, "l");
        let expected = [
            ("default".to_owned(), NamespaceKind::Flat, [19, 1, 1, 1, 1]),
            ("pool".to_owned(), NamespaceKind::Pool, [1, 0, 0, 0, 0]),
            ("limit".to_owned(), NamespaceKind::Limit, [0; 5]),
        ];
        assert_eq!(counters(&mut a, 0), expected);
        for page in 1..4 {
            assert_eq!(counters(&mut pools, page), expected, "from any namespace, in pages of {page}");
        }
        drop(b);
        wait_until("a waiter that left is counted no more", || counters(&mut a, 0)[0].2[1] == 0);
    }
}

/// What a connection holds, by page.
fn holds(client: &mut Client<TcpStream>, number: &mut u32, count_max: u16) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut cursor) = (BTreeSet::new(), 0);
    loop {
        *number += 1;
        client.send_numbered(*number, Request::Holds(Holds { cursor, count_max }));
        let answer = client.receive();
        let Response::Listed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(count_max == 0 || page.locks.len() <= usize::from(count_max));
        for lock in &page.locks {
            assert!(keys.insert(lock.key.to_vec()), "each hold stands in one page");
        }
        cursor = page.next;
        if cursor == 0 {
            return keys;
        }
    }
}

#[test]
fn a_holds_request_after_a_resume_lists_the_holds_of_the_lane() {
    for server in each_size() {
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
        let (mut joined, _) = server.session_client(SessionRequest::Join { id: welcome.session_id });
        let keys: BTreeSet<_> = (0..100).map(|number| format!("key/{number}").into_bytes()).collect();
        let mut ids = Vec::new();
        for key in &keys {
            let session_lease = ids.len() % 2 == 0;
            let acquire = Acquire {
                key,
                terms: AcquireTerms { session_lease, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            ids.push(client.ask(Request::Acquire(acquire)).granted().id);
        }
        joined.acquire(b"of another lane", 0);
        let mut other = server.client("other");
        other.acquire(b"of another connection", 0);
        let mut buffer = Vec::new();
        let several = waiting_for_keys(&[b"key/1", b"waits"], &mut buffer);
        queue_for(&mut other, Request::AcquireKeys(several));

        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        let (mut client, _) = server.session_client(resume);
        let mut number = 1_000;
        for count_max in [0, 1, 7, 1_000] {
            assert_eq!(holds(&mut client, &mut number, count_max), keys);
        }
        other.release(ids[2]);
        assert!(matches!(client.receive().event(), Event::Revoked { .. }));
        let left = holds(&mut client, &mut number, 0);
        assert_eq!(left.len(), 99);
        assert_eq!(holds(&mut joined, &mut number, 0), BTreeSet::from([b"of another lane".to_vec()]));
        let mut stranger = server.client("stranger");
        assert_eq!(holds(&mut stranger, &mut number, 0), BTreeSet::new());
        stranger.send_numbered(7, Request::Release(Release { id: ids[3], key: None, own: false }));
        assert!(matches!(stranger.receive().response(), Response::Released(_)));
    }
}
