//! Ten thousand acquires that are abandoned at random moments, and the time until the server knows.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use waymaker_client::Client;

use crate::against_server::waiting;
use crate::connected::connect;
use crate::patience::{patient, soon};
use crate::random::Random;
use crate::real::server;
use crate::relay::Relay;

const TASK_COUNT: u64 = 10;
const CANCELS_OF_TASK: u32 = 1_000;
/// Few keys, so that they are nearly always contended.
const KEYS: [&str; 3] = ["a", "b", "c"];
const CAPACITY: u64 = 3;

/// A guard of any kind.
type Guard = Box<dyn Send>;

/// Starts an acquire that may have to wait for another caller.
fn acquire(client: &Client, random: &mut Random) -> Pin<Box<dyn Future<Output = Guard> + Send>> {
    fn guard<G: Send + 'static>(
        future: impl Future<Output = waymaker_client::Result<G>> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Guard> + Send>> {
        Box::pin(async { Box::new(future.await.unwrap()) as Guard })
    }
    let key = |random: &mut Random| KEYS[random.below(KEYS.len() as u64) as usize];
    match random.below(7) {
        0 => guard(client.write(key(random)).into_future()),
        1 => guard(client.read(key(random)).session_lease().into_future()),
        2 => guard(client.write(format!("free {}", random.next())).into_future()),
        3 => guard(client.multi([key(random)]).read(format!("free {}", random.next())).into_future()),
        4 => guard(client.multi(KEYS).session_lease().into_future()),
        5 => guard(client.semaphore("p", CAPACITY).permits(1 + random.below(CAPACITY)).into_future()),
        _ => {
            let path = &KEYS[..1 + random.below(3) as usize];
            guard(client.tree().write(path).read(["beside", key(random)]).into_future())
        }
    }
}

/// Polls at least this often and for at least this time, then drops the future if it is not ready.
async fn cancel_after(
    mut future: Pin<Box<dyn Future<Output = Guard> + Send>>,
    polls: u64,
    time: Duration,
) -> Option<Guard> {
    let (start, mut polled) = (Instant::now(), 0);
    while polled < polls || start.elapsed() < time {
        if let Poll::Ready(guard) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(guard);
        }
        polled += 1;
        tokio::task::yield_now().await;
    }
    None
}

/// The client stays open, so no end of a session removes the claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn randomly_cancelled_acquires_leave_neither_holds_nor_waiters() {
    let server = server!();
    let client = connect(&server, "").await;
    let mut tasks = JoinSet::new();
    for task in 1..=TASK_COUNT {
        let client = client.clone();
        tasks.spawn(async move {
            let mut random = Random::new(task);
            let (mut cancelled, mut held) = (0, None);
            while cancelled < CANCELS_OF_TASK {
                let future = acquire(&client, &mut random);
                let (polls, time) = match random.below(2) {
                    0 => (random.below(5), Duration::ZERO),
                    _ => (1, Duration::from_micros(random.below(400))),
                };
                match cancel_after(future, polls, time).await {
                    // Replaces the previous guard, which is then released, or releases this guard.
                    Some(guard) if random.below(2) == 0 => held = Some(guard),
                    Some(guard) => drop(guard),
                    None => {
                        cancelled += 1;
                        if random.below(4) == 0 {
                            held = None;
                        }
                    }
                }
            }
            drop(held);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let other = connect(&server, "").await;
    soon(async {
        let is_left = |status: &waymaker_client::NamespaceStatus| status.held + status.waiting > 0;
        while other.namespaces().await.unwrap().iter().any(is_left) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.session().holds().await.unwrap(), []);
    assert_eq!(other.list("").await.unwrap(), []);
    assert_eq!(other.tree().list([""; 0]).await.unwrap(), []);
    let pool = other.semaphore("p", CAPACITY);
    let status = pool.describe().await.unwrap();
    assert_eq!((status.held, status.holder_count, status.waiter_count), (0, 0, 0));
    for key in KEYS {
        let status = other.inspect(key).await.unwrap();
        assert_eq!((status.holder_count, status.waiter_count), (0, 0), "{key}");
    }
    let _keys = other.multi(KEYS).try_().await.unwrap();
    let _permits = pool.permits(CAPACITY).try_().await.unwrap();
    let _tree = other.tree().write([""; 0]).try_().await.unwrap();
}

/// The cancel is the next frame of the client; it does not wait for a timer.
#[tokio::test]
async fn a_cancelled_waiter_leaves_the_queue_before_the_next_answer() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let _lock = other.write("k").await.unwrap();
    for _ in 0..51 {
        let waiter = tokio::spawn(client.write("k").into_future());
        waiting(&other, "k", 1).await;
        waiter.abort();
        soon(waiter).await.unwrap_err();
        assert_eq!(soon(client.inspect("k")).await.unwrap().waiter_count, 0);
    }
}

/// The lease of their session lasts an hour, so only the lost connection can remove them.
#[tokio::test]
async fn waiters_leave_their_queues_when_their_connection_is_lost() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let (client, other) = (soon(patient().connect(relay.url())).await.unwrap(), connect(&server, "").await);
    let _lock = other.write("k").await.unwrap();
    let _waiters: Vec<_> = (0..100).map(|_| tokio::spawn(client.write("k").into_future())).collect();
    waiting(&other, "k", 100).await;
    // The relay is gone, so the client cannot reconnect.
    drop(relay);
    waiting(&other, "k", 0).await;
}
