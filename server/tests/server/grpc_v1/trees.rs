//! `TreeService`, call by call.

use super::{
    acquired, assert_bad_input, assert_ended, assert_refused, hold, lost, queued, refusal, server, tried,
};
use crate::harness::Server;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::status_response::Claim;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::v1::{
    AcquireOptions, AcquirePathsRequest, ErrorCode, ExtendRequest, LockPath, LostReason, Path,
    ReleaseRequest, StatusRequest, VerifyRequest,
};

async fn trees() -> (Server, TreeServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, TreeServiceClient::new(channel))
}

fn path(segments: &[&str]) -> Path {
    Path { segments: segments.iter().map(|segment| (*segment).to_owned()).collect() }
}

fn paths(paths: &[(&[&str], bool)]) -> AcquirePathsRequest {
    let lock =
        |(segments, shared): &(&[&str], bool)| LockPath { path: Some(path(segments)), shared: *shared };
    AcquirePathsRequest { paths: paths.iter().map(lock).collect(), ..AcquirePathsRequest::default() }
}

fn release(id: &str) -> ReleaseRequest {
    ReleaseRequest { namespace: String::new(), id: id.to_owned() }
}

#[tokio::test]
async fn a_path_set_is_one_hold_that_covers_everything_below() {
    let (_server, mut trees) = trees().await;
    let set = paths(&[(&["shop", "orders"], false), (&["shop", "prices"], true)]);
    let mut stream = trees.acquire(set).await.unwrap().into_inner();
    let held = hold(&mut stream).await;
    assert_eq!((held.path.clone(), held.key.as_str()), (Some(path(&["shop", "orders"])), ""));
    assert_eq!((held.fence, held.shared), (1, false));

    for taken in [&["shop", "orders", "17"][..], &["shop"], &[], &["shop", "prices"]] {
        let refused = trees.try_acquire(paths(&[(taken, false)])).await;
        assert_refused(refused, Code::FailedPrecondition, ErrorCode::Busy);
    }
    assert_eq!(tried(trees.try_acquire(paths(&[(&["shop", "prices", "eu"], true)])).await.unwrap()).fence, 2);
    tried(trees.try_acquire(paths(&[(&["shop", ""], false)])).await.unwrap());

    let status = StatusRequest { namespace: String::new(), id: held.id.clone() };
    let Some(Claim::Hold(shown)) = trees.status(status).await.unwrap().into_inner().claim else {
        panic!("it is held")
    };
    assert_eq!(shown.path, Some(path(&["shop", "orders"])));
    let verify =
        VerifyRequest { path: Some(path(&["shop", "orders"])), fence: 1, ..VerifyRequest::default() };
    assert!(trees.verify(verify).await.unwrap().into_inner().held);
    let extend = ExtendRequest { namespace: String::new(), id: held.id.clone(), lease_ms: 60_000 };
    assert_eq!(trees.extend(extend).await.unwrap().into_inner().remaining_ms, 60_000);
    super::told(&mut stream).await;
    trees.release(release(&held.id)).await.unwrap();
    lost(&mut stream, &held.id, LostReason::Released).await;
    assert_ended(&mut stream).await;
}

#[tokio::test]
async fn a_path_set_waits_as_a_whole() {
    let (_server, mut trees) = trees().await;
    let held = tried(trees.try_acquire(paths(&[(&["a", "b"], false)])).await.unwrap());
    let set = AcquirePathsRequest { max_wait_ms: 60_000, ..paths(&[(&["a"], false), (&["c"], false)]) };
    let mut stream = trees.acquire(set).await.unwrap().into_inner();
    let id = queued(&mut stream).await;
    trees.release(release(&held.id)).await.unwrap();
    let grant = acquired(&mut stream).await;
    assert!(grant.waited);
    assert_eq!(grant.holds[0].id, id);
}

#[tokio::test]
async fn a_hold_without_a_lease_ends_with_its_stream() {
    let (_server, mut trees) = trees().await;
    let options =
        AcquireOptions { lease_ms: u32::MAX, release_after_ms: Some(0), ..AcquireOptions::default() };
    let request = AcquirePathsRequest { options: Some(options), ..paths(&[(&["a"], false)]) };
    let mut stream = trees.acquire(request).await.unwrap().into_inner();
    let held = hold(&mut stream).await;
    assert_eq!((held.remaining_ms, held.lease_expires_at_ms), (u32::MAX, 0));
    let extend = ExtendRequest { namespace: String::new(), id: held.id, lease_ms: 60_000 };
    assert_bad_input(trees.extend(extend).await, "id", 0);
    let next = AcquirePathsRequest { max_wait_ms: 60_000, ..paths(&[(&["a"], false)]) };
    let mut next = trees.acquire(next).await.unwrap().into_inner();
    queued(&mut next).await;
    drop(stream);
    hold(&mut next).await;
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, mut trees) = trees().await;
    assert_bad_input(trees.try_acquire(paths(&[])).await, "count", 0);
    assert_bad_input(trees.try_acquire(paths(&[(&["s"; 65], false)])).await, "path", 64);
    let long = "s".repeat(1025);
    assert_bad_input(trees.try_acquire(paths(&[(&[long.as_str()], false)])).await, "path", 1024);
    let options = AcquireOptions { priority: 1, ..AcquireOptions::default() };
    let request = AcquirePathsRequest { options: Some(options), ..paths(&[(&["a"], false)]) };
    assert_bad_input(trees.try_acquire(request).await, "priority", 0);
    let verify = VerifyRequest { key: "key".to_owned(), ..VerifyRequest::default() };
    assert_bad_input(trees.verify(verify).await, "key", 0);
    // Longer than any frame.
    let segment = "s".repeat(1000);
    let set = paths(&[(&[segment.as_str(); 60][..], false); 20]);
    let (code, ..) = refusal_or_too_large(trees.try_acquire(set).await);
    assert!(matches!(code, Code::InvalidArgument | Code::ResourceExhausted), "{code:?}");
}

/// A message that is too long is refused before it is read, without a detail.
fn refusal_or_too_large<T>(result: Result<T, tonic::Status>) -> (Code, String) {
    match result {
        Err(status) if status.code() == Code::ResourceExhausted => {
            (status.code(), status.message().to_owned())
        }
        refused => {
            let (code, _, refusal) = refusal(refused);
            (code, refusal.message)
        }
    }
}
