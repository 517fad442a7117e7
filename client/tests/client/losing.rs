//! Locks that are lost.

use std::sync::mpsc;
use std::time::Duration;

use waymaker_client::blocking::Block;
use waymaker_client::{Client, Clock, Error, LossReason, RevokeReason};
use waymaker_protocol::{Event, Response};

use crate::connected::connect;
use crate::fake::{Seen, connected, connected_with, id, still};
use crate::manual_clock::ManualClock;
use crate::patience::{HOUR, SOON, eventually, patient, soon};
use crate::real::server;

const LEASE_MS: u32 = 30_000;
const LEASE: Duration = Duration::from_millis(LEASE_MS as u64);
/// A lease that ends before the client sends its first keep-alive.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_lease_is_renewed_each_time_a_third_of_it_has_passed() {
    let clock = ManualClock::new();
    let (client, mut connection, _server) = connected_with(still().clock(clock.shared())).await;
    let acquire = client.write("k").lease(LEASE);
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, LEASE_MS));
    let lock = lock.unwrap();
    for _ in 0..9 {
        let ((number, seen), ()) = tokio::join!(connection.next(), clock.advance(LEASE * 34 / 100));
        assert_eq!(seen, Seen::Extend { id: id(9), lease_ms: LEASE_MS });
        assert!(lock.is_held());
        // The clock of the fake server moves only here.
        connection.stamp_ms += u64::from(LEASE_MS) / 3;
        connection.extended(number, LEASE_MS).await;
        eventually(async || lock.remaining() > LEASE * 9 / 10).await;
    }
}

#[tokio::test]
async fn a_lock_on_a_silent_server_is_lost_before_its_lease_ends() {
    let clock = ManualClock::new();
    let (client, mut connection, _server) = connected_with(still().clock(clock.shared())).await;
    let (told, telling) = mpsc::channel();
    let acquire = client.write("k").lease(LEASE).on_loss(move |reason| told.send(reason).unwrap());
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, LEASE_MS));
    let lock = lock.unwrap();
    let granted = clock.now();
    clock.advance(LEASE * 9 / 10).await;
    assert!(lock.is_held());
    clock.advance_until(LEASE / 100, async || !lock.is_held()).await;
    assert!(clock.now().since(granted) < LEASE);
    assert_eq!(lock.remaining(), Duration::ZERO);
    assert_eq!(soon(lock.lost()).await, LossReason::LocalDeadline);
    assert_eq!(telling.recv().unwrap(), LossReason::LocalDeadline);
}

/// The lease may not have expired on the server yet.
#[tokio::test]
async fn a_lock_lost_at_its_local_deadline_is_still_released() {
    let clock = ManualClock::new();
    let (client, mut connection, _server) = connected_with(still().clock(clock.shared())).await;
    let acquire = client.write("k").lease(SHORT).renew(false);
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, SHORT.as_millis() as u32));
    let lock = lock.unwrap();
    clock.advance(SHORT).await;
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    drop(lock);
    assert_eq!(connection.next().await.1, Seen::Release(id(9)));
}

#[tokio::test]
async fn a_revoked_lock_is_lost_at_once_and_not_released() {
    let (client, mut connection, _server) = connected().await;
    let (lock, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let lock = lock.unwrap();
    let reason = RevokeReason::ReleasedElsewhere;
    connection.send(0, Response::Event(Event::Revoked { id: id(9), reason, message: b"" })).await;
    assert_eq!(soon(lock.lost()).await, LossReason::Revoked(reason));
    assert!(matches!(lock.release().await, Err(Error::Lost(LossReason::Revoked(_)))));
}

#[tokio::test]
async fn a_panicking_callback_affects_no_other_lock() {
    let (client, mut connection, _server) = connected().await;
    let acquire = client.write("k").on_loss(|_| panic!("a defect of the user"));
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, 30_000));
    let (other, ()) = tokio::join!(client.write("l"), connection.grant_next(10, 30_000));
    let reason = RevokeReason::Forced;
    connection.send(0, Response::Event(Event::Revoked { id: id(9), reason, message: b"" })).await;
    assert_eq!(soon(lock.unwrap().lost()).await, LossReason::Revoked(reason));
    let (third, ()) = tokio::join!(client.write("m"), connection.grant_next(11, 30_000));
    assert!(third.unwrap().is_held() && other.unwrap().is_held());
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a defect of the user");
    }
}

#[tokio::test]
async fn values_captured_by_a_callback_may_panic_when_dropped() {
    let (client, mut connection, _server) = connected().await;
    let (other, ()) = tokio::join!(client.write("k"), connection.grant_next(9, 30_000));
    let other = other.unwrap();
    let acquire = client.write("l").on_loss(|_| std::panic::panic_any(PanicsWhenDropped));
    let (lost, ()) = tokio::join!(acquire, connection.grant_next(10, 30_000));
    let reason = RevokeReason::Forced;
    connection.send(0, Response::Event(Event::Revoked { id: id(10), reason, message: b"" })).await;
    assert_eq!(soon(lost.unwrap().lost()).await, LossReason::Revoked(reason));
    let carried = PanicsWhenDropped;
    let acquire = client.write("m").on_loss(move |_| drop(carried));
    let (released, ()) = tokio::join!(acquire, connection.grant_next(11, 30_000));
    drop(released);
    assert_eq!(connection.next().await.1, Seen::Release(id(11)));
    let (third, ()) = tokio::join!(client.write("n"), connection.grant_next(12, 30_000));
    assert!(third.unwrap().is_held() && other.is_held());
}

/// As at the end of `main`: the guard and the client are dropped first, and then the runtime.
#[test]
fn a_guard_dropped_just_before_its_runtime_is_released() {
    let server = server!();
    let other = patient().connect_blocking(server.url()).unwrap();
    for threads in [1, 2] {
        let runtime = match threads {
            1 => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            _ => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        };
        runtime.block_on(async {
            let client = connect(&server, "").await;
            let _lock = client.write("k").lease(HOUR).await.unwrap();
        });
        drop(runtime);
        other.write("k").wait(SOON).block().unwrap().release().block().unwrap();
    }
}

#[test]
fn locks_are_reported_lost_when_their_runtime_ends() {
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

#[test]
fn calls_after_the_end_of_the_runtime_fail_as_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async { connected().await.0 });
    drop(runtime);
    assert!(matches!(client.inspect("k").block(), Err(Error::Closed)));
    assert!(matches!(client.pools("").block(), Err(Error::Closed)));
    assert!(matches!(client.tree().write(["a"]).block(), Err(Error::Closed)));
}

/// The socket always has data to read, so no other event of the task is ready first.
#[tokio::test]
async fn a_flooding_server_delays_neither_timeouts_nor_losses() {
    let (client, mut connection, _server) =
        connected_with(Client::builder().connect_timeout(HOUR).request_timeout(Duration::from_millis(100)))
            .await;
    let lease = Duration::from_millis(500);
    let acquire = client.write("k").lease(lease).renew(false);
    let (lock, ()) = tokio::join!(acquire, connection.grant_next(9, lease.as_millis() as u32));
    let lock = lock.unwrap();
    let flood = connection.flood();
    assert_eq!(soon(lock.lost()).await, LossReason::LocalDeadline);
    assert!(matches!(soon(client.inspect("k")).await, Err(Error::Uncertain(_))));
    drop(flood);
}
