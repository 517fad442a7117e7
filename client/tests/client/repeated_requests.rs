//! Requests of which the server receives duplicates.

use std::time::Duration;

use waymaker_client::{Client, Error, Lock};

use crate::connected::connect;
use crate::patience::{HOUR, patient, soon};
use crate::real::server;
use crate::relay::{Fault, Relay};

/// Each request takes effect once. Fences rise by one, tokens are taken once, and a refusal concerns its request and
/// not the connection.
#[tokio::test]
async fn a_duplicated_request_of_any_kind_takes_effect_once() {
    let server = server!();
    let other = connect(&server, "other").await;
    let relay = Relay::with(server.url(), Fault::Repeat).await;
    let client = soon(patient().connect(relay.url())).await.unwrap();
    let session = client.session().id();
    for fence in 1..=20 {
        let lock = client.write("k").lease(HOUR).await.unwrap();
        assert_eq!(lock.fence(), fence);
        lock.extend(HOUR).await.unwrap();
        assert!(matches!(client.write("k").try_().await, Err(Error::Busy(_))));
        let waited = client.write("k").wait(Duration::from_millis(5)).await;
        assert!(matches!(waited, Err(Error::Timeout(_))), "{waited:?}");
        lock.release().await.unwrap();
        let both = client.multi(["a", "b"]).await.unwrap();
        assert_eq!(both.locks().iter().map(Lock::fence).collect::<Vec<_>>(), [fence; 2]);
        both.release().await.unwrap();
        let path = client.tree().write(["shop", "orders"]).read(["prices"]).await.unwrap();
        assert_eq!(path.fence(), fence);
        path.release().await.unwrap();
        let permits = client.semaphore("p", 5).permits(2).await.unwrap();
        assert_eq!(client.semaphore("p", 5).describe().await.unwrap().held, 2);
        permits.release().await.unwrap();
        let allowance = client.limiter("b", 1, HOUR, 100).take(1).await.unwrap();
        assert_eq!(allowance.remaining, 100 - fence);
        let registration = client.registry().registration("printer").owner("me");
        assert_eq!(registration.register(HOUR).await.unwrap().fence, fence);
        registration.unregister().await.unwrap();
    }
    assert_eq!(client.session().id(), session);
    assert_nothing_is_left(&other).await;
}

/// Each connection repeats all requests of the earlier connections: acquires of released locks, and releases of locks
/// whose keys are held again.
#[tokio::test]
async fn a_late_copy_of_a_request_neither_grants_nor_releases() {
    let server = server!();
    let other = connect(&server, "other").await;
    let relay = Relay::with(server.url(), Fault::RepeatLate).await;
    let client = soon(patient().connect(relay.url())).await.unwrap();
    let held = client.write("held").session_lease().await.unwrap();
    for fence in 1..=20 {
        client.write("released").session_lease().await.unwrap().release().await.unwrap();
        let lock = client.write("k").await.unwrap();
        relay.cut();
        assert_eq!(other.inspect("released").await.unwrap().holder_count, 0);
        // The response arrives on the next connection, after the repeated requests.
        assert_eq!(soon(client.inspect("released")).await.unwrap().holder_count, 0);
        assert_eq!(client.inspect("released").await.unwrap().fence, fence);
        for lock in [&held, &lock] {
            let status = other.inspect(lock.key()).await.unwrap();
            let holders: Vec<_> = status.holders.iter().map(|holder| holder.id).collect();
            assert_eq!((holders, status.fence), (vec![lock.id()], lock.fence()));
            assert!(lock.is_held());
        }
        assert_eq!(lock.fence(), fence);
        lock.release().await.unwrap();
    }
    held.release().await.unwrap();
    assert_nothing_is_left(&other).await;
}

async fn assert_nothing_is_left(other: &Client) {
    for namespace in other.namespaces().await.unwrap() {
        assert_eq!((namespace.held, namespace.waiting), (0, 0), "{namespace:?}");
    }
}
