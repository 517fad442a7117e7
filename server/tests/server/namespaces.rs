//! Namespaces that cannot be taken from others, and do not stay for ever.

use crate::durable::{Place, local};
use crate::harness::{Client, Server, default_hello, wait_until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::transport::Endpoint;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{LockEventType, LockRequest};
use waymaker_protocol::{
    Acquire, AcquireTerms, ErrorCode, Hello, NamespaceKind, Namespaces, RemoveNamespace, Request, Response,
    SessionId, SessionRequest,
};

/// The limit of a server.
const NAMESPACE_COUNT_MAX: usize = 4096;

/// The answer to a HELLO on a new connection.
fn greet(server: &Server, hello: Hello<'_>) -> Result<Client<TcpStream>, (ErrorCode, String)> {
    let mut client = server.stranger();
    client.send(Request::Hello(hello));
    let answer = client.receive();
    match answer.response() {
        Response::Welcome(_) => Ok(client),
        _ => Err((answer.refusal().0, answer.refusal().1.to_owned())),
    }
}

pub(crate) fn open(
    server: &Server,
    kind: NamespaceKind,
    name: &str,
) -> Result<Client<TcpStream>, (ErrorCode, String)> {
    greet(server, Hello { kind, namespace: name.as_bytes(), ..default_hello() })
}

pub(crate) fn names(client: &mut Client<impl Read + Write>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut cursor = 0;
    loop {
        let page = client.ask(Request::Namespaces(Namespaces { cursor, count_max: 0 }));
        let Response::NamespacesListed(page) = page.response() else { panic!("{:?}", page.response()) };
        names.extend(page.namespaces.iter().map(|one| String::from_utf8_lossy(one.name).into_owned()));
        cursor = page.next;
        if cursor == 0 {
            return names;
        }
    }
}

#[tokio::test]
async fn built_in_namespaces_keep_their_kind_after_a_restart() {
    let place = Place::new();
    for _ in 0..2 {
        let mut server = place.start(&["--grpc-listen", "127.0.0.1:0", "--workers", "2"]);
        let other_kind = Err((ErrorCode::BadInput, "kind".to_owned()));
        let squatted = [
            ("waymaker", NamespaceKind::Pool),
            ("registry/locket", NamespaceKind::Flat),
            ("tree/locktopus/any", NamespaceKind::Flat),
            ("default", NamespaceKind::Tree),
            ("sem/default", NamespaceKind::Limit),
        ];
        for (name, kind) in squatted {
            assert_eq!(open(&server, kind, name).map(drop), other_kind, "{name}");
        }
        let url = format!("http://{}", server.address("grpc"));
        let channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("the server accepts");
        let request = LockRequest { key: "key".into(), ..LockRequest::default() };
        let mut events = WaymakerServiceClient::new(channel).lock(request).await.unwrap().into_inner();
        let event = events.message().await.unwrap().expect("an event");
        assert_eq!(event.event_type(), LockEventType::Acquired, "{}", event.message);
        let mut own = open(&server, NamespaceKind::Flat, "waymaker").expect("its own kind");
        own.release(event.id.parse().expect("an id"));
        server.signal("TERM");
        assert!(server.wait().success());
    }
}

#[test]
fn a_refused_hello_and_a_metrics_request_create_no_namespace() {
    let server = Server::start(&["--http-listen", "127.0.0.1:0"]);
    let mut client = server.client("c");
    let id = SessionId { place: 7, secret: 7 };
    let refused = Hello { session: SessionRequest::Join { id }, namespace: b"refused", ..default_hello() };
    assert_eq!(greet(&server, refused).map(drop), Err((ErrorCode::SessionGone, "session_id".to_owned())));
    let mut socket = TcpStream::connect(server.address("http")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("locket_active_locks 0"), "{answer}");
    assert_eq!(names(&mut client), BTreeSet::from(["default".to_owned()]));
}

/// Once 4,096 names had been heard of, nobody could open another one, also after a restart.
#[test]
fn unused_namespaces_make_room_for_new_ones() {
    let place = Place::new();
    let server = place.start(&["--workers", "2"]);
    let mut user = open(&server, NamespaceKind::Flat, "in use").expect("there is room");
    let held = user.acquire(b"key", 0);
    for number in 0..NAMESPACE_COUNT_MAX + 100 {
        assert!(open(&server, NamespaceKind::Flat, &number.to_string()).is_ok(), "number {number}");
    }
    assert!(names(&mut user).contains("in use"));
    user.release(held.id);
    drop(server);
    let server = place.start(&["--workers", "2"]);
    assert!(open(&server, NamespaceKind::Pool, "another").is_ok());
    let mut user = server.client("c");
    assert!(names(&mut user).len() <= NAMESPACE_COUNT_MAX + 10);
    user.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() })).granted();
}

/// The answer to REMOVE_NAMESPACE; an error as its code, its field and its value.
pub(crate) fn remove(client: &mut Client<TcpStream>, name: &str) -> Result<(), (ErrorCode, String, u64)> {
    let answer = client.ask(Request::RemoveNamespace(RemoveNamespace { name: name.as_bytes() }));
    match answer.response() {
        Response::NamespaceRemoved(_) => Ok(()),
        _ => {
            let (code, field, value) = answer.refusal();
            Err((code, field.to_owned(), value))
        }
    }
}

#[test]
fn an_operator_can_remove_an_empty_namespace() {
    for workers in ["1", "3"] {
        let place = Place::new();
        let server = place.start(&["--workers", workers]);
        let mut operator = server.client("operator");
        let bad = |field: &str, value| Err((ErrorCode::BadInput, field.to_owned(), value));
        for name in ["waymaker", "default", "sem/default"] {
            assert_eq!(remove(&mut operator, name), bad("namespace", 0), "{name}");
        }
        assert_eq!(remove(&mut operator, "none"), Err((ErrorCode::NotFound, "namespace".to_owned(), 0)));

        let mut user = open(&server, NamespaceKind::Flat, "jobs").expect("a new namespace");
        let held = user
            .ask(Request::Acquire(Acquire {
                key: b"key",
                terms: AcquireTerms { lease_ms: 60_000, ..local(b"key").terms },
                ..local(b"key")
            }))
            .granted();
        assert_eq!(remove(&mut operator, "jobs"), bad("connections", 1));
        drop(user);
        wait_until("the end of the user", || remove(&mut operator, "jobs") != bad("connections", 1));
        assert_eq!(remove(&mut operator, "jobs"), bad("contents", 0), "a hold outlives its connection");
        let mut user = open(&server, NamespaceKind::Flat, "jobs").expect("it is there");
        user.release(held.id);
        drop(user);
        wait_until("the removal", || remove(&mut operator, "jobs") == Ok(()));
        assert!(!names(&mut operator).contains("jobs"));

        // The name is free for another kind, and fences go on, also after a crash.
        drop(open(&server, NamespaceKind::Registry, "jobs").expect("another kind"));
        wait_until("the removal", || remove(&mut operator, "jobs") == Ok(()));
        server.signal("KILL");
        drop(server);
        let server = place.start(&["--workers", workers]);
        let mut user = open(&server, NamespaceKind::Flat, "jobs").expect("a new namespace");
        let again = user.ask(Request::Acquire(local(b"key"))).granted();
        assert!(again.fence > held.fence, "{} after {}", again.fence, held.fence);
        user.release(again.id);
    }
}

/// Removals race with lanes that open: whoever is welcome keeps its namespace, and its holds exclude others.
#[test]
fn a_namespace_is_never_removed_while_a_lane_opens_it() {
    let server = Server::start(&["--workers", "2"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut operator = server.client("operator");
            while !is_over.load(Ordering::Relaxed) {
                let _ = remove(&mut operator, "raced");
            }
        });
        let users: Vec<_> = (0..2).map(|_| scope.spawn(|| take_turns(&server))).collect();
        let fences: Vec<Vec<u64>> = users.into_iter().map(|user| user.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        let mut all: Vec<_> = fences.concat();
        assert!(fences.iter().all(|fences| fences.is_sorted()), "no fence goes back");
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "no fence is given twice");
    });
}

/// Opens the namespace, takes its key and gives it back, over and over.
fn take_turns(server: &Server) -> Vec<u64> {
    let take = |_| {
        let mut user = open(server, NamespaceKind::Flat, "raced").expect("there is room");
        let acquire = Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: 60_000, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let granted = user.ask(Request::Acquire(acquire)).granted();
        user.release(granted.id);
        granted.fence
    };
    (0..300).map(take).collect()
}
