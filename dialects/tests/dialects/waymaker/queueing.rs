//! Who is granted what, and when.

use super::*;

#[tokio::test]
async fn a_free_key_is_acquired_at_once() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut events = client.lock(patient("k"));
    let hold = acquired(&mut events).await;
    assert_eq!(hold.fence_token, 1);
    assert_eq!(hold.lease_expires_at - hold.acquired_at, 3_600_000);
}

#[tokio::test]
async fn a_waiter_is_granted_when_the_key_is_unlocked() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut first = client.lock(patient("k"));
    let hold = acquired(&mut first).await;
    let mut second = client.lock(patient("k"));
    let place = waiting(&mut second).await;
    client.unlock("k", &hold.id).await.unwrap();
    let granted = acquired(&mut second).await;
    assert_eq!((granted.id, granted.fence_token), (place, 2));
    assert!(soon(first.next()).await.is_none(), "an unlocked lock's stream ends without an event");
}

#[tokio::test]
async fn a_try_on_a_held_key_fails_at_once() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let _held = client.acquire(patient("k")).await.unwrap();
    let error = failed(&mut client.lock(LockRequest::new("k"))).await;
    assert!(matches!(error, Error::Timeout(_)), "{error}");
}

#[tokio::test]
async fn a_wait_times_out_after_its_period() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let _held = client.acquire(patient("k")).await.unwrap();
    let began = std::time::Instant::now();
    let mut events = client.lock(LockRequest::new("k").max_wait_period(Duration::from_millis(100)));
    waiting(&mut events).await;
    assert!(matches!(failed(&mut events).await, Error::Timeout(_)));
    assert!(began.elapsed() >= Duration::from_millis(99));
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_queue() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let reader = client.acquire_read(patient("k")).await.unwrap();
    let mut writer = client.lock(patient("k"));
    waiting(&mut writer).await;
    let mut late = client.read_lock(patient("k"));
    waiting(&mut late).await;
    drop(writer);
    acquired(&mut late).await;
    assert!(reader.is_held());
}

#[tokio::test]
async fn readers_share_a_key_and_a_writer_excludes_them() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let first = client.acquire_read(patient("k")).await.unwrap();
    let second = client.acquire_read(patient("k")).await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!((first.fence_token(), second.fence_token()), (1, 2));
    let mut writer = client.lock(patient("k"));
    waiting(&mut writer).await;
    first.unlock().await.unwrap();
    second.unlock().await.unwrap();
    acquired(&mut writer).await;
    let reading = client.acquire_read(LockRequest::new("k")).await;
    assert!(matches!(reading, Err(Error::Timeout(_))));
}

#[tokio::test]
async fn no_reader_overtakes_a_waiting_writer() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let reader = client.acquire_read(patient("k")).await.unwrap();
    let mut writer = client.lock(patient("k"));
    waiting(&mut writer).await;
    let mut late = client.read_lock(patient("k"));
    let place = waiting(&mut late).await;
    reader.unlock().await.unwrap();
    let hold = acquired(&mut writer).await;
    assert!(!client.lease_status("k", &place).await.unwrap().acquired);
    client.unlock("k", &hold.id).await.unwrap();
    acquired(&mut late).await;
}

#[tokio::test]
async fn a_higher_priority_is_served_earlier() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let holder = client.acquire(patient("k")).await.unwrap();
    let mut waiters = Vec::new();
    for priority in [0, 2, 4, 2] {
        let mut events = client.lock(patient("k").priority(priority));
        waiting(&mut events).await;
        waiters.push(events);
    }
    holder.unlock().await.unwrap();
    for index in [2, 1, 3, 0] {
        let hold = acquired(&mut waiters[index]).await;
        client.unlock("k", &hold.id).await.unwrap();
    }
}

/// Six make up a minute, and more than that is no more: the earlier of the two is first.
#[tokio::test]
async fn a_priority_gains_at_most_one_minute() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let holder = client.acquire(patient("k")).await.unwrap();
    let mut six = client.lock(patient("k").priority(6));
    waiting(&mut six).await;
    // They must not arrive in the same millisecond.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut many = client.lock(patient("k").priority(1_000_000));
    waiting(&mut many).await;
    holder.unlock().await.unwrap();
    let hold = acquired(&mut six).await;
    client.unlock("k", &hold.id).await.unwrap();
    acquired(&mut many).await;
}

#[tokio::test]
async fn a_waiter_is_cancelled_by_its_id() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let _held = client.acquire(patient("k")).await.unwrap();
    let mut events = client.lock(patient("k"));
    let place = waiting(&mut events).await;
    client.unlock("k", &place).await.unwrap();
    assert!(matches!(failed(&mut events).await, Error::Cancelled(_)));
}

#[tokio::test]
async fn a_second_unlock_fails_with_not_found() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let hold = acquired(&mut client.lock(patient("k"))).await;
    client.unlock("k", &hold.id).await.unwrap();
    assert!(matches!(client.unlock("k", &hold.id).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_list_shows_the_holds_of_a_prefix_and_no_waiters() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let request =
        |key: &str| patient(key).requester_application("app").requester_info("info").request_id("r");
    let one = client.acquire(request("a/1")).await.unwrap();
    let _two = client.acquire_read(patient("a/2")).await.unwrap();
    let _other = client.acquire(patient("b/1")).await.unwrap();
    waiting(&mut client.lock(patient("a/1"))).await;
    let listed = client.list_acquired_locks("a/").await.unwrap();
    let found: Vec<_> = listed.iter().map(|lock| (lock.key.as_str(), lock.write_lock)).collect();
    assert_eq!(found, [("a/1", true), ("a/2", false)]);
    let lock = &listed[0];
    assert_eq!((lock.lock_id.as_str(), lock.fence_token), (one.id(), 1));
    let requester = (&*lock.requester_application, &*lock.requester_info, &*lock.request_id);
    assert_eq!(requester, ("app", "info", "r"));
    assert_eq!(client.list_acquired_locks("").await.unwrap().len(), 3);
}

#[tokio::test]
async fn invalid_keys_and_lock_ids_are_bad_input() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    for key in [String::new(), "k".repeat(1025)] {
        let error = failed(&mut client.lock(LockRequest::new(key))).await;
        assert!(matches!(&error, Error::BadInput(text) if text.contains("key")), "{error}");
    }
    assert!(matches!(client.unlock("k", "").await, Err(Error::BadInput(_))));
}

/// The client made up the request id, so no other attempt could find the lock.
#[tokio::test]
async fn dropping_the_event_stream_of_a_held_lock_unlocks_it() {
    let server = server!(None, GRPC);
    let client = client(&server).await;
    let mut events = client.lock(patient("k").max_lease_period(HOUR));
    acquired(&mut events).await;
    drop(events);
    assert!(soon(client.acquire(patient("k"))).await.unwrap().is_held());
    let mut events = client.lock(patient("kept").max_lease_period(HOUR));
    acquired(&mut events).await;
    events.forget();
    waiting(&mut client.lock(patient("kept"))).await;
}
