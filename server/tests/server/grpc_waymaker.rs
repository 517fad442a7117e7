//! What the published gRPC contract promises beside what foreign clients test of it.

use crate::harness::{Server, WATCHDOG};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::Channel;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{FenceScope, LockEventType, LockRequest, UnLockRequest};

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
async fn streams_given_up_while_many_requests_wait_for_the_log_hold_up_nobody() {
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
