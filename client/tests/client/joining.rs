//! A client with several connections, and events on one of them that concern all.

use std::future::IntoFuture;
use std::time::Duration;

use waymaker_client::{Client, Error, ErrorCode, KeyState, LossReason, NamespaceKind};
use waymaker_protocol::{Event, Farewell, Response, SessionRequest, Watching};

use crate::fake::{FakeConnection, FakeServer, Seen, connected, connected_with, id, session_id, still};
use crate::patience::soon;

/// Expects an acquire of permits as the next request, and grants it.
async fn grant_permit(connection: &mut FakeConnection, place: u64) {
    let (number, seen) = connection.next().await;
    assert!(matches!(seen, Seen::Permits { .. }), "{seen:?}");
    connection.grant(number, place, 30_000).await;
}

/// Opens a connection for pools beside the connection for keys.
async fn with_pool(client: &Client, server: &FakeServer) -> (FakeConnection, waymaker_client::Permit) {
    let permit = tokio::spawn(client.semaphore("p", 4).permits(2).into_future());
    let mut pool = server.join().await;
    let (number, seen) = pool.next().await;
    assert_eq!(seen, Seen::Permits { name: b"p".to_vec(), permits: 2 });
    pool.grant(number, 9, 30_000).await;
    (pool, soon(permit).await.unwrap().unwrap())
}

#[tokio::test]
async fn the_first_use_of_another_kind_joins_the_session() {
    let (client, connection, server) = connected_with(still().namespace("blue")).await;
    assert_eq!(connection.namespace, (NamespaceKind::Flat, b"blue".to_vec()));
    let unused = client.tree();
    let (mut pool, permit) = with_pool(&client, &server).await;
    assert_eq!(pool.namespace, (NamespaceKind::Pool, b"sem/blue".to_vec()));
    // Another call uses the same connection.
    let (_again, ()) = tokio::join!(client.semaphore("q", 1).acquire(), grant_permit(&mut pool, 10));
    drop(permit);
    assert_eq!(pool.next().await.1, Seen::Release(id(9)));
    drop(unused);
}

#[tokio::test]
async fn each_connection_reconnects_on_its_own() {
    let (client, mut connection, server) = connected().await;
    let (pool, permit) = with_pool(&client, &server).await;
    drop(pool);
    let mut pool = server.resume().await;
    assert_eq!(pool.next().await.1, Seen::Extend { id: id(9), lease_ms: 0 });
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(7, 30_000));
    assert!(lock.unwrap().is_held() && permit.is_held());
}

#[tokio::test]
async fn session_expiry_on_one_connection_reaches_all_and_one_opens_the_next() {
    let (client, mut connection, server) = connected().await;
    let (mut pool, permit) = with_pool(&client, &server).await;
    let (lock, ()) = tokio::join!(client.write("k").session_lease(), connection.grant_next(7, 10_000));
    let lock = lock.unwrap();
    let session = client.session();
    pool.send(0, Response::Event(Event::SessionExpired)).await;
    assert_eq!(soon(lock.lost()).await, LossReason::SessionExpired);
    assert_eq!(soon(session.expired()).await, LossReason::SessionExpired);
    // The permit has a lease of its own.
    assert!(permit.is_held());
    // The first connection opens a session, and the other waits for it and joins.
    let mut first = server.accept().await;
    assert!(matches!(first.next().await.1, Seen::Hello(SessionRequest::New { .. })));
    first.send_welcome(false).await;
    let mut second = server.join().await;
    let kinds = [first.namespace.0, second.namespace.0];
    assert!(kinds.contains(&NamespaceKind::Flat) && kinds.contains(&NamespaceKind::Pool), "{kinds:?}");
    let of_the_pool = if kinds[0] == NamespaceKind::Pool { &mut first } else { &mut second };
    assert_eq!(of_the_pool.next().await.1, Seen::Extend { id: id(9), lease_ms: 0 });
}

/// All connections were idle for longer than the session's lease.
#[tokio::test]
async fn a_session_that_is_gone_when_another_kind_joins_is_replaced() {
    let (client, _connection, server) = connected().await;
    let permit = tokio::spawn(client.semaphore("p", 1).acquire().into_future());
    let mut pool = server.accept().await;
    let (number, seen) = pool.next().await;
    assert_eq!(seen, Seen::Hello(SessionRequest::Join { id: session_id() }));
    pool.refuse(number, ErrorCode::SessionGone).await;
    let mut accepted = Vec::new();
    for _ in 0..2 {
        let mut connection = server.accept().await;
        let (_, seen) = connection.next().await;
        connection.send_welcome(!matches!(seen, Seen::Hello(SessionRequest::New { .. }))).await;
        accepted.push((connection, seen));
    }
    assert!(matches!(accepted[0].1, Seen::Hello(SessionRequest::New { .. })));
    assert_eq!(accepted[1].1, Seen::Hello(SessionRequest::Join { id: session_id() }));
    let pool = accepted.iter_mut().find(|(connection, _)| connection.namespace.0 == NamespaceKind::Pool);
    grant_permit(&mut pool.unwrap().0, 4).await;
    assert!(soon(permit).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn a_refused_kind_fails_only_its_own_callers_at_once() {
    let (client, mut connection, server) = connected().await;
    let asked = client.limiter("b", 1, Duration::from_secs(1), 1);
    let asked = tokio::spawn(async move { asked.take(1).await });
    let mut limit = server.accept().await;
    let (number, _) = limit.next().await;
    limit.refuse(number, ErrorCode::BadInput).await;
    assert_eq!(soon(asked).await.unwrap().unwrap_err().code(), Some(ErrorCode::BadInput));
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(7, 30_000));
    assert!(lock.unwrap().is_held());
}

#[tokio::test]
async fn closing_drains_every_connection_and_the_last_one_sends_goodbye() {
    let (client, mut connection, server) = connected().await;
    let (mut pool, permit) = with_pool(&client, &server).await;
    let closing = tokio::spawn(client.clone().close());
    assert_eq!(soon(connection.next_or_end()).await, None);
    let (number, seen) = pool.next().await;
    assert_eq!(seen, Seen::Release(id(9)));
    pool.released(number).await;
    let (number, seen) = pool.next().await;
    assert_eq!(seen, Seen::Goodbye);
    pool.send(number, Response::Farewell(Farewell)).await;
    soon(closing).await.unwrap().unwrap();
    assert_eq!(permit.loss_reason(), Some(LossReason::ClientClosed));
    assert!(matches!(client.tree().write(["a"]).await, Err(Error::Closed)));
    assert!(matches!(client.semaphore("p", 4).acquire().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_watch_is_repeated_after_a_reconnect_and_ended_when_dropped() {
    let (client, mut connection, server) = connected().await;
    let watching =
        |fence, holder_count| Response::Watching(Watching { fence, holder_count, ..Watching::default() });
    let (watch, ()) = tokio::join!(client.watch("k"), async {
        let (number, seen) = connection.next().await;
        assert_eq!(seen, Seen::Watch(b"k".to_vec()));
        connection.send(number, watching(3, 0)).await;
    });
    let mut watch = watch.unwrap();
    assert_eq!(soon(watch.next()).await, Some(KeyState::Free { fence: 3 }));
    drop(connection);
    let mut connection = server.resume().await;
    let (number, seen) = connection.next().await;
    assert_eq!(seen, Seen::Watch(b"k".to_vec()));
    connection.send(number, watching(4, 1)).await;
    assert_eq!(soon(watch.next()).await, Some(KeyState::Held { fence: 4, holder: None }));
    drop(watch);
    assert_eq!(connection.next().await.1, Seen::Unwatch { watch_number: number });
}

#[tokio::test]
async fn a_watch_ends_if_its_client_closes_or_the_server_refuses_it() {
    let (client, mut connection, _server) = connected().await;
    let (refused, ()) = tokio::join!(client.watch("k"), async {
        let (number, _) = connection.next().await;
        connection.refuse(number, ErrorCode::Overloaded).await;
    });
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::Overloaded));
    let (watch, ()) = tokio::join!(client.watch("k"), async {
        let (number, _) = connection.next().await;
        connection.send(number, Response::Watching(Watching::default())).await;
    });
    let mut watch = watch.unwrap();
    assert!(soon(watch.next()).await.is_some());
    let closing = tokio::spawn(client.close());
    assert_eq!(soon(watch.next()).await, None);
    let (number, _) = connection.next().await;
    connection.send(number, Response::Farewell(Farewell)).await;
    soon(closing).await.unwrap().unwrap();
}
