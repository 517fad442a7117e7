//! What one connection may have, and what it is told when the server stops.

use super::locks::{keys, waiting, with};
use super::{assert_bad_input, assert_refused, hold, next, queued, refusal, server, tried};
use tonic::Code;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::v1::{AcquireKeysRequest, AcquireOptions, ErrorCode, ReleaseRequest, WatchRequest};

#[tokio::test]
async fn a_connection_has_a_namespace_limit() {
    let (server, channel) = server().await;
    let mut locks = LockServiceClient::new(channel);
    let in_namespace = |number: u32| AcquireKeysRequest { namespace: number.to_string(), ..keys(&["key"]) };
    for number in 0..64 {
        tried(locks.try_acquire(in_namespace(number)).await.unwrap());
    }
    let (code, error, detail) = refusal(locks.try_acquire(in_namespace(64)).await);
    assert_eq!((code, error), (Code::ResourceExhausted, ErrorCode::Overloaded));
    assert_eq!((detail.field.as_str(), detail.value), ("namespaces per connection", 64));
    assert_refused(locks.try_acquire(in_namespace(7)).await, Code::FailedPrecondition, ErrorCode::Busy);
    let mut other = LockServiceClient::new(super::connect(&server).await);
    tried(other.try_acquire(in_namespace(64)).await.unwrap());
}

#[tokio::test]
async fn a_namespace_keeps_its_kind() {
    let (_server, channel) = server().await;
    let mut locks = LockServiceClient::new(channel.clone());
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let mut trees = TreeServiceClient::new(channel);
    let release = ReleaseRequest { namespace: "default".to_owned(), id: "0".repeat(32) };
    assert_bad_input(trees.release(release).await, "kind", 0);
}

#[tokio::test]
async fn streams_with_their_own_lane_are_limited_and_released() {
    let (_server, channel) = server().await;
    let mut locks = LockServiceClient::new(channel);
    let watch = WatchRequest { namespace: String::new(), key: "key".to_owned() };
    let mut streams = Vec::new();
    for _ in 0..1024 {
        streams.push(locks.watch(watch.clone()).await.unwrap().into_inner());
    }
    let options = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
    let request = with(keys(&["key"]), options);
    let (code, error, detail) = refusal(locks.acquire(request.clone()).await);
    assert_eq!((code, error, detail.value), (Code::ResourceExhausted, ErrorCode::Overloaded, 1024));
    drop(streams);
    loop {
        match locks.acquire(request.clone()).await {
            Ok(stream) => {
                hold(&mut stream.into_inner()).await;
                break;
            }
            refused => assert_refused(refused, Code::ResourceExhausted, ErrorCode::Overloaded),
        }
    }
}

#[tokio::test]
async fn a_waiter_is_answered_shutdown_when_the_server_stops() {
    let (server, channel) = server().await;
    let mut locks = LockServiceClient::new(channel);
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let mut stream = locks.acquire(waiting("key", 60_000)).await.unwrap().into_inner();
    queued(&mut stream).await;
    server.signal("TERM");
    assert_refused(next(&mut stream).await, Code::Unavailable, ErrorCode::Shutdown);
}
