//! Limits that an operator sets: the refusal of each names the value.

use crate::harness::{Server, default_hello};
use std::io::Read as _;
use std::time::Duration;
use waymaker_protocol::{Acquire, AcquireTerms, ErrorCode, Hello, Request, SessionRequest};

fn acquire(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire { key, ..Acquire::default() })
}

/// Starts a server with one worker, so with one shard, and with these limits.
fn server(limits: &[&str]) -> Server {
    Server::start(&[&["--workers", "1"], limits].concat())
}

#[test]
fn counts_are_refused_at_the_limits_that_are_set() {
    let server = server(&[
        "--limits-sessions",
        "1",
        "--limits-namespaces",
        "1",
        "--limits-claims",
        "4",
        "--limits-waiters-per-key",
        "1",
        "--limits-waiters-per-connection",
        "2",
    ]);
    let session = SessionRequest::New { lease_ms: 0 };
    let (mut holder, _) = server.session_client(session);
    let refused = |hello: Hello<'_>| {
        let answer = server.stranger().ask(Request::Hello(hello));
        let (code, name, limit) = answer.refusal();
        (code, name.to_owned(), limit)
    };
    let overloaded = |name: &str, limit| (ErrorCode::Overloaded, name.to_owned(), limit);
    assert_eq!(refused(Hello { session, ..default_hello() }), overloaded("sessions", 1));
    let mut other = server.stranger();
    other.open(Hello { namespace: b"one", ..default_hello() });
    assert_eq!(refused(Hello { namespace: b"two", ..default_hello() }), overloaded("namespaces", 1));
    drop(other);

    holder.acquire(b"a", 60_000);
    holder.acquire(b"b", 60_000);
    let mut waiter = server.client("waiter");
    waiter.wait_for(b"a", 60_000);
    let answer = server.client("other").ask(Request::Acquire(Acquire {
        key: b"a",
        terms: AcquireTerms { wait_ms: 60_000, ..AcquireTerms::default() },
        ..Acquire::default()
    }));
    assert_eq!((answer.refusal().0, answer.refusal().2), (ErrorCode::Overloaded, 1));
    waiter.wait_for(b"b", 60_000);
    let answer = waiter.ask(acquire(b"c"));
    assert_eq!(answer.refusal(), (ErrorCode::Overloaded, "waiting acquires per connection", 2));
    let answer = holder.ask(acquire(b"c"));
    assert_eq!((answer.refusal().0, answer.refusal().2), (ErrorCode::Overloaded, 4));
}

#[test]
fn leases_have_the_lengths_that_are_set() {
    let server = server(&[
        "--limits-lease-default",
        "2s",
        "--limits-lease-max",
        "3s",
        "--limits-session-lease-default",
        "4s",
        "--limits-session-lease-max",
        "5s",
    ]);
    for (asked_ms, granted_ms) in [(0, 4_000), (60_000, 5_000)] {
        let (_client, welcome) = server.session_client(SessionRequest::New { lease_ms: asked_ms });
        assert_eq!(welcome.session_lease_ms, granted_ms);
        assert_eq!((welcome.lease_default_ms, welcome.lease_max_ms), (2_000, 3_000));
    }
    let mut client = server.client("holder");
    assert_eq!(client.acquire(b"a", 0).remaining_ms, 2_000);
    assert_eq!(client.acquire(b"b", 60_000).remaining_ms, 3_000);
}

#[test]
fn a_client_without_hello_is_refused_after_the_time_that_is_set() {
    let server = server(&["--limits-hello", "500ms"]);
    let answer = server.stranger().receive();
    assert_eq!(answer.refusal(), (ErrorCode::BadInput, "hello", 500));
}

#[test]
fn connections_beyond_the_number_that_is_set_are_refused() {
    let server = server(&["--limits-connections", "1"]);
    let _first = server.client("first");
    let answer = server.stranger().receive();
    assert_eq!((answer.refusal().0, answer.refusal().2), (ErrorCode::Overloaded, 1));
}

#[test]
fn an_http_client_that_sends_nothing_is_closed_after_the_time_that_is_set() {
    let server =
        Server::start(&["--workers", "1", "--http-listen", "127.0.0.1:0", "--limits-hello", "500ms"]);
    let mut socket = std::net::TcpStream::connect(server.address("http")).expect("the server");
    socket.set_read_timeout(Some(Duration::from_secs(4))).expect("a socket");
    assert!(matches!(socket.read(&mut [0; 1]), Ok(0)), "the default is 5 s");
}

#[test]
fn a_grpc_client_is_told_the_number_of_streams_that_is_set() {
    let server =
        Server::start(&["--workers", "1", "--grpc-listen", "127.0.0.1:0", "--limits-grpc-streams", "7"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address("grpc")).await.expect("the server");
        let (client, mut connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        let mut ping_pong = connection.ping_pong().expect("the first");
        let mut pong = std::pin::pin!(ping_pong.ping(h2::Ping::opaque()));
        // The settings of the server come before its answer to the ping.
        std::future::poll_fn(|context| {
            let _ = std::pin::Pin::new(&mut connection).poll(context);
            pong.as_mut().poll(context)
        })
        .await
        .expect("a pong");
        assert_eq!(client.current_max_send_streams(), 7);
    });
}

#[test]
fn a_default_lease_above_the_longest_keeps_the_server_from_starting() {
    let (status, message) = crate::harness::refused(&["--limits-lease-max", "1s"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        message.contains("--limits-lease-default: 30s is above --limits-lease-max, which is 1s"),
        "{message}"
    );
}
