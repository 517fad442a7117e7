//! Futures that are dropped, guards that are dropped.

use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use waymaker_client::{Client, Error};

use crate::fake::{Seen, connected, connected_with, id};
use crate::patience::soon;

#[tokio::test]
async fn dropping_a_future_that_waits_cancels_its_claim() {
    let (client, mut connection, _server) = connected().await;
    let caller = tokio::spawn(client.write("k").into_future());
    let (number, _) = connection.next().await;
    caller.abort();
    assert_eq!(connection.next().await.1, Seen::Cancel { acquire_number: number });
}

#[tokio::test]
async fn a_grant_that_crosses_the_cancel_is_released() {
    let (client, mut connection, _server) = connected().await;
    let caller = tokio::spawn(client.write("k").into_future());
    let (number, _) = connection.next().await;
    caller.abort();
    assert!(matches!(connection.next().await.1, Seen::Cancel { .. }));
    connection.grant(number, 9, 30_000).await;
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

/// The grant lies in the future, which was not polled again before it was dropped.
#[tokio::test]
async fn a_grant_that_arrived_unseen_is_released() {
    let (client, mut connection, _server) = connected().await;
    {
        let mut future = pin!(client.write("k").into_future());
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        connection.grant_next(9, 30_000).await;
        // A round trip later the connection task has read the grant.
        let (status, ()) = tokio::join!(client.status(id(1)), async {
            let (number, _) = connection.next().await;
            connection.refuse(number, waymaker_client::ErrorCode::NotFound).await;
        });
        status.unwrap_err();
    }
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

#[tokio::test]
async fn a_future_that_was_never_polled_asks_for_nothing() {
    let (client, mut connection, _server) = connected().await;
    drop(client.write("never").into_future());
    drop(client.write("nor this"));
    let _caller = tokio::spawn(client.write("k").into_future());
    let (_, seen) = connection.next().await;
    assert!(matches!(seen, Seen::Acquire { key, .. } if key == b"k"));
}

#[tokio::test]
async fn a_guard_dropped_on_a_thread_without_a_runtime_is_released() {
    let (client, mut connection, _server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let lock = lock.unwrap();
    std::thread::spawn(move || drop(lock)).join().unwrap();
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

#[tokio::test]
async fn a_release_that_is_not_awaited_to_its_end_still_happens() {
    let (client, mut connection, _server) = connected().await;
    for place in [8, 9] {
        let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(place, 30_000));
        let mut release = Box::pin(lock.unwrap().release());
        if place == 9 {
            assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(release);
        let (number, seen) = connection.next().await;
        assert_eq!(seen, Seen::Release(id(place)));
        connection.released(number).await;
    }
}

/// Long before the client takes the connection for dead.
#[tokio::test]
async fn an_acquire_ends_soon_after_its_wait_although_the_server_is_silent() {
    let (client, mut connection, _server) = connected_with(Client::builder()).await;
    let begin = Instant::now();
    let answer = soon(client.write("k").wait(Duration::from_millis(100)).into_future()).await;
    assert!(matches!(answer, Err(Error::Uncertain(_))), "{answer:?}");
    assert!(begin.elapsed() < Duration::from_secs(4), "it took {:?}", begin.elapsed());
    let (acquire_number, _) = connection.next().await;
    assert_eq!(connection.next().await.1, Seen::Cancel { acquire_number });
}
