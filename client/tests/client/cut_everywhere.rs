//! One small piece of work over a link that is cut once, at every byte of it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use waymaker_client::{Client, KeyStatus, Lock, Result};

use crate::against_server::connect;
use crate::fake::soon;
use crate::real::server;
use crate::relay::{Relay, Toward};

/// More bytes than the work takes.
const NEVER: u64 = 99_999;
/// So many clients work at a time.
const CLIENT_COUNT: usize = 8;

/// Takes a key and gives it back, then takes two at once and gives them back, all on a session. Whatever is lost on the
/// way, each is granted once, under the fence and the id that the client was told, and nothing is left. Says how many
/// bytes that took in each direction.
async fn work(server_url: &str, other: &Client, toward: Toward, after: u64) -> [u64; 2] {
    let relay = Relay::cutting_once(server_url, toward, after).await;
    // With a long lease nothing else is sent: all links carry the same bytes.
    let connect = || Client::builder().session_lease(Duration::from_secs(60)).connect(relay.url());
    // Before it is welcome a client has nothing to come back to, and may say so.
    let client = match soon(connect()).await {
        Ok(client) => client,
        Err(_) => soon(connect()).await.unwrap(),
    };
    let prefix = format!("{toward:?} {after:05} ");
    let [one, two] = ["one", "two"].map(|name| format!("{prefix}{name}"));

    let lock = served(&prefix, client.write(&one).session_lease().into_future()).await;
    assert_eq!(lock.fence(), 1, "{prefix}was granted twice");
    assert_held_once(&soon(other.inspect(&one)).await.unwrap(), &lock);
    served(&prefix, lock.release()).await;

    let both = served(&prefix, client.multi([&one, &two]).session_lease().into_future()).await;
    for (key, fence) in [(&one, 2), (&two, 1)] {
        let lock = both.get(key).unwrap();
        assert_eq!(lock.fence(), fence, "{key} was granted twice");
        assert_held_once(&soon(other.inspect(key)).await.unwrap(), lock);
    }
    served(&prefix, both.release()).await;

    assert_eq!(soon(other.list(&prefix)).await.unwrap(), [], "held by nobody who knows of it");
    for (key, fence) in [(&one, 2), (&two, 1)] {
        let status = soon(other.inspect(key)).await.unwrap();
        assert_eq!((status.fence, status.waiter_count), (fence, 0), "{key}");
    }
    let was_cut = relay.passed(toward) == after;
    assert!(was_cut || after == NEVER, "{prefix}was not cut");
    [Toward::Server, Toward::Client].map(|toward| relay.passed(toward))
}

/// What is asked over the link is answered as if it had not been cut.
async fn served<T>(prefix: &str, asked: impl Future<Output = Result<T>>) -> T {
    soon(asked).await.unwrap_or_else(|error| panic!("{prefix}{error}"))
}

fn assert_held_once(status: &KeyStatus, lock: &Lock) {
    let holders: Vec<_> = status.holders.iter().map(|holder| (holder.id, holder.fence)).collect();
    assert_eq!(holders, [(lock.id(), lock.fence())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_at_any_byte_grants_nothing_twice_and_leaves_nothing() {
    let server = server!();
    let other = connect(&server, "").await;
    let whole = work(server.url(), &other, Toward::Server, NEVER).await;
    assert!(whole.iter().all(|count| (100..2_000).contains(count)), "{whole:?}");
    let places = Arc::new(Semaphore::new(CLIENT_COUNT));
    let mut clients = JoinSet::new();
    for (toward, count) in [Toward::Server, Toward::Client].into_iter().zip(whole) {
        for after in 0..=count {
            let (url, other, places) = (server.url().to_owned(), other.clone(), Arc::clone(&places));
            clients.spawn(async move {
                let _place = places.acquire().await.unwrap();
                work(&url, &other, toward, after).await;
            });
        }
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}
