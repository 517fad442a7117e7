//! What the published gRPC contract promises beside what foreign clients test of it.

use crate::harness::{Server, WATCHDOG};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::Channel;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{
    FenceScope, LeaseStatusRequest, LockEvent, LockEventType, LockRequest, UnLockRequest,
};

async fn client(server: &Server) -> WaymakerServiceClient<Channel> {
    let url = format!("http://{}", server.address("grpc"));
    WaymakerServiceClient::connect(url).await.expect("the server accepts")
}

fn durable(key: String) -> LockRequest {
    LockRequest { key, fence_scope: FenceScope::ScopeLocal.into(), ..LockRequest::default() }
}

/// A cancellation that finds as many requests in flight as there may be is refused, and was sent again at once, and again,
/// for ever: nobody else of the worker was served any more.
#[tokio::test]
async fn cancelled_streams_do_not_block_others_while_requests_wait_for_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let server = Server::start(&["--grpc-listen", "127.0.0.1:0", "--workers", "1", "--data-dir", path]);
    let many = client(&server).await;
    let mut given_up = JoinSet::new();
    for number in 0..3_000 {
        let mut many = many.clone();
        given_up.spawn(async move {
            let asked = many.lock(durable(format!("key {number}")));
            let _ = timeout(Duration::from_millis(number % 7), asked).await;
        });
    }
    let mut other = client(&server).await;
    for _ in 0..20 {
        let lock = async {
            let mut events = other.lock(durable("other".to_owned())).await.unwrap().into_inner();
            let event = events.message().await.unwrap().unwrap();
            assert_eq!(event.event_type(), LockEventType::Acquired);
            let released = other.un_lock(UnLockRequest { key: event.key, id: event.id }).await.unwrap();
            assert!(released.into_inner().success);
        };
        timeout(WATCHDOG, lock).await.expect("the other client is served");
    }
    while given_up.join_next().await.is_some() {}
}

/// The stream that was granted the first key has ended, so the stream that waits for the second key has its request number.
#[tokio::test]
async fn a_repeated_request_ends_only_the_stream_that_had_its_hold() {
    let server = Server::start(&["--grpc-listen", "127.0.0.1:0"]);
    let mut holder = client(&server).await;
    let mut held = holder.lock(patient("second")).await.unwrap().into_inner();
    let second = next(&mut held).await;
    assert_eq!(second.event_type(), LockEventType::Acquired);

    let mut client = client(&server).await;
    let repeated = LockRequest { request_id: "attempt".to_owned(), ..patient("first") };
    let mut first = client.lock(repeated.clone()).await.unwrap().into_inner();
    let granted = next(&mut first).await;
    assert_eq!(granted.event_type(), LockEventType::Acquired);
    drop(first);
    for _ in 0..10 {
        // Requests behind the reset of the stream: the server has dropped the stream before the last of them.
        let status = LeaseStatusRequest { key: granted.key.clone(), id: granted.id.clone() };
        client.lease_status(status).await.unwrap();
    }

    let mut waiting = client.lock(patient("second")).await.unwrap().into_inner();
    assert_eq!(next(&mut waiting).await.event_type(), LockEventType::Waiting);
    let mut again = client.lock(repeated).await.unwrap().into_inner();
    assert_eq!(next(&mut again).await.event_type(), LockEventType::Acquired);
    holder.un_lock(UnLockRequest { key: second.key, id: second.id }).await.unwrap();
    assert_eq!(next(&mut waiting).await.event_type(), LockEventType::Acquired);
}

fn patient(key: &str) -> LockRequest {
    LockRequest { key: key.to_owned(), max_wait_period: 60_000, ..LockRequest::default() }
}

async fn next(events: &mut Streaming<LockEvent>) -> LockEvent {
    timeout(WATCHDOG, events.message()).await.expect("an event").unwrap().expect("the stream goes on")
}
