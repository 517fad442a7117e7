//! A server that is killed and restarted while its clients continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use waymaker_client::{Error, FenceScope};

use crate::connected::connect;
use crate::patience::{HOUR, SOON, eventually, patient, soon};
use crate::real::server;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const CLIENT_COUNT: usize = 4;
const KILL_COUNT: usize = 6;
/// Minimum number of grants of each key between two kills.
const GRANT_COUNT: usize = 3;

/// What the test knows of a key, beside the server.
#[derive(Default)]
struct Known {
    is_held: AtomicBool,
    /// Fences in the order of the grants.
    fences: Mutex<Vec<u64>>,
}

impl Known {
    fn grant_count(&self) -> usize {
        self.fences.lock().unwrap().len()
    }
}

/// Waits until each key was granted [`GRANT_COUNT`] times more.
async fn granted_again(known: &[Known]) {
    let before: Vec<_> = known.iter().map(Known::grant_count).collect();
    let is_more = |(known, before): (&Known, &usize)| known.grant_count() >= before + GRANT_COUNT;
    eventually(async || known.iter().zip(&before).all(is_more)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_server_kills_duplicate_no_grant_and_keep_no_released_lock() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let mut server = server!(Some(&data_dir));
    let known: Arc<[Known; KEYS.len()]> = Arc::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENT_COUNT {
        // The Unix socket keeps its path after a restart.
        let client = soon(patient().connect(&server.unix_url())).await.unwrap();
        for (index, key) in KEYS.into_iter().enumerate() {
            let (client, known, is_over) = (client.clone(), Arc::clone(&known), Arc::clone(&is_over));
            tasks.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let acquire = client.write(key).scope(FenceScope::Local);
                    let acquire = if number % 2 == 0 { acquire.lease(HOUR) } else { acquire.session_lease() };
                    let lock = match acquire.wait(SOON).await {
                        // None of these is a grant, even if only the response was lost.
                        Err(Error::Timeout(_) | Error::Uncertain(_) | Error::Unavailable(_)) => {
                            continue;
                        }
                        granted => granted.unwrap(),
                    };
                    let known = &known[index];
                    assert!(!known.is_held.swap(true, Ordering::SeqCst), "{key} has two holders");
                    known.fences.lock().unwrap().push(lock.fence());
                    tokio::task::yield_now().await;
                    assert!(lock.is_held());
                    known.is_held.store(false, Ordering::SeqCst);
                    match lock.release().await {
                        // The server released the lock, and was killed before it had sent the response.
                        Err(Error::Uncertain(_)) => {}
                        released => released.unwrap(),
                    }
                }
            });
        }
        clients.push(client);
    }
    for _ in 0..KILL_COUNT {
        granted_again(&*known).await;
        let data_dir = data_dir.clone();
        server = tokio::task::spawn_blocking(move || server.restart(&data_dir)).await.unwrap();
    }
    granted_again(&*known).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    // The clients stay open, so no end of a session removes their holds.
    let other = connect(&server, "").await;
    for (key, known) in KEYS.into_iter().zip(&*known) {
        let lock = soon(async { other.write(key).scope(FenceScope::Local).await.unwrap() }).await;
        let fences = known.fences.lock().unwrap();
        assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{key}: {fences:?}");
        assert!(fences.last().is_some_and(|last| *last < lock.fence()));
    }
    soon(async { while !other.list("").await.unwrap().is_empty() {} }).await;
    for client in clients {
        assert_eq!(soon(client.session().holds()).await.unwrap(), []);
    }
}
