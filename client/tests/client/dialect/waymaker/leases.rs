//! Until when a lock is held.

use super::*;
use waymaker_client::dialect::waymaker::Loss;

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_lease_that_ends_is_told_and_the_next_is_granted() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut first = client.lock(patient("k").max_lease_period(SHORT));
    acquired(&mut first).await;
    let mut second = client.lock(patient("k"));
    waiting(&mut second).await;
    assert!(expired(&mut first).await, "the local deadline lies before the end on the server");
    assert_eq!(acquired(&mut second).await.fence_token, 2);
}

#[tokio::test]
async fn a_lease_is_extended_and_shortened() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k").max_lease_period(SHORT)).await.unwrap();
    let lease = held.extend(Duration::from_secs(60)).await.unwrap();
    assert_eq!((lease.id.as_str(), lease.fence_token, lease.acquired), (held.id(), held.fence_token(), true));
    assert!(held.remaining() > Duration::from_secs(50));
    held.extend(SHORT).await.unwrap();
    assert!(held.remaining() < SHORT);
    assert_eq!(soon(held.lost()).await, Loss::LocalDeadline);
    assert!(!held.is_held());
    let another = client.acquire(patient("k")).await.unwrap();
    assert_eq!(another.fence_token(), 2);
}

#[tokio::test]
async fn events_go_on_after_an_extension_beyond_the_first_deadline() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut events = client.lock(patient("k").max_lease_period(Duration::from_millis(600)));
    assert!(matches!(events.extend(SOON).await, Err(Error::NotHeld(_))));
    let hold = acquired(&mut events).await;
    let lease = events.extend(SOON).await.unwrap();
    // Every 250 ms, so the last comes after the first deadline.
    for _ in 0..3 {
        let LockEvent::Heartbeat { id, lease_expires_at, acquired_at } = next(&mut events).await else {
            panic!("nothing but heartbeats follows");
        };
        assert_eq!((&id, acquired_at), (&hold.id, hold.acquired_at));
        // Two turns of the server may round the same instant differently.
        assert!((lease_expires_at - lease.lease_expires_at).abs() <= 5);
    }
}

#[tokio::test]
async fn what_is_over_waits_or_is_given_no_time_is_not_extended() {
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
async fn a_refused_extension_leaves_the_deadline_alone() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let held = client.acquire(patient("k")).await.unwrap();
    assert!(matches!(held.extend(Duration::ZERO).await, Err(Error::BadInput(_))));
    assert!(held.remaining() > Duration::from_secs(50));
}

#[tokio::test]
async fn the_status_of_a_lease_says_whether_it_is_held_or_waits() {
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

/// The grant may be long after the request: its deadline counts from the grant.
#[tokio::test]
async fn a_lock_that_was_waited_for_is_believed_in_for_its_whole_lease() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let lease = Duration::from_secs(1);
    let mut first = client.lock(patient("k").max_lease_period(lease * 2));
    acquired(&mut first).await;
    let held = soon(client.acquire(patient("k").max_lease_period(lease))).await.unwrap();
    assert!(held.remaining() > lease / 2, "{:?} of {lease:?} are left", held.remaining());
}
