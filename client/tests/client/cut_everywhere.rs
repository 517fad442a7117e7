//! One small piece of work over a link that is cut once, at every byte of it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use waymaker_client::{Client, KeyStatus, Lock, Result};

use crate::against_server::connect;
use crate::fake::soon;
use crate::real::server;
use crate::relay::{Fault, Relay, Toward};

/// More bytes than the work takes.
const NEVER: u64 = 99_999;
/// Of a session, so long that nothing else is sent: all links carry the same bytes.
const LEASE: Duration = Duration::from_secs(60);
/// So many clients work at a time.
const CLIENT_COUNT: usize = 8;

/// Takes a key and gives it back, then takes two at once and gives them back, all on a session. Whatever is lost or late
/// on the way, each is granted once, under the fence and the id that the client was told, and nothing is left. Says how
/// many bytes passed in each direction.
pub(crate) async fn work(
    server_url: &str,
    other: &Client,
    session_lease: Duration,
    fault: Fault,
) -> [u64; 2] {
    let relay = Relay::with(server_url, fault).await;
    let connect = || Client::builder().session_lease(session_lease).connect(relay.url());
    // Before it is welcome a client has nothing to come back to, and may say so.
    let client = match soon(connect()).await {
        Ok(client) => client,
        Err(_) => soon(connect()).await.unwrap(),
    };
    static WORK_COUNT: AtomicU32 = AtomicU32::new(0);
    // Always of one length.
    let prefix = format!("{:05} ", WORK_COUNT.fetch_add(1, Ordering::Relaxed));
    let [one, two] = ["one", "two"].map(|name| format!("{prefix}{name}"));

    let lock = served(fault, client.write(&one).session_lease().into_future()).await;
    assert_eq!(lock.fence(), 1, "granted twice: {fault:?}");
    assert_held_once(&soon(other.inspect(&one)).await.unwrap(), &lock);
    served(fault, lock.release()).await;

    let both = served(fault, client.multi([&one, &two]).session_lease().into_future()).await;
    for (key, fence) in [(&one, 2), (&two, 1)] {
        let lock = both.get(key).unwrap();
        assert_eq!(lock.fence(), fence, "{key} was granted twice: {fault:?}");
        assert_held_once(&soon(other.inspect(key)).await.unwrap(), lock);
    }
    served(fault, both.release()).await;

    assert_eq!(soon(other.list(&prefix)).await.unwrap(), [], "held by nobody who knows of it: {fault:?}");
    for (key, fence) in [(&one, 2), (&two, 1)] {
        let status = soon(other.inspect(key)).await.unwrap();
        assert_eq!((status.fence, status.waiter_count), (fence, 0), "{key}: {fault:?}");
    }
    [Toward::Server, Toward::Client].map(|toward| relay.passed(toward))
}

/// What is asked over the link is answered as if it had not been cut.
async fn served<T>(fault: Fault, asked: impl Future<Output = Result<T>>) -> T {
    soon(asked).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"))
}

fn assert_held_once(status: &KeyStatus, lock: &Lock) {
    let holders: Vec<_> = status.holders.iter().map(|holder| (holder.id, holder.fence)).collect();
    assert_eq!(holders, [(lock.id(), lock.fence())]);
}

/// How many bytes the work takes in each direction.
pub(crate) async fn whole(server_url: &str, other: &Client) -> [u64; 2] {
    let whole = work(server_url, other, LEASE, Fault::Cut { toward: Toward::Server, after: NEVER }).await;
    assert!(whole.iter().all(|count| (100..2_000).contains(count)), "{whole:?}");
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_at_any_byte_grants_nothing_twice_and_leaves_nothing() {
    let server = server!();
    let other = connect(&server, "").await;
    let whole = whole(server.url(), &other).await;
    let places = Arc::new(Semaphore::new(CLIENT_COUNT));
    let mut clients = JoinSet::new();
    for (toward, count) in [Toward::Server, Toward::Client].into_iter().zip(whole) {
        for after in 0..=count {
            let (url, other, places) = (server.url().to_owned(), other.clone(), Arc::clone(&places));
            clients.spawn(async move {
                let _place = places.acquire().await.unwrap();
                let passed = work(&url, &other, LEASE, Fault::Cut { toward, after }).await;
                assert_eq!(passed[toward as usize], after, "it was cut");
            });
        }
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}
