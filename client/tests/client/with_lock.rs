//! Work under a lock that ends with it.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;
use waymaker_client::{Client, Error, Lock, LossReason, MultiLock, Permit, TreeLock};

use crate::against_server::pass;
use crate::connected::{connect, connect_by};
use crate::manual_clock::ManualClock;
use crate::patience::{LEASE, SOON, soon};
use crate::real::server;
use crate::relay::Relay;

#[tokio::test]
async fn the_lock_is_held_during_the_work_and_released_afterwards() {
    let server = server!();
    let (client, other) = (connect(&server, "alice").await, connect(&server, "bob").await);
    let fence = client.with_lock("k", async |lock| {
        assert!(matches!(other.write("k").try_().await, Err(Error::Busy(_))));
        lock.fence()
    });
    assert_eq!(soon(fence).await.unwrap(), 1);
    assert_eq!(soon(other.write("k").try_().into_future()).await.unwrap().fence(), 2);
}

/// The work is dropped at the await at which it is when the lock is lost.
#[tokio::test]
async fn the_work_is_dropped_when_the_lock_is_lost() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let server = server!();
    let (client, operator) = (connect(&server, "").await, connect(&server, "").await);
    let dropped = Arc::new(AtomicBool::new(false));
    let (begun, begins) = oneshot::channel();
    let work = tokio::spawn({
        let flag = Flag(Arc::clone(&dropped));
        async move {
            let work = async move |lock: &Lock| {
                let _flag = flag;
                begun.send(lock.id()).unwrap();
                std::future::pending::<()>().await;
            };
            client.with_lock("k", work).await
        }
    });
    let id = soon(begins).await.unwrap();
    assert!(!dropped.load(Ordering::Relaxed));
    soon(operator.release(id, "k")).await.unwrap();
    assert!(matches!(soon(work).await.unwrap(), Err(Error::Lost(LossReason::Revoked(_)))));
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn the_lease_is_renewed_while_the_work_runs() {
    let (server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let held = client.write("k").lease(LEASE).run(async |lock| {
        pass(&client, &clock, 2 * LEASE).await;
        lock.is_held()
    });
    assert!(soon(held).await.unwrap());
}

#[tokio::test]
async fn dropping_the_work_releases_the_lock() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let (begun, begins) = oneshot::channel();
    let work = tokio::spawn(async move {
        client
            .with_lock("k", async |_| {
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            })
            .await
    });
    soon(begins).await.unwrap();
    work.abort();
    assert_eq!(soon(other.write("k").into_future()).await.unwrap().fence(), 2);
}

#[tokio::test]
async fn multi_key_path_and_permit_claims_can_run_work() {
    let server = server!();
    let client = connect(&server, "").await;
    let keys = client.multi(["a", "b"]).run(async |locks: &MultiLock| locks.locks().len());
    assert_eq!(soon(keys).await.unwrap(), 2);
    let path = client.tree().write(["a", "b"]).run(async |lock: &TreeLock| lock.fence());
    assert_eq!(soon(path).await.unwrap(), 1);
    let permit = client.semaphore("s", 1).acquire().run(async |permit: &Permit| permit.fence());
    assert_eq!(soon(permit).await.unwrap(), 1);
    assert_eq!(client.session().holds().await.unwrap(), []);
}

/// The task that reports losses could not run while the work blocked the only thread. Afterwards there is no server
/// to respond.
#[tokio::test]
async fn work_longer_than_its_lease_fails_even_without_a_loss_event() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = soon(Client::connect(relay.url())).await.unwrap();
    let lease = Duration::from_millis(500);
    let work = client.multi(["a", "b"]).lease(lease).run(async |_| {
        drop(relay);
        std::thread::sleep(lease);
    });
    let done = soon(work).await;
    assert!(matches!(done, Err(Error::Lost(LossReason::LocalDeadline))), "{done:?}");
}

/// The server still has the hold, and accepts the release.
#[tokio::test]
async fn work_past_its_local_deadline_fails_even_if_the_release_succeeds() {
    let (server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let done = client.write("k").lease(LEASE).run(async |_| clock.pass_blocked(LEASE)).into_future();
    let done = soon(done).await;
    assert!(matches!(done, Err(Error::Lost(LossReason::LocalDeadline))), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_fails_if_the_client_is_closed_meanwhile() {
    let server = server!();
    let client = connect(&server, "").await;
    let (closed, closes) = mpsc::channel();
    let done = client.with_lock("k", async |_| {
        let client = client.clone();
        tokio::spawn(async move { closed.send(client.close().await).unwrap() });
        // The work blocks its thread, which real work should not do. It never awaits, so the client cannot drop it.
        closes.recv_timeout(SOON).unwrap().unwrap();
    });
    let done = soon(done).await;
    assert!(matches!(done, Err(Error::Lost(LossReason::ClientClosed))), "{done:?}");
}

/// A guard may move to another task or thread, and so may the future of work under a guard.
#[test]
fn guards_are_send_and_sync() {
    fn owned<T: Send + Sync + 'static>() {}
    owned::<Lock>();
    owned::<MultiLock>();
    owned::<TreeLock>();
    owned::<Permit>();
}
