//! Namespaces that cannot be taken from others, and do not stay for ever.

use crate::durable::Place;
use crate::harness::{Client, Server, default_hello};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use tonic::transport::Endpoint;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{LockEventType, LockRequest};
use waymaker_protocol::{
    Acquire, ErrorCode, Hello, NamespaceKind, Namespaces, Request, Response, SessionId, SessionRequest,
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

fn open(server: &Server, kind: NamespaceKind, name: &str) -> Result<Client<TcpStream>, (ErrorCode, String)> {
    greet(server, Hello { kind, namespace: name.as_bytes(), ..default_hello() })
}

fn names(client: &mut Client<impl Read + Write>) -> BTreeSet<String> {
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
async fn nobody_takes_the_namespace_of_a_front_end_also_after_a_restart() {
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
fn a_greeting_that_is_refused_and_a_look_at_the_metrics_make_no_namespace() {
    let server = Server::start(&["--http-listen", "127.0.0.1:0"]);
    let mut client = server.client("c");
    let id = SessionId { place: 7, secret: 7 };
    let refused = Hello { session: SessionRequest::Join { id }, namespace: b"refused", ..default_hello() };
    assert_eq!(greet(&server, refused).map(drop), Err((ErrorCode::SessionGone, "session_id".to_owned())));
    let mut socket = TcpStream::connect(server.address("http")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("locket_active_locks 0"), "{answer}");
    assert_eq!(names(&mut client), BTreeSet::from(["default".to_owned()]));
}

/// Once 4,096 names had been heard of, nobody could open another one, also after a restart.
#[test]
fn namespaces_that_nobody_uses_make_room() {
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
