//! Futures and guards that are dropped.

use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use waymaker_client::{Client, ClientBuilder, Error, Lock};

use crate::fake::{Seen, connected, connected_with, id};
use crate::patience::{HOUR, soon};
use crate::real::server;
use crate::relay::Relay;

#[tokio::test]
async fn dropping_a_waiting_future_cancels_its_claim() {
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

/// The grant is in the future, which was not polled again before it was dropped.
#[tokio::test]
async fn a_grant_in_a_dropped_future_is_released() {
    let (client, mut connection, _server) = connected().await;
    {
        let mut future = pin!(client.write("k").into_future());
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        connection.grant_next(9, 30_000).await;
        // After one round trip, the connection task has read the grant.
        let (status, ()) = tokio::join!(client.status(id(1)), async {
            let (number, _) = connection.next().await;
            connection.refuse(number, waymaker_client::ErrorCode::NotFound).await;
        });
        status.unwrap_err();
    }
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

#[tokio::test]
async fn a_future_that_is_never_polled_sends_nothing() {
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
async fn a_dropped_release_future_still_releases() {
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

/// The wait ends long before the client takes the connection for dead.
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

/// Makes every call that has no wait of its own. Each must end with `Uncertain`, or with `Unavailable` if it was
/// never sent.
async fn calls_that_nobody_answers(client: &Client, lock: Lock) {
    let begin = Instant::now();
    let (name, hold) = ("k", lock.id());
    let ended = |what: &str, error: Option<Error>| {
        assert!(matches!(error, Some(Error::Uncertain(_) | Error::Unavailable(_))), "{what}: {error:?}");
        assert!(begin.elapsed() < Duration::from_secs(4), "{what} took {:?}", begin.elapsed());
    };
    let session = client.session();
    let pool = client.semaphore("pool", 4);
    tokio::join!(
        async { ended("extend of a guard", lock.extend(HOUR).await.err()) },
        async { ended("extend", client.extend(hold, HOUR).await.err()) },
        async { ended("release", client.release(hold, name).await.err()) },
        async { ended("inspect", client.inspect(name).await.err()) },
        async { ended("verify", client.verify(name, 1).await.err()) },
        async { ended("status", client.status(hold).await.err()) },
        async { ended("list", client.list(name).await.err()) },
        async { ended("holds", session.holds().await.err()) },
        async { ended("watch", client.watch(name).await.err()) },
        async { ended("namespaces", client.namespaces().await.err()) },
        async { ended("force_release", client.force_release(hold, "a test").await.err()) },
        async { ended("freeze", client.freeze(name).await.err()) },
        async { ended("try", client.write(name).try_().await.err()) },
        async { ended("describe", pool.describe().await.err()) },
        async { ended("set_capacity", pool.set_capacity(5).await.err()) },
    );
    let begin = Instant::now();
    let error = lock.release().await.unwrap_err();
    assert!(matches!(error, Error::Uncertain(_) | Error::Unavailable(_)), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(4), "release of a guard took {:?}", begin.elapsed());
    let begin = Instant::now();
    client.clone().close().await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4), "close took {:?}", begin.elapsed());
}

/// Returns the settings of a client whose calls end long before it takes the connection for dead.
fn impatient() -> ClientBuilder {
    Client::builder().session_lease(HOUR).connect_timeout(HOUR).request_timeout(Duration::from_millis(100))
}

#[tokio::test]
async fn every_call_to_a_silent_server_ends_after_the_request_timeout() {
    let (client, mut connection, _server) = connected_with(impatient()).await;
    let (lock, ()) = tokio::join!(client.write("k").wait(HOUR), connection.grant_next(9, 3_600_000));
    soon(calls_that_nobody_answers(&client, lock.unwrap())).await;
}

/// The relay accepts new connections but does not pass them on, as if the server hung.
#[tokio::test]
async fn every_call_without_a_connection_ends_after_the_request_timeout() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = impatient().connect(relay.url()).await.unwrap();
    let lock = soon(client.write("k").lease(HOUR).wait(HOUR).into_future()).await.unwrap();
    relay.cut_until_noticed(soon(calls_that_nobody_answers(&client, lock))).await;
}
