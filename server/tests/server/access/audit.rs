//! What the audit log says of identities.

use super::fronts::{PORTS, by};
use super::operations::path_of;
use super::{Office, hello_with};
use crate::harness::{Client, Server, default_hello, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tonic::transport::Channel;
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{self, Resource};
use waymaker_proto::v1;
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, Event, Extend,
    Heartbeat, Hello, Items, KeyItem, LockId, NamespaceKind, PathItem, PathKey, Register, Release,
    RemoveNamespace, Request, Unregister,
};

/// The first line of an act in an audit log, once it is there.
fn line(path: &Path, act: &str) -> Value {
    wait_for(&format!("a line {act}"), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["act"] == act)
    })
}

#[test]
fn refusals_and_releases_of_others_name_the_identity_the_namespace_and_the_key() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"carol\"\nallow = [\"release_others\"]\n",
    );
    let (alice, carol) = (office.token("alice"), office.token("carol"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let server = office.server(&["--audit", path.to_str().unwrap()]);
    let held = server.client_with(NamespaceKind::Flat, &alice).acquire(b"jobs/7", 0);
    let mut client = server.client_with(NamespaceKind::Flat, &carol);
    let acquire = Request::Acquire(Acquire { key: b"jobs/8", ..Acquire::default() });
    assert_eq!(client.code_of(acquire), Some(ErrorCode::Unauthorized));
    assert_eq!(client.code_of(Request::Release(Release { id: held.id, key: None, own: false })), None);
    let hello = hello_with(NamespaceKind::Flat, "nonsense");
    assert_eq!(server.stranger().refused_hello(hello).0, ErrorCode::Unauthorized);

    let denied = line(&path, "deny");
    for (member, value) in [
        ("identity", json!("carol")),
        ("namespace", json!("flat")),
        ("key", json!("jobs/8")),
        ("result", json!("refused")),
        ("code", json!("unauthorized")),
        ("front_end", json!("binary")),
    ] {
        assert_eq!(denied[member], value, "{member} in {denied}");
    }
    let released = line(&path, "release-other");
    for (member, value) in [
        ("identity", json!("carol")),
        ("namespace", json!("flat")),
        ("key", json!("jobs/7")),
        ("id", json!(held.id.to_string())),
        ("holder", json!("owner")),
        ("result", json!("done")),
    ] {
        assert_eq!(released[member], value, "{member} in {released}");
    }
    let refused = line(&path, "authenticate");
    assert_eq!(refused["identity"], Value::Null);
    assert!(
        refused["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")),
        "{refused}"
    );
    let started = line(&path, "start");
    assert!(started["access"].as_str().is_some_and(|path| path.ends_with("access.toml")), "{started}");
}

/// A server with an audit log. Alice may take locks, and Carol may also act on those of others.
struct Audited {
    server: Server,
    path: PathBuf,
    alice: String,
    carol: String,
    /// Files that the server reads.
    _office: Office,
    _directory: TempDir,
}

impl Audited {
    fn new(arguments: &[&str]) -> Self {
        let office = Office::new(
            "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n\
             [[rule]]\nidentity = \"carol\"\nallow = [\"acquire\", \"release_others\"]\n",
        );
        let [alice, carol] = ["alice", "carol"].map(|name| office.token(name));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut all = vec!["--audit", path.to_str().unwrap()];
        all.extend(arguments);
        let server = office.server(&all);
        Self { server, path, alice, carol, _office: office, _directory: directory }
    }

    fn alice(&self, kind: NamespaceKind) -> Client<TcpStream> {
        self.server.client_with(kind, &self.alice)
    }

    fn carol(&self, kind: NamespaceKind) -> Client<TcpStream> {
        self.server.client_with(kind, &self.carol)
    }

    /// Carol is denied a request, so that the audit log has a last line.
    fn lines_until_denied(&self) -> Vec<Value> {
        let freeze = Request::Freeze(waymaker_protocol::Freeze {
            prefix: b"",
            thaw: false,
            ..waymaker_protocol::Freeze::default()
        });
        assert_eq!(self.carol(NamespaceKind::Flat).code_of(freeze), Some(ErrorCode::Unauthorized));
        line(&self.path, "deny");
        let text = std::fs::read_to_string(&self.path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        lines.filter(|line| line["act"] != "start" && line["act"] != "deny").collect()
    }

    /// The act, the key and the lease of each line, in the order of keys. All are acts of Carol on claims of Alice.
    fn acts(&self) -> Vec<(String, String, Value)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut acts: Vec<_> = self
            .lines_until_denied()
            .iter()
            .map(|line| {
                assert_eq!(line["identity"], "carol", "{line}");
                assert_eq!(line["result"], "done", "{line}");
                assert_eq!(line["holder"], "owner", "{line}");
                assert!(line["namespace"].is_string() && line["id"].is_string(), "{line}");
                (text(&line["act"]), text(&line["key"]), line["lease_ms"].clone())
            })
            .collect();
        acts.sort_by(|one, other| one.1.cmp(&other.1));
        acts
    }
}

fn act(act: &str, key: &str, lease_ms: impl Into<Option<u64>>) -> (String, String, Value) {
    (act.to_owned(), key.to_owned(), json!(lease_ms.into()))
}

fn extend(id: LockId) -> Request<'static> {
    Request::Extend(Extend { id, key: None, own: false, lease_ms: 10_000 })
}

fn release(id: LockId) -> Request<'static> {
    Request::Release(Release { id, key: None, own: false })
}

/// An acquire that another client can repeat.
fn repeatable(key: &[u8], wait_ms: u32) -> Request<'_> {
    let options =
        AcquireOptions { request_id: Some(b"id"), owner: Some(b"owner"), ..AcquireOptions::default() };
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { wait_ms, notify_queued: wait_ms > 0, options, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

/// The id of the claim of a request that waits.
fn queued(client: &mut Client<TcpStream>, request: Request<'_>) -> LockId {
    client.send(request);
    let answer = client.receive();
    let Event::Queued { id, .. } = answer.event() else { panic!("{:?}", answer.event()) };
    id
}

#[test]
fn every_act_on_a_lock_of_another_identity_has_one_line() {
    let audited = Audited::new(&[]);
    // Each of her connections has one claim, so that no event is in the way of an answer.
    let alice = || audited.alice(NamespaceKind::Flat);
    let mut carol = audited.carol(NamespaceKind::Flat);
    let [extended, own] = [&b"1 extended"[..], b"own"].map(|key| alice().acquire(key, 0));
    assert_eq!(carol.code_of(extend(extended.id)), None);
    let taken = alice().ask(repeatable(b"2 taken over", 0)).granted();
    assert_eq!(carol.ask(repeatable(b"2 taken over", 0)).granted().id, taken.id);
    // From here on the hold is her own.
    assert_eq!(carol.code_of(extend(taken.id)), None);
    assert_eq!(carol.code_of(release(taken.id)), None);
    alice().acquire(b"3 waiter", 0);
    let mut waiting = alice();
    let waiter = queued(&mut waiting, repeatable(b"3 waiter", 60_000));
    assert_eq!(carol.code_of(extend(waiter)), Some(ErrorCode::NotHeld), "a refused act is none");
    assert_eq!(queued(&mut carol, repeatable(b"3 waiter", 60_000)), waiter);
    let mut third = audited.carol(NamespaceKind::Flat);
    assert_eq!(third.code_of(release(waiter)), None, "its own identity has it");
    let several = [&b"4 first key"[..], b"5 second key"];
    for client in [&mut alice(), &mut third] {
        let mut buffer = Vec::new();
        let items = several.map(|key| KeyItem { key, shared: false });
        let items = Items::new(items, &mut buffer).expect("two keys");
        let options =
            AcquireOptions { request_id: Some(b"id"), owner: Some(b"owner"), ..AcquireOptions::default() };
        assert_eq!(
            client.code_of(Request::AcquireKeys(AcquireKeys {
                items,
                terms: AcquireTerms { options, ..AcquireTerms::default() },
            })),
            None
        );
    }
    // A claim that waits for several keys has one line.
    alice().acquire(b"7 busy", 0);
    let mut buffer = Vec::new();
    let items = [&b"6 waiter"[..], b"7 busy"].map(|key| KeyItem { key, shared: false });
    let items = Items::new(items, &mut buffer).expect("two keys");
    let options =
        AcquireOptions { request_id: Some(b"id"), owner: Some(b"owner"), ..AcquireOptions::default() };
    let keys = AcquireKeys {
        items,
        terms: AcquireTerms { options, wait_ms: 60_000, notify_queued: true, ..AcquireTerms::default() },
    };
    let (mut waiting, mut fourth) = (alice(), audited.carol(NamespaceKind::Flat));
    let waiter = queued(&mut waiting, Request::AcquireKeys(keys));
    assert_eq!(queued(&mut fourth, Request::AcquireKeys(keys)), waiter);
    // Another connection of the identity of a hold.
    let mut other = alice();
    assert_eq!(other.code_of(extend(own.id)), None);
    assert_eq!(other.code_of(release(own.id)), None);
    assert_eq!(
        audited.acts(),
        [
            act("extend-other", "1 extended", 10_000),
            act("take-over", "2 taken over", None),
            act("take-over", "3 waiter", None),
            act("take-over", "4 first key", None),
            act("take-over", "5 second key", None),
            act("take-over", "6 waiter", None),
        ]
    );
}

#[test]
fn every_act_on_permits_and_paths_of_another_identity_has_one_line() {
    let audited = Audited::new(&[]);
    let mut carol = audited.carol(NamespaceKind::Pool);
    let options =
        AcquireOptions { request_id: Some(b"id"), owner: Some(b"owner"), ..AcquireOptions::default() };
    let permits = |name, permits| AcquirePermits { name, capacity: 2, permits, ..AcquirePermits::default() };
    let held =
        audited.alice(NamespaceKind::Pool).ask(Request::AcquirePermits(permits(b"1 held", 2))).granted();
    assert_eq!(carol.code_of(extend(held.id)), None);
    let taken =
        Request::AcquirePermits(permits(b"2 taken over", 1).with_terms(|terms| terms.options = options));
    let held = audited.alice(NamespaceKind::Pool).ask(taken).granted();
    assert_eq!(carol.ask(taken).granted().id, held.id);
    let mut alice = audited.alice(NamespaceKind::Tree);
    let mut carol = audited.carol(NamespaceKind::Tree);
    let path = path_of(b"path");
    let mut buffer = Vec::new();
    let item = PathItem { path: PathKey::new(&path).expect("a path"), write: true };
    let items = Items::new([item], &mut buffer).expect("one path");
    let set =
        Request::AcquireSet(AcquireSet { items, terms: AcquireTerms { options, ..AcquireTerms::default() } });
    let held = alice.ask(set).granted();
    assert_eq!(carol.ask(set).granted().id, held.id);
    assert_eq!(
        audited.acts(),
        [
            act("take-over", std::str::from_utf8(&path).unwrap(), None),
            act("extend-other", "1 held", 10_000),
            act("take-over", "2 taken over", None),
        ]
    );
}

fn register(key: &[u8], lease_ms: i64) -> Register<'_> {
    Register { key, owner: b"owner", lease_ms, ..Register::default() }
}

fn unregister(key: &[u8]) -> Request<'_> {
    Request::Unregister(Unregister { key, owner: b"owner" })
}

#[test]
fn every_act_on_a_registration_of_another_identity_has_one_line() {
    for log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let data = ["--data-dir", directory.path().to_str().unwrap()];
        let audited = Audited::new(if log { &data } else { &[] });
        let mut alice = audited.alice(NamespaceKind::Registry);
        let mut carol = audited.carol(NamespaceKind::Registry);
        for key in [&b"1 ended"[..], b"2 changed", b"3 renewed", b"4 refused"] {
            assert_eq!(alice.code_of(Request::Register(register(key, 60_000))), None);
        }
        assert_eq!(carol.code_of(unregister(b"1 ended")), None);
        assert_eq!(carol.code_of(Request::Register(register(b"2 changed", 10_000))), None);
        // From here on the registration is her own.
        assert_eq!(carol.code_of(Request::Register(register(b"2 changed", 20_000))), None);
        assert_eq!(carol.code_of(unregister(b"2 changed")), None);
        assert_eq!(carol.code_of(Request::Heartbeat(Heartbeat(register(b"3 renewed", 10_000)))), None);
        let unknown = Register { owner: b"somebody", ..register(b"4 refused", 10_000) };
        assert_eq!(carol.code_of(Request::Heartbeat(Heartbeat(unknown))), Some(ErrorCode::NotOwner));
        let mut other = audited.alice(NamespaceKind::Registry);
        assert_eq!(other.code_of(Request::Register(register(b"4 refused", 10_000))), None);
        assert_eq!(other.code_of(unregister(b"4 refused")), None);
        assert_eq!(
            audited.acts(),
            [
                act("release-other", "1 ended", None),
                act("register-other", "2 changed", 10_000),
                act("register-other", "3 renewed", 10_000),
            ]
        );
    }
}

#[tokio::test]
async fn every_act_on_a_lock_of_another_identity_by_locket_or_as_an_owned_lock_has_one_line() {
    let audited = Audited::new(&PORTS);
    let url = format!("http://{}", audited.server.address("grpc"));
    let channel = Channel::from_shared(url).unwrap().connect().await.expect("a connection");
    let mut locks = LocketClient::new(channel.clone());
    let resource = |key: &str| {
        let (key, owner) = (key.to_owned(), "owner".to_owned());
        Some(Resource { key, owner, value: String::new(), r#type: "lock".to_owned(), type_code: 1 })
    };
    let lock = |key: &str| locket::LockRequest { resource: resource(key), ttl_in_seconds: 60 };
    for key in ["1 Locket", "2 Locket"] {
        locks.lock(by(&audited.alice, lock(key))).await.expect("a lock");
    }
    locks
        .release(by(&audited.carol, locket::ReleaseRequest { resource: resource("1 Locket") }))
        .await
        .expect("a release");
    locks.lock(by(&audited.carol, lock("2 Locket"))).await.expect("a renewal");
    let mut owned = OwnedLockServiceClient::new(channel);
    let acquire = v1::AcquireLockRequest {
        key: "3 owned".to_owned(),
        owner: "owner".to_owned(),
        lease: Some(v1::OwnedLease { lease: Some(v1::owned_lease::Lease::DurationMs(60_000)) }),
        ..Default::default()
    };
    owned.acquire_lock(by(&audited.alice, acquire)).await.expect("a lock");
    let release =
        v1::ReleaseLockRequest { key: "3 owned".to_owned(), owner: "owner".to_owned(), ..Default::default() };
    owned.release_lock(by(&audited.carol, release)).await.expect("a release");
    let acts = tokio::task::spawn_blocking(move || audited.acts()).await.unwrap();
    assert_eq!(
        acts,
        [
            act("release-other", "1 Locket", None),
            act("register-other", "2 Locket", 60_000),
            act("release-other", "3 owned", None),
        ]
    );
}

#[test]
fn a_denied_line_has_the_namespace_that_its_client_named() {
    let office = Office::new("[[rule]]\nidentity = \"carol\"\nnamespace = \"flat\"\nallow = [\"acquire\"]\n");
    let carol = office.token("carol");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let server = office.server(&["--audit", path.to_str().unwrap()]);
    let denied = |message: &str| {
        wait_for(message, || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["message"].as_str().is_some_and(|text| text.contains(message)))
        })
    };
    let mut client = server.client_with(NamespaceKind::Flat, &carol);
    let remove = Request::RemoveNamespace(RemoveNamespace { name: b"orders" });
    assert_eq!(client.code_of(remove), Some(ErrorCode::Unauthorized));
    let line = denied("`admin`");
    assert_eq!((&line["act"], &line["namespace"]), (&json!("deny"), &json!("orders")), "{line}");
    let hello = Hello { namespace: b"payments", credentials: carol.as_bytes(), ..default_hello() };
    assert_eq!(server.stranger().refused_hello(hello).0, ErrorCode::Unauthorized);
    let line = denied("a right in the namespace");
    assert_eq!(line["namespace"], "payments", "{line}");
    assert_eq!(line["identity"], "carol", "{line}");
}
