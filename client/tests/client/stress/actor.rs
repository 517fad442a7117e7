//! A caller that acquires, abandons, repeats acquires under one request id, and holds locks.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use waymaker_client::{Client, Error, Lock, MultiLock, Result};

use super::beliefs::{Belief, Believer};
use super::random_of;
use crate::random::Random;

/// Few keys, so that they are nearly always contended.
const KEY_COUNT: u64 = 6;
const LEASE: Duration = Duration::from_secs(2);
/// Maximum wait of an acquire.
const WAIT: Duration = Duration::from_secs(1);
/// Maximum time until a guard notices that another client took up its hold, even if its connection was just cut.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// State that all actors of a process share.
pub(crate) struct Stage {
    pub(crate) clients: Vec<Client>,
    /// Number of the first client.
    pub(crate) client_first: u64,
    /// Name that differs in every process, so that no two processes share a request id.
    pub(crate) name: String,
    pub(crate) lock_count: AtomicU64,
    pub(crate) lock_count_wanted: u64,
    pub(crate) beliefs: Mutex<Vec<Belief>>,
}

/// One logical acquire: all attempts have its request id.
struct Wish {
    keys: Vec<String>,
    is_shared: bool,
    session_lease: bool,
    renew: bool,
    request_id: String,
}

type Attempt = Pin<Box<dyn Future<Output = Result<Vec<Lock>>> + Send>>;

impl Wish {
    fn new(random: &mut Random, request_id: String) -> Self {
        let mut keys = vec![format!("k{}", random.below(KEY_COUNT))];
        if random.once_in(8) {
            keys.push(format!("k{}", random.below(KEY_COUNT)));
        }
        Self {
            keys,
            is_shared: random.once_in(5),
            session_lease: random.once_in(4),
            renew: !random.once_in(4),
            request_id,
        }
    }

    fn attempt(&self, client: &Client) -> Attempt {
        macro_rules! asked {
            ($builder:expr) => {{
                let builder = $builder.request_id(&self.request_id).wait(WAIT).renew(self.renew);
                if self.session_lease { builder.session_lease() } else { builder.lease(LEASE) }
            }};
        }
        match (&self.keys[..], self.is_shared) {
            ([key], false) => {
                let asked = asked!(client.write(key));
                Box::pin(async { asked.await.map(|lock| vec![lock]) })
            }
            ([key], true) => {
                let asked = asked!(client.read(key));
                Box::pin(async { asked.await.map(|lock| vec![lock]) })
            }
            (keys, _) => {
                let asked = asked!(client.multi(keys));
                Box::pin(async { asked.await.map(MultiLock::into_locks) })
            }
        }
    }
}

impl Stage {
    pub(crate) fn is_over(&self) -> bool {
        self.lock_count.load(Ordering::Relaxed) >= self.lock_count_wanted
    }

    /// Acts until all locks were acquired.
    pub(crate) async fn act(&self, actor: u64) {
        let mut random = random_of(actor);
        for round in 0.. {
            if self.is_over() {
                return;
            }
            let wish = Wish::new(&mut random, format!("{} {actor} {round}", self.name));
            self.fulfil(&wish, &mut random).await;
        }
    }

    async fn fulfil(&self, wish: &Wish, random: &mut Random) {
        let mut believers = Vec::new();
        let mut client = random.below(self.clients.len() as u64) as usize;
        // Whether no acquire of this client is in flight.
        let mut may_hand_over = true;
        for _ in 0..1 + random.below(4) {
            may_hand_over = match random.below(8) {
                0..4 => {
                    let mut attempt = wish.attempt(&self.clients[client]);
                    let (polls, time_us) = (random.below(6), random.below(4) * random.below(700));
                    let given_up = give_up_after(&mut attempt, polls, Duration::from_micros(time_us)).await;
                    self.take(given_up, client, &mut believers)
                }
                4 => {
                    let (one, other) =
                        (wish.attempt(&self.clients[client]), wish.attempt(&self.clients[client]));
                    let (one, other) = tokio::join!(one, other);
                    self.take(Some(one), client, &mut believers);
                    self.take(Some(other), client, &mut believers)
                }
                // Releases of the client that had the holds may be in flight.
                5..7 if may_hand_over => {
                    client = (client + 1) % self.clients.len();
                    self.hand_over(wish, client, &mut believers).await
                }
                _ => {
                    let attempt = wish.attempt(&self.clients[client]).await;
                    self.take(Some(attempt), client, &mut believers)
                }
            };
            self.hold(&mut believers, random).await;
            if !believers.is_empty() && random.once_in(3) {
                let index = random.below(believers.len() as u64) as usize;
                self.let_go(believers.swap_remove(index), random).await;
            }
        }
        self.hold(&mut believers, random).await;
        while !believers.is_empty() {
            let index = random.below(believers.len() as u64) as usize;
            self.let_go(believers.swap_remove(index), random).await;
            self.hold(&mut believers, random).await;
        }
    }

    /// Keeps the granted locks, and returns whether there are any. Contention, a loss and a cut link are not
    /// failures.
    fn take(&self, granted: Option<Result<Vec<Lock>>>, client: usize, believers: &mut Vec<Believer>) -> bool {
        match granted {
            Some(Ok(locks)) => {
                self.lock_count.fetch_add(locks.len() as u64, Ordering::Relaxed);
                let number = self.client_first + client as u64;
                believers.extend(locks.into_iter().map(|lock| Believer::new(lock, number)));
                true
            }
            Some(Err(error @ (Error::Closed | Error::Protocol(_)))) => panic!("{error}"),
            Some(Err(_)) | None => false,
        }
    }

    /// Moves to another client, which takes up the holds, even if their guards were abandoned or dropped. After its
    /// acquire, the older guards do not count. They must be superseded.
    async fn hand_over(&self, wish: &Wish, client: usize, believers: &mut Vec<Believer>) -> bool {
        let older: Vec<_> = believers.drain(..).map(|believer| self.record(believer)).collect();
        let attempt = wish.attempt(&self.clients[client]).await;
        let is_granted = self.take(Some(attempt), client, believers);
        for old in older {
            if believers.iter().any(|new| new.lock.id() == old.id()) {
                let told = tokio::time::timeout(TOLD_WITHIN, old.lost()).await;
                assert!(told.is_ok(), "{old:?} was taken up by another client and still believes");
            }
        }
        is_granted
    }

    async fn hold(&self, believers: &mut [Believer], random: &mut Random) {
        for _ in 0..random.below(6) {
            for believer in &mut *believers {
                believer.ask();
            }
            match random.below(4) {
                0 => tokio::time::sleep(Duration::from_micros(random.below(1_500))).await,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    async fn let_go(&self, believer: Believer, random: &mut Random) {
        let lock = self.record(believer);
        match random.below(2) {
            0 => drop(lock),
            _ => drop(lock.release().await),
        }
    }

    fn record(&self, believer: Believer) -> Lock {
        let (lock, belief) = believer.finish();
        self.beliefs.lock().unwrap().extend(belief);
        lock
    }
}

/// Polls at least this often and for at least this time, then gives up if nothing was granted.
async fn give_up_after(attempt: &mut Attempt, polls: u64, time: Duration) -> Option<Result<Vec<Lock>>> {
    let (start, mut polled) = (Instant::now(), 0);
    while polled < polls || start.elapsed() < time {
        if let Poll::Ready(granted) = poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            return Some(granted);
        }
        polled += 1;
        tokio::task::yield_now().await;
    }
    None
}
