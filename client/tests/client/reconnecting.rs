//! Connections that break.

use std::future::IntoFuture;

use waymaker_client::{Error, ErrorCode, LossReason, Unavailable};
use waymaker_protocol::SessionRequest;

use crate::fake::{Seen, connected, id};
use crate::patience::soon;

#[tokio::test]
async fn a_lock_survives_its_connection_and_is_renewed() {
    let (client, mut connection, server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let lock = lock.unwrap();
    drop(connection);
    let mut connection = server.resume().await;
    let (number, seen) = connection.next().await;
    assert_eq!(seen, Seen::Extend { id: id(9), lease_ms: 0 });
    connection.extended(number, 30_000).await;
    let ((), released) = tokio::join!(
        async {
            let (number, seen) = connection.next().await;
            assert_eq!(seen, Seen::Release(id(9)));
            connection.released(number).await;
        },
        lock.release()
    );
    released.unwrap();
}

#[tokio::test]
async fn a_request_with_a_lost_answer_is_repeated_with_its_number() {
    let (client, mut connection, server) = connected().await;
    let caller = tokio::spawn(client.write("k").into_future());
    let (number, seen) = connection.next().await;
    drop(connection);
    let mut connection = server.resume().await;
    assert_eq!(connection.next().await, (number, seen));
    connection.grant(number, 9, 30_000).await;
    assert_eq!(soon(caller).await.unwrap().unwrap().id(), id(9));
}

#[tokio::test]
async fn the_client_reconnects_after_repeated_failures() {
    let (client, connection, server) = connected().await;
    drop(connection);
    let caller = tokio::spawn(client.write("k").into_future());
    for _ in 0..4 {
        drop(server.accept().await);
    }
    let mut connection = server.resume().await;
    connection.grant_next(9, 30_000).await;
    assert!(soon(caller).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn a_lost_session_is_replaced_and_locks_with_own_leases_are_renewed() {
    let (client, mut connection, server) = connected().await;
    let (own, ()) = tokio::join!(client.write("own"), connection.grant_next(9, 30_000));
    let (on_session, ()) =
        tokio::join!(client.write("session").session_lease(), connection.grant_next(8, 10_000));
    let (own, on_session) = (own.unwrap(), on_session.unwrap());
    drop(connection);
    let mut connection = server.accept().await;
    let (number, seen) = connection.next().await;
    assert!(matches!(seen, Seen::Hello(SessionRequest::Resume { .. })));
    connection.refuse(number, ErrorCode::SessionGone).await;
    let mut connection = server.welcome().await;
    assert_eq!(soon(on_session.lost()).await, LossReason::SessionExpired);
    assert_eq!(connection.next().await, (1, Seen::Extend { id: id(9), lease_ms: 0 }));
    connection.refuse(1, ErrorCode::NotFound).await;
    assert_eq!(soon(own.lost()).await, LossReason::Expired);
}

/// The pauses between attempts to connect move the clock, until the client's time limit has passed.
#[tokio::test]
async fn calls_fail_while_the_server_is_unreachable() {
    let (client, mut connection, mut server) = connected().await;
    let caller = tokio::spawn(client.write("k").into_future());
    connection.next().await;
    server.stop();
    drop(connection);
    assert!(matches!(soon(caller).await.unwrap(), Err(Error::Uncertain(_))));
    // From here on, each caller waits for new attempts to connect, and gets their error.
    assert!(matches!(
        soon(client.inspect("k")).await,
        Err(Error::Unavailable(Unavailable::Unreachable { .. }))
    ));
}

#[tokio::test]
async fn a_client_that_stopped_reconnecting_reconnects_for_the_next_call() {
    let (client, connection, mut server) = connected().await;
    server.stop();
    drop(connection);
    soon(client.inspect("k")).await.unwrap_err();
    server.start();
    let (lock, ()) = tokio::join!(client.write("k").into_future(), async {
        let mut connection = server.resume().await;
        // The query may have been sent before the client noticed the broken connection; then it is repeated first.
        let number = loop {
            if let (number, Seen::Acquire { .. }) = connection.next().await {
                break number;
            }
        };
        connection.grant(number, 9, 30_000).await;
    });
    assert_eq!(lock.unwrap().id(), id(9));
}
