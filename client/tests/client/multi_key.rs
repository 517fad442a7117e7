//! Multi-key claims, trees and pools, with a real server.

use std::future::IntoFuture;
use std::time::Duration;

use tokio::sync::watch;
use waymaker_client::{
    Error, ErrorCode, LossReason, NamespaceKind, PoolSummary, RevokeReason, path_segments,
};

use crate::against_server::waiting;
use crate::connected::connect;
use crate::manual_clock::ManualClock;
use crate::patience::{LEASE, patient, soon};
use crate::real::server;
use crate::relay::Relay;

#[tokio::test]
async fn several_keys_are_granted_together_or_not_at_all() {
    let server = server!();
    let (alice, bob) = (connect(&server, "alice").await, connect(&server, "bob").await);
    let held = bob.write("b").await.unwrap();
    let error = alice.multi(["c", "a", "b"]).try_().await.unwrap_err();
    assert_eq!(error.contention().unwrap().owner, b"bob");
    assert_eq!(alice.list("").await.unwrap().len(), 1, "nothing was taken of the others");
    let waiter = tokio::spawn(alice.multi(["c", "a", "b", "a"]).into_future());
    waiting(&bob, "b", 1).await;
    held.release().await.unwrap();
    let multi = soon(waiter).await.unwrap().unwrap();
    let keys: Vec<_> = multi.locks().iter().map(waymaker_client::Lock::key).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!(multi.get("b").unwrap().fence(), 2);
    for key in ["a", "b", "c"] {
        assert!(matches!(bob.write(key).try_().await, Err(Error::Busy(_))));
    }
    multi.release().await.unwrap();
    assert_eq!(bob.list("").await.unwrap(), []);
}

#[tokio::test]
async fn the_locks_of_a_multi_key_claim_are_independent() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let multi = client.multi(["a"]).read("b").write("c").session_lease().await.unwrap();
    assert!(multi.is_held());
    let reader = other.read("b").try_().await.unwrap();
    other.force_release(multi.get("a").unwrap().id(), "maintenance").await.unwrap();
    assert_eq!(soon(multi.lost()).await, LossReason::Revoked(RevokeReason::Forced));
    assert_eq!(multi.get("a").unwrap().loss_message(), "maintenance");
    assert!(multi.get("b").unwrap().is_held() && multi.get("c").unwrap().is_held());
    let mut locks = multi.into_locks();
    locks.pop().unwrap().release().await.unwrap();
    drop(soon(other.write("c").into_future()).await.unwrap());
    drop((locks, reader));
    drop(soon(other.write("b").into_future()).await.unwrap());
}

#[tokio::test]
async fn a_dropped_multi_key_acquire_leaves_all_queues() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let held = other.write("b").await.unwrap();
    let waiter = tokio::spawn(client.multi(["a", "b"]).into_future());
    waiting(&other, "b", 1).await;
    waiter.abort();
    waiting(&other, "b", 0).await;
    waiting(&other, "a", 0).await;
    held.release().await.unwrap();
    drop(soon(other.multi(["a", "b"]).into_future()).await.unwrap());
}

/// The link is cut while keys are granted, awaited and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_key_claims_survive_repeated_connection_cuts() {
    const SEAT_COUNT: u64 = 5;
    const MEAL_COUNT: u64 = 40;
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = patient().clock(ManualClock::new().shared()).connect(relay.url()).await.unwrap();
    let done = watch::Sender::new(0);
    let philosophers: Vec<_> = (0..SEAT_COUNT)
        .map(|seat| {
            let (client, done) = (client.clone(), done.clone());
            let forks = [format!("fork{seat}"), format!("fork{}", (seat + 1) % SEAT_COUNT)];
            tokio::spawn(async move {
                for _ in 0..MEAL_COUNT {
                    client.multi(&forks).session_lease().await.unwrap().release().await.unwrap();
                    done.send_modify(|count| *count += 1);
                }
            })
        })
        .collect();
    relay.cut_until(&done, SEAT_COUNT * MEAL_COUNT).await;
    for philosopher in philosophers {
        soon(philosopher).await.unwrap();
    }
    let other = connect(&server, "").await;
    assert_eq!(other.list("").await.unwrap(), []);
    for seat in 0..SEAT_COUNT {
        assert_eq!(other.inspect(format!("fork{seat}")).await.unwrap().fence, 2 * MEAL_COUNT);
    }
}

const NO_PATH: [&str; 0] = [];

#[tokio::test]
async fn a_path_blocks_its_ancestors_and_descendants_but_not_its_siblings() {
    let server = server!();
    let (client, other) = (connect(&server, "owner").await, connect(&server, "").await);
    let lock = client.tree().write(["shop", "orders"]).read(["prices"]).await.unwrap();
    assert_eq!(path_segments(lock.key()), [&b"shop"[..], b"orders"]);
    let tree = other.tree();
    for path in [&["shop", "orders", "17"][..], &["shop"], &[]] {
        let error = tree.read(path).try_().await.unwrap_err();
        assert_eq!(error.contention().unwrap().owner, b"owner", "{path:?}");
    }
    assert!(matches!(tree.write(["prices", "today"]).try_().await, Err(Error::Busy(_))));
    let beside = tree.write(["shop", "customers"]).read(["prices", "today"]).try_().await.unwrap();
    assert_eq!(tree.list(["shop"]).await.unwrap().len(), 2);
    assert_eq!(tree.inspect(["prices"]).await.unwrap().holder_count, 2);
    let all = tokio::spawn(tree.write(NO_PATH).into_future());
    soon(async { while tree.inspect(NO_PATH).await.unwrap().waiter_count == 0 {} }).await;
    beside.release().await.unwrap();
    lock.release().await.unwrap();
    assert_eq!(soon(all).await.unwrap().unwrap().fence(), 3);
    // Trees and plain keys are in separate namespaces.
    assert_eq!(client.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_path_without_a_lease_is_lost_only_after_its_connection() {
    let (server, clock) = (server!(), ManualClock::new());
    let relay = Relay::to(server.url()).await;
    let client = patient().clock(clock.shared()).connect(relay.url()).await.unwrap();
    let error = client.tree().write(["a"]).without_lease(Duration::from_millis(999)).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BadInput));
    let lock = client.tree().write(["a"]).without_lease(LEASE).await.unwrap();
    assert!(lock.remaining() <= LEASE);
    // Keep-alives keep the lock for longer than its delay.
    let answered = async || {
        soon(client.inspect("k")).await.unwrap();
        soon(client.tree().inspect(["b"])).await.unwrap();
    };
    clock.advance_with(2 * LEASE, answered).await;
    assert!(lock.remaining() > LEASE / 2, "{:?}", lock.remaining());
    drop(relay);
    clock.advance_until(LEASE / 100, async || !lock.is_held()).await;
    soon(lock.lost()).await;
}

/// Uses the real clock: the holder's deadline passes before the server grants the path to another client.
#[tokio::test]
async fn a_path_without_a_lease_is_lost_before_another_client_gets_it() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let (client, other) = (patient().connect(relay.url()).await.unwrap(), connect(&server, "").await);
    let lock = client.tree().write(["a"]).without_lease(Duration::from_secs(1)).await.unwrap();
    drop(relay);
    let next = soon(other.tree().write(["a"]).into_future()).await.unwrap();
    assert_eq!(next.fence(), 2);
    assert!(!lock.is_held());
}

#[tokio::test]
async fn a_frozen_tree_grants_nothing_until_it_is_thawed() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    assert!(client.operator(NamespaceKind::Tree).freeze("").await.unwrap().changed);
    assert!(matches!(other.tree().write(["a"]).try_().await, Err(Error::Frozen { .. })));
    let waiter = tokio::spawn(other.tree().write(["a"]).into_future());
    assert!(client.operator(NamespaceKind::Tree).thaw("").await.unwrap().changed);
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_pool_grants_up_to_its_capacity_and_then_queues() {
    let server = server!();
    let (client, other) = (connect(&server, "client").await, connect(&server, "other").await);
    let pool = client.semaphore("workers", 3);
    let (one, two) = (pool.acquire().await.unwrap(), pool.permits(2).await.unwrap());
    assert_eq!((one.fence(), two.fence()), (1, 2));
    let pool_of_other = other.semaphore("workers", 3);
    assert!(matches!(pool_of_other.acquire().try_().await, Err(Error::Busy(_))));
    let wait = Duration::from_millis(20);
    assert!(matches!(pool_of_other.acquire().wait(wait).await, Err(Error::Timeout(_))));
    let next = tokio::spawn(pool_of_other.permits(2).into_future());
    soon(async { while pool.describe().await.unwrap().waiter_count == 0 {} }).await;
    let status = pool.describe().await.unwrap();
    assert_eq!((status.capacity, status.held, status.holder_count), (3, 3, 2));
    assert_eq!((&status.waiters[0].owner[..], status.waiters[0].permits), (&b"other"[..], 2));
    let after = tokio::spawn(pool_of_other.permits(3).into_future());
    soon(async { while pool.describe().await.unwrap().waiter_count < 2 {} }).await;
    let status = pool.describe().await.unwrap();
    assert!(status.holders.iter().all(|holder| holder.ticket.is_none()));
    assert!(status.waiters[0].ticket.unwrap() < status.waiters[1].ticket.unwrap());
    after.abort();
    drop(one);
    drop(two);
    assert_eq!(soon(next).await.unwrap().unwrap().fence(), 3);
}

#[tokio::test]
async fn a_pool_keeps_its_first_capacity_until_another_is_set() {
    let server = server!();
    let client = connect(&server, "").await;
    let _permit = client.semaphore("p", 2).acquire().await.unwrap();
    let other = client.semaphore("p", 5);
    assert!(matches!(other.acquire().await, Err(Error::CapacityMismatch { capacity: 2 })));
    let _any = other.clone().any_capacity().acquire().try_().await.unwrap();
    assert!(matches!(client.semaphore("p", 2).acquire().try_().await, Err(Error::Busy(_))));
    assert_eq!(other.set_capacity(5).await.unwrap(), Some(2));
    assert_eq!(client.semaphore("new", 1).set_capacity(7).await.unwrap(), None);
    assert_eq!(client.semaphore("new", 1).remove_pool().await.unwrap(), Some(7));
    assert_eq!(client.semaphore("new", 1).remove_pool().await.unwrap(), None);
    let _three = other.permits(3).try_().await.unwrap();
    let status = other.describe().await.unwrap();
    assert_eq!((status.capacity, status.held, status.is_set), (5, 5, true));
    assert_eq!(client.semaphore("p", 5).permits(6).await.unwrap_err().code(), Some(ErrorCode::BadInput));
}

#[tokio::test]
async fn pools_of_the_namespace_are_listed_by_prefix() {
    let server = server!();
    let client = connect(&server, "").await;
    assert_eq!(client.pools("").await.unwrap(), []);
    let converters = client.semaphore("converters", 3).by_timestamp();
    converters.set_capacity(3).await.unwrap();
    for number in 0..1100 {
        client.semaphore(format!("many/{number}"), 1).set_capacity(1).await.unwrap();
    }
    let _permits = converters.permits(2).try_().await.unwrap();
    let waiter = tokio::spawn(converters.permits(2).into_future());
    soon(async { while converters.describe().await.unwrap().waiter_count == 0 {} }).await;
    let shown = PoolSummary {
        name: b"converters".to_vec(),
        capacity: 3,
        held: 2,
        fence: 1,
        by_timestamp: true,
        is_set: true,
        holder_count: 1,
        waiter_count: 1,
    };
    assert_eq!(client.pools("conv").await.unwrap(), [shown]);
    assert_eq!(client.pools("").await.unwrap().len(), 1101, "of several pages");
    assert_eq!(client.pools("nothing").await.unwrap(), []);
    let refused = client.pools("p".repeat(1025)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::BadInput));
    waiter.abort();
}

#[tokio::test]
async fn a_pool_ordered_by_timestamp_serves_the_earliest_first() {
    let server = server!();
    let client = connect(&server, "").await;
    let pool = client.semaphore("p", 1).by_timestamp();
    let permit = pool.acquire().await.unwrap();
    let now = std::time::SystemTime::now();
    let mut waiters = Vec::new();
    for (index, minutes) in [3, 1, 2].into_iter().enumerate() {
        let timestamp = now - Duration::from_secs(60 * minutes);
        waiters.push(tokio::spawn(pool.acquire().timestamp(timestamp).into_future()));
        soon(async { while pool.describe().await.unwrap().waiter_count as usize <= index {} }).await;
    }
    drop(permit);
    for (index, fence) in [(0, 2), (2, 3), (1, 4)] {
        let permit = soon(&mut waiters[index]).await.unwrap().unwrap();
        assert_eq!(permit.fence(), fence);
    }
}

#[tokio::test]
async fn a_force_released_permit_is_lost_with_the_reason() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let permit = client.semaphore("p", 1).acquire().session_lease().await.unwrap();
    let released = other.operator(NamespaceKind::Pool).force_release(permit.id(), "too slow").await.unwrap();
    assert_eq!((&released.key[..], released.fence), (&b"p"[..], 1));
    assert_eq!(soon(permit.lost()).await, LossReason::Revoked(RevokeReason::Forced));
    assert_eq!(permit.loss_message(), "too slow");
}
