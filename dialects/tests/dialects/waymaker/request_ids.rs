//! Repeated requests find the attempt they repeat.

use std::time::Instant;

use super::*;

/// Time between the local deadline and the end of a lease of ten seconds, with rounding.
const MARGIN: Duration = Duration::from_millis(152);

fn named(key: &str) -> LockRequest {
    patient(key).request_id("r")
}

#[tokio::test]
async fn repeating_the_id_of_a_waiter_takes_over_its_queue_position() {
    let server = server!(None, GRPC);
    let (client, other) = (client(&server).await, client(&server).await);
    let holder = client.acquire(patient("k")).await.unwrap();
    let mut first = client.lock(named("k"));
    let place = waiting(&mut first).await;
    let mut behind = client.lock(patient("k"));
    waiting(&mut behind).await;
    let mut second = other.lock(named("k"));
    assert_eq!(waiting(&mut second).await, place);
    superseded(&mut first).await;
    holder.unlock().await.unwrap();
    assert_eq!(acquired(&mut second).await.id, place);
}

#[tokio::test]
async fn a_wait_that_is_taken_over_keeps_its_deadline() {
    let server = server!(None, GRPC);
    let (client, other) = (client(&server).await, client(&server).await);
    let _holder = client.acquire(patient("k")).await.unwrap();
    for wait in LONGER_AND_LONGER {
        let mut first = client.lock(named("k").max_wait_period(wait));
        let place = waiting(&mut first).await;
        let mut second = other.lock(named("k").max_wait_period(HOUR));
        // The first attempt may have ended before.
        if waiting(&mut second).await == place {
            assert!(matches!(failed(&mut second).await, Error::Timeout(_)));
            return;
        }
    }
    panic!("no place was taken over in time");
}

#[tokio::test]
async fn repeating_the_id_of_a_held_lock_returns_the_same_lock() {
    let server = server!(None, GRPC);
    let (client, other) = (client(&server).await, client(&server).await);
    let mut first = client.lock(named("k"));
    let hold = acquired(&mut first).await;
    let mut second = other.lock(named("k").max_wait_period(Duration::ZERO));
    let again = acquired(&mut second).await;
    assert_eq!((&again.id, again.fence_token), (&hold.id, hold.fence_token));
    assert!((again.acquired_at - hold.acquired_at).abs() <= 5);
    superseded(&mut first).await;
}

#[tokio::test]
async fn a_lock_survives_its_stream_and_is_found_by_its_id() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut first = client.lock(named("k"));
    let hold = acquired(&mut first).await;
    drop(first);
    assert!(!is_free(&client, "k").await);
    let again = acquired(&mut client.lock(named("k"))).await;
    assert_eq!((again.id, again.fence_token), (hold.id, hold.fence_token));
}

/// Nothing in the answer says how much of the lease is left.
#[tokio::test]
async fn finding_a_lock_by_its_id_renews_its_lease() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let (lease, pause) = (Duration::from_secs(10), Duration::from_millis(300));
    let mut hold = acquired(&mut client.lock(named("k").max_lease_period(lease))).await;
    loop {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        let held = client.acquire(named("k")).await.unwrap();
        if held.fence_token() != hold.fence_token {
            // The lease ended before, and this is another lock.
            held.unlock().await.unwrap();
            hold = acquired(&mut client.lock(named("k").max_lease_period(lease))).await;
            continue;
        }
        let remaining = held.remaining();
        let deadline = Instant::now() + remaining;
        assert!(deadline >= asked + lease - MARGIN, "{:?} after the request", deadline - asked);
        assert!(held.remaining() < lease);
        let status = client.lease_status("k", held.id()).await.unwrap();
        assert!(status.lease_expires_at >= hold.lease_expires_at + pause.as_millis() as i64);
        return;
    }
}

#[tokio::test]
async fn repeating_an_id_in_the_other_mode_is_rejected() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut held = client.lock(named("k"));
    let hold = acquired(&mut held).await;
    assert!(matches!(failed(&mut client.read_lock(named("k"))).await, Error::BadInput(_)));
    assert!(client.lease_status("k", &hold.id).await.unwrap().acquired);
    let mut waits = client.read_lock(patient("k").request_id("s"));
    waiting(&mut waits).await;
    assert!(matches!(failed(&mut client.lock(patient("k").request_id("s"))).await, Error::BadInput(_)));
    client.unlock("k", &hold.id).await.unwrap();
    acquired(&mut waits).await;
}

#[tokio::test]
async fn an_id_can_be_reused_after_its_attempt_has_ended() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    // Unlocked.
    let first = acquired(&mut client.lock(named("k"))).await;
    client.unlock("k", &first.id).await.unwrap();
    let mut events = client.lock(named("k").max_lease_period(Duration::from_secs(2)));
    let second = acquired(&mut events).await;
    assert_ne!(second.id, first.id);
    assert_eq!(second.fence_token, 2);
    // Expired.
    expired(&mut events).await;
    until_free(&client, "k").await;
    // Failed.
    let holder = client.acquire(patient("k")).await.unwrap();
    assert!(matches!(
        client.acquire(named("k").max_wait_period(Duration::ZERO)).await,
        Err(Error::Timeout(_))
    ));
    // Given up.
    let mut waits = client.lock(named("k"));
    let place = waiting(&mut waits).await;
    client.unlock("k", &place).await.unwrap();
    assert!(matches!(failed(&mut waits).await, Error::Cancelled(_)));
    holder.unlock().await.unwrap();
    let last = acquired(&mut client.lock(named("k"))).await;
    assert!(![first.id, second.id, place].contains(&last.id));
}

#[tokio::test]
async fn request_ids_are_separate_per_application_and_key() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let _held = client.acquire(named("k").requester_application("one")).await.unwrap();
    let of_two = named("k").requester_application("two").max_wait_period(Duration::ZERO);
    assert!(matches!(client.acquire(of_two).await, Err(Error::Timeout(_))));
    let of_another_key = client.acquire(named("l").requester_application("one")).await.unwrap();
    assert_eq!(of_another_key.fence_token(), 1);
}

#[tokio::test]
async fn an_attempt_without_a_request_id_gets_a_generated_one() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let (first, second) = (client.lock(patient("k")), client.lock(patient("k")));
    assert_ne!(first.request_id(), second.request_id());
    assert_eq!(first.request_id().len(), 32);
    let _held = client.acquire(patient("k")).await.unwrap();
    assert_eq!(client.list_acquired_locks("").await.unwrap()[0].request_id.len(), 32);
}
