//! Requests whose response was lost, and how callers learn the outcome.

use std::future::IntoFuture;

use waymaker_client::{Error, Outcome, Uncertain};

use crate::fake::{FakeConnection, Seen, connected, id};
use crate::patience::soon;

fn uncertain<T: std::fmt::Debug>(answer: Result<T, Error>) -> Uncertain {
    match answer {
        Err(Error::Uncertain(uncertain)) => uncertain,
        other => panic!("{other:?}"),
    }
}

/// Returns the number of the next request that passes the test.
async fn seen(connection: &mut FakeConnection, is_it: impl Fn(&Seen) -> bool) -> u32 {
    loop {
        let (number, seen) = connection.next().await;
        if is_it(&seen) {
            return number;
        }
    }
}

#[tokio::test]
async fn an_uncertain_release_resolves_to_done_after_a_reconnect() {
    let (client, mut connection, mut server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let release = tokio::spawn(lock.unwrap().release());
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
    server.stop();
    drop(connection);
    let uncertain = uncertain(soon(release).await.unwrap());
    assert!(uncertain.to_string().ends_with("the outcome of the request is unknown"), "{uncertain}");
    // The client reconnects only because a caller may query the outcome.
    server.start();
    let mut connection = server.resume().await;
    let number = seen(&mut connection, |seen| *seen == Seen::Release(id(9))).await;
    connection.released(number).await;
    assert_eq!(soon(uncertain.resolve()).await, Outcome::Done);
}

#[tokio::test]
async fn a_grant_that_arrives_too_late_is_released() {
    let (client, mut connection, mut server) = connected().await;
    let acquire = tokio::spawn(client.write("k").into_future());
    connection.next().await;
    server.stop();
    drop(connection);
    let uncertain = uncertain(soon(acquire).await.unwrap());
    server.start();
    let mut connection = server.resume().await;
    let number = seen(&mut connection, |seen| matches!(seen, Seen::Acquire { .. })).await;
    connection.grant(number, 9, 30_000).await;
    assert_eq!(soon(uncertain.resolve()).await, Outcome::NotDone);
    seen(&mut connection, |seen| *seen == Seen::Release(id(9))).await;
}

#[tokio::test]
async fn an_uncertain_outcome_is_unknown_after_the_client_closes() {
    let (client, mut connection, mut server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let release = tokio::spawn(lock.unwrap().release());
    connection.next().await;
    server.stop();
    drop(connection);
    let uncertain = uncertain(soon(release).await.unwrap());
    soon(client.close()).await.unwrap();
    assert_eq!(soon(uncertain.resolve()).await, Outcome::Unknown);
}
