//! What becomes of a claim when its stream or its connection is lost, or another takes it over.

use super::locks::{keys, release, waiting, with};
use super::{acquired, assert_refused, connect, hold, lost, next, queued, server, tried};
use crate::harness::{Server, Watchdog};
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::v1::watch_response::Event as Watched;
use waymaker_proto::v1::{
    AcquireOptions, ErrorCode, ForceReleaseRequest, InspectRequest, InspectResponse, LostReason,
    StatusRequest, WatchRequest,
};
use waymaker_protocol::{Acquire, Request};

async fn locks() -> (Server, Channel, LockServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, channel.clone(), LockServiceClient::new(channel))
}

async fn inspect(channel: &Channel, key: &str) -> InspectResponse {
    let inspect = InspectRequest { key: key.to_owned(), ..InspectRequest::default() };
    OperatorServiceClient::new(channel.clone()).inspect(inspect).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_stream_cancelled_while_it_waits_leaves_the_queue() {
    let (_server, channel, mut locks) = locks().await;
    let held = tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let mut given_up = locks.acquire(waiting("key", u32::MAX)).await.unwrap().into_inner();
    queued(&mut given_up).await;
    let mut patient = locks.acquire(waiting("key", u32::MAX)).await.unwrap().into_inner();
    queued(&mut patient).await;
    drop(given_up);
    let mut watchdog = Watchdog::start();
    while inspect(&channel, "key").await.waiter_count > 1 {
        watchdog.look_again(|| "the end of a stream that was given up".to_owned());
    }
    locks.release(release(&held.id)).await.unwrap();
    assert_eq!(hold(&mut patient).await.fence, 2);
}

#[tokio::test]
async fn a_stream_cancelled_after_its_grant_keeps_the_hold() {
    let (_server, _, mut locks) = locks().await;
    let mut stream = locks.acquire(keys(&["key"])).await.unwrap().into_inner();
    let held = hold(&mut stream).await;
    drop(stream);
    let status = StatusRequest { namespace: String::new(), id: held.id.clone() };
    locks.status(status).await.unwrap();
    assert_refused(locks.try_acquire(keys(&["key"])).await, Code::FailedPrecondition, ErrorCode::Busy);
    locks.release(release(&held.id)).await.unwrap();
}

#[tokio::test]
async fn release_after_ends_a_hold_when_its_stream_ends() {
    let (_server, channel, mut locks) = locks().await;
    let options = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
    let mut stream = locks.acquire(with(keys(&["key"]), options)).await.unwrap().into_inner();
    hold(&mut stream).await;
    let mut next_one = locks.acquire(waiting("key", 60_000)).await.unwrap().into_inner();
    queued(&mut next_one).await;
    drop(stream);
    assert_eq!(hold(&mut next_one).await.fence, 2);
    assert_eq!(inspect(&channel, "key").await.holder_count, 1);
}

#[tokio::test]
async fn release_after_ends_the_hold_of_a_try_when_its_connection_ends() {
    let (server, _, mut locks) = locks().await;
    let mut other = LockServiceClient::new(connect(&server).await);
    let options = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
    tried(other.try_acquire(with(keys(&["key"]), options)).await.unwrap());
    let mut stream = locks.acquire(waiting("key", 60_000)).await.unwrap().into_inner();
    queued(&mut stream).await;
    drop(other);
    assert_eq!(hold(&mut stream).await.fence, 2);
}

#[tokio::test]
async fn a_repeated_request_id_finds_its_hold() {
    let (server, _, mut locks) = locks().await;
    let request = || {
        let options = AcquireOptions { request_id: "attempt 7".to_owned(), ..AcquireOptions::default() };
        with(keys(&["key"]), options)
    };
    let mut first = locks.acquire(request()).await.unwrap().into_inner();
    let held = hold(&mut first).await;
    let mut elsewhere = LockServiceClient::new(connect(&server).await);
    for locks in [&mut locks, &mut elsewhere] {
        let mut again = locks.acquire(request()).await.unwrap().into_inner();
        let grant = acquired(&mut again).await;
        assert!(grant.already_held);
        assert_eq!((&grant.holds[0].id, grant.holds[0].fence), (&held.id, held.fence));
        assert_refused(next(&mut first).await, Code::Aborted, ErrorCode::Cancelled);
        first = again;
    }
    locks.release(release(&held.id)).await.unwrap();
    lost(&mut first, &held.id, LostReason::Released).await;
}

#[tokio::test]
async fn a_waiting_claim_moves_to_the_stream_that_repeats_its_request_id() {
    let (_server, _, mut locks) = locks().await;
    let held = tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let request = || {
        let options = AcquireOptions { request_id: "attempt 7".to_owned(), ..AcquireOptions::default() };
        with(waiting("key", 60_000), options)
    };
    let mut first = locks.acquire(request()).await.unwrap().into_inner();
    let id = queued(&mut first).await;
    let mut again = locks.acquire(request()).await.unwrap().into_inner();
    assert_eq!(queued(&mut again).await, id);
    assert_refused(next(&mut first).await, Code::Aborted, ErrorCode::Cancelled);
    locks.release(release(&held.id)).await.unwrap();
    assert_eq!(hold(&mut again).await.id, id);
}

#[tokio::test]
async fn a_holder_gets_the_reason_of_a_forced_release() {
    let (server, _, mut locks) = locks().await;
    let mut stream = locks.acquire(keys(&["key"])).await.unwrap().into_inner();
    let held = hold(&mut stream).await;
    let mut operator = OperatorServiceClient::new(connect(&server).await);
    let force = ForceReleaseRequest {
        namespace: String::new(),
        id: held.id.clone(),
        reason: "the host is gone".to_owned(),
    };
    let released = operator.force_release(force.clone()).await.unwrap().into_inner();
    assert_eq!((released.key.as_str(), released.fence, released.was_waiting), ("key", 1, false));
    assert_eq!(lost(&mut stream, &held.id, LostReason::Revoked).await, "the host is gone");
    assert_refused(operator.force_release(force).await, Code::NotFound, ErrorCode::NotFound);
}

#[tokio::test]
async fn an_unread_watch_is_limited_and_reports_an_overrun() {
    let (server, _, mut locks) = locks().await;
    let watch = WatchRequest { namespace: String::new(), key: "key".to_owned() };
    let mut stream = locks.watch(watch).await.unwrap().into_inner();
    assert!(matches!(next(&mut stream).await.unwrap().unwrap().event, Some(Watched::Watching(_))));
    let (batches, batch) = (60, 500);
    // Nobody reads meanwhile: this holds the only thread.
    let mut other = server.client("");
    for _ in 0..batches {
        for _ in 0..batch {
            other.send(Request::Acquire(Acquire { key: b"key", shared: true, ..Acquire::default() }));
        }
        for _ in 0..batch {
            other.receive().granted();
        }
    }
    let mut seen = 0;
    loop {
        match next(&mut stream).await.unwrap().unwrap().event {
            Some(Watched::Held(_)) => seen += 1,
            Some(Watched::Overrun(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((256..batches * batch).contains(&seen), "{seen}");
    // It goes on. Where the server read many acquires at once, the first overrun was not the last: what is held while another is
    // on its way may be left out as well.
    let mut hold_once_more = || {
        other
            .ask(Request::Acquire(Acquire { key: b"key", shared: true, ..Acquire::default() }))
            .granted()
            .fence
    };
    let mut fence = hold_once_more();
    loop {
        match next(&mut stream).await.unwrap().unwrap().event {
            Some(Watched::Held(held)) if held.fence == fence => break,
            Some(Watched::Overrun(_)) => fence = hold_once_more(),
            _ => {}
        }
    }
}
