//! Namespaces that the configuration declares.

use crate::durable::{Place, local};
use crate::harness::{Client, Server, default_hello, refused};
use crate::namespaces::{names, open, remove};
use std::io::Write as _;
use std::net::TcpStream;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquirePermits, AcquireSet, ErrorCode, Hello, Items, KeyItem, NamespaceKind,
    PathItem, PathKey, Request, Response,
};

const JOBS: &str = "[[namespace]]\nname = \"jobs\"\nkind = \"flat\"\n";

/// A configuration file with this text.
struct File(tempfile::NamedTempFile);

impl File {
    fn new(text: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("a file");
        Self(file)
    }

    /// The arguments that name it.
    fn arguments(&self) -> [&str; 2] {
        ["--config", self.0.path().to_str().expect("text")]
    }
}

fn user_of(server: &Server, namespace: &str) -> Client<TcpStream> {
    open(server, NamespaceKind::Flat, namespace).expect("the namespace has this kind")
}

fn acquire(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire { key, ..Acquire::default() })
}

#[test]
fn a_declared_namespace_is_there_from_the_start_and_cannot_be_removed() {
    let file = File::new(&format!("{JOBS}[limits]\nnamespaces = 1\n"));
    let server = Server::start(&file.arguments());
    let mut operator = server.client("operator");
    assert!(names(&mut operator).contains("jobs"));
    let bad = |field: &str| (ErrorCode::BadInput, field.to_owned());
    assert_eq!(remove(&mut operator, "jobs"), Err((ErrorCode::BadInput, "namespace".to_owned(), 0)));
    assert_eq!(open(&server, NamespaceKind::Pool, "jobs").map(drop), Err(bad("kind")));
    let _user = open(&server, NamespaceKind::Tree, "another").expect("declared namespaces leave its room");
    assert!(names(&mut operator).contains("jobs"));
}

#[test]
fn the_default_lease_of_a_declared_namespace_is_for_its_clients_only() {
    let file = File::new(&format!("{JOBS}default_lease = \"45s\"\n"));
    let server = Server::start(&file.arguments());
    for (namespace, lease_ms) in [("jobs", 45_000), ("default", 30_000)] {
        let mut client = server.stranger();
        let welcome = client.open(Hello { namespace: namespace.as_bytes(), ..default_hello() });
        assert_eq!(welcome.lease_default_ms, lease_ms);
        for key in [&b"a"[..], b"a", b"b"] {
            let granted = client.acquire(key, 0);
            assert_eq!(granted.remaining_ms, lease_ms);
            client.release(granted.id);
        }
        assert_eq!(client.acquire(b"a", 2_000).remaining_ms, 2_000);
    }
}

/// A file that declares a namespace of each of these kinds, with the name of the kind, and more text for each.
fn of_each_kind(more: &str) -> File {
    let declared = ["flat", "tree", "pool"]
        .map(|kind| format!("[[namespace]]\nname = \"{kind}\"\nkind = \"{kind}\"\n{more}\n"));
    File::new(&declared.concat())
}

/// Asks for a claim of each kind with the default lease, in the namespaces of [`of_each_kind`].
fn ask_for_each(server: &Server, mut hear: impl FnMut(&str, Response<'_>)) {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    let whole = PathItem { write: true, path: PathKey::default() };
    // On several workers the keys have different shards.
    let keys: Vec<_> = (0..20_u8).map(|key| [key]).collect();
    let keys = keys.iter().map(|key| KeyItem { key, shared: false });
    let asks = [
        ("flat", NamespaceKind::Flat, acquire(b"key")),
        (
            "flat",
            NamespaceKind::Flat,
            Request::AcquireKeys(AcquireKeys {
                items: Items::new(keys, &mut many).expect("a list of keys"),
                ..AcquireKeys::default()
            }),
        ),
        (
            "tree",
            NamespaceKind::Tree,
            Request::AcquireSet(AcquireSet {
                items: Items::new([whole], &mut few).expect("a list of paths"),
                ..AcquireSet::default()
            }),
        ),
        (
            "pool",
            NamespaceKind::Pool,
            Request::AcquirePermits(AcquirePermits {
                name: b"pool",
                capacity: 1,
                permits: 1,
                ..AcquirePermits::default()
            }),
        ),
    ];
    for (namespace, kind, ask) in asks {
        let mut client = open(server, kind, namespace).expect("the namespace has this kind");
        hear(namespace, client.ask(ask).response());
    }
}

#[test]
fn the_default_lease_of_a_namespace_is_for_claims_of_every_kind() {
    let file = of_each_kind("default_lease = \"45s\"");
    for workers in ["1", "3"] {
        let server = Server::start(&[&file.arguments()[..], &["--workers", workers]].concat());
        ask_for_each(&server, |namespace, response| match response {
            Response::Granted(granted) => assert_eq!(granted.remaining_ms, 45_000, "{namespace}"),
            Response::GrantedKeys(granted) => {
                assert!(granted.keys.iter().all(|key| key.remaining_ms == 45_000), "{granted:?}");
            }
            other => panic!("{namespace}: {other:?}"),
        });
    }
}

#[test]
fn the_lowest_scope_of_a_namespace_is_for_claims_of_every_kind() {
    let file = of_each_kind("min_scope = \"local\"");
    for workers in ["1", "3"] {
        // Without a data directory.
        let server = Server::start(&[&file.arguments()[..], &["--workers", workers]].concat());
        ask_for_each(&server, |namespace, response| {
            let Response::Error(error) = response else { panic!("{namespace}: {response:?}") };
            assert_eq!(error.code, ErrorCode::ScopeUnavailable, "{namespace}");
        });
    }
}

#[test]
fn claims_of_a_namespace_with_lowest_scope_local_survive_a_kill() {
    let file = File::new(&format!("{JOBS}min_scope = \"local\"\n"));
    for workers in ["1", "3"] {
        let place = Place::new();
        let more = [&file.arguments()[..], &["--workers", workers]].concat();
        let server = place.start(&more);
        let (mut jobs, mut other) = (user_of(&server, "jobs"), user_of(&server, "default"));
        jobs.acquire(b"key", 60_000);
        other.acquire(b"key", 60_000);
        drop(server);
        let server = place.start(&more);
        let (mut jobs, mut other) = (user_of(&server, "jobs"), user_of(&server, "default"));
        assert_eq!(jobs.ask(acquire(b"key")).error().code, ErrorCode::Busy);
        other.acquire(b"key", 0);
    }
}

#[test]
fn a_lowest_scope_that_is_unavailable_is_refused() {
    let file = File::new(&format!("{JOBS}min_scope = \"local\"\n"));
    let server = Server::start(&file.arguments());
    let refusal = user_of(&server, "jobs").ask(acquire(b"key"));
    assert_eq!(refusal.refusal().0, ErrorCode::ScopeUnavailable);
    server.client("other").acquire(b"key", 0);
}

#[test]
fn a_quota_of_a_namespace_counts_the_claims_of_all_its_clients() {
    let place = Place::new();
    let file = File::new(&format!("{JOBS}quotas = {{ claims = 2 }}\n"));
    let held = {
        // The hold is older than the declaration.
        let server = place.start(&[]);
        let mut user = user_of(&server, "jobs");
        user.ask(Request::Acquire(local(b"old").with_terms(|terms| terms.lease_ms = 60_000))).granted()
    };
    let server = place.start(&file.arguments());
    let (mut one, mut two) = (user_of(&server, "jobs"), user_of(&server, "jobs"));
    one.acquire(b"a", 60_000);
    let answer = two.ask(acquire(b"b"));
    assert_eq!(answer.refusal(), (ErrorCode::Overloaded, "claims of the namespace", 2));
    server.client("other").acquire(b"b", 0);
    two.release(held.id);
    two.acquire(b"b", 0);
}

#[test]
fn a_server_does_not_start_if_its_data_directory_has_a_declared_namespace_with_another_kind() {
    let place = Place::new();
    let path = place.path();
    let mut server = place.start(&[]);
    drop(open(&server, NamespaceKind::Pool, "jobs").expect("a new namespace"));
    let held = server.client("somebody").acquire(b"ephemeral", 60_000);
    server.signal("TERM");
    assert!(server.wait().success());
    let file = File::new(JOBS);
    let (status, error) = refused(&[&file.arguments()[..], &["--data-dir", &path]].concat());
    assert_eq!(status.code(), Some(1), "{error}");
    let message =
        "namespace \"jobs\" has kind pool in the data directory, but the configuration declares kind flat";
    assert!(error.contains(message), "{error}");
    let server = place.start(&[]);
    let mut operator = server.client("operator");
    assert!(names(&mut operator).contains("jobs"), "the refused start has changed nothing");
    assert!(operator.is_held(held.id), "what the clean stop carried over is still there");
}
