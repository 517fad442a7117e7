//! Many callers that abandon acquires, repeat them under one request id and hold locks, over links with delays and
//! cuts. A table of the times at which each guard counted as held shows whether two guards ever contradicted each
//! other.
//!
//! `WAYMAKER_STRESS_LOCKS` is the number of locks, 3,000 by default. From 50,000 locks on, other processes take part.
//! `WAYMAKER_STRESS_SEED` is the seed of their choices, 0 by default.

mod actor;
mod beliefs;
mod processes;

use std::process;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use waymaker_client::Client;

use crate::connected::connect;
use crate::patience::{SOON, soon};
use crate::random::Random;
use crate::real::server;
use crate::relay::{Fault, Relay};
use actor::Stage;
use beliefs::{Belief, assert_consistent};

const LOCK_COUNT_DEFAULT: u64 = 3_000;
/// From this number of locks on, other processes take part.
const LOCK_COUNT_OF_PROCESSES: u64 = 50_000;
const CLIENT_COUNT: u64 = 3;
const ACTOR_COUNT: u64 = 24;
const DELAY_MAX: Duration = Duration::from_millis(2);
const CUT_PAUSE_MAX_MS: u64 = 400;
/// All clients have the same owner, so that one finds what another acquired under a request id.
const OWNER: &str = "stress";

/// Returns the random numbers of one caller, or of the links of a process.
fn random_of(number: u64) -> Random {
    let seed = std::env::var("WAYMAKER_STRESS_SEED");
    let seed: u64 = seed.map_or(0, |seed| seed.parse().expect("a number"));
    Random::new(seed << 32 | number)
}

/// Acquires this number of locks over links with faults, and returns the beliefs of the guards.
async fn believe(server_url: &str, process: u64, lock_count: u64) -> Vec<Belief> {
    let (mut clients, mut relays) = (Vec::new(), Vec::new());
    for _ in 0..CLIENT_COUNT {
        let relay = Relay::with(server_url, Fault::Jitter { delay_max: DELAY_MAX }).await;
        let builder = Client::builder().owner(OWNER).connect_timeout(SOON);
        clients.push(soon(builder.connect(relay.url())).await.unwrap());
        relays.push(relay);
    }
    let stage = Arc::new(Stage {
        clients,
        client_first: process * CLIENT_COUNT,
        name: format!("process {process}"),
        lock_count: AtomicU64::new(0),
        lock_count_wanted: lock_count,
        beliefs: Mutex::default(),
    });
    let mut actors = JoinSet::new();
    for actor in 0..ACTOR_COUNT {
        let stage = Arc::clone(&stage);
        actors.spawn(async move { stage.act(process * ACTOR_COUNT + actor).await });
    }
    let mut random = random_of(process);
    let cutting = async {
        loop {
            tokio::time::sleep(Duration::from_millis(random.below(CUT_PAUSE_MAX_MS))).await;
            relays[random.below(CLIENT_COUNT) as usize].cut();
        }
    };
    let acting = async {
        while let Some(done) = actors.join_next().await {
            done.unwrap();
        }
    };
    tokio::select! {
        () = acting => {}
        () = cutting => unreachable!("it cuts to the end"),
    }
    for client in &stage.clients {
        soon(client.clone().close()).await.unwrap();
    }
    std::mem::take(&mut *stage.beliefs.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_guards_hold_one_lock_under_cancels_repeats_delays_and_cuts() {
    let lock_count = std::env::var("WAYMAKER_STRESS_LOCKS");
    let lock_count = lock_count.map_or(LOCK_COUNT_DEFAULT, |count| count.parse().expect("a number of locks"));
    let server = server!();
    let other = connect(&server, "other").await;
    let children = match lock_count {
        LOCK_COUNT_OF_PROCESSES.. => processes::start(server.url(), lock_count),
        _ => Vec::new(),
    };
    let share = lock_count / (children.len() as u64 + 1);
    let mut beliefs = believe(server.url(), 0, share).await;
    for child in children {
        beliefs.extend(child.finish());
    }
    println!("process {}: {} guards", process::id(), beliefs.len());
    assert_consistent(beliefs);
    soon(async {
        let is_left = |status: &waymaker_client::NamespaceStatus| status.held + status.waiting > 0;
        while other.namespaces().await.unwrap().iter().any(is_left) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
