//! Fence tokens and the events that they survive.

use super::*;
use waymaker_client::FenceScope;

#[tokio::test]
async fn each_grant_of_a_key_has_the_next_token() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    for token in 1..=5 {
        let held = match token % 2 {
            0 => client.acquire(patient("k")).await.unwrap(),
            _ => client.acquire_read(patient("k")).await.unwrap(),
        };
        assert_eq!(held.fence_token(), token);
        held.unlock().await.unwrap();
    }
    assert_eq!(client.acquire(patient("other")).await.unwrap().fence_token(), 1);
}

#[tokio::test]
async fn only_local_tokens_survive_a_server_crash() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()), GRPC);
    let before = client(&server).await;
    let request = || patient("local").fence_scope(FenceScope::Local);
    before.acquire(request()).await.unwrap().unlock().await.unwrap();
    let mut held = before.lock(request());
    let hold = acquired(&mut held).await;
    before.acquire(patient("ephemeral")).await.unwrap().unlock().await.unwrap();
    drop(server);
    let server = server!(Some(directory.path()), GRPC);
    let after = client(&server).await;
    assert!(!is_free(&after, "local").await, "a local lock outlives the crash itself");
    after.unlock("local", &hold.id).await.unwrap();
    assert_eq!(after.acquire(request()).await.unwrap().fence_token(), hold.fence_token + 1);
    assert_eq!(after.acquire(patient("ephemeral")).await.unwrap().fence_token(), 1);
}

#[tokio::test]
async fn an_unavailable_scope_is_bad_input() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let error = failed(&mut client.lock(patient("k").fence_scope(FenceScope::Quorum))).await;
    assert!(matches!(error, Error::BadInput(_)), "{error}");
}
