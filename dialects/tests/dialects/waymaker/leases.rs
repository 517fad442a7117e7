//! Until when a lock is held.

use std::time::Instant;

use super::*;
use crate::connected::connect;
use waymaker_dialects::waymaker::Loss;

const SHORT: Duration = Duration::from_secs(2);
/// Time between the local deadline and the end of a lease of ten seconds, with rounding.
const MARGIN: Duration = Duration::from_millis(152);

#[tokio::test]
async fn an_expired_lease_is_reported_and_the_next_waiter_is_granted() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut first = client.lock(patient("k").max_lease_period(SHORT));
    acquired(&mut first).await;
    let mut second = client.lock(patient("k"));
    let (is_local, hold) = tokio::join!(expired(&mut first), acquired_in_the_end(&mut second));
    assert!(is_local, "the local deadline lies before the end on the server");
    assert_eq!(hold.fence_token, 2);
}

#[tokio::test]
async fn a_lease_can_be_extended_and_shortened() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    let lease = held.extend(2 * HOUR).await.unwrap();
    assert_eq!((lease.id.as_str(), lease.fence_token, lease.acquired), (held.id(), held.fence_token(), true));
    assert!(held.remaining() > HOUR);
    // The answer may arrive after the end of the lease.
    let _ = held.extend(SHORT).await;
    assert!(held.remaining() < SHORT);
    assert_eq!(soon(held.lost()).await, Loss::LocalDeadline);
    assert!(!held.is_held());
    let another = client.acquire(patient("k")).await.unwrap();
    assert_eq!(another.fence_token(), 2);
}

#[tokio::test]
async fn heartbeats_continue_after_the_first_deadline_of_an_extended_lease() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    for first_lease in LONGER_AND_LONGER {
        let mut events = client.lock(patient(&format!("{first_lease:?}")).max_lease_period(first_lease));
        assert!(matches!(events.extend(HOUR).await, Err(Error::NotHeld(_))));
        let hold = acquired(&mut events).await;
        let acquired_at = Instant::now();
        // The lease may have ended already.
        let Ok(lease) = events.extend(HOUR).await else { continue };
        while acquired_at.elapsed() < first_lease {
            let LockEvent::Heartbeat { id, lease_expires_at, acquired_at } = next(&mut events).await else {
                panic!("nothing but heartbeats follows");
            };
            assert_eq!((&id, acquired_at), (&hold.id, hold.acquired_at));
            // Two turns of the server may round the same instant differently.
            assert!((lease_expires_at - lease.lease_expires_at).abs() <= 5);
        }
        return;
    }
    panic!("no lease was extended in time");
}

#[tokio::test]
async fn an_extension_fails_for_ended_and_waiting_locks_and_zero_periods() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut events = client.lock(patient("k"));
    let hold = acquired(&mut events).await;
    assert!(matches!(client.extend_lease("k", &hold.id, Duration::ZERO).await, Err(Error::BadInput(_))));
    let mut waiter = client.lock(patient("k").max_lease_period(SHORT));
    let place = waiting(&mut waiter).await;
    assert!(matches!(client.extend_lease("k", &place, SOON).await, Err(Error::NotHeld(_))));
    client.unlock("k", &hold.id).await.unwrap();
    assert!(matches!(client.extend_lease("k", &hold.id, SOON).await, Err(Error::NotFound(_))));
    let short = acquired(&mut waiter).await;
    expired(&mut waiter).await;
    until_free(&client, "k").await;
    assert!(matches!(client.extend_lease("k", &short.id, SOON).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_refused_extension_keeps_the_deadline() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    assert!(matches!(held.extend(Duration::ZERO).await, Err(Error::BadInput(_))));
    assert!(held.remaining() > HOUR / 2);
}

#[tokio::test]
async fn lease_status_says_whether_the_lease_is_held_or_waiting() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut events = client.lock(patient("k").priority(3));
    let hold = acquired(&mut events).await;
    let held = client.lease_status("k", &hold.id).await.unwrap();
    assert_eq!((held.acquired, held.fence_token, held.priority), (true, 1, 3));
    assert_eq!((held.lease_expires_at, held.waiting_expires_at), (hold.lease_expires_at, 0));
    let mut waiter = client.lock(patient("k"));
    let place = waiting(&mut waiter).await;
    let waits = client.lease_status("k", &place).await.unwrap();
    assert_eq!((waits.acquired, waits.fence_token, waits.lease_expires_at), (false, 0, 0));
    assert!(waits.waiting_expires_at > 0);
    assert!(matches!(client.lease_status("other", &place).await, Err(Error::NotFound(_))));
}

/// The local deadline counts from the grant, which may be long after the request.
#[tokio::test]
async fn a_lock_granted_after_a_wait_is_held_for_its_whole_lease() {
    let server = server!(None, GRPC);
    let (client, beside) = (client(&server).await, connect(&server, "").await);
    let holder = client.acquire(patient("k")).await.unwrap();
    let lease = Duration::from_secs(10);
    let began = Instant::now();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(patient("k").max_lease_period(lease)).await }
    });
    until_queued(&beside, 1).await;
    let wait = Duration::from_millis(300);
    tokio::time::sleep(wait).await;
    holder.unlock().await.unwrap();
    let held = soon(waiting).await.unwrap().unwrap();
    let remaining = held.remaining();
    let deadline = Instant::now() + remaining;
    assert!(deadline >= began + wait + lease - MARGIN, "{:?} after the request", deadline - began);
}
