//! A connection for each worker of the server.

use std::future::IntoFuture;
use std::time::Duration;

use waymaker_client::Error;

use crate::connected::connect;
use crate::patience::{HOUR, patient, soon};
use crate::real::server;

#[tokio::test]
async fn each_worker_gets_its_own_session_and_serves() {
    let server = server!(None, &["--workers", "3"]);
    let client = soon(patient().connection_per_worker(true).connect(server.url())).await.unwrap();
    let sessions = client.sessions();
    assert_eq!(sessions.len(), 3);
    let mut locks = Vec::new();
    for number in 0..60 {
        locks.push(soon(client.write(format!("k{number}")).session_lease().into_future()).await.unwrap());
    }
    let mut held = Vec::new();
    for session in &sessions {
        held.push(soon(session.holds()).await.unwrap().len());
    }
    // The mapping of keys to workers is fixed, so the result is always the same.
    assert!(held.iter().all(|count| *count > 5), "{held:?}");
    assert_eq!(held.iter().sum::<usize>(), 60);
    let other = connect(&server, "").await;
    assert!(matches!(soon(other.write("k7").try_().into_future()).await, Err(Error::Busy(_))));
    soon(client.close()).await.unwrap();
    assert_eq!(soon(other.list("")).await.unwrap(), []);
}

/// A client that insisted on a removed worker would be refused for ever.
#[tokio::test]
async fn a_server_restarted_with_fewer_workers_stays_usable() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()), &["--workers", "7"]);
    let builder = patient().connection_per_worker(true);
    let client = soon(builder.connect(&server.unix_url())).await.unwrap();
    assert_eq!(client.sessions().len(), 7);
    let _fewer = server.restart(directory.path());
    for number in 0..20 {
        let lock = soon(client.write(format!("k{number}")).into_future()).await.unwrap();
        soon(lock.release()).await.unwrap();
    }
}

#[tokio::test]
async fn other_calls_work_as_with_one_connection() {
    let server = server!(None, &["--workers", "2"]);
    let client = soon(patient().connection_per_worker(true).connect(server.url())).await.unwrap();
    let lock = soon(client.write("a").into_future()).await.unwrap();
    assert_eq!(soon(client.inspect("a")).await.unwrap().fence, 1);
    assert_eq!(soon(client.list("")).await.unwrap().len(), 1);
    let id = lock.id();
    soon(client.extend(id, HOUR)).await.unwrap();
    soon(client.release(id, "a")).await.unwrap();
    assert!(soon(lock.release()).await.is_err());
    soon(client.multi(["a", "b", "c"]).into_future()).await.unwrap().release().await.unwrap();
    for name in ["s", "t", "u"] {
        assert_eq!(soon(client.semaphore(name, 1).into_future()).await.unwrap().fence(), 1);
        soon(client.limiter(name, 1, Duration::from_secs(1), 1).take(1)).await.unwrap();
    }
    soon(client.tree().write(["a"]).into_future()).await.unwrap().release().await.unwrap();
    soon(client.close()).await.unwrap();
}
