//! Locks that survive a restart of their server.

use waymaker_client::{Error, ErrorCode, FenceScope};

use crate::connected::connect;
use crate::patience::{HOUR, patient, soon};
use crate::real::server;

#[tokio::test]
async fn local_scope_locks_and_fences_survive_a_server_kill() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let mut server = server!(Some(&data_dir));
    let client = connect(&server, "alice").await;
    let local = |key| client.write(key).scope(FenceScope::Local).lease(HOUR);
    local("freed").await.unwrap().release().await.unwrap();
    let _held = local("held").await.unwrap();
    server.kill();
    drop(server);
    let server = server!(Some(&data_dir));
    let client = connect(&server, "bob").await;
    let error = client.write("held").try_().await.unwrap_err();
    assert_eq!(error.contention().unwrap().owner, b"alice");
    // Once the counter of a key is in the log, it stays there, regardless of the requested scope.
    assert_eq!(client.write("freed").await.unwrap().fence(), 2);
}

#[tokio::test]
async fn a_client_survives_a_server_kill_with_only_a_delay() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = server!(Some(&data_dir));
    let client = patient().owner("alice").connect(&server.unix_url()).await.unwrap();
    let own_lease = client.write("own").scope(FenceScope::Local).lease(HOUR).await.unwrap();
    let of_session = client.write("session").scope(FenceScope::Local).session_lease().await.unwrap();
    let server = tokio::task::spawn_blocking(move || server.restart(&data_dir)).await.unwrap();
    // The caller waits until the client has reconnected.
    let next = soon(async { client.write("next").scope(FenceScope::Local).await.unwrap() }).await;
    assert_eq!(next.fence(), 1);
    assert!(own_lease.is_held() && of_session.is_held());
    let other = connect(&server, "bob").await;
    let error = other.write("session").try_().await.unwrap_err();
    assert_eq!(error.contention().unwrap().owner, b"alice");
    of_session.release().await.unwrap();
    own_lease.release().await.unwrap();
    assert_eq!(other.write("own").try_().await.unwrap().fence(), 2);
}

#[tokio::test]
async fn a_server_without_a_log_refuses_local_and_quorum_scope() {
    let server = server!();
    let client = connect(&server, "alice").await;
    for scope in [FenceScope::Local, FenceScope::Quorum] {
        let error = soon(async { client.write("k").scope(scope).await.unwrap_err() }).await;
        let is_named = matches!(error, Error::Refused { code: ErrorCode::ScopeUnavailable, .. });
        assert!(is_named, "{error:?}");
    }
}
