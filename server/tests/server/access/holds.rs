//! What one identity may do to the holds, sessions and requests of another, and see of them.

use super::operations::path_of;
use super::{Office, hello_with};
use crate::harness::{Client, Server, default_hello, wait_until};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, ErrorDetail,
    Event, Extend, ForceRelease, Heartbeat, Hello, Inspect, Items, KeyItem, List, ListEntries, ListPools,
    LockId, NamespaceKind, PathItem, PathKey, Register, Release, Request, Response, SessionRequest, Status,
    Unregister,
};

/// Alice and Bob may take locks and see keys; Carol may release what others hold, and Olga is an operator.
const RULES: &str = "
    [[rule]]
    identity = \"alice\"
    allow = [\"acquire\", \"inspect\", \"list\"]
    [[rule]]
    identity = \"bob\"
    allow = [\"acquire\", \"list\"]
    [[rule]]
    identity = \"carol\"
    allow = [\"acquire\", \"release_others\"]
    [[rule]]
    identity = \"olga\"
    prefix = \"a/\"
    allow = [\"force_release\", \"release_others\"]
";

struct People {
    office: Office,
    server: Server,
    alice: String,
    bob: String,
    carol: String,
    olga: String,
}

impl People {
    fn new(arguments: &[&str]) -> Self {
        let office = Office::new(RULES);
        let [alice, bob, carol, olga] = ["alice", "bob", "carol", "olga"].map(|name| office.token(name));
        let server = office.server(arguments);
        Self { office, server, alice, bob, carol, olga }
    }

    /// Kills the server, and starts another one.
    fn restart(&mut self, arguments: &[&str]) {
        self.server.signal("KILL");
        self.server.wait();
        self.server = self.office.server(arguments);
    }

    fn client(&self, token: &str) -> Client<TcpStream> {
        self.server.client_with(NamespaceKind::Flat, token)
    }
}

fn release(id: LockId) -> Request<'static> {
    Request::Release(Release { id, key: None, own: false })
}

fn extend(id: LockId) -> Request<'static> {
    Request::Extend(Extend { id, key: None, own: false, lease_ms: 60_000 })
}

fn status(id: LockId) -> Request<'static> {
    Request::Status(Status { id, key: None })
}

fn force(id: LockId) -> Request<'static> {
    Request::ForceRelease(ForceRelease { id, reason: b"test" })
}

/// All of an answer but its number, which may differ.
fn said(client: &mut Client<TcpStream>, request: Request<'_>) -> Vec<u8> {
    let answer = client.ask(request);
    // The length, the opcode and the flags, and everything behind the number.
    let bytes = answer.bytes();
    [&bytes[..4], &bytes[8..]].concat()
}

#[test]
fn the_hold_of_another_identity_is_as_unknown_as_one_that_does_not_exist() {
    let people = People::new(&[]);
    let held = people.client(&people.alice).acquire(b"a/key", 0);
    let mut bob = people.client(&people.bob);
    let absent = LockId { secret: held.id.secret ^ 1, ..held.id };
    for request in [release, extend, status] {
        let answer = said(&mut bob, request(held.id));
        assert_eq!(answer, said(&mut bob, request(absent)));
        assert_eq!(bob.code_of(request(held.id)), Some(ErrorCode::NotFound));
    }
    // Another connection of the same identity knows it.
    let mut alice = people.client(&people.alice);
    assert_eq!(alice.code_of(status(held.id)), None);
    assert_eq!(alice.code_of(extend(held.id)), None);
    assert_eq!(alice.code_of(release(held.id)), None);
}

#[test]
fn a_right_to_release_others_ends_and_renews_holds_of_other_identities() {
    let people = People::new(&[]);
    let mut alice = people.client(&people.alice);
    let [below, beside] = [&b"a/key"[..], b"b/key"].map(|key| alice.acquire(key, 0));
    let mut olga = people.client(&people.olga);
    assert_eq!(olga.code_of(extend(below.id)), None);
    assert_eq!(olga.code_of(release(beside.id)), Some(ErrorCode::NotFound), "her right is for a prefix");
    assert_eq!(olga.code_of(force(beside.id)), Some(ErrorCode::NotFound));
    assert_eq!(olga.code_of(force(below.id)), None);
    let mut carol = people.client(&people.carol);
    assert_eq!(carol.code_of(release(beside.id)), None);
    assert_eq!(carol.code_of(force(beside.id)), Some(ErrorCode::Unauthorized));
}

/// A lock as it is listed.
#[derive(Debug, PartialEq)]
struct Shown {
    key: String,
    id: LockId,
    owner: String,
    metadata: String,
}

/// All locks whose keys begin with `prefix`, as a client is shown them.
fn listed(client: &mut Client<TcpStream>, prefix: &[u8]) -> Vec<Shown> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut locks, mut cursor) = (Vec::new(), 0);
    loop {
        let answer = client.ask(Request::List(List { cursor, count_max: 0, prefix, ..List::default() }));
        let Response::Listed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        locks.extend(page.locks.iter().map(|lock| Shown {
            key: text(lock.key),
            id: lock.id,
            owner: text(lock.owner),
            metadata: text(lock.metadata),
        }));
        cursor = page.next;
        if cursor == 0 {
            return locks;
        }
    }
}

#[test]
fn ids_and_owners_are_shown_to_those_alone_who_may_inspect() {
    let people = People::new(&[]);
    let mut carol = people.client(&people.carol);
    let metadata = AcquireOptions { metadata: Some(b"secret"), ..AcquireOptions::default() };
    let held = carol
        .ask(Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { options: metadata, ..AcquireTerms::default() },
            ..Acquire::default()
        }))
        .granted();
    let shown = |id, owner: &str, metadata: &str| Shown {
        key: "key".to_owned(),
        id,
        owner: owner.to_owned(),
        metadata: metadata.to_owned(),
    };
    let known = listed(&mut people.client(&people.alice), b"");
    assert_eq!(known, [shown(held.id, "owner", "secret")]);
    let mut bob = people.client(&people.bob);
    assert_eq!(listed(&mut bob, b""), [shown(LockId::default(), "", "")]);

    // A busy answer names the owner for those who may inspect the key.
    for (token, shown) in [(&people.alice, &b"owner"[..]), (&people.bob, b"")] {
        let answer =
            people.client(token).ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
        let ErrorDetail::Contention(contention) = answer.error().detail else {
            panic!("{:?}", answer.error())
        };
        assert_eq!(contention.owner, shown);
    }
    // One's own holds are known without a right.
    let mine = bob.acquire(b"mine", 0);
    assert_eq!(listed(&mut bob, b"mine")[0].id, mine.id);
}

/// Makes something of this name that a list of its namespace shows.
fn make(client: &mut Client<TcpStream>, kind: NamespaceKind, name: &[u8]) {
    let path = path_of(name);
    let mut buffer = Vec::new();
    let request = match kind {
        NamespaceKind::Pool => Request::AcquirePermits(AcquirePermits {
            name,
            capacity: 10,
            permits: 1,
            ..AcquirePermits::default()
        }),
        NamespaceKind::Registry => {
            Request::Register(Register { key: name, owner: b"o", lease_ms: 60_000, ..Register::default() })
        }
        NamespaceKind::Tree => {
            // A claim for shared use of a path does not disturb the claims of paths below it.
            let item = PathItem { path: PathKey::new(&path).expect("a path"), write: false };
            let items = Items::new([item], &mut buffer).expect("one path");
            Request::AcquireSet(AcquireSet { items, ..AcquireSet::default() })
        }
        _ => Request::Acquire(Acquire { key: name, ..Acquire::default() }),
    };
    assert_eq!(client.code_of(request), None);
}

/// The names in the list of a namespace, in pages of `count_max`, sorted.
fn names(client: &mut Client<TcpStream>, kind: NamespaceKind, count_max: u16) -> Vec<String> {
    let (mut names, mut cursor, prefix) = (Vec::new(), 0, &b""[..]);
    loop {
        let answer = client.ask(match kind {
            NamespaceKind::Pool => Request::ListPools(ListPools { cursor, count_max, prefix }),
            NamespaceKind::Registry => {
                Request::ListEntries(ListEntries { cursor, count_max, any_type: true, type_name: b"" })
            }
            _ => Request::List(List { cursor, count_max, prefix, ..List::default() }),
        });
        let (next, page): (u64, Vec<&[u8]>) = match answer.response() {
            Response::PoolsListed(page) => (page.next, page.pools.iter().map(|pool| pool.name).collect()),
            Response::EntriesListed(page) => {
                (page.next, page.entries.iter().map(|entry| entry.key).collect())
            }
            Response::Listed(page) => (page.next, page.locks.iter().map(|lock| lock.key).collect()),
            other => panic!("{other:?}"),
        };
        names.extend(page.into_iter().map(|name| match (kind, PathKey::new(name)) {
            (NamespaceKind::Tree, Ok(path)) => {
                String::from_utf8_lossy(&path.segments().collect::<Vec<_>>().join(&b'/')).into_owned()
            }
            _ => String::from_utf8_lossy(name).into_owned(),
        }));
        cursor = next;
        if cursor == 0 {
            names.sort();
            return names;
        }
    }
}

#[test]
fn a_list_has_the_names_that_its_client_may_list() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\", \"list\"]\n\
         [[rule]]\nidentity = \"dora\"\nprefix = \"a/\"\nallow = [\"list\"]\n\
         [[rule]]\nidentity = \"dora\"\nprefix = \"b/\"\nallow = [\"acquire\", \"inspect\"]\n",
    );
    let (alice, dora) = (office.token("alice"), office.token("dora"));
    let server = office.server(&[]);
    for (kind, below) in [
        (NamespaceKind::Flat, &["a/1", "a/2"][..]),
        (NamespaceKind::Pool, &["a/1", "a/2"]),
        (NamespaceKind::Registry, &["a/1", "a/2"]),
        // In a tree, `a/` is the path `a`.
        (NamespaceKind::Tree, &["a", "a/1", "a/2"]),
    ] {
        let mut holder = server.client_with(kind, &alice);
        let all = ["a", "a/1", "a/2", "ab", "b/1"];
        for name in all {
            make(&mut holder, kind, name.as_bytes());
        }
        let mut client = server.client_with(kind, &dora);
        for count_max in [0, 1] {
            assert_eq!(names(&mut holder, kind, count_max), all, "{kind:?}");
            assert_eq!(names(&mut client, kind, count_max), below, "{kind:?}");
        }
    }
}

#[test]
fn a_list_has_what_its_client_took_itself_also_without_the_right_to_list_it() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"dora\"\nprefix = \"a/\"\nallow = [\"acquire\", \"list\"]\n\
         [[rule]]\nidentity = \"dora\"\nprefix = \"b/\"\nallow = [\"acquire\"]\n",
    );
    let (alice, dora) = (office.token("alice"), office.token("dora"));
    let server = office.server(&[]);
    for kind in [NamespaceKind::Flat, NamespaceKind::Registry, NamespaceKind::Tree] {
        let (mut holder, mut client) = (server.client_with(kind, &alice), server.client_with(kind, &dora));
        for name in [&b"a/other"[..], b"b/other"] {
            make(&mut holder, kind, name);
        }
        for name in [&b"a/own"[..], b"b/own"] {
            make(&mut client, kind, name);
        }
        for count_max in [0, 1] {
            assert_eq!(names(&mut client, kind, count_max), ["a/other", "a/own", "b/own"], "{kind:?}");
        }
    }
}

#[test]
fn a_claim_over_several_keys_that_waits_is_no_claim_of_one_of_them() {
    let people = People::new(&[]);
    let mut holder = people.client(&people.bob);
    holder.acquire(b"b/key", 0);
    let mut waiter = people.client(&people.alice);
    let mut buffer = Vec::new();
    let items = [&b"a/key"[..], b"b/key"].map(|key| KeyItem { key, shared: false });
    let items = Items::new(items, &mut buffer).expect("two keys");
    let acquire = AcquireKeys {
        items,
        terms: AcquireTerms { wait_ms: 60_000, notify_queued: true, ..AcquireTerms::default() },
    };
    waiter.send(Request::AcquireKeys(acquire));
    let queued = waiter.receive();
    let Event::Queued { id, .. } = queued.event() else { panic!("{:?}", queued.event()) };
    let mut olga = people.client(&people.olga);
    for request in [release(id), force(id)] {
        assert_eq!(olga.code_of(request), Some(ErrorCode::NotFound), "her rights are for a/ alone");
    }
    assert_eq!(people.client(&people.alice).code_of(release(id)), None);
}

#[test]
fn a_claim_of_paths_is_released_by_others_with_the_right_for_each_path_alone() {
    let people = People::new(&[]);
    let client = |token| people.server.client_with(NamespaceKind::Tree, token);
    for (names, expected) in [
        (["a/1", "a/2"], None),
        (["a/3", "b/1"], Some(ErrorCode::NotFound)),
        (["b/2", "a/4"], Some(ErrorCode::NotFound)),
    ] {
        let paths = names.map(|name| path_of(name.as_bytes()));
        let mut buffer = Vec::new();
        let items =
            paths.iter().map(|path| PathItem { path: PathKey::new(path).expect("a path"), write: true });
        let items = Items::new(items, &mut buffer).expect("two paths");
        let acquire = Request::AcquireSet(AcquireSet { items, ..AcquireSet::default() });
        let held = client(&people.alice).ask(acquire).granted();
        for request in [extend, force] {
            assert_eq!(client(&people.olga).code_of(request(held.id)), expected, "{names:?}");
        }
    }
}

#[test]
fn a_set_of_more_than_32_paths_of_another_identity_needs_a_right_for_every_key() {
    let people = People::new(&[]);
    let client = |token| people.server.client_with(NamespaceKind::Tree, token);
    for (count, expected) in [(32, None), (33, Some(ErrorCode::NotFound))] {
        let paths: Vec<_> =
            (0..count).map(|number| path_of(format!("a/{count} {number}").as_bytes())).collect();
        let mut buffer = Vec::new();
        let items =
            paths.iter().map(|path| PathItem { path: PathKey::new(path).expect("a path"), write: true });
        let items = Items::new(items, &mut buffer).expect("paths");
        let acquire = Request::AcquireSet(AcquireSet { items, ..AcquireSet::default() });
        let held = client(&people.alice).ask(acquire).granted();
        for request in [extend, force] {
            assert_eq!(client(&people.olga).code_of(request(held.id)), expected, "{count}");
        }
        assert!(
            expected.is_none() || client(&people.alice).code_of(extend(held.id)).is_none(),
            "her own set"
        );
    }
}

#[test]
fn a_release_of_ones_own_claim_does_not_tell_whether_another_exists() {
    let people = People::new(&[]);
    let held = people.client(&people.alice).acquire(b"a/key", 0);
    let mut bob = people.client(&people.bob);
    let absent = LockId { secret: held.id.secret ^ 1, ..held.id };
    let own = |id| Request::Release(Release { id, key: None, own: true });
    assert_eq!(said(&mut bob, own(held.id)), said(&mut bob, own(absent)));
}

#[test]
fn a_request_id_belongs_to_its_identity() {
    let people = People::new(&[]);
    let options =
        AcquireOptions { request_id: Some(b"id"), owner: Some(b"same"), ..AcquireOptions::default() };
    let acquire = Request::Acquire(Acquire {
        key: b"key",
        terms: AcquireTerms { options, ..AcquireTerms::default() },
        ..Acquire::default()
    });
    let held = people.client(&people.alice).ask(acquire).granted();
    assert_eq!(people.client(&people.bob).code_of(acquire), Some(ErrorCode::Busy));
    let again = people.client(&people.alice).ask(acquire).granted();
    assert_eq!(again.id, held.id);
}

/// An acquire that names an owner and a request id which others can name too.
fn repeatable(key: &[u8]) -> Request<'_> {
    let options = AcquireOptions {
        request_id: Some(b"id"),
        owner: Some(b"same"),
        scope: Some(2),
        ..AcquireOptions::default()
    };
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { lease_ms: 60_000, options, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

#[test]
fn a_claim_of_an_earlier_server_is_taken_up_by_its_identity_and_by_those_who_may_release_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = ["--data-dir", directory.path().to_str().unwrap()];
    let mut people = People::new(&data);
    let held = people.client(&people.alice).ask(repeatable(b"key")).granted();
    people.restart(&data);
    assert_eq!(people.client(&people.bob).code_of(repeatable(b"key")), Some(ErrorCode::Busy));
    for token in [&people.alice, &people.carol] {
        let again = people.client(token).ask(repeatable(b"key")).granted();
        assert_eq!((again.id, again.fence), (held.id, held.fence));
    }
    // Now the claim belongs to Carol, also after another restart.
    for _ in 0..2 {
        assert_eq!(people.client(&people.alice).code_of(repeatable(b"key")), Some(ErrorCode::Busy));
        assert_eq!(people.client(&people.alice).code_of(release(held.id)), Some(ErrorCode::NotFound));
        people.restart(&data);
    }
    assert_eq!(people.client(&people.carol).code_of(release(held.id)), None);
}

#[test]
fn a_right_to_release_others_below_a_prefix_is_for_request_ids_and_registrations_there_alone() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"olga\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"olga\"\nprefix = \"a/\"\nallow = [\"release_others\"]\n",
    );
    let (alice, olga) = (office.token("alice"), office.token("olga"));
    let directory = tempfile::tempdir().unwrap();
    let server = office.server(&["--data-dir", directory.path().to_str().unwrap()]);
    let kinds = [NamespaceKind::Flat, NamespaceKind::Registry];
    let [mut locks, mut entries] = kinds.map(|kind| server.client_with(kind, &olga));
    for (key, is_below) in [(&b"a/key"[..], true), (b"a", false), (b"b/key", false)] {
        let refused = |code| (!is_below).then_some(code);
        let [mut alices_locks, mut alices_entries] = kinds.map(|kind| server.client_with(kind, &alice));
        let held = alices_locks.ask(repeatable(key)).granted();
        assert_eq!(locks.code_of(extend(held.id)), refused(ErrorCode::NotFound));
        assert_eq!(locks.code_of(repeatable(key)), refused(ErrorCode::Busy));
        assert_eq!(locks.code_of(release(held.id)), refused(ErrorCode::NotFound));

        let register = Register { key, owner: b"o", lease_ms: 60_000, ..Register::default() };
        assert_eq!(alices_entries.code_of(Request::Register(register)), None);
        let heartbeat = Request::Heartbeat(Heartbeat(register));
        assert_eq!(entries.code_of(heartbeat), refused(ErrorCode::NotOwner));
        let unregister = Request::Unregister(Unregister { key, owner: b"o" });
        assert_eq!(entries.code_of(unregister), refused(ErrorCode::NotOwner));
    }
}

#[test]
fn a_session_is_resumed_with_the_rules_of_that_time() {
    let people = People::new(&[]);
    let new = SessionRequest::New { lease_ms: 60_000 };
    let (mut carol, welcome) = people.server.session_with(&people.carol, new);
    let mut alice = people.client(&people.alice);
    let [first, second] = [&b"a"[..], b"b"].map(|key| alice.acquire(key, 0));
    let own = carol.acquire(b"c", 0);
    // The shards of the keys know her rights.
    for id in [first.id, second.id] {
        assert_eq!(carol.code_of(extend(id)), None);
    }
    drop(carol);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let reload = |allow: &str, told: &str| {
        people.office.set_rules(&format!(
            "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
             [[rule]]\nidentity = \"carol\"\nallow = [{allow}]\n\
             [[rule]]\nidentity = \"{told}\"\nallow = [\"list\"]\n"
        ));
        let token = people.office.token(told);
        people.server.signal("HUP");
        wait_until("the server has the rules", || {
            let hello = hello_with(NamespaceKind::Flat, &token);
            matches!(people.server.stranger().ask(Request::Hello(hello)).response(), Response::Welcome(_))
        });
    };
    reload("\"acquire\"", "told first");
    let (mut carol, welcome) = people.server.session_with(&people.carol, resume);
    assert!(welcome.resumed);
    carol.number_from(100);
    for id in [first.id, second.id] {
        assert_eq!(carol.code_of(release(id)), Some(ErrorCode::NotFound));
    }
    assert_eq!(carol.code_of(extend(own.id)), None);
    drop(carol);
    reload("\"release_others\"", "told then");
    let (mut carol, _) = people.server.session_with(&people.carol, resume);
    carol.number_from(200);
    let acquire = Request::Acquire(Acquire { key: b"d", ..Acquire::default() });
    assert_eq!(carol.code_of(acquire), Some(ErrorCode::Unauthorized));
    for id in [first.id, second.id, own.id] {
        assert_eq!(carol.code_of(release(id)), None);
    }
}

#[test]
fn a_registration_belongs_to_its_identity_although_others_name_its_owner() {
    let people = People::new(&[]);
    let client = |token: &str| people.server.client_with(NamespaceKind::Registry, token);
    let register =
        Request::Register(Register { key: b"key", owner: b"o", lease_ms: 60_000, ..Register::default() });
    let unregister = Request::Unregister(Unregister { key: b"key", owner: b"o" });
    assert_eq!(client(&people.alice).code_of(register), None);
    assert_eq!(client(&people.bob).code_of(register), Some(ErrorCode::Busy));
    assert_eq!(client(&people.bob).code_of(unregister), Some(ErrorCode::NotOwner));
    assert_eq!(client(&people.alice).code_of(register), None);
    assert_eq!(client(&people.alice).code_of(unregister), None);
}

#[test]
fn a_session_is_resumed_and_joined_by_its_identity_alone() {
    let people = People::new(&[]);
    let new = SessionRequest::New { lease_ms: 60_000 };
    let (mut alice, welcome) = people.server.session_with(&people.alice, new);
    alice.acquire(b"key", 0);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let join = SessionRequest::Join { id: welcome.session_id };
    for session in [resume, join] {
        let hello = Hello { session, ..hello_with(NamespaceKind::Flat, &people.bob) };
        assert_eq!(people.server.stranger().refused_hello(hello).0, ErrorCode::SessionGone);
    }
    people.server.session_with(&people.alice, join);
    let (_resumed, welcome) = people.server.session_with(&people.alice, resume);
    assert!(welcome.resumed);
}

#[test]
fn holds_and_sessions_keep_their_identity_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = ["--data-dir", directory.path().to_str().unwrap()];
    let mut people = People::new(&data);
    let local = |key| {
        let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
        Request::Acquire(Acquire {
            key,
            terms: AcquireTerms { lease_ms: 60_000, options, ..AcquireTerms::default() },
            ..Acquire::default()
        })
    };
    let new = SessionRequest::New { lease_ms: 60_000 };
    let (mut in_session, welcome) = people.server.session_with(&people.alice, new);
    let session_key = in_session.ask(local(b"a/session")).granted();
    let held = people.client(&people.alice).ask(local(b"key")).granted();
    people.restart(&data);
    let mut bob = people.client(&people.bob);
    for id in [held.id, session_key.id] {
        assert_eq!(bob.code_of(release(id)), Some(ErrorCode::NotFound));
    }
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let hello = Hello { session: resume, ..hello_with(NamespaceKind::Flat, &people.bob) };
    assert_eq!(people.server.stranger().refused_hello(hello).0, ErrorCode::SessionGone);
    people.server.session_with(&people.alice, resume);
    let mut alice = people.client(&people.alice);
    assert_eq!(alice.code_of(release(held.id)), None);
    assert_eq!(alice.code_of(release(session_key.id)), None);
}

#[test]
fn with_identities_and_without_rules_everybody_may_release_everything() {
    let office = Office::new("");
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    let server = office.server(&[]);
    let [first, second] =
        [&b"a"[..], b"b"].map(|key| server.client_with(NamespaceKind::Flat, &alice).acquire(key, 0));
    assert_eq!(server.client_with(NamespaceKind::Flat, &bob).code_of(release(first.id)), None);
    let mut nobody = server.stranger();
    nobody.open(Hello { namespace: b"flat", ..default_hello() });
    assert_eq!(nobody.code_of(release(second.id)), None);
}

#[test]
fn a_holder_is_told_that_another_identity_released_its_lock() {
    let people = People::new(&[]);
    let mut alice = people.client(&people.alice);
    let held = alice.acquire(b"key", 0);
    assert_eq!(people.client(&people.carol).code_of(release(held.id)), None);
    assert!(matches!(alice.receive().event(), Event::Revoked { id, .. } if id == held.id));
    let inspect = Request::Inspect(Inspect { key: b"key" });
    assert_eq!(alice.code_of(inspect), None);
}

/// Calls of each kind in one comparison of times.
const CALL_COUNT: usize = 10_000;

/// Medians of the times of calls about the hold of another identity and about no hold, in turn.
fn medians(client: &mut Client<TcpStream>, held: LockId, absent: LockId) -> [Duration; 2] {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..CALL_COUNT {
        for (id, times) in [held, absent].into_iter().zip(&mut times) {
            let begin = Instant::now();
            assert_eq!(client.code_of(status(id)), Some(ErrorCode::NotFound));
            times.push(begin.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[CALL_COUNT / 2]
    })
}

#[test]
fn the_time_of_an_answer_does_not_tell_whether_a_hold_exists() {
    let people = People::new(&[]);
    let held = people.client(&people.alice).acquire(b"a/key", 0);
    let absent = LockId { secret: held.id.secret ^ 1, ..held.id };
    let mut bob = people.client(&people.bob);
    // A noisy machine may disturb one comparison, but not all of them.
    let ratios: Vec<f64> = (0..5)
        .map(|_| {
            let [denied, unknown] = medians(&mut bob, held.id, absent);
            denied.as_secs_f64() / unknown.as_secs_f64()
        })
        .take_while(|ratio| !(0.95..=1.05).contains(ratio))
        .collect();
    assert!(ratios.len() < 5, "{ratios:?}");
}
