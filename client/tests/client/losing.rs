//! Locks that are lost.

use std::sync::mpsc;
use std::time::Duration;

use waymaker_client::{Error, LossReason, RevokeReason};
use waymaker_protocol::{Event, Response};

use crate::fake::{Seen, connected, id, soon};

#[tokio::test]
async fn a_lease_is_renewed_in_time_while_the_guard_lives() {
    let (client, mut connection, _server) = connected().await;
    let acquire = client.write("k").lease(Duration::from_millis(600));
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, 600));
    let lock = lock.unwrap();
    for _ in 0..3 {
        let (number, seen) = connection.next().await;
        assert_eq!(seen, Seen::Extend { id: id(9), lease_ms: 600 });
        // The clock of the fake server does not tick by itself.
        connection.stamp_ms += 200;
        connection.extended(number, 600).await;
    }
    assert!(lock.is_held());
}

#[tokio::test]
async fn a_server_that_falls_silent_loses_the_lock_before_the_lease_ends() {
    let (client, mut connection, _server) = connected().await;
    let (told, telling) = mpsc::channel();
    let lease = Duration::from_millis(400);
    let acquire = client.write("k").lease(lease).on_loss(move |reason| told.send(reason).unwrap());
    let (lock, granted) = tokio::join!(acquire, async {
        connection.grant_next(9, 400).await;
        std::time::Instant::now()
    });
    let lock = lock.unwrap();
    assert_eq!(soon(lock.lost()).await, LossReason::LocalDeadline);
    let lost_after = granted.elapsed();
    assert!(!lock.is_held());
    assert_eq!(lock.remaining(), Duration::ZERO);
    assert_eq!(telling.recv().unwrap(), LossReason::LocalDeadline);
    assert!(lost_after > Duration::from_millis(200), "lost after {lost_after:?}");
    // The server may still hold it, so the guard gives it back all the same.
    assert!(matches!(connection.next().await.1, Seen::Extend { .. }));
    drop(lock);
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

#[tokio::test]
async fn what_the_server_takes_away_is_lost_at_once_and_not_released() {
    let (client, mut connection, _server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let lock = lock.unwrap();
    let reason = RevokeReason::ReleasedElsewhere;
    connection.send(0, Response::Event(Event::Revoked { id: id(9), reason, message: b"" })).await;
    assert_eq!(soon(lock.lost()).await, LossReason::Revoked(reason));
    assert!(matches!(lock.release().await, Err(Error::Lost(LossReason::Revoked(_)))));
}

#[test]
fn a_runtime_that_ends_takes_the_locks_along_and_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lock = runtime.block_on(async {
        let (client, mut connection, _server) = connected().await;
        let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
        lock.unwrap()
    });
    drop(runtime);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    drop(lock);
}
