//! How much the clients of one identity may have.

use super::fronts::{by, key};
use super::operations::path_of;
use super::{Office, hello_with};
use crate::addresses::connect_from;
use crate::harness::{Client, Server, default_hello, own_host, wait_until};
use std::net::TcpStream;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, Goodbye,
    Hello, Items, KeyItem, LockId, NamespaceKind, PathItem, PathKey, Register, Release, Request, Response,
    SessionRequest, Unregister,
};

/// Alice and Bob may do everything, and Alice has these quotas.
fn office(quotas: &str) -> (Office, String, String) {
    let office = Office::new(&rules(quotas));
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    (office, alice, bob)
}

fn rules(quotas: &str) -> String {
    format!("[[rule]]\neveryone = true\nallow = [\"all\"]\n[[quota]]\nidentity = \"alice\"\n{quotas}\n")
}

/// The limit of a refusal, or `None` if a request was served.
fn limit(client: &mut Client<TcpStream>, request: Request<'_>) -> Option<(String, u64)> {
    let answer = client.ask(request);
    if !matches!(answer.response(), Response::Error(_)) {
        return None;
    }
    let (code, field, limit) = answer.refusal();
    assert_eq!(code, ErrorCode::Overloaded, "{field}");
    Some((field.to_owned(), limit))
}

fn acquire(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire { key, ..Acquire::default() })
}

fn acquire_over_grpc(name: &str) -> v1::AcquireKeysRequest {
    v1::AcquireKeysRequest { keys: vec![key(name)], ..v1::AcquireKeysRequest::default() }
}

fn release(id: LockId) -> Request<'static> {
    Request::Release(Release { id, key: None, own: false })
}

/// The refusal of a greeting because of a quota, or an open connection.
fn opened(server: &Server, hello: Hello<'_>) -> Result<Client<TcpStream>, (String, u64)> {
    let mut client = server.stranger();
    client.send(Request::Hello(hello));
    let answer = client.receive();
    if matches!(answer.response(), Response::Welcome(_)) {
        return Ok(client);
    }
    let (code, field, limit) = answer.refusal();
    assert_eq!(code, ErrorCode::Overloaded, "{field}");
    Err((field.to_owned(), limit))
}

#[test]
fn all_connections_of_an_identity_share_its_quota_of_claims() {
    let (office, alice, bob) = office("claims = 3");
    let server = office.server(&[]);
    let [mut first, mut second] = [(); 2].map(|()| server.client_with(NamespaceKind::Flat, &alice));
    let held = first.acquire(b"1", 0);
    second.acquire(b"2", 0);
    second.acquire(b"3", 0);
    let reached = Some(("claims of the identity".to_owned(), 3));
    for key in [b"4", b"5", b"6"] {
        assert_eq!(limit(&mut first, acquire(key)), reached);
        assert_eq!(limit(&mut second, acquire(key)), reached);
    }
    server.client_with(NamespaceKind::Flat, &bob).acquire(b"4", 0);
    assert_eq!(limit(&mut first, release(held.id)), None);
    assert_eq!(limit(&mut second, acquire(b"5")), None);
    assert_eq!(limit(&mut first, acquire(b"1")), reached);
}

#[test]
fn a_claim_over_several_keys_counts_for_each_key() {
    let (office, alice, _) = office("claims = 3");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    let several = |keys: &[&[u8]]| {
        let mut buffer = Vec::new();
        let items = keys.iter().map(|key| KeyItem { key, shared: false });
        let items = Items::new(items, &mut buffer).unwrap();
        limit(&mut client, Request::AcquireKeys(AcquireKeys { items, ..AcquireKeys::default() }))
    };
    let mut several = several;
    let reached = Some(("claims of the identity".to_owned(), 3));
    assert_eq!(several(&[b"1", b"2", b"3", b"4"]), reached);
    assert_eq!(several(&[b"1", b"2"]), None);
    assert_eq!(several(&[b"3", b"4"]), reached);
    assert_eq!(several(&[b"4"]), None);
}

#[test]
fn a_quota_of_waiters_refuses_only_claims_that_would_wait() {
    let (office, alice, bob) = office("waiters = 1");
    let server = office.server(&[]);
    let mut holder = server.client_with(NamespaceKind::Flat, &bob);
    let held = holder.acquire(b"key", 0);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    let wait = |key| {
        Request::Acquire(Acquire {
            key,
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
            ..Acquire::default()
        })
    };
    client.send(wait(b"key"));
    client.receive().event();
    assert_eq!(limit(&mut client, wait(b"key")), Some(("waiters of the identity".to_owned(), 1)));
    assert_eq!(limit(&mut client, wait(b"free")), None);
    holder.release(held.id);
    let granted = client.receive().granted().id;
    // It holds the key now, and Alice may wait for herself.
    client.send(wait(b"key"));
    client.receive().event();
    client.send(release(granted));
    client.receive();
    client.receive();
}

/// Takes something and lets go of it, many times: with a quota for one of it, each time finds all of it free.
#[test]
fn what_ends_makes_room_for_as_much_again() {
    const OWNER: &[u8] = b"owner";
    const METADATA: &[u8] = b"metadata";
    let options =
        AcquireOptions { owner: Some(OWNER), metadata: Some(METADATA), ..AcquireOptions::default() };
    let (path, mut buffer) = (path_of(b"a/b"), Vec::new());
    let paths = [PathItem { path: PathKey::new(&path).unwrap(), write: true }];
    let paths = Items::new(paths, &mut buffer).unwrap();
    let (keys, mut buffer) = ([b"one", b"two"], Vec::new());
    let keys = Items::new(keys.map(|key| KeyItem { key, shared: false }), &mut buffer).unwrap();
    let key = b"a key that is too long for its record";
    for (kind, claims, bytes, request) in [
        (NamespaceKind::Flat, 1, key.len(), Request::Acquire(Acquire { key, ..Acquire::default() })),
        (
            NamespaceKind::Flat,
            1,
            16,
            Request::Acquire(Acquire {
                key: b"key",
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..Acquire::default()
            }),
        ),
        (
            NamespaceKind::Flat,
            2,
            6 + 13,
            Request::AcquireKeys(AcquireKeys {
                items: keys,
                terms: AcquireTerms { options, ..AcquireTerms::default() },
            }),
        ),
        (
            NamespaceKind::Pool,
            1,
            4 + 13,
            Request::AcquirePermits(AcquirePermits {
                name: b"pool",
                capacity: 9,
                permits: 4,
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..AcquirePermits::default()
            }),
        ),
        (
            NamespaceKind::Tree,
            1,
            path.len(),
            Request::AcquireSet(AcquireSet { items: paths, ..AcquireSet::default() }),
        ),
    ] {
        let (office, alice, _) = office(&format!("claims = {claims}\nbytes = {bytes}"));
        let server = office.server(&[]);
        let mut client = server.client_with(kind, &alice);
        for _ in 0..10 {
            let answer = client.ask(request);
            let ids: Vec<LockId> = match answer.response() {
                Response::GrantedKeys(granted) => granted.keys.iter().map(|key| key.id).collect(),
                _ => vec![answer.granted().id],
            };
            assert!(limit(&mut client, request).is_some(), "{request:?}");
            for id in ids {
                assert_eq!(limit(&mut client, release(id)), None);
            }
        }
        let (office, alice, _) = self::office(&format!("bytes = {}", bytes - 1));
        let server = office.server(&[]);
        let mut client = server.client_with(kind, &alice);
        let reached = Some(("bytes of the identity".to_owned(), bytes as u64 - 1));
        assert_eq!(limit(&mut client, request), reached);
    }
}

#[test]
fn a_registration_counts_until_it_ends_and_its_newest_value_counts() {
    let (office, alice, _) = office("claims = 1\nbytes = 20");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Registry, &alice);
    let register = |value: &'static [u8]| {
        Request::Register(Register {
            key: b"key",
            owner: b"me",
            value,
            lease_ms: 60_000,
            ..Register::default()
        })
    };
    for _ in 0..5 {
        assert_eq!(limit(&mut client, register(b"fifteen bytes!!")), None);
        assert_eq!(limit(&mut client, register(b"short")), None);
        let unregister = Request::Unregister(Unregister { key: b"key", owner: b"me" });
        assert_eq!(limit(&mut client, unregister), None);
    }
    let reached = Some(("bytes of the identity".to_owned(), 20));
    assert_eq!(limit(&mut client, register(b"sixteen bytes!!!")), reached);
}

#[test]
fn connections_sessions_and_namespaces_have_quotas_and_make_room_when_they_end() {
    let (office, alice, bob) = office("connections = 2\nsessions = 1\nnamespaces = 1");
    let server = office.server(&[]);
    let with_session = Hello {
        session: SessionRequest::New { lease_ms: 60_000 },
        ..hello_with(NamespaceKind::Flat, &alice)
    };
    let mut first = opened(&server, with_session).unwrap();
    assert_eq!(opened(&server, with_session).unwrap_err(), ("sessions of the identity".to_owned(), 1));
    let second = opened(&server, hello_with(NamespaceKind::Flat, &alice)).unwrap();
    let hello = || hello_with(NamespaceKind::Flat, &alice);
    assert_eq!(opened(&server, hello()).unwrap_err(), ("connections of the identity".to_owned(), 2));
    drop(second);
    // The namespace of the others was made by Alice's first connection.
    let mut elsewhere = None;
    wait_until("the end of a connection", || {
        elsewhere = opened(&server, Hello { namespace: b"elsewhere", ..hello() }).err();
        elsewhere.as_ref().is_none_or(|(limit, _)| limit != "connections of the identity")
    });
    assert_eq!(elsewhere, Some(("namespaces of the identity".to_owned(), 1)));
    opened(&server, Hello { namespace: b"elsewhere", ..hello_with(NamespaceKind::Flat, &bob) }).unwrap();
    opened(&server, Hello { namespace: b"elsewhere", ..hello() }).unwrap();
    first.ask(Request::Goodbye(Goodbye));
    drop(first);
    wait_until("the end of a session", || opened(&server, with_session).is_ok());
}

#[test]
fn new_connections_per_second_have_a_quota() {
    let (office, alice, bob) = office("new_connections_per_second = 2");
    let server = office.server(&[]);
    let hello = || hello_with(NamespaceKind::Flat, &alice);
    let reached = ("new connections of the identity per second".to_owned(), 2);
    wait_until("a third connection in one second", || {
        opened(&server, hello()).err().is_some_and(|refusal| refusal == reached)
    });
    opened(&server, hello_with(NamespaceKind::Flat, &bob)).unwrap();
    wait_until("the next second", || opened(&server, hello()).is_ok());
}

#[test]
fn connections_of_all_protocols_share_one_quota() {
    let (office, alice, _) = office("connections = 1");
    let renewed = office.token("alice");
    let server = office.server(&["--grpc-listen", "127.0.0.1:0"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Channel::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let mut locks = LockServiceClient::new(channel.clone());
        locks.acquire(by(&alice, acquire_over_grpc("key"))).await.unwrap();
        // A connection whose client has a new token is no second connection.
        locks.acquire(by(&renewed, acquire_over_grpc("another key"))).await.unwrap();
        let reached = ("connections of the identity".to_owned(), 1);
        let hello = || hello_with(NamespaceKind::Flat, &alice);
        assert_eq!(opened(&server, hello()).unwrap_err(), reached);
        let other = endpoint.connect().await.unwrap();
        let refused =
            LockServiceClient::new(other).acquire(by(&alice, acquire_over_grpc("other"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("1 connections of the identity"), "{}", refused.message());
        drop((locks, channel));
        let closed = tokio::task::spawn_blocking(move || {
            wait_until("the end of the gRPC connection", || {
                opened(&server, hello_with(NamespaceKind::Flat, &alice)).is_ok()
            });
        });
        closed.await.unwrap();
    });
}

#[test]
fn each_source_address_of_an_identity_has_quotas_of_its_own() {
    let office = Office::new(
        "anonymous = \"guest\"\n\
         [[rule]]\nidentity = \"guest\"\nallow = [\"acquire\"]\n\
         [[quota]]\nidentity = \"guest\"\nclaims = 3\n\
         [[quota]]\neveryone = true\nper_address = true\nclaims = 2\n",
    );
    let server = office.server(&[]);
    let client_from = |host: &str| {
        let mut client = Client::new(connect_from(host, &server, "binary"));
        client.open(default_hello());
        client
    };
    let (mut here, mut there) = (client_from("127.0.0.1"), client_from(&own_host()));
    here.acquire(b"1", 0);
    here.acquire(b"2", 0);
    assert_eq!(limit(&mut here, acquire(b"3")), Some(("claims of the source address".to_owned(), 2)));
    there.acquire(b"3", 0);
    assert_eq!(limit(&mut there, acquire(b"4")), Some(("claims of the identity".to_owned(), 3)));
}

#[test]
fn changed_quotas_apply_to_open_connections() {
    let (office, alice, _) = office("claims = 1");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    let held = client.acquire(b"1", 0);
    assert!(limit(&mut client, acquire(b"2")).is_some());
    office.set_rules(&rules("claims = 2"));
    server.signal("HUP");
    wait_until("the higher quota", || limit(&mut client, acquire(b"2")).is_none());
    office.set_rules(&rules("claims = 0"));
    server.signal("HUP");
    wait_until("the lower quota", || {
        let refusal = limit(&mut client, acquire(b"3"));
        refusal.is_some_and(|(_, max)| max == 0)
    });
    // What is there stays, and can end.
    assert_eq!(limit(&mut client, release(held.id)), None);
}

#[test]
fn a_session_resumes_although_its_identity_has_all_the_connections_of_its_quota() {
    let (office, alice, _) = office("connections = 2\nnew_connections_per_second = 2");
    let server = office.server(&[]);
    let (mut lost, welcome) = server.session_with(&alice, SessionRequest::New { lease_ms: 60_000 });
    let _other = server.client_with(NamespaceKind::Flat, &alice);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    // The server does not know yet that the connection is lost.
    for _ in 0..5 {
        let (resumed, welcome) = server.session_with(&alice, resume);
        assert!(welcome.resumed);
        assert!(lost.try_receive().is_none(), "it was replaced");
        lost = resumed;
    }
    let hello = hello_with(NamespaceKind::Flat, &alice);
    wait_until("a refusal because of open connections", || {
        opened(&server, hello).err() == Some(("connections of the identity".to_owned(), 2))
    });
    drop(lost);
    wait_until("the end of the last connection", || opened(&server, hello).is_ok());
}

#[test]
fn what_was_restored_is_counted_when_its_session_is_back() {
    let (office, alice, _) = office("claims = 2");
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", directory.path().to_str().unwrap()];
    let mut server = office.server(&arguments);
    let (mut client, welcome) = server.session_with(&alice, SessionRequest::New { lease_ms: 60_000 });
    let options =
        AcquireOptions { request_id: Some(b"request"), scope: Some(2), ..AcquireOptions::default() };
    let durable = Acquire {
        key: b"key",
        terms: AcquireTerms { lease_ms: 60_000, options, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    let held = client.ask(Request::Acquire(durable)).granted().id;
    server.signal("KILL");
    server.wait();
    let server = office.server(&arguments);
    let session = SessionRequest::Resume { id: welcome.session_id, lane: 0 };
    let (mut client, _) = server.session_with(&alice, session);
    client.number_from(100);
    client.acquire(b"other", 0);
    for key in [&b"third"[..], b"key of the same shard as one before", b"x", b"y", b"z"] {
        assert!(limit(&mut client, acquire(key)).is_some());
    }
    assert_eq!(limit(&mut client, release(held)), None);
    client.acquire(b"third", 0);
    assert!(limit(&mut client, acquire(b"fourth")).is_some());
}
