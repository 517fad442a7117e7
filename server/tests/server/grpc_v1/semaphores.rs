//! `SemaphoreService`, call by call.

use super::{assert_bad_input, assert_refused, hold, lost, next, queued, refusal, server, tried};
use crate::harness::Server;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::status_response::Claim;
use waymaker_proto::v1::{
    AcquireOptions, AcquirePermitsRequest, DescribeRequest, DescribeResponse, ErrorCode, ExtendRequest,
    LostReason, ReleaseRequest, RemoveRequest, SemaphoreOrder, SetCapacityRequest, StatusRequest,
};

async fn semaphores() -> (Server, SemaphoreServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, SemaphoreServiceClient::new(channel))
}

fn permits(permits: u64, max_wait_ms: u32) -> AcquirePermitsRequest {
    let options = AcquireOptions { owner: format!("wants {permits}"), ..AcquireOptions::default() };
    AcquirePermitsRequest {
        name: "slots".to_owned(),
        capacity: 3,
        permits,
        max_wait_ms,
        options: Some(options),
        ..AcquirePermitsRequest::default()
    }
}

fn release(id: &str) -> ReleaseRequest {
    ReleaseRequest { namespace: String::new(), id: id.to_owned() }
}

async fn describe(semaphores: &mut SemaphoreServiceClient<Channel>) -> DescribeResponse {
    let describe = DescribeRequest { namespace: String::new(), name: "slots".to_owned() };
    semaphores.describe(describe).await.unwrap().into_inner()
}

#[tokio::test]
async fn permits_are_granted_up_to_the_capacity_in_arrival_order() {
    let (_server, mut semaphores) = semaphores().await;
    assert_eq!(describe(&mut semaphores).await.capacity, 0);
    let mut first = semaphores.acquire(permits(2, 0)).await.unwrap().into_inner();
    let held = hold(&mut first).await;
    assert_eq!((held.key.as_str(), held.permits, held.fence), ("slots", 2, 1));
    let mut large = semaphores.acquire(permits(2, 60_000)).await.unwrap().into_inner();
    let large_id = queued(&mut large).await;
    // One would fit, but does not overtake.
    assert_refused(semaphores.try_acquire(permits(0, 0)).await, Code::FailedPrecondition, ErrorCode::Busy);

    let state = describe(&mut semaphores).await;
    assert_eq!((state.capacity, state.held, state.fence, state.is_set), (3, 2, 1, false));
    assert_eq!(state.order(), SemaphoreOrder::Arrival);
    assert_eq!((state.holder_count, state.waiter_count), (1, 1));
    let holder = &state.holders[0];
    assert_eq!((&holder.id, holder.permits, holder.owner.as_str()), (&held.id, 2, "wants 2"));
    let waiter = &state.waiters[0];
    assert_eq!((&waiter.id, waiter.permits), (&large_id, 2));

    let extend = ExtendRequest { namespace: String::new(), id: large_id.clone(), lease_ms: 60_000 };
    semaphores.extend(extend).await.unwrap();
    semaphores.release(release(&held.id)).await.unwrap();
    lost(&mut first, &held.id, LostReason::Released).await;
    let granted = hold(&mut large).await;
    assert_eq!((&granted.id, granted.remaining_ms), (&large_id, 60_000));
    assert_eq!(tried(semaphores.try_acquire(permits(0, 0)).await.unwrap()).permits, 1);
    let status = StatusRequest { namespace: String::new(), id: large_id };
    let Some(Claim::Hold(shown)) = semaphores.status(status).await.unwrap().into_inner().claim else {
        panic!("it is held")
    };
    assert_eq!(shown.key, "slots");
}

#[tokio::test]
async fn all_acquires_of_a_semaphore_must_name_the_same_capacity() {
    let (_server, mut semaphores) = semaphores().await;
    tried(semaphores.try_acquire(permits(1, 0)).await.unwrap());
    let other = AcquirePermitsRequest { capacity: 5, ..permits(1, 0) };
    let (code, error, refusal) = refusal(semaphores.try_acquire(other.clone()).await);
    assert_eq!((code, error), (Code::FailedPrecondition, ErrorCode::CapacityMismatch));
    assert_eq!(refusal.value, 3);
    let any = AcquirePermitsRequest { capacity: 0, any_capacity: true, ..permits(1, 0) };
    tried(semaphores.try_acquire(any).await.unwrap());

    let mut waiter = semaphores.acquire(permits(3, 60_000)).await.unwrap().into_inner();
    queued(&mut waiter).await;
    let set =
        |capacity| SetCapacityRequest { name: "slots".to_owned(), capacity, ..SetCapacityRequest::default() };
    assert_eq!(semaphores.set_capacity(set(5)).await.unwrap().into_inner().previous, 3);
    assert_eq!(hold(&mut waiter).await.permits, 3);
    let state = describe(&mut semaphores).await;
    assert_eq!((state.capacity, state.held, state.is_set), (5, 5, true));

    let mut waiter = semaphores
        .acquire(AcquirePermitsRequest { permits: 4, max_wait_ms: 60_000, ..other })
        .await
        .unwrap()
        .into_inner();
    queued(&mut waiter).await;
    semaphores.set_capacity(set(2)).await.unwrap();
    assert_bad_input(next(&mut waiter).await, "permits", 2);
    assert_eq!(describe(&mut semaphores).await.held, 5);
}

#[tokio::test]
async fn a_removed_holder_or_waiter_gets_the_reason() {
    let (_server, mut semaphores) = semaphores().await;
    let mut holder = semaphores.acquire(permits(3, 0)).await.unwrap().into_inner();
    let held = hold(&mut holder).await;
    let mut waiter = semaphores.acquire(permits(1, 60_000)).await.unwrap().into_inner();
    let waiting = queued(&mut waiter).await;
    let remove = |id: &str| RemoveRequest {
        namespace: String::new(),
        id: id.to_owned(),
        reason: "too old".to_owned(),
    };
    assert!(semaphores.remove(remove(&waiting)).await.unwrap().into_inner().was_waiting);
    assert_refused(next(&mut waiter).await, Code::Aborted, ErrorCode::Cancelled);
    assert!(!semaphores.remove(remove(&held.id)).await.unwrap().into_inner().was_waiting);
    assert_eq!(lost(&mut holder, &held.id, LostReason::Revoked).await, "too old");
    assert_refused(semaphores.remove(remove(&held.id)).await, Code::NotFound, ErrorCode::NotFound);
}

#[tokio::test]
async fn timestamp_order_serves_the_oldest_first() {
    let (_server, mut semaphores) = semaphores().await;
    let now_us = super::unix_ms() as u64 * 1000;
    let at = |timestamp_us, max_wait_ms| AcquirePermitsRequest {
        order: SemaphoreOrder::Timestamp.into(),
        timestamp_us,
        ..permits(3, max_wait_ms)
    };
    let held = tried(semaphores.try_acquire(at(now_us, 0)).await.unwrap());
    let mut late = semaphores.acquire(at(now_us + 2_000_000, 60_000)).await.unwrap().into_inner();
    queued(&mut late).await;
    let mut early = semaphores.acquire(at(now_us + 1_000_000, 60_000)).await.unwrap().into_inner();
    queued(&mut early).await;
    semaphores.release(release(&held.id)).await.unwrap();
    assert_eq!(hold(&mut early).await.fence, 2);
    assert_bad_input(semaphores.try_acquire(permits(1, 0)).await, "order", 0);
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, mut semaphores) = semaphores().await;
    assert_bad_input(semaphores.try_acquire(permits(4, 0)).await, "permits", 3);
    let no_capacity = AcquirePermitsRequest { capacity: 0, ..permits(1, 0) };
    assert_bad_input(semaphores.try_acquire(no_capacity).await, "capacity", 0);
    let no_name = AcquirePermitsRequest { name: String::new(), ..permits(1, 0) };
    assert_bad_input(semaphores.try_acquire(no_name).await, "name", 0);
    let order = AcquirePermitsRequest { order: 9, ..permits(1, 0) };
    assert_bad_input(semaphores.try_acquire(order).await, "order", 0);
    let reason = "r".repeat(257);
    let set = SetCapacityRequest { name: "slots".to_owned(), capacity: 1, reason, ..Default::default() };
    assert_bad_input(semaphores.set_capacity(set).await, "reason", 256);
    let set = SetCapacityRequest { name: "slots".to_owned(), ..SetCapacityRequest::default() };
    assert_bad_input(semaphores.set_capacity(set).await, "capacity", 0);
    let describe = DescribeRequest { namespace: String::new(), name: "n".repeat(1025) };
    assert_bad_input(semaphores.describe(describe).await, "name", 1024);
}
