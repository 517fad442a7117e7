//! The guard of a lock.

use super::*;
use crate::connected::connect;
use futures_util::FutureExt as _;
use waymaker_dialects::waymaker::Loss;

#[tokio::test]
async fn a_dropped_guard_unlocks() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    assert!(held.is_held() && !is_free(&client, "k").await);
    drop(held);
    until_free(&client, "k").await;
}

#[tokio::test]
async fn a_guard_may_be_dropped_on_a_thread_without_a_runtime() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    std::thread::spawn(move || drop(held)).join().unwrap();
    until_free(&client, "k").await;
}

#[tokio::test]
async fn unlocking_a_guard_frees_the_key() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    client.acquire(patient("k")).await.unwrap().unlock().await.unwrap();
    assert!(is_free(&client, "k").await);
}

/// As with a deadline of the caller that passes before the answer comes.
#[tokio::test]
async fn a_dropped_unlock_call_still_unlocks() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    assert!(held.unlock().now_or_never().is_none(), "it waits for its answer");
    until_free(&client, "k").await;
}

#[tokio::test]
async fn a_lock_unlocked_by_its_id_is_lost() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    client.unlock("k", held.id()).await.unwrap();
    assert_eq!(soon(held.lost()).await, Loss::Unlocked);
    assert!(!held.is_held());
    assert!(matches!(held.extend(SOON).await, Err(Error::NotFound(_))));
    assert!(matches!(held.unlock().await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_guard_is_superseded_when_another_stream_takes_over_its_lock() {
    let server = server!(None, GRPC);
    let (client, other) = (client(&server).await, client(&server).await);
    let first = client.acquire(patient("k").request_id("r")).await.unwrap();
    let second = other.acquire(patient("k").request_id("r")).await.unwrap();
    assert_eq!(soon(first.lost()).await, Loss::Superseded);
    assert_eq!(second.id(), first.id());
}

/// The id of the lock is the same, so an unlock by the first guard would end it for the second.
#[tokio::test]
async fn a_superseded_guard_unlocks_nothing() {
    let server = server!(None, GRPC);
    let (client, other) = (client(&server).await, client(&server).await);
    for drops in [true, false] {
        let first = client.acquire(patient("k").request_id("r")).await.unwrap();
        let second = other.acquire(patient("k").request_id("r")).await.unwrap();
        assert_eq!(soon(first.lost()).await, Loss::Superseded);
        if drops {
            drop(first);
        } else {
            assert!(matches!(soon(first.unlock()).await, Err(Error::Superseded)));
        }
        // It would be sent behind the unlock, on the same connection.
        assert!(!is_free(&client, "k").await);
        soon(second.unlock()).await.unwrap();
    }
}

#[tokio::test]
async fn dropping_an_acquire_leaves_the_queue() {
    let server = server!(None, GRPC);
    let (client, beside) = (client(&server).await, connect(&server, "").await);
    let held = client.acquire(patient("k")).await.unwrap();
    tokio::select! {
        _ = client.acquire(patient("k")) => panic!("somebody else has it"),
        () = until_queued(&beside, 1) => {}
    }
    until_queued(&beside, 0).await;
    held.unlock().await.unwrap();
    until_free(&client, "k").await;
}

/// The grant has the id of the place, so an unlock of the place would end the lock that the next attempt finds.
#[tokio::test]
async fn an_acquire_dropped_at_its_grant_leaves_the_lock_to_the_next_attempt() {
    let server = server!(None, GRPC);
    let (client, other, beside) = (client(&server).await, client(&server).await, connect(&server, "").await);
    let holder = other.acquire(patient("k")).await.unwrap();
    let mut first = Box::pin(client.acquire(patient("k").request_id("r")));
    tokio::select! {
        _ = &mut first => panic!("somebody else has it"),
        () = until_queued(&beside, 1) => {}
    }
    holder.unlock().await.unwrap();
    until_queued(&beside, 0).await;
    drop(first);
    let held = client.acquire(patient("k").request_id("r")).await.unwrap();
    // It would be sent behind the unlock, on the same connection.
    assert!(!is_free(&client, "k").await);
    soon(held.unlock()).await.unwrap();
}

#[tokio::test]
async fn an_acquire_does_not_find_a_lock_that_is_being_unlocked() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    for _ in 0..20 {
        drop(client.acquire(patient("k").request_id("r")).await.unwrap());
        let held = client.acquire(patient("k").request_id("r")).await.unwrap();
        // It would be sent behind the unlock, on the same connection.
        assert!(!is_free(&client, "k").await);
        assert!(held.is_held());
        soon(held.unlock()).await.unwrap();
    }
}
