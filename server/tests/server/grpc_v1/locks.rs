//! `LockService`, call by call.

use super::{
    acquired, assert_after, assert_bad_input, assert_ended, assert_refused, assert_same, connect, hold, lost,
    next, queued, refusal, server, told, tried, unix_ms,
};
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::acquire_response::Event;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::status_response::Claim;
use waymaker_proto::v1::watch_response::Event as Watched;
use waymaker_proto::v1::{
    AcquireKeysRequest, AcquireOptions, ErrorCode, ExtendRequest, FenceScope, LockKey, LostReason,
    ReleaseRequest, StatusRequest, VerifyRequest, WatchRequest,
};

pub(super) fn keys(keys: &[&str]) -> AcquireKeysRequest {
    let keys = keys.iter().map(|key| LockKey { key: (*key).to_owned(), shared: false }).collect();
    AcquireKeysRequest { keys, ..AcquireKeysRequest::default() }
}

pub(super) fn waiting(key: &str, max_wait_ms: u32) -> AcquireKeysRequest {
    AcquireKeysRequest { max_wait_ms, ..keys(&[key]) }
}

pub(super) fn with(request: AcquireKeysRequest, options: AcquireOptions) -> AcquireKeysRequest {
    AcquireKeysRequest { options: Some(options), ..request }
}

pub(super) fn release(id: &str) -> ReleaseRequest {
    ReleaseRequest { namespace: String::new(), id: id.to_owned() }
}

async fn locks() -> (crate::harness::Server, LockServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, LockServiceClient::new(channel))
}

#[tokio::test]
async fn a_stream_reports_the_grant_extension_and_release_of_its_key() {
    let (_server, mut locks) = locks().await;
    let begun_ms = unix_ms();
    let mut stream = locks.acquire(keys(&["key"])).await.unwrap().into_inner();
    let grant = acquired(&mut stream).await;
    assert!(!grant.waited && !grant.clamped && !grant.already_held && grant.stamp_ms > 0);
    let hold = &grant.holds[0];
    assert_eq!((hold.key.as_str(), hold.fence, hold.shared, hold.remaining_ms), ("key", 1, false, 30_000));
    assert_eq!(hold.id.len(), 32);
    assert_after(hold.acquired_at_ms, begun_ms, 0);
    assert_after(hold.lease_expires_at_ms, begun_ms, 30_000);

    let status = StatusRequest { namespace: String::new(), id: hold.id.clone() };
    let Some(Claim::Hold(shown)) = locks.status(status.clone()).await.unwrap().into_inner().claim else {
        panic!("it is held")
    };
    assert_eq!((shown.id.as_str(), shown.key.as_str(), shown.fence), (hold.id.as_str(), "key", 1));
    assert_same(shown.acquired_at_ms, hold.acquired_at_ms);

    let extend = ExtendRequest { namespace: String::new(), id: hold.id.clone(), lease_ms: 90_000_000 };
    let extended = locks.extend(extend.clone()).await.unwrap().into_inner();
    assert!(extended.clamped);
    assert_eq!(extended.remaining_ms, 86_400_000);
    assert_after(extended.lease_expires_at_ms, begun_ms, 86_400_000);
    let Event::LeaseMoved(moved) = told(&mut stream).await else { panic!("its lease moved") };
    assert_eq!((moved.id.as_str(), moved.remaining_ms), (hold.id.as_str(), 86_400_000));

    let verify = VerifyRequest { key: "key".to_owned(), fence: 1, ..VerifyRequest::default() };
    let verified = locks.verify(verify.clone()).await.unwrap().into_inner();
    assert!(verified.newest && verified.held && verified.newest_fence == 1);

    assert!(!locks.release(release(&hold.id)).await.unwrap().into_inner().was_waiting);
    lost(&mut stream, &hold.id, LostReason::Released).await;
    assert_ended(&mut stream).await;
    let verified = locks.verify(verify).await.unwrap().into_inner();
    assert!(verified.newest && !verified.held);

    assert_refused(locks.release(release(&hold.id)).await, Code::NotFound, ErrorCode::NotFound);
    assert_refused(locks.extend(extend).await, Code::NotFound, ErrorCode::NotFound);
    assert_refused(locks.status(status).await, Code::NotFound, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_waiter_is_queued_and_granted_when_the_holder_releases() {
    let (_server, mut locks) = locks().await;
    let mut first = locks.acquire(keys(&["key"])).await.unwrap().into_inner();
    let held = hold(&mut first).await;
    let mut second = locks.acquire(waiting("key", u32::MAX)).await.unwrap().into_inner();
    let id = queued(&mut second).await;

    let status = StatusRequest { namespace: String::new(), id: id.clone() };
    let Some(Claim::Waiter(waiter)) = locks.status(status).await.unwrap().into_inner().claim else {
        panic!("it waits")
    };
    assert_eq!((waiter.key.as_str(), waiter.remaining_ms, waiter.wait_ends_at_ms), ("key", u32::MAX, 0));
    let extend = ExtendRequest { namespace: String::new(), id: id.clone(), lease_ms: 0 };
    assert_refused(locks.extend(extend).await, Code::FailedPrecondition, ErrorCode::NotHeld);

    locks.release(release(&held.id)).await.unwrap();
    let grant = acquired(&mut second).await;
    assert!(grant.waited);
    assert_eq!((grant.holds[0].id.as_str(), grant.holds[0].fence), (id.as_str(), 2));
}

#[tokio::test]
async fn a_waiting_claim_released_by_its_id_ends_its_stream_with_aborted() {
    let (_server, mut locks) = locks().await;
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let mut stream = locks.acquire(waiting("key", 60_000)).await.unwrap().into_inner();
    let id = queued(&mut stream).await;
    assert!(locks.release(release(&id)).await.unwrap().into_inner().was_waiting);
    assert_refused(next(&mut stream).await, Code::Aborted, ErrorCode::Cancelled);
}

#[tokio::test]
async fn several_keys_are_granted_together_and_released_one_by_one() {
    let (_server, mut locks) = locks().await;
    let mut blocker = locks.acquire(keys(&["b"])).await.unwrap().into_inner();
    let blocking = hold(&mut blocker).await;
    let request = AcquireKeysRequest { max_wait_ms: 60_000, ..keys(&["b", "a", "b"]) };
    let mut stream = locks.acquire(request).await.unwrap().into_inner();
    queued(&mut stream).await;
    // What waits holds nothing.
    let a = tried(locks.try_acquire(keys(&["c"])).await.unwrap());
    locks.release(release(&a.id)).await.unwrap();

    locks.release(release(&blocking.id)).await.unwrap();
    let holds = acquired(&mut stream).await.holds;
    let shown: Vec<_> = holds.iter().map(|hold| (hold.key.as_str(), hold.fence)).collect();
    assert_eq!(shown, [("a", 1), ("b", 2)]);
    locks.release(release(&holds[1].id)).await.unwrap();
    lost(&mut stream, &holds[1].id, LostReason::Released).await;
    let extend = ExtendRequest { namespace: String::new(), id: holds[0].id.clone(), lease_ms: 20 };
    locks.extend(extend).await.unwrap();
    let Event::LeaseMoved(moved) = told(&mut stream).await else { panic!("its lease moved") };
    assert_eq!(moved.id, holds[0].id);
    lost(&mut stream, &holds[0].id, LostReason::Expired).await;
    assert_ended(&mut stream).await;
}

#[tokio::test]
async fn a_failed_try_names_the_holder() {
    let (_server, mut locks) = locks().await;
    let options = AcquireOptions { owner: "worker 1".to_owned(), ..AcquireOptions::default() };
    let held = tried(locks.try_acquire(with(keys(&["key"]), options)).await.unwrap());
    let (code, error, refusal) = refusal(locks.try_acquire(keys(&["key"])).await);
    assert_eq!((code, error), (Code::FailedPrecondition, ErrorCode::Busy));
    let contention = refusal.contention.expect("who it is");
    assert!(contention.held && !contention.shared);
    assert_eq!((contention.owner.as_str(), contention.waiter_count), ("worker 1", 0));
    assert!((1..=30_000).contains(&contention.remaining_ms));
    assert_same(contention.ends_at_ms, held.lease_expires_at_ms);
}

#[tokio::test]
async fn readers_share_a_key() {
    let (_server, mut locks) = locks().await;
    let key = LockKey { key: "key".to_owned(), shared: true };
    let shared = AcquireKeysRequest { keys: vec![key], ..AcquireKeysRequest::default() };
    assert!(tried(locks.try_acquire(shared.clone()).await.unwrap()).shared);
    assert_eq!(tried(locks.try_acquire(shared).await.unwrap()).fence, 2);
    assert_refused(locks.try_acquire(keys(&["key"])).await, Code::FailedPrecondition, ErrorCode::Busy);
}

#[tokio::test]
async fn a_timed_out_wait_names_the_holder() {
    let (_server, mut locks) = locks().await;
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let mut stream = locks.acquire(waiting("key", 20)).await.unwrap().into_inner();
    queued(&mut stream).await;
    let (code, error, refusal) = refusal(next(&mut stream).await);
    assert_eq!((code, error), (Code::DeadlineExceeded, ErrorCode::Timeout));
    assert!(refusal.contention.expect("who it is").held);
}

#[tokio::test]
async fn a_watch_reports_the_current_state_and_later_changes() {
    let (server, mut locks) = locks().await;
    let watch = WatchRequest { namespace: String::new(), key: "key".to_owned() };
    let mut stream = locks.watch(watch).await.unwrap().into_inner();
    let mut told = async || next(&mut stream).await.unwrap().unwrap().event.unwrap();
    let Watched::Watching(watching) = told().await else { panic!("the watch begins") };
    assert_eq!((watching.fence, watching.holder_count), (0, 0));
    let mut other = LockServiceClient::new(connect(&server).await);
    let options = AcquireOptions { owner: "other".to_owned(), ..AcquireOptions::default() };
    let held = tried(other.try_acquire(with(keys(&["key"]), options)).await.unwrap());
    let Watched::Held(seen) = told().await else { panic!("it is held") };
    assert_eq!((seen.fence, seen.owner.as_str(), seen.shared), (1, "other", false));
    other.release(release(&held.id)).await.unwrap();
    let Watched::Freed(freed) = told().await else { panic!("it is free") };
    assert_eq!(freed.fence, 1);
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, mut locks) = locks().await;
    let options = |options: AcquireOptions| with(keys(&["key"]), options);
    let long = |len: usize| "k".repeat(len);
    assert_bad_input(locks.try_acquire(keys(&[])).await, "count", 0);
    assert_bad_input(locks.try_acquire(keys(&[""])).await, "key", 0);
    assert_bad_input(locks.try_acquire(keys(&[&long(1025)])).await, "key", 1024);
    assert_bad_input(locks.try_acquire(keys(&["a", &long(1025)])).await, "item.key", 1024);
    assert_bad_input(locks.try_acquire(keys(&["a"; 1025])).await, "count", 1024);
    assert_bad_input(locks.try_acquire(waiting("key", 1)).await, "max_wait_ms", 0);
    let lease = AcquireOptions { lease_ms: 9, ..AcquireOptions::default() };
    assert_bad_input(locks.try_acquire(options(lease)).await, "lease_ms", 10);
    let id = AcquireOptions { request_id: long(257), ..AcquireOptions::default() };
    assert_bad_input(locks.try_acquire(options(id)).await, "request_id", 256);
    let owner = AcquireOptions { owner: long(257), ..AcquireOptions::default() };
    assert_bad_input(locks.try_acquire(options(owner)).await, "owner", 256);
    let metadata = AcquireOptions { metadata: long(4097), ..AcquireOptions::default() };
    assert_bad_input(locks.try_acquire(options(metadata)).await, "metadata", 4096);
    let scope = AcquireOptions { scope: -1, ..AcquireOptions::default() };
    assert_bad_input(locks.try_acquire(options(scope)).await, "scope", 3);
    assert_bad_input(locks.release(release("not an id")).await, "id", 0);
    let namespace = ReleaseRequest { namespace: long(257), id: "0".repeat(32) };
    assert_bad_input(locks.release(namespace).await, "namespace", 256);
    let mut stream = locks.acquire(keys(&[&long(1025)])).await.unwrap().into_inner();
    assert_bad_input(next(&mut stream).await, "key", 1024);

    let local = AcquireOptions { scope: FenceScope::Local.into(), ..AcquireOptions::default() };
    let refused = locks.try_acquire(options(local)).await;
    assert_refused(refused, Code::FailedPrecondition, ErrorCode::ScopeUnavailable);
    // The connection goes on.
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
}
