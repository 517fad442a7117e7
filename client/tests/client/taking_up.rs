//! Acquires with the request id of a held lock: the newer guard owns the hold, and the older guard is superseded.

use std::future::IntoFuture;

use waymaker_client::{Client, Error, LossReason};

use crate::connected::connect;
use crate::patience::{HOUR, soon};
use crate::real::server;

/// Acquires a hold of every kind twice under one request id, first with one client and then with the other. Only the
/// second guard then owns the hold.
async fn take_up(first: &Client, second: &Client, name: &str) {
    macro_rules! twice {
        ($client:ident => $builder:expr) => {{
            let ask = |$client: &Client| $builder.request_id("r").lease(HOUR).into_future();
            let older = soon(ask(first)).await.unwrap();
            let newer = soon(ask(second)).await.unwrap();
            assert_eq!(soon(older.lost()).await, LossReason::Superseded);
            assert!(!older.is_held());
            let released = soon(older.release()).await;
            assert!(matches!(released, Err(Error::Lost(LossReason::Superseded))), "{released:?}");
            // The server serves this query after all requests of the older guard.
            drop(first.inspect(name).await.unwrap());
            assert!(newer.is_held());
            soon(newer.release()).await.unwrap();
        }};
    }
    twice!(client => client.write(name));
    twice!(client => client.read(name));
    twice!(client => client.multi([name, "beside"]));
    twice!(client => client.semaphore(name, 1).acquire());
    twice!(client => client.tree().write([name]));
}

#[tokio::test]
async fn the_newer_of_two_guards_in_one_client_has_the_hold() {
    let server = server!();
    let client = connect(&server, "job").await;
    take_up(&client, &client.clone(), "k").await;
}

#[tokio::test]
async fn a_guard_is_superseded_when_another_client_takes_over_its_hold() {
    let server = server!();
    let (first, second) = (connect(&server, "job").await, connect(&server, "job").await);
    take_up(&first, &second, "k").await;
}

/// Later requests of the older guard must not affect the hold of the newer guard.
#[tokio::test]
async fn dropping_a_superseded_guard_releases_nothing() {
    let server = server!();
    let (client, other) = (connect(&server, "job").await, connect(&server, "other").await);
    let older = client.write("k").request_id("r").await.unwrap();
    let newer = client.write("k").request_id("r").await.unwrap();
    assert_eq!(older.id(), newer.id());
    drop(older);
    assert_eq!(client.inspect("k").await.unwrap().holder_count, 1);
    assert!(matches!(other.write("k").try_().await, Err(Error::Busy(_))));
    assert!(newer.is_held());
    drop(newer);
    assert_eq!(client.inspect("k").await.unwrap().holder_count, 0);
}

/// A guard counts as held until its client reads that another client took up the hold. That client may release the
/// hold meanwhile. So a caller that moves to another client first waits for the responses to its older acquires. Then
/// it ignores its older guards.
#[test]
fn a_guard_counts_as_held_until_its_client_receives_the_takeover() {
    let server = server!();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stopped, running) = (runtime(), runtime());
    let older = stopped.block_on(async {
        let client = connect(&server, "job").await;
        soon(client.write("k").request_id("r").lease(HOUR).into_future()).await.unwrap()
    });
    let other = running.block_on(async {
        let (second, third) = (connect(&server, "job").await, connect(&server, "other").await);
        let newer = soon(second.write("k").request_id("r").into_future()).await.unwrap();
        assert_eq!(newer.id(), older.id());
        soon(newer.release()).await.unwrap();
        soon(third.write("k").into_future()).await.unwrap()
    });
    assert!(older.is_held(), "the runtime of its client does not run");
    assert!(older.fence() < other.fence(), "a fence tells the two apart");
    assert_eq!(stopped.block_on(soon(older.lost())), LossReason::Superseded);
    assert!(!older.is_held());
}

/// A try waits if its request id finds a waiting claim. A client that is not notified of the wait can send at most
/// 1,024 further requests.
#[tokio::test]
async fn a_try_that_takes_over_a_waiting_acquire_leaves_room_for_requests() {
    let server = server!();
    let (client, other) = (connect(&server, "job").await, connect(&server, "other").await);
    let held = other.write("k").lease(HOUR).await.unwrap();
    let waiting = soon(client.write("k").request_id("r").enqueue()).await.unwrap();
    let taking_over = soon(client.write("k").request_id("r").try_().enqueue()).await.unwrap();
    assert!(matches!(soon(waiting.granted()).await, Err(Error::Cancelled { .. })));
    for _ in 0..1_100 {
        soon(client.inspect("k")).await.unwrap();
    }
    soon(held.release()).await.unwrap();
    assert!(soon(taking_over.granted()).await.unwrap().is_held());
}
