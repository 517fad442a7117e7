//! Entries that an owner registers, of kind registry and of kind lazy.

use crate::harness::{Client, Deadline, Server, Watchdog, assert_remaining, each_size, within};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use waymaker_protocol::NamespaceKind::{Lazy, Registry};
use waymaker_protocol::{
    Contention, ErrorCode, ErrorDetail, Event, Extend, Heartbeat, ListEntries, LockId, LookUp, Register,
    Registered, Release, Request, Response, Status, Unregister,
};

/// The entry `key` of owner `a` for a minute.
fn entry() -> Register<'static> {
    Register {
        lease_ms: 60_000,
        absolute: false,
        ephemeral: false,
        key: b"key",
        owner: b"a",
        value: b"value",
        type_name: b"type",
        traceparent: None,
    }
}

fn register(client: &mut Client<TcpStream>, register: Register<'_>) -> Registered {
    registered(client, Request::Register(register))
}

fn registered(client: &mut Client<TcpStream>, request: Request<'_>) -> Registered {
    let answer = client.ask(request);
    let Response::Registered(registered) = answer.response() else { panic!("{:?}", answer.response()) };
    registered
}

/// What a look-up finds.
struct Found {
    remaining_ms: i64,
    owner: Vec<u8>,
    value: Vec<u8>,
    type_name: Vec<u8>,
}

fn look_up(client: &mut Client<TcpStream>, key: &[u8]) -> Option<Found> {
    let answer = client.ask(Request::LookUp(LookUp { key }));
    let Response::LookedUp(found) = answer.response() else { panic!("{:?}", answer.response()) };
    let entry = found.entry;
    assert_eq!(entry.key, if found.found { key } else { b"" });
    found.found.then(|| Found {
        remaining_ms: entry.remaining_ms,
        owner: entry.owner.to_vec(),
        value: entry.value.to_vec(),
        type_name: entry.type_name.to_vec(),
    })
}

/// Asserts that a request is refused because somebody else, named here, has the entry.
fn assert_taken(client: &mut Client<TcpStream>, request: Request<'_>, code: ErrorCode, owner: &str) {
    let answer = client.ask(request);
    let error = answer.error();
    assert_eq!(error.code, code);
    let ErrorDetail::Contention(Contention { owner: named, held, .. }) = error.detail else { panic!() };
    assert_eq!((named, held), (owner.as_bytes(), true));
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// How far the server's time of day may be from the machine's. The server corrects a difference of more than 0.1 s, and may be
/// descheduled between its readings of two clocks.
const CLOCKS_MS: i64 = 1_000;

/// Asserts that `remaining_ms` is what remained of a lease until `end_ms` at some moment between `sent_ms` and now.
#[track_caller]
fn assert_remaining_until(remaining_ms: i64, end_ms: i64, sent_ms: i64) {
    let expected = end_ms - unix_ms() - CLOCKS_MS..=end_ms - sent_ms + CLOCKS_MS;
    assert!(expected.contains(&remaining_ms), "{remaining_ms} ms are left, not {expected:?}");
}

#[test]
fn only_the_owner_of_a_registration_can_renew_or_unregister_it() {
    for server in each_size() {
        for kind in [Registry, Lazy] {
            let [mut a, mut b] = ["1", "2"].map(|name| server.client_of(kind, name));
            assert!(look_up(&mut b, b"key").is_none());
            let sent = Instant::now();
            let first = register(&mut a, entry());
            assert_eq!((first.fence, first.renewed), (1, false));
            assert_remaining(first.remaining_ms, 60_000, sent);

            // Whose it is tells the owner, not the connection; all it says is replaced, also by a shorter lease.
            let shorter = Register { lease_ms: 30_000, value: b"", type_name: b"other", ..entry() };
            let sent = Instant::now();
            let second = register(&mut b, shorter);
            assert_eq!((second.id, second.fence, second.renewed), (first.id, 1, true));
            let Found { remaining_ms, owner, value, type_name } = look_up(&mut a, b"key").unwrap();
            assert_remaining(remaining_ms, 30_000, sent);
            assert_eq!((&owner[..], &value[..], &type_name[..]), (&b"a"[..], &b""[..], &b"other"[..]));
            let sent = Instant::now();
            let beat = registered(&mut a, Request::Heartbeat(Heartbeat(entry())));
            assert_eq!((beat.id, beat.renewed), (first.id, true));
            assert_remaining(beat.remaining_ms, 60_000, sent);

            let other = Register { owner: b"b", ..entry() };
            assert_taken(&mut b, Request::Register(other), ErrorCode::Busy, "a");
            assert_taken(&mut b, Request::Heartbeat(Heartbeat(other)), ErrorCode::NotOwner, "a");
            let unregister = |owner| Request::Unregister(Unregister { key: b"key", owner });
            assert_taken(&mut b, unregister(b"b"), ErrorCode::NotOwner, "a");
            let answer = b.ask(unregister(b"a"));
            assert!(matches!(answer.response(), Response::Unregistered(it) if !it.was_expired));
            assert_eq!(b.ask(unregister(b"a")).error().code, ErrorCode::NotFound);
            let beat = a.ask(Request::Heartbeat(Heartbeat(entry())));
            assert_eq!(beat.error().code, ErrorCode::NotFound, "a heartbeat makes nothing");
            let next = register(&mut b, other);
            assert_eq!((next.fence, next.renewed, next.id == first.id), (2, false, false));
        }
    }
}

#[test]
fn a_registration_ends_with_its_lease_and_not_with_its_connection() {
    for server in each_size() {
        let mut a = server.client_of(Registry, "a");
        register(&mut a, entry());
        drop(a);
        let [mut b, mut c] = ["b", "c"].map(|name| server.client_of(Registry, name));
        assert!(look_up(&mut b, b"key").is_some());
        register(&mut b, Register { lease_ms: 40, ..entry() });
        assert!(matches!(b.receive().event(), Event::Expired { .. }), "whoever renewed it last is told");
        assert!(look_up(&mut c, b"key").is_none());
        assert_eq!(register(&mut c, Register { owner: b"c", ..entry() }).fence, 2);
    }
}

#[test]
fn a_lease_may_be_given_as_an_absolute_end() {
    for server in each_size() {
        for kind in [Registry, Lazy] {
            let mut a = server.client_of(kind, "a");
            let until = |lease_ms| Register { absolute: true, lease_ms, ..entry() };
            let sent_ms = unix_ms();
            let granted = register(&mut a, until(sent_ms + 60_000));
            assert_remaining_until(granted.remaining_ms, sent_ms + 60_000, sent_ms);
            let far = register(&mut a, until(i64::MAX));
            assert_eq!(far.remaining_ms, 10 * 365 * 86_400_000, "ten years are the most");
        }
        let mut registry = server.client_of(Registry, "a");
        for (lease_ms, absolute) in [(0, false), (-1, false), (unix_ms() - 60_000, true), (i64::MIN, true)] {
            let refused = registry.ask(Request::Register(Register { lease_ms, absolute, ..entry() }));
            assert_eq!(refused.refusal(), (ErrorCode::BadInput, "lease_ms", 1));
            let refused =
                registry.ask(Request::Heartbeat(Heartbeat(Register { lease_ms, absolute, ..entry() })));
            assert_eq!(refused.refusal(), (ErrorCode::BadInput, "lease_ms", 1));
        }
        assert!(look_up(&mut registry, b"key").is_some(), "it has the lease that it had");
    }
}

#[test]
fn a_lazy_registration_stays_with_its_owner_until_its_grace_ends() {
    for workers in ["1", "3"] {
        within(GRACE - Duration::from_secs(2), |grace| {
            lazy_entry_has_a_grace(&Server::start(&["--workers", workers]), grace);
        });
    }
}

/// How long a lazy entry stays its owner's after its lease has ended.
const GRACE: Duration = Duration::from_secs(5);

fn lazy_entry_has_a_grace(server: &Server, grace: &Deadline) {
    let [mut a, mut b] = ["1", "2"].map(|name| server.client_of(Lazy, name));
    let over_for = |ms: i64, owner| Register { absolute: true, lease_ms: unix_ms() - ms, owner, ..entry() };

    // Its lease has ended, but its grace has not.
    grace.begins();
    let sent_ms = unix_ms();
    let first = register(&mut a, over_for(2_000, b"a"));
    assert_remaining_until(first.remaining_ms, sent_ms - 2_000, sent_ms);
    let found = look_up(&mut b, b"key").unwrap();
    assert_remaining_until(found.remaining_ms, sent_ms - 2_000, sent_ms);
    assert_taken(&mut b, Request::Register(Register { owner: b"b", ..entry() }), ErrorCode::Busy, "a");
    let unregister = Request::Unregister(Unregister { key: b"key", owner: b"b" });
    assert_taken(&mut b, unregister, ErrorCode::NotOwner, "a");
    grace.is_over();
    let sent = Instant::now();
    let revived = registered(&mut b, Request::Heartbeat(Heartbeat(entry())));
    assert_eq!(revived.id, first.id);
    assert_remaining(revived.remaining_ms, 60_000, sent);

    // Its grace has ended too: the owner may revive it still, and others may take it.
    register(&mut a, over_for(6_000, b"a"));
    assert!(registered(&mut a, Request::Heartbeat(Heartbeat(entry()))).renewed);
    register(&mut a, over_for(6_000, b"a"));
    let taken = register(&mut b, Register { owner: b"b", ..entry() });
    assert_eq!((taken.fence, taken.renewed), (2, false));
    assert_taken(&mut a, Request::Heartbeat(Heartbeat(entry())), ErrorCode::NotOwner, "b");

    // Or take it out.
    register(&mut b, over_for(6_000, b"b"));
    let answer = a.ask(Request::Unregister(Unregister { key: b"key", owner: b"a" }));
    assert!(matches!(answer.response(), Response::Unregistered(it) if it.was_expired));
    assert!(look_up(&mut a, b"key").is_none());
}

#[test]
fn an_empty_key_is_valid_in_registries_but_not_in_lazy_namespaces() {
    for server in each_size() {
        let empty = Register { key: b"", ..entry() };
        let mut registry = server.client_of(Registry, "a");
        assert_eq!(register(&mut registry, empty).fence, 1);
        assert!(look_up(&mut registry, b"").is_some());
        let mut lazy = server.client_of(Lazy, "a");
        for request in [Request::Register(empty), Request::Heartbeat(Heartbeat(empty))] {
            assert_eq!(lazy.ask(request).refusal(), (ErrorCode::BadInput, "key", 0));
        }
    }
}

#[test]
fn registrations_are_listed_by_page_and_by_type() {
    for server in each_size() {
        for kind in [Registry, Lazy] {
            let mut client = server.client_of(kind, "a");
            for number in 0..300_u32 {
                let key = format!("entry/{number}");
                let type_name = if number % 3 == 0 { &b"third"[..] } else { b"" };
                register(&mut client, Register { key: key.as_bytes(), type_name, ..entry() });
            }
            assert_eq!(list(&mut client, None, 40), 300);
            assert_eq!(list(&mut client, None, 0), 300);
            assert_eq!(list(&mut client, Some(b"third"), 7), 100);
            assert_eq!(list(&mut client, Some(b""), 1_000), 200);
            assert_eq!(list(&mut client, Some(b"thir"), 0), 0, "a type is not a prefix");
        }
    }
}

/// Reads all pages and says how many entries stand there, each once.
fn list(client: &mut Client<TcpStream>, type_name: Option<&[u8]>, count_max: u16) -> usize {
    let (mut keys, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let list = ListEntries {
            cursor,
            count_max,
            any_type: type_name.is_none(),
            type_name: type_name.unwrap_or_default(),
        };
        let answer = client.ask(Request::ListEntries(list));
        let Response::EntriesListed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(count_max == 0 || page.entries.len() <= usize::from(count_max));
        for entry in &page.entries {
            assert!(type_name.is_none_or(|wanted| entry.type_name == wanted));
            assert!(keys.insert(entry.key.to_vec()), "each entry stands in one page");
        }
        cursor = page.next;
        if cursor == 0 {
            return keys.len();
        }
    }
}

#[test]
fn any_client_with_the_id_can_end_but_not_extend_a_registration() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| server.client_of(Registry, name));
        let Registered { id, .. } = register(&mut a, entry());
        let answer = b.ask(Request::Status(Status { id, key: None }));
        assert!(matches!(answer.response(), Response::Status(status) if status.key == b"key"));
        let extend = b.ask(Request::Extend(Extend { id, lease_ms: 1_000, key: None, own: false }));
        assert_eq!(extend.refusal(), (ErrorCode::BadInput, "kind", 0));
        b.release(id);
        assert!(matches!(a.receive().event(), Event::Revoked { id: revoked, .. } if revoked == id));
        assert!(look_up(&mut a, b"key").is_none());
        let again = b.ask(Request::Release(Release {
            id: LockId { secret: id.secret ^ 1, ..id },
            key: None,
            own: false,
        }));
        assert_eq!(again.error().code, ErrorCode::NotFound);
    }
}

/// Owners that race for one key: at each time it is one's, and each next one has the next fence.
#[test]
fn racing_owners_hold_a_key_one_at_a_time() {
    for server in each_size() {
        std::thread::scope(|scope| {
            for owner in ["x", "y", "z"] {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client_of(Registry, owner);
                    let register = Register { owner: owner.as_bytes(), ..entry() };
                    let (mut had, mut last_fence) = (0, 0);
                    let mut watchdog = Watchdog::start();
                    while had < 50 {
                        watchdog.look_again(|| format!("{owner} has the entry 50 times"));
                        let answer = client.ask(Request::Register(register));
                        let Response::Registered(registered) = answer.response() else {
                            assert_eq!(answer.error().code, ErrorCode::Busy);
                            std::thread::sleep(Duration::from_micros(50));
                            continue;
                        };
                        assert!(registered.fence > last_fence && !registered.renewed);
                        (had, last_fence) = (had + 1, registered.fence);
                        let unregister = Unregister { key: b"key", owner: owner.as_bytes() };
                        let answer = client.ask(Request::Unregister(unregister));
                        assert!(matches!(answer.response(), Response::Unregistered(_)));
                    }
                });
            }
        });
        let mut client = server.client_of(Registry, "afterwards");
        assert_eq!(register(&mut client, entry()).fence, 151);
    }
}

/// More than the server lets wait to be written. It makes them one after the other instead.
#[test]
fn a_thousand_pipelined_long_answers_are_served() {
    let value = vec![b'v'; waymaker_protocol::limits::VALUE_LEN_MAX];
    for server in each_size() {
        let mut client = server.client_of(Registry, "a");
        register(&mut client, Register { value: &value, ..entry() });
        let mut questions = Vec::new();
        for number in 0..1_000 {
            Request::LookUp(LookUp { key: b"key" }).encode(number, &mut questions);
        }
        client.write(&questions);
        let mut unanswered: BTreeSet<u32> = (0..1_000).collect();
        while !unanswered.is_empty() {
            let answer = client.receive();
            assert!(unanswered.remove(&answer.number()), "{}", answer.number());
            let Response::LookedUp(found) = answer.response() else { panic!("{:?}", answer.response()) };
            assert_eq!(found.entry.value, value);
        }
    }
}
