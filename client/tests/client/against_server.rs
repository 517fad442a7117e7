//! Tests with a real server.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use waymaker_client::{Client, Clock, Enqueued, Error, ErrorCode, LockState, LossReason, RevokeReason};

use crate::connected::{connect, connect_by};
use crate::manual_clock::ManualClock;
use crate::patience::{HOUR, LEASE, patient, soon};
use crate::real::server;
use crate::relay::Relay;

/// Moves the clock of a client of keys. Its server answers each keep-alive and each renewal at once.
pub(crate) async fn pass(client: &Client, clock: &ManualClock, duration: Duration) {
    clock.advance_with(duration, async || drop(soon(client.inspect("k")).await.unwrap())).await;
}

/// Waits until the key has this many waiters.
pub(crate) async fn waiting(client: &Client, key: &str, count: u32) {
    soon(async {
        while client.inspect(key).await.unwrap().waiter_count != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_writer_excludes_others_and_a_try_names_the_holder() {
    let server = server!();
    let (alice, bob) = (connect(&server, "alice").await, connect(&server, "bob").await);
    let lock = alice.write("k").await.unwrap();
    assert_eq!(lock.fence(), 1);
    let error = bob.write("k").try_().await.unwrap_err();
    let contention = error.contention().unwrap();
    assert!(contention.held && !contention.shared);
    assert_eq!(contention.owner, b"alice");
    assert!(matches!(error, Error::Busy(_)));
    assert!(matches!(bob.read("k").wait(Duration::from_millis(20)).await, Err(Error::Timeout(_))));
    lock.release().await.unwrap();
    assert_eq!(bob.write("k").try_().await.unwrap().fence(), 2);
}

#[tokio::test]
async fn readers_share_and_a_writer_waits_for_all_of_them() {
    let server = server!();
    let client = connect(&server, "").await;
    let readers = [client.read("k").await.unwrap(), client.read("k").await.unwrap()];
    let writer = tokio::spawn(client.write("k").into_future());
    waiting(&client, "k", 1).await;
    for reader in readers {
        assert!(reader.is_shared());
        assert!(!writer.is_finished());
        reader.release().await.unwrap();
    }
    assert_eq!(soon(writer).await.unwrap().unwrap().fence(), 3);
}

#[tokio::test]
async fn enqueue_reports_the_queue_position_of_a_waiter() {
    let server = server!();
    let client = connect(&server, "").await;
    let Enqueued::Granted(lock) = soon(client.write("k").enqueue()).await.unwrap() else {
        panic!("it is free")
    };
    let mut queued = Vec::new();
    for position in 0..2 {
        let Enqueued::Queued(waiter) = soon(client.write("k").enqueue()).await.unwrap() else {
            panic!("it is held")
        };
        assert_eq!(waiter.place().position, position);
        queued.push(waiter);
    }
    assert!(matches!(soon(client.write("k").try_().enqueue()).await, Err(Error::Busy(_))));
    let last = queued.pop().unwrap();
    // Dropped waiters give up their queue positions.
    drop(queued);
    waiting(&client, "k", 1).await;
    soon(lock.release()).await.unwrap();
    let id = last.place().id;
    let lock = soon(last).await.unwrap();
    assert_eq!((lock.id(), lock.fence()), (id, 2));
}

#[tokio::test]
async fn waiters_are_served_in_the_order_of_their_arrival() {
    let server = server!();
    let client = connect(&server, "").await;
    let mut lock = client.write("k").await.unwrap();
    let mut waiters = Vec::new();
    for count in 1..=10 {
        waiters.push(tokio::spawn(client.write("k").into_future()));
        waiting(&client, "k", count).await;
    }
    for (index, waiter) in waiters.into_iter().enumerate() {
        lock.release().await.unwrap();
        lock = soon(waiter).await.unwrap().unwrap();
        assert_eq!(lock.fence(), index as u64 + 2);
    }
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_queue_and_blocks_nobody() {
    let server = server!();
    let client = connect(&server, "").await;
    let lock = client.write("k").await.unwrap();
    let gone = tokio::spawn(client.write("k").into_future());
    waiting(&client, "k", 1).await;
    let next = tokio::spawn(client.write("k").into_future());
    waiting(&client, "k", 2).await;
    gone.abort();
    waiting(&client, "k", 1).await;
    lock.release().await.unwrap();
    assert_eq!(soon(next).await.unwrap().unwrap().fence(), 2);
}

/// The grant and the cancel cross again and again, and no hold remains without an owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_futures_dropped_at_any_moment_leave_nothing_behind() {
    let server = server!();
    let client = connect(&server, "").await;
    for round in 0..300 {
        let lock = client.write("k").await.unwrap();
        let waiter = tokio::spawn(client.write("k").into_future());
        let spinning = round % 30;
        drop(lock);
        for _ in 0..spinning {
            tokio::task::yield_now().await;
        }
        waiter.abort();
        let _ = waiter.await;
    }
    let lock = soon(client.write("k").into_future()).await.unwrap();
    let status = client.inspect("k").await.unwrap();
    assert_eq!((status.holder_count, status.waiter_count), (1, 0));
    lock.release().await.unwrap();
}

#[tokio::test]
async fn dropping_a_guard_frees_the_key() {
    let server = server!();
    let client = connect(&server, "").await;
    for _ in 0..100 {
        assert!(soon(client.write("k").into_future()).await.unwrap().is_held());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_under_the_lock_are_never_lost() {
    let server = server!();
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = connect(&server, "").await;
        for _ in 0..8 {
            let (client, counter) = (client.clone(), Arc::clone(&counter));
            tasks.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let lock = client.write("counter").await.unwrap();
                    let read = counter.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    counter.store(read + 1, Ordering::Relaxed);
                    lock.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(counter.load(Ordering::Relaxed), 800);
}

/// More acquires than a connection may have in flight. The release must pass while they wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_acquires_may_wait_on_one_connection() {
    let server = server!();
    let client = connect(&server, "").await;
    let lock = client.write("k").await.unwrap();
    let wait = async |client: Client| client.write("k").await.unwrap().release().await.unwrap();
    let waiters: Vec<_> = (0..3_000).map(|_| tokio::spawn(wait(client.clone()))).collect();
    waiting(&client, "k", 3_000).await;
    lock.release().await.unwrap();
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
    assert_eq!(client.inspect("k").await.unwrap().fence, 3_001);
}

#[tokio::test]
async fn list_returns_all_pages() {
    let server = server!();
    let client = connect(&server, "me").await;
    let mut locks = Vec::new();
    for number in 0..2_500 {
        locks.push(client.write(format!("page/{number:04}")).session_lease().metadata("note").await.unwrap());
    }
    locks.push(client.write("other").await.unwrap());
    let mut listed = client.list("page/").await.unwrap();
    listed.sort_by(|left, right| left.key.cmp(&right.key));
    assert_eq!(listed.len(), 2_500);
    for (held, lock) in listed.iter().zip(&locks) {
        assert_eq!((&held.key[..], held.id, held.fence), (lock.key(), lock.id(), lock.fence()));
        assert_eq!((&held.owner[..], &held.metadata[..]), (&b"me"[..], &b"note"[..]));
    }
    assert_eq!(client.list("").await.unwrap().len(), 2_501);
}

#[tokio::test]
async fn keep_alives_keep_a_session_lock_beyond_its_lease() {
    let (server, clock) = (server!(), ManualClock::new());
    let builder = patient().session_lease(LEASE).clock(clock.shared());
    let client = soon(builder.connect(server.url())).await.unwrap();
    let other = connect(&server, "other").await;
    let lock = client.write("k").session_lease().await.unwrap();
    assert!(lock.remaining() <= LEASE);
    for _ in 0..12 {
        pass(&client, &clock, LEASE / 10).await;
        assert!(lock.remaining() > LEASE * 8 / 10, "{:?}", lock.remaining());
    }
    assert!(matches!(other.write("k").try_().await, Err(Error::Busy(_))));
    assert!(matches!(lock.extend(LEASE).await, Err(Error::Refused { code: ErrorCode::BadInput, .. })));
    assert!(lock.is_held());
    client.close().await.unwrap();
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    assert_eq!(soon(other.write("k").into_future()).await.unwrap().fence(), 2);
}

#[tokio::test]
async fn only_a_renewed_lock_is_held_beyond_its_lease() {
    let (server, clock) = (server!(), ManualClock::new());
    let (client, other) = (connect_by(&server, &clock).await, connect(&server, "").await);
    let renewed = client.write("renewed").lease(LEASE).await.unwrap();
    let not = client.write("not").lease(LEASE).renew(false).await.unwrap();
    for part in 1..=12 {
        pass(&client, &clock, LEASE / 10).await;
        assert!(renewed.remaining() > LEASE / 2, "{:?}", renewed.remaining());
        assert_eq!(not.is_held(), part < 10, "after {part} tenths of its lease");
    }
    assert_eq!(soon(not.lost()).await, LossReason::LocalDeadline);
    assert!(matches!(not.release().await, Err(Error::Lost(LossReason::LocalDeadline))));
    assert!(matches!(other.write("renewed").try_().await, Err(Error::Busy(_))));
}

/// Uses the real clock: the holder's deadline passes before the server grants the key to another client.
#[tokio::test]
async fn a_guard_is_lost_before_the_key_is_granted_to_another_client() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let lock = client.write("k").lease(Duration::from_millis(300)).renew(false).await.unwrap();
    let next = soon(other.write("k").into_future()).await.unwrap();
    assert_eq!(next.fence(), 2);
    assert!(!lock.is_held());
    let reason = soon(lock.lost()).await;
    assert!(matches!(reason, LossReason::LocalDeadline | LossReason::Expired), "{reason:?}");
}

/// Uses the real clock. A client that is not scheduled for most of a lease loses it, so longer leases follow.
#[tokio::test]
async fn a_lease_is_renewed_with_the_real_clock() {
    let server = server!();
    let client = connect(&server, "").await;
    for seconds in [1, 10, 90] {
        let lock = client.write("k").lease(Duration::from_secs(seconds)).await.unwrap();
        let mut left = lock.remaining();
        // Only a renewal lengthens the remaining time.
        while lock.is_held() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now_left = lock.remaining();
            if now_left > left {
                return;
            }
            left = now_left;
        }
    }
    panic!("no lease was renewed");
}

#[tokio::test]
async fn leases_can_be_changed_and_are_clamped_to_the_maximum() {
    let (server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let day = Duration::from_secs(86_400);
    let lock = client.write("k").lease(day * 2).await.unwrap();
    assert!(lock.is_clamped() && lock.remaining() <= day);
    assert_eq!(lock.lease_ms(), Some(day.as_millis() as u32));
    let given = lock.extend(HOUR).await.unwrap();
    assert_eq!(given, HOUR);
    assert_eq!(lock.lease_ms(), Some(HOUR.as_millis() as u32));
    let on_session = client.write("l").session_lease().await.unwrap();
    assert_eq!(on_session.lease_ms().map(u64::from), Some(client.session().lease().as_millis() as u64));
    on_session.release().await.unwrap();
    assert!(lock.remaining() <= given);
    assert_eq!(client.extend(lock.id(), 3 * HOUR).await.unwrap(), 3 * HOUR);
    assert!(lock.remaining() > 2 * HOUR);
    let error = client.write("k2").lease(Duration::from_millis(1)).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BadInput));
}

#[tokio::test]
async fn a_lock_released_by_another_client_is_lost_at_once() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let lock = client.write("k").await.unwrap();
    let error = other.release(lock.id(), "another key").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotFound));
    assert!(!other.release(lock.id(), "k").await.unwrap(), "it was not waiting");
    let revoked = LossReason::Revoked(RevokeReason::ReleasedElsewhere);
    assert_eq!(soon(lock.lost()).await, revoked);
    assert!(matches!(lock.release().await, Err(Error::Lost(reason)) if reason == revoked));
}

#[tokio::test]
async fn a_forgotten_lock_stays_until_it_is_released_by_its_id() {
    let server = server!();
    let client = connect(&server, "").await;
    let id = client.write("k").await.unwrap().forget();
    client.close().await.unwrap();
    let client = connect(&server, "").await;
    let status = client.status(id).await.unwrap();
    assert_eq!((status.state, &status.key[..]), (LockState::Held, &b"k"[..]));
    client.release(id, "k").await.unwrap();
    assert_eq!(client.status(id).await.unwrap_err().code(), Some(ErrorCode::NotFound));
}

#[tokio::test]
async fn the_same_request_id_finds_the_same_claim() {
    let server = server!();
    let (first, second) = (connect(&server, "me").await, connect(&server, "me").await);
    let lock = first.write("k").request_id("job 7").await.unwrap();
    let again = second.write("k").request_id("job 7").try_().await.unwrap();
    assert_eq!((again.id(), again.fence()), (lock.id(), lock.fence()));
}

#[tokio::test]
async fn namespaces_are_independent() {
    let server = server!();
    let connect = |namespace: &str| patient().namespace(namespace).connect(server.url());
    let (blue, red) = (connect("blue").await.unwrap(), connect("red").await.unwrap());
    let _lock = blue.write("k").await.unwrap();
    assert_eq!(red.write("k").try_().await.unwrap().fence(), 1);
    assert_eq!(red.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_client_connects_over_a_unix_socket() {
    let server = server!();
    let client = patient().connect(&server.unix_url()).await.unwrap();
    client.write("k").await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn locks_and_waiters_survive_a_cut_connection() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let (client, other) = (patient().connect(relay.url()).await.unwrap(), connect(&server, "other").await);
    let own = client.write("own").await.unwrap();
    let on_session = client.write("session").session_lease().await.unwrap();
    let blocking = other.write("wanted").await.unwrap();
    let wanted = tokio::spawn(client.write("wanted").into_future());
    waiting(&other, "wanted", 1).await;
    for _ in 0..5 {
        relay.cut();
        // The response arrives on the new connection, so the client has reconnected.
        soon(client.inspect("own")).await.unwrap();
        waiting(&other, "wanted", 1).await;
        assert!(own.is_held() && on_session.is_held());
    }
    for key in ["own", "session"] {
        assert!(matches!(other.write(key).try_().await, Err(Error::Busy(_))));
    }
    blocking.release().await.unwrap();
    assert_eq!(soon(wanted).await.unwrap().unwrap().fence(), 2);
    own.release().await.unwrap();
    on_session.release().await.unwrap();
}

/// Each request that was in flight during a cut has one response and takes effect once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_connection_cuts_lose_and_duplicate_no_request() {
    const TASK_COUNT: u64 = 8;
    const ROUND_COUNT: u64 = 100;
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = patient().clock(ManualClock::new().shared()).connect(relay.url()).await.unwrap();
    let done = watch::Sender::new(0);
    let mut tasks = Vec::new();
    for task in 0..TASK_COUNT {
        let (client, done) = (client.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUND_COUNT {
                let lock = client.write(format!("k{task}")).lease(HOUR).await.unwrap();
                lock.release().await.unwrap();
                done.send_modify(|count| *count += 1);
            }
        }));
    }
    relay.cut_until(&done, TASK_COUNT * ROUND_COUNT).await;
    for task in tasks {
        soon(task).await.unwrap();
    }
    let other = connect(&server, "").await;
    assert_eq!(other.list("").await.unwrap(), []);
    for task in 0..TASK_COUNT {
        // Each grant counts once. An acquire that is repeated after its response was lost is the same grant.
        assert_eq!(other.inspect(format!("k{task}")).await.unwrap().fence, ROUND_COUNT);
    }
}

#[tokio::test]
async fn a_lock_of_a_killed_server_is_lost_at_the_local_deadline() {
    let (mut server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let lock = client.write("k").lease(LEASE).await.unwrap();
    let left = lock.remaining();
    let before = clock.now();
    server.kill();
    // The pauses between attempts to connect also move the clock.
    clock.advance_until(LEASE / 100, async || !lock.is_held()).await;
    assert_eq!(soon(lock.lost()).await, LossReason::LocalDeadline);
    assert!(clock.now().since(before) >= left);
}
