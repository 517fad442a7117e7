//! A small piece of work over a link that is cut once, at every possible byte.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use waymaker_client::{Client, KeyStatus, Lock, Result};

use crate::connected::connect;
use crate::manual_clock::ManualClock;
use crate::patience::{patient, soon};
use crate::real::server;
use crate::relay::{Fault, Relay, Toward};

/// A count above the bytes of the work, so that the link is never cut.
const NEVER: u64 = 99_999;
/// Number of clients that work at a time.
const CLIENT_COUNT: usize = 8;

/// Keys of one piece of work, and the clock of its client. The clock stands still, so the client sends no keep-alive
/// and all links carry the same bytes.
pub(crate) struct Work {
    pub(crate) clock: ManualClock,
    prefix: String,
}

impl Work {
    pub(crate) fn new() -> Self {
        static WORK_COUNT: AtomicU32 = AtomicU32::new(0);
        // The prefix has a fixed length, so that all links carry the same number of bytes.
        let prefix = format!("{:05} ", WORK_COUNT.fetch_add(1, Ordering::Relaxed));
        Self { clock: ManualClock::new(), prefix }
    }

    /// Acquires and releases one key, then two keys together, all on the lease of a session. The server must grant
    /// each key once, with the fence and the id that the client got, regardless of lost or late frames.
    pub(crate) async fn run(&self, relay: &Relay, other: &Client, fault: Fault) {
        let connect = || patient().clock(self.clock.shared()).connect(relay.url());
        // A client without a session cannot resume one; it may fail once.
        let client = match soon(connect()).await {
            Ok(client) => client,
            Err(_) => soon(connect()).await.unwrap(),
        };
        let [one, two] = self.keys();
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
        // Wait for the goodbye, so that it is always among the bytes that passed.
        soon(client.close()).await.unwrap();
    }

    /// Checks that no hold and no waiter is left, and that no grant was counted twice.
    pub(crate) async fn assert_over(&self, other: &Client, fault: Fault) {
        let left = soon(other.list(&self.prefix)).await.unwrap();
        assert_eq!(left, [], "held by nobody who knows of it: {fault:?}");
        for (key, fence) in self.keys().iter().zip([2, 1]) {
            let status = soon(other.inspect(key)).await.unwrap();
            assert_eq!((status.fence, status.waiter_count), (fence, 0), "{key}: {fault:?}");
        }
    }

    fn keys(&self) -> [String; 2] {
        ["one", "two"].map(|name| format!("{}{name}", self.prefix))
    }
}

/// Waits for a response, which must be a success.
async fn served<T>(fault: Fault, asked: impl Future<Output = Result<T>>) -> T {
    soon(asked).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"))
}

fn assert_held_once(status: &KeyStatus, lock: &Lock) {
    let holders: Vec<_> = status.holders.iter().map(|holder| (holder.id, holder.fence)).collect();
    assert_eq!(holders, [(lock.id(), lock.fence())]);
}

/// Does the work over a faulty link. Returns the bytes that passed in each direction.
async fn work(server_url: &str, other: &Client, fault: Fault) -> [u64; 2] {
    let (work, relay) = (Work::new(), Relay::with(server_url, fault).await);
    work.run(&relay, other, fault).await;
    work.assert_over(other, fault).await;
    [Toward::Server, Toward::Client].map(|toward| relay.passed(toward))
}

/// Returns the bytes that the work takes in each direction.
pub(crate) async fn whole(server_url: &str, other: &Client) -> [u64; 2] {
    let whole = work(server_url, other, Fault::Cut { toward: Toward::Server, after: NEVER }).await;
    assert!(whole.iter().all(|count| (100..2_000).contains(count)), "{whole:?}");
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_byte_duplicates_and_leaks_no_hold() {
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
                let passed = work(&url, &other, Fault::Cut { toward, after }).await;
                assert_eq!(passed[toward as usize], after, "it was cut");
            });
        }
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}
