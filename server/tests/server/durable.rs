//! Scope local: what was promised outlives the process.

use crate::harness::{Client, Server, hello_of};
use std::io::{Read, Write};
use std::time::Duration;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquireSet, AcquireTerms, ErrorCode, Extend, Granted, Hello,
    Inspect, Items, KeyItem, NamespaceKind, PathItem, PathKey, Release, Request, Response, SessionRequest,
};
use waymaker_server::limits::SESSION_VACANT_MS;

/// A data directory, and servers on it one after the other.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self) -> String {
        self.directory.path().join("data").to_str().expect("text").to_owned()
    }

    pub(crate) fn start(&self, more: &[&str]) -> Server {
        let path = self.path();
        let own = ["--data-dir", &path, "--log-segment-len", "1048576"];
        Server::start(&[&own[..], more].concat())
    }
}

pub(crate) fn local<'a>(key: &'a [u8]) -> Acquire<'a> {
    let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
    Acquire { key, terms: AcquireTerms { options, ..AcquireTerms::default() }, ..Acquire::default() }
}

fn acquire_local<S: Read + Write>(client: &mut Client<S>, key: &[u8], lease_ms: u32) -> Granted {
    client.ask(Request::Acquire(local(key).with_terms(|terms| terms.lease_ms = lease_ms))).granted()
}

#[test]
fn local_scope_without_a_data_directory_is_scope_unavailable() {
    let server = Server::start(&[]);
    let mut client = server.client("somebody");
    let refused = client.ask(Request::Acquire(local(b"key")));
    assert_eq!(refused.refusal().0, ErrorCode::ScopeUnavailable);
}

#[test]
fn a_hold_and_its_counter_survive_a_kill() {
    for (before, after) in [("1", "1"), ("2", "2"), ("1", "3"), ("3", "1")] {
        let place = Place::new();
        let (held, freed) = {
            let server = place.start(&["--workers", before]);
            let mut client = server.client("first");
            let held = acquire_local(&mut client, b"held", 60_000);
            let mut freed = acquire_local(&mut client, b"freed", 60_000);
            client.release(freed.id);
            freed = acquire_local(&mut client, b"freed", 60_000);
            client.release(freed.id);
            assert_eq!((held.fence, freed.fence), (1, 2));
            // A release is not waited for, but what comes later is never durable before it.
            acquire_local(&mut client, b"another", 60_000);
            server.signal("KILL");
            (held, freed)
        };
        let server = place.start(&["--workers", after]);
        let mut client = server.client("second");
        let refused = client.ask(Request::Acquire(local(b"held")));
        assert_eq!(refused.error().code, ErrorCode::Busy, "from {before} to {after} workers");
        let again = acquire_local(&mut client, b"freed", 60_000);
        assert_eq!(again.fence, freed.fence + 1);
        let extended =
            client.ask(Request::Extend(Extend { id: held.id, key: None, lease_ms: 30_000, own: false }));
        assert!(matches!(extended.response(), Response::Extended(_)), "{:?}", extended.response());
        client.release(held.id);
        assert_eq!(acquire_local(&mut client, b"held", 0).fence, 2);
    }
}

/// A lower limit, or another number of shards, may leave a shard with more holds than it may have.
#[test]
fn holds_beyond_a_limit_are_restored_and_only_new_claims_are_refused() {
    let place = Place::new();
    let held = {
        let server = place.start(&["--workers", "1"]);
        let mut client = server.client("first");
        let held: Vec<_> = (0..3).map(|key| acquire_local(&mut client, &[key], 60_000)).collect();
        server.signal("KILL");
        held
    };
    let server = place.start(&["--workers", "1", "--limits-claims", "1"]);
    let mut client = server.client("second");
    let is_refused = |client: &mut Client<_>| {
        client.ask(Request::Acquire(local(b"new"))).error().code == ErrorCode::Overloaded
    };
    for held in held {
        assert!(is_refused(&mut client));
        client.release(held.id);
    }
    acquire_local(&mut client, b"new", 0);
}

#[test]
fn a_clean_stop_carries_over_holds_of_every_scope() {
    let place = Place::new();
    let held = {
        let mut server = place.start(&["--workers", "2"]);
        let mut client = server.client("first");
        let held = client.acquire(b"ephemeral", 60_000);
        let idle = client.acquire(b"idle", 60_000);
        client.release(idle.id);
        server.signal("TERM");
        assert!(server.wait().success());
        held
    };
    let mut server = place.start(&["--workers", "2"]);
    let mut client = server.client("second");
    assert_eq!(client.acquire(b"idle", 0).fence, 2);
    client.release(held.id);
    assert_eq!(client.acquire(b"ephemeral", 0).fence, 2);
    server.signal("KILL");
    server.wait();
    // What is not durable outlives one clean stop, and no crash.
    let server = place.start(&["--workers", "2"]);
    let mut client = server.client("third");
    assert_eq!(client.acquire(b"ephemeral", 0).fence, 1);
}

#[test]
fn a_session_is_resumed_after_a_kill_and_repeated_requests_get_their_first_answers() {
    let place = Place::new();
    let (welcome, held) = {
        let server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
        let acquire = local(b"held").with_terms(|terms| terms.session_lease = true);
        client.send_numbered(77, Request::Acquire(acquire));
        let held = client.receive().granted();
        server.signal("KILL");
        (welcome, held)
    };
    let server = place.start(&["--workers", "2"]);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, again) = server.session_client(resume);
    assert!(again.resumed);
    let acquire = local(b"held").with_terms(|terms| terms.session_lease = true);
    client.send_numbered(77, Request::Acquire(acquire));
    let repeated = client.receive().granted();
    assert_eq!((repeated.id, repeated.fence), (held.id, held.fence));
    let inspected = client.ask(Request::Inspect(Inspect { key: b"held" }));
    let Response::Inspected(inspected) = inspected.response() else { panic!("{inspected:?}") };
    assert_eq!(inspected.holder_count, 1);
    client.release(held.id);
    let missing = client.ask(Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(missing.error().code, ErrorCode::NotFound);
}

/// The server looks for sessions without claims a minute after their last connection was lost.
#[test]
fn a_restored_session_keeps_its_hold_beyond_the_limit_for_idle_sessions() {
    let place = Place::new();
    let (welcome, held) = {
        let server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 600_000 });
        client.send_numbered(
            77,
            Request::Acquire(local(b"held").with_terms(|terms| terms.session_lease = true)),
        );
        let held = client.receive().granted();
        server.signal("KILL");
        (welcome, held)
    };
    let server = place.start(&["--workers", "2"]);
    std::thread::sleep(Duration::from_millis(SESSION_VACANT_MS + 5_000));
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, again) = server.session_client(resume);
    assert!(again.resumed);
    client.release(held.id);
}

/// The newest request that found a hold by its request id has the answer, and the same one after a restart.
#[test]
fn a_repeated_request_id_gets_the_same_answer_after_a_kill() {
    let place = Place::new();
    let options = AcquireOptions { request_id: Some(b"r"), ..local(b"").terms.options };
    let acquire = local(b"held").with_terms(|terms| {
        terms.lease_ms = 60_000;
        terms.options = options;
    });
    let (welcome, found) = {
        let server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
        client.send_numbered(77, Request::Acquire(acquire));
        let held = client.receive().granted();
        client.send_numbered(78, Request::Acquire(acquire));
        let found = client.receive().granted();
        assert_eq!((found.id, found.repeated), (held.id, true));
        server.signal("KILL");
        (welcome, found)
    };
    let server = place.start(&["--workers", "2"]);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, _) = server.session_client(resume);
    client.send_numbered(78, Request::Acquire(acquire));
    let again = client.receive().granted();
    let told = |granted: &Granted| (granted.id, granted.fence, granted.repeated, granted.waited);
    assert_eq!(told(&again), told(&found));
}

/// Only holds with a request id said that they were one of several: the others were answered as if one key had been asked
/// for, and nobody learned the ids of the rest.
#[test]
fn a_multi_key_acquire_repeated_after_a_kill_keeps_its_answer() {
    let place = Place::new();
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut buffer = Vec::new();
    let items = Items::new(keys.map(|key| KeyItem { shared: false, key }), &mut buffer);
    let items = items.expect("a few keys");
    let acquire = AcquireKeys {
        items,
        terms: AcquireTerms {
            lease_ms: 60_000,
            options: local(b"").terms.options,
            ..AcquireTerms::default()
        },
    };
    let ids_of = |answer: &Response<'_>| match answer {
        Response::GrantedKeys(granted) => granted.keys.iter().map(|lock| lock.id).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let (welcome, ids) = {
        let server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
        client.send_numbered(77, Request::AcquireKeys(acquire));
        let ids = ids_of(&client.receive().response());
        server.signal("KILL");
        (welcome, ids)
    };
    let server = place.start(&["--workers", "3"]);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, _) = server.session_client(resume);
    client.send_numbered(77, Request::AcquireKeys(acquire));
    assert_eq!(ids_of(&client.receive().response()), ids);
}

/// One of the keys had only an ephemeral hold, which ended with the process. No answer says that a claim is granted and leaves out a key of it.
#[test]
fn a_multi_key_claim_that_lost_a_key_is_served_as_new() {
    let place = Place::new();
    let mut buffer = Vec::new();
    let items = Items::new([&b"a"[..], b"b"].map(|key| KeyItem { shared: false, key }), &mut buffer);
    let acquire = AcquireKeys {
        items: items.expect("two keys"),
        terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
    };
    let welcome = {
        let server = place.start(&["--workers", "2"]);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
        let raised = acquire_local(&mut client, b"a", 60_000);
        client.release(raised.id);
        client.send_numbered(77, Request::AcquireKeys(acquire));
        let granted = client.receive();
        assert!(matches!(granted.response(), Response::GrantedKeys(_)), "{granted:?}");
        server.signal("KILL");
        welcome
    };
    let server = place.start(&["--workers", "2"]);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, _) = server.session_client(resume);
    client.send_numbered(77, Request::AcquireKeys(acquire));
    let answer = client.receive();
    assert!(
        matches!(answer.response(), Response::Error(error) if error.code == ErrorCode::Busy),
        "{answer:?}"
    );
}

#[test]
fn a_hold_without_a_lease_has_no_end_when_repeated_after_a_kill() {
    let place = Place::new();
    let paths = [PathItem { path: PathKey::default(), write: true }];
    let mut buffer = Vec::new();
    let items = Items::new(paths, &mut buffer).expect("one path");
    let options =
        AcquireOptions { scope: Some(2), release_after_ms: Some(60_000), ..AcquireOptions::default() };
    let acquire = Request::AcquireSet(AcquireSet {
        items,
        terms: AcquireTerms { lease_ms: u32::MAX, options, ..AcquireTerms::default() },
    });
    let hello = |session| Hello { session, ..hello_of(NamespaceKind::Tree, "somebody") };
    let (welcome, granted) = {
        let server = place.start(&[]);
        let mut client = server.stranger();
        let welcome = client.open(hello(SessionRequest::New { lease_ms: 60_000 }));
        client.send_numbered(77, acquire);
        let granted = client.receive().granted();
        server.signal("KILL");
        (welcome, granted)
    };
    assert_eq!(granted.remaining_ms, u32::MAX);
    let server = place.start(&[]);
    let mut client = server.stranger();
    client.open(hello(SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }));
    client.send_numbered(77, acquire);
    let again = client.receive().granted();
    assert_eq!((again.id, again.remaining_ms), (granted.id, u32::MAX));
}

#[test]
fn a_registration_survives_a_kill() {
    use waymaker_protocol::{LookUp, NamespaceKind, Register};
    let place = Place::new();
    {
        let server = place.start(&[]);
        let mut client = server.client_of(NamespaceKind::Registry, "first");
        let register =
            Register { key: b"key", owner: b"who", value: b"what", lease_ms: 60_000, ..Register::default() };
        let registered = client.ask(Request::Register(register));
        assert!(matches!(registered.response(), Response::Registered(_)), "{:?}", registered.response());
        server.signal("KILL");
    }
    let server = place.start(&[]);
    let mut client = server.client_of(NamespaceKind::Registry, "second");
    let found = client.ask(Request::LookUp(LookUp { key: b"key" }));
    let Response::LookedUp(found) = found.response() else { panic!("{found:?}") };
    assert!(found.found, "it is registered");
    let entry = found.entry;
    assert_eq!((entry.owner, entry.value, entry.fence), (&b"who"[..], &b"what"[..], 1));
}

#[test]
fn an_ephemeral_registration_survives_a_kill_only_if_its_key_is_durable() {
    use waymaker_protocol::{LookUp, NamespaceKind, Register, Unregister};
    let place = Place::new();
    {
        let server = place.start(&[]);
        let mut client = server.client_of(NamespaceKind::Registry, "first");
        let mut register = |key: &[u8], ephemeral| {
            let register =
                Register { key, owner: b"who", lease_ms: 60_000, ephemeral, ..Register::default() };
            let registered = client.ask(Request::Register(register));
            assert!(matches!(registered.response(), Response::Registered(_)), "{:?}", registered.response());
        };
        register(b"ephemeral", true);
        register(b"durable", false);
        register(b"durable once", false);
        register(b"raised", true);
        register(b"raised", false);
        let mut client = server.client_of(NamespaceKind::Registry, "first");
        client.ask(Request::Unregister(Unregister { key: b"durable once", owner: b"who" }));
        let again = Register { key: b"durable once", owner: b"who", lease_ms: 60_000, ..Register::default() };
        client.ask(Request::Register(Register { ephemeral: true, ..again }));
        server.signal("KILL");
    }
    let server = place.start(&[]);
    let mut client = server.client_of(NamespaceKind::Registry, "second");
    let mut fence_of = |key: &[u8]| {
        let found = client.ask(Request::LookUp(LookUp { key }));
        let Response::LookedUp(found) = found.response() else { panic!("{found:?}") };
        found.found.then_some(found.entry.fence)
    };
    assert_eq!(fence_of(b"ephemeral"), None);
    assert_eq!(fence_of(b"durable"), Some(1));
    assert_eq!(fence_of(b"durable once"), Some(2));
    assert_eq!(fence_of(b"raised"), Some(1));
}

#[test]
fn operator_settings_survive_a_kill() {
    use waymaker_protocol::{DescribePool, Freeze, NamespaceKind, SetCapacity};
    let place = Place::new();
    {
        let server = place.start(&["--workers", "2"]);
        let mut pools = server.client_of(NamespaceKind::Pool, "operator");
        let set = SetCapacity { name: b"slots", capacity: 7, ..SetCapacity::default() };
        assert!(matches!(pools.ask(Request::SetCapacity(set)).response(), Response::CapacitySet(_)));
        let mut keys = server.client("operator");
        for (prefix, thaw) in [(&b"a/"[..], false), (b"b/", false), (b"b/", true)] {
            let answer = keys.ask(Request::Freeze(Freeze { prefix, thaw, ..Freeze::default() }));
            assert!(matches!(answer.response(), Response::Frozen(_)), "{:?}", answer.response());
        }
        server.signal("KILL");
    }
    let server = place.start(&["--workers", "2"]);
    let mut pools = server.client_of(NamespaceKind::Pool, "operator");
    let described = pools.ask(Request::DescribePool(DescribePool { name: b"slots" }));
    let Response::PoolDescribed(described) = described.response() else { panic!("{described:?}") };
    assert_eq!(described.capacity, 7);
    let mut keys = server.client("somebody");
    let frozen = keys.ask(Request::Acquire(Acquire { key: b"a/1", ..Acquire::default() }));
    assert_eq!(frozen.error().code, ErrorCode::Frozen);
    keys.acquire(b"b/1", 0);
}

/// Each key begins in its own shard, and one shard answered for all before the others had begun: a release or renewal that
/// followed at once was told that there was no such hold.
#[test]
fn a_multi_key_grant_is_answered_only_when_all_keys_are_held() {
    let place = Place::new();
    let server = place.start(&["--workers", "3"]);
    std::thread::scope(|scope| {
        for name in ["first", "second", "third"] {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client(name);
                for _ in 0..60 {
                    take_and_release_several(&mut client, name);
                }
            });
        }
    });
}

fn take_and_release_several<S: Read + Write>(client: &mut Client<S>, name: &str) {
    let keys: Vec<Vec<u8>> = (0..8).map(|key| format!("{name}-{key}").into_bytes()).collect();
    let mut buffer = Vec::new();
    let items = Items::new(keys.iter().map(|key| KeyItem { shared: false, key }), &mut buffer);
    let items = items.expect("a few keys");
    let acquire = AcquireKeys {
        items,
        terms: AcquireTerms { options: local(b"").terms.options, ..AcquireTerms::default() },
    };
    let answer = client.ask(Request::AcquireKeys(acquire));
    let Response::GrantedKeys(granted) = answer.response() else { panic!("{:?}", answer.response()) };
    // The last one first, and all of them at once.
    let releases: Vec<u32> = (granted.keys.iter().rev())
        .map(|lock| client.send(Request::Release(Release { id: lock.id, key: None, own: false })))
        .collect();
    for _ in releases {
        let answer = client.receive();
        assert!(matches!(answer.response(), Response::Released(_)), "{:?}", answer.response());
    }
}
