//! Opening and closing of clients.

use std::time::Duration;

use waymaker_client::{Client, Error, ErrorCode, Unavailable};
use waymaker_protocol::{Farewell, Response};

use crate::fake::{FakeServer, Seen, connected, id, still};
use crate::nowhere::Nowhere;
use crate::patience::soon;
use crate::real::server;

#[tokio::test]
async fn the_error_for_an_unreachable_server_says_how_to_start_it() {
    let closed = Nowhere::new();
    let url = closed.url();
    let error = Client::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Unreachable { .. })));
    let text = error.to_string();
    assert!(text.contains(&url) && text.contains("`waymaker-server` starts it"), "{text}");
}

#[tokio::test]
async fn the_error_for_a_missing_unix_socket_names_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("waymaker+unix://{}/socket", directory.path().display());
    let text = Client::connect(&url).await.unwrap_err().to_string();
    assert!(text.contains(&url) && text.contains("`waymaker-server` starts it"), "{text}");
}

#[tokio::test]
async fn connecting_to_a_silent_server_fails_after_the_connect_timeout() {
    let server = FakeServer::new();
    let builder = Client::builder().connect_timeout(Duration::from_millis(50));
    let error = soon(builder.connect(&server.url())).await.unwrap_err();
    assert!(error.to_string().contains("no response in time"), "{error}");
}

#[tokio::test]
async fn the_connect_error_names_the_protocol_of_another_server() {
    let server = FakeServer::new();
    let url = server.url();
    for (bytes, name) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "speaks HTTP,"),
        (&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100], "speaks HTTP/2 (gRPC),"),
        (&[0x15, 3, 3, 0, 2, 2, 50], "speaks TLS,"),
        (b"nobody knows this", "are not valid in this protocol"),
    ] {
        let (result, ()) = tokio::join!(still().connect(&url), async {
            let mut connection = server.accept().await;
            connection.send_bytes(bytes).await;
            connection.next_or_end().await;
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[tokio::test]
async fn connecting_to_another_port_of_the_server_names_its_protocol() {
    let server = server!(None, &["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    for (front, name) in [("grpc", "gRPC"), ("http", "HTTP")] {
        let url = format!("waymaker://{}", server.listener(front));
        let error = soon(Client::connect(&url)).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("7420"), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_shows_non_ascii_names_unescaped() {
    let server = server!();
    let client = Client::builder().namespace("größe").connect(server.url()).await.unwrap();
    soon(client.pools("")).await.unwrap();
    let error = soon(Client::builder().namespace("sem/größe").connect(server.url())).await.unwrap_err();
    assert!(error.to_string().contains("the namespace sem/größe has kind"), "{error}");
}

#[tokio::test]
async fn a_refused_hello_is_reported_to_the_caller() {
    let server = FakeServer::new();
    let url = server.url();
    let (result, ()) = tokio::join!(still().connect(&url), async {
        let mut connection = server.accept().await;
        let (number, _) = connection.next().await;
        connection.refuse(number, ErrorCode::Unauthorized).await;
    });
    assert_eq!(result.unwrap_err().to_string(), "unauthorized: credentials: because");
}

#[tokio::test]
async fn closing_releases_all_locks_and_sends_goodbye() {
    let (client, mut connection, _server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let lock = lock.unwrap();
    let (closed, ()) = tokio::join!(client.clone().close(), async {
        let (number, seen) = connection.next().await;
        assert_eq!(seen, Seen::Release(id(9)));
        connection.released(number).await;
        let (number, seen) = connection.next().await;
        assert_eq!(seen, Seen::Goodbye);
        connection.send(number, Response::Farewell(Farewell)).await;
    });
    closed.unwrap();
    assert!(!lock.is_held());
    assert!(matches!(client.inspect("k").await, Err(Error::Closed)));
    client.close().await.unwrap();
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_session() {
    let (client, mut connection, _server) = connected().await;
    drop(client);
    let (number, seen) = connection.next().await;
    assert_eq!(seen, Seen::Goodbye);
    connection.send(number, Response::Farewell(Farewell)).await;
    assert_eq!(soon(connection.next_or_end()).await, None);
}

#[tokio::test]
async fn callers_share_a_connection_and_are_answered_in_any_order() {
    let (client, mut connection, _server) = connected().await;
    let callers: Vec<_> = (0..100)
        .map(|index| {
            let client = client.clone();
            tokio::spawn(async move { (index, client.write(format!("k{index}")).await.unwrap()) })
        })
        .collect();
    let mut acquires = Vec::new();
    for _ in 0..100 {
        acquires.push(connection.next().await);
    }
    for (number, seen) in acquires.into_iter().rev() {
        let Seen::Acquire { key, .. } = seen else { panic!("{seen:?}") };
        let index: u64 = String::from_utf8(key).unwrap()[1..].parse().unwrap();
        connection.grant(number, 1_000 + index, 30_000).await;
    }
    for caller in callers {
        let (index, lock) = soon(caller).await.unwrap();
        assert_eq!(lock.id(), id(1_000 + index));
        assert_eq!(lock.key(), format!("k{index}").as_bytes());
    }
}
