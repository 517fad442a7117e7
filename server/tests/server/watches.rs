//! Being told who holds a key.

use crate::harness::{Client, Server, each_size};
use std::collections::BTreeSet;
use std::net::TcpStream;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireTerms, ErrorCode, Event, Inspect, Items, KeyItem, NamespaceKind, Register,
    Request, Response, SessionRequest, Unregister, Unwatch, Watch, Watching,
};

/// Watches a key and says the number of the watch and how things are.
fn watch(client: &mut Client<TcpStream>, key: &[u8]) -> (u32, Watching) {
    let answer = client.ask(Request::Watch(Watch { key }));
    let Response::Watching(watching) = answer.response() else { panic!("{:?}", answer.response()) };
    (answer.number(), watching)
}

fn unwatch(client: &mut Client<TcpStream>, watch_number: u32, key: &[u8]) -> bool {
    let answer = client.ask(Request::Unwatch(Unwatch { watch_number, key }));
    let Response::Unwatched(unwatched) = answer.response() else { panic!("{:?}", answer.response()) };
    unwatched.was_watching
}

fn assert_held(client: &mut Client<TcpStream>, watch: u32, fence: u64, shared: bool, owner: &str) {
    let event = client.receive();
    assert_eq!(event.event(), Event::KeyHeld { fence, shared, owner: owner.as_bytes() });
    assert_eq!(event.number(), watch);
}

fn assert_freed(client: &mut Client<TcpStream>, watch: u32, fence: u64) {
    let event = client.receive();
    assert_eq!((event.number(), event.event()), (watch, Event::KeyFreed { fence }));
}

#[test]
fn a_watch_reports_each_grant_and_when_the_key_is_free() {
    for server in each_size() {
        let [mut watcher, mut a, mut b] = ["w", "a", "b"].map(|name| server.client(name));
        let (number, watching) = watch(&mut watcher, b"key");
        assert_eq!((watching.fence, watching.holder_count, watching.waiter_count), (0, 0, 0));

        let held = a.acquire(b"key", 0);
        assert_held(&mut watcher, number, 1, false, "a");
        b.wait_for(b"key", WAIT_FOREVER_MS);
        a.release(held.id);
        // It passes from one to the next, and is never free.
        let held = b.receive().granted();
        assert_held(&mut watcher, number, 2, false, "b");
        b.release(held.id);
        assert_freed(&mut watcher, number, 2);

        let shared = Acquire { key: b"key", shared: true, ..Acquire::default() };
        let one = a.ask(Request::Acquire(shared)).granted();
        let two = b.ask(Request::Acquire(shared)).granted();
        assert_held(&mut watcher, number, 3, true, "a");
        assert_held(&mut watcher, number, 4, true, "b");
        a.release(one.id);
        b.release(two.id);
        assert_freed(&mut watcher, number, 4);

        let mut buffer = Vec::new();
        let items = [b"key", b"yek"].map(|key| KeyItem { key, shared: false });
        let items = Items::new(items, &mut buffer).unwrap();
        a.ask(Request::AcquireKeys(AcquireKeys {
            items,
            terms: AcquireTerms { lease_ms: 50, ..AcquireTerms::default() },
        }));
        assert_held(&mut watcher, number, 5, false, "a");
        assert_freed(&mut watcher, number, 5);
    }
}

#[test]
fn a_watch_reports_the_grant_of_a_multi_key_claim_that_waited() {
    for server in each_size() {
        let [mut watcher, mut holder, mut client] = ["w", "h", "c"].map(|name| server.client(name));
        let held = holder.acquire(b"held", 0);
        let (free, _) = watch(&mut watcher, b"free");
        let (busy, watching) = watch(&mut watcher, b"held");
        assert_eq!((watching.fence, watching.holder_count), (1, 1));
        let mut buffer = Vec::new();
        let items =
            Items::new([&b"free"[..], b"held"].map(|key| KeyItem { key, shared: false }), &mut buffer)
                .unwrap();
        let acquire = AcquireKeys {
            items,
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
        };
        client.send(Request::AcquireKeys(acquire));
        assert!(matches!(client.receive().event(), Event::Queued { .. }));
        holder.release(held.id);
        assert!(matches!(client.receive().response(), Response::GrantedKeys(_)));
        let mut told = BTreeSet::new();
        while told.len() < 2 {
            let event = watcher.receive();
            match event.event() {
                Event::KeyHeld { fence, .. } => assert!(told.insert((event.number(), fence))),
                // Granted is the claim as a whole, a moment after its last key became free.
                Event::KeyFreed { fence } => assert_eq!((event.number(), fence), (busy, 1)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, BTreeSet::from([(free, 1), (busy, 2)]));
    }
}

#[test]
fn no_event_follows_an_unwatch() {
    for server in each_size() {
        let [mut watcher, mut a] = ["w", "a"].map(|name| server.client(name));
        let (first, _) = watch(&mut watcher, b"key");
        let (second, _) = watch(&mut watcher, b"key");
        let held = a.acquire(b"key", 0);
        assert_held(&mut watcher, first, 1, false, "a");
        assert_held(&mut watcher, second, 1, false, "a");
        assert!(unwatch(&mut watcher, first, b"key"));
        assert!(!unwatch(&mut watcher, first, b"key"), "it is over");
        assert!(!unwatch(&mut a, second, b"key"), "a watch belongs to its connection");
        a.release(held.id);
        assert_freed(&mut watcher, second, 1);
        assert!(unwatch(&mut watcher, second, b"key"));
        let held = a.acquire(b"key", 0);
        a.release(held.id);
        let (_, watching) = watch(&mut watcher, b"key");
        assert_eq!((watching.fence, watching.holder_count), (2, 0), "the answer comes next");
    }
}

#[test]
fn a_watch_ends_with_its_connection_and_a_new_one_shows_the_fence() {
    for server in each_size() {
        let (mut watcher, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
        let mut a = server.client("a");
        watch(&mut watcher, b"key");
        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        let (mut watcher, _) = server.session_client(resume);
        let held = a.acquire(b"key", 0);
        a.release(held.id);
        watcher.send_numbered(100, Request::Watch(Watch { key: b"key" }));
        let answer = watcher.receive();
        assert!(matches!(answer.response(), Response::Watching(watching) if watching.fence == 1));
        a.acquire(b"key", 0);
        assert_held(&mut watcher, 100, 2, false, "a");
        drop(watcher);
        server.assert_serves();
    }
}

#[test]
fn registrations_are_watched_like_keys() {
    for server in each_size() {
        let mut watcher = server.client_of(NamespaceKind::Registry, "w");
        let mut client = server.client_of(NamespaceKind::Registry, "c");
        let (number, _) = watch(&mut watcher, b"");
        let register = Register { lease_ms: 60_000, owner: b"node 1", ..Register::default() };
        client.ask(Request::Register(register));
        assert_held(&mut watcher, number, 1, false, "node 1");
        client.ask(Request::Register(register));
        client.ask(Request::Unregister(Unregister { key: b"", owner: b"node 1" }));
        assert_freed(&mut watcher, number, 1);
        client.ask(Request::Register(Register { lease_ms: 30, owner: b"node 2", ..register }));
        assert_held(&mut watcher, number, 2, false, "node 2");
        assert_freed(&mut watcher, number, 2);
    }
}

#[test]
fn the_number_of_watches_of_a_connection_is_limited() {
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.client("w");
    for number in 0..1024_u32 {
        watch(&mut client, &number.to_le_bytes());
    }
    let refused = client.ask(Request::Watch(Watch { key: b"one more" }));
    assert_eq!(refused.refusal(), (ErrorCode::Overloaded, "watches per connection", 1024));
    assert!(unwatch(&mut client, 2, &0_u32.to_le_bytes()));
    watch(&mut client, b"one more");
}

/// Of each watch that missed something, not only of the first, it is told; and told again when it happens again.
#[test]
fn a_watcher_that_does_not_read_is_notified_of_missed_events() {
    let server = Server::start(&["--workers", "2"]);
    let (mut watcher, mut client) = (server.client("w"), server.client("c"));
    let watches: BTreeSet<_> = (0..1000).map(|_| watch(&mut watcher, b"key").0).collect();
    for _ in 0..2 {
        // Megabytes of events, more than anything between here and there keeps.
        for _ in 0..120 {
            let held = client.acquire(b"key", 0);
            client.release(held.id);
        }
        watcher.send(Request::Inspect(Inspect { key: b"key" }));
        assert_eq!(read_until_inspected(&mut watcher), watches, "each watch missed something");

        // Whoever reads again misses nothing.
        let held = client.acquire(b"key", 0);
        for _ in 0..1000 {
            assert!(matches!(watcher.receive().event(), Event::KeyHeld { fence, .. } if fence == held.fence));
        }
        client.release(held.id);
        for _ in 0..1000 {
            assert!(matches!(watcher.receive().event(), Event::KeyFreed { fence } if fence == held.fence));
        }
    }
}

/// Reads events up to the answer of an INSPECT. Says which watches missed some.
fn read_until_inspected(client: &mut Client<TcpStream>) -> BTreeSet<u32> {
    let mut overrun = BTreeSet::new();
    loop {
        let received = client.receive();
        match received.response() {
            Response::Event(Event::Overrun) => drop(overrun.insert(received.number())),
            Response::Event(_) => {}
            Response::Inspected(_) => return overrun,
            other => panic!("{other:?}"),
        }
    }
}
