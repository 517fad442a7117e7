//! Clever's `lock`: the cases of its own tests, and cases that they lack.

use std::time::{Duration, Instant, SystemTime};

use waymaker_client::{Client, NamespaceKind};
use waymaker_dialects::clever::{
    AcquireAnyLockInput, AcquireLockInput, BackgroundHeartbeats, Error, GRACE, HeartbeatLockInput, Lock,
    Locker, Unavailable,
};

use crate::dynamodb::{PORT, Table};
use crate::manual_clock::ManualClock;
use crate::patience::{HOUR, eventually, patient, soon};
use crate::real::{RealServer, server};

const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(300);
/// Time between two heartbeats.
const INTERVAL: Duration = MINUTE;

/// Error of a time in an answer, which is a whole number of milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

async fn locker(server: &RealServer) -> Locker {
    locker_by(server, &ManualClock::new()).await.1
}

/// Connects a locker that reads its time from `clock`. Returns its client too.
async fn locker_by(server: &RealServer, clock: &ManualClock) -> (Client, Locker) {
    let builder = patient().namespace("clever/table").clock(clock.shared());
    let client = soon(builder.connect(server.url())).await.unwrap();
    (client.clone(), Locker::new(client))
}

/// Lets time pass for a locker; its server answers each heartbeat in no time.
async fn pass(client: &Client, locker: &Locker, clock: &ManualClock, duration: Duration) {
    let answered = async || {
        soon(client.inspect("key")).await.unwrap();
        soon(locker.get_current_lock("key")).await.unwrap();
    };
    clock.advance_with(duration, answered).await;
}

fn lasting(key: &str, owner: &str, lease: Duration) -> AcquireLockInput {
    AcquireLockInput {
        key: key.to_owned(),
        owner: owner.to_owned(),
        lease_duration: Some(lease),
        ..AcquireLockInput::default()
    }
}

fn until(key: &str, owner: &str, end: SystemTime) -> AcquireLockInput {
    AcquireLockInput { lease_end: Some(end), lease_duration: None, ..lasting(key, owner, LEASE) }
}

async fn acquire(locker: &Locker, key: &str, owner: &str) -> Result<Lock, Error> {
    soon(locker.acquire_lock(lasting(key, owner, LEASE))).await
}

/// A lock whose lease has been over for so long.
async fn acquire_over(locker: &Locker, key: &str, owner: &str, for_so_long: Duration) -> Lock {
    let end = SystemTime::now() - for_so_long;
    soon(locker.acquire_lock(until(key, owner, end))).await.unwrap()
}

/// Does something with an expired lock of the first owner, before the end of the grace period. Repeats it with another key
/// if it took longer than that.
async fn within_grace<T>(locker: &Locker, work: impl AsyncFn(Lock) -> T) -> T {
    for attempt in 0.. {
        let lock =
            acquire_over(locker, &format!("within {attempt}"), "owner1", Duration::from_millis(1)).await;
        let end = lock.leased_until + GRACE;
        let done = work(lock).await;
        if SystemTime::now() < end - ROUNDING {
            return done;
        }
    }
    unreachable!("there is no last attempt")
}

async fn heartbeat(locker: &Locker, lock: &Lock, lease: Duration) -> Result<Lock, Error> {
    let original_lock = lock.clone();
    let input = HeartbeatLockInput { original_lock, lease_end: None, lease_duration: Some(lease) };
    soon(locker.heartbeat_lock(input)).await
}

fn any(keys: &[&str], owner: &str) -> AcquireAnyLockInput {
    AcquireAnyLockInput {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        owner: owner.to_owned(),
        lease_duration: Some(LEASE),
        ..AcquireAnyLockInput::default()
    }
}

/// Checks that the lease ends after this time, or at most a minute earlier, and all that follows from the end.
#[track_caller]
fn assert_leased_for(lock: &Lock, lease: Duration) {
    let expected = SystemTime::now() + lease;
    assert!(lock.leased_until <= expected, "{lock:?}");
    assert!(lock.leased_until >= expected - MINUTE, "{lock:?}");
    assert_eq!(lock.ttl, lock.leased_until + Duration::from_secs(48 * 3_600));
}

/// How far two times are apart. The server tells them in milliseconds.
fn off(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

/// Another owner has the lock: this owner, until the end of a lease of five minutes.
#[track_caller]
fn assert_unavailable(result: Result<impl std::fmt::Debug, Error>, expected_owner: &str) {
    let error = result.unwrap_err();
    let text = error.to_string();
    let Error::Unavailable(Unavailable::Owned { owner, lease_end, .. }) = error else { panic!("{text}") };
    assert_eq!(owner, expected_owner);
    let expected = SystemTime::now() + LEASE;
    assert!(lease_end <= expected && lease_end >= expected - MINUTE, "{text}");
    assert!(text.starts_with(&format!("lock unavailable: held by \"{expected_owner}\", lease expires in ")));
}

#[track_caller]
fn assert_gone(result: Result<impl std::fmt::Debug, Error>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Gone)), "{error}");
}

/// The input makes no sense because of this field.
#[track_caller]
fn assert_invalid(result: Result<impl std::fmt::Debug, Error>, expected: &str) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Invalid { field, .. } if field == expected), "{error:?}");
}

#[tokio::test]
async fn a_lock_is_acquired_and_released_in_an_empty_table() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    assert_eq!((&lock.key[..], &lock.owner[..]), ("key", "owner1"));
    assert_leased_for(&lock, LEASE);
    soon(locker.release_lock(&lock)).await.unwrap();
    assert_eq!(soon(locker.get_current_lock("key")).await.unwrap(), None);
}

#[tokio::test]
async fn a_lock_that_expired_minutes_ago_is_granted_to_another_owner() {
    let server = server!();
    let locker = locker(&server).await;
    let old = acquire_over(&locker, "key", "owner1", LEASE).await;
    let new = acquire(&locker, "key", "owner2").await.unwrap();
    assert_leased_for(&new, LEASE);
    assert_eq!((old.fence, new.fence), (1, 2));
}

#[tokio::test]
async fn a_released_lock_is_granted_to_another_owner() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    soon(locker.release_lock(&lock)).await.unwrap();
    assert_eq!(acquire(&locker, "key", "owner2").await.unwrap().owner, "owner2");
}

#[tokio::test]
async fn the_owner_can_acquire_its_lock_again_with_a_shorter_lease() {
    let server = server!();
    let locker = locker(&server).await;
    let first = acquire(&locker, "key", "owner1").await.unwrap();
    let again = soon(locker.acquire_lock(lasting("key", "owner1", 2 * MINUTE))).await.unwrap();
    assert_leased_for(&again, 2 * MINUTE);
    assert_leased_for(&soon(locker.get_current_lock("key")).await.unwrap().unwrap(), 2 * MINUTE);
    assert_eq!(again.fence, first.fence);
}

#[tokio::test]
async fn another_owner_cannot_acquire_release_or_renew_a_leased_lock() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let others = Lock { owner: "owner2".to_owned(), ..lock };
    assert_unavailable(acquire(&locker, "key", "owner2").await, "owner1");
    assert_unavailable(soon(locker.release_lock(&others)).await, "owner1");
    assert_unavailable(heartbeat(&locker, &others, LEASE).await, "owner1");
    assert_eq!(soon(locker.get_current_lock("key")).await.unwrap().unwrap().owner, "owner1");
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let kept = heartbeat(&locker, &lock, 2 * LEASE).await.unwrap();
    assert_leased_for(&kept, 2 * LEASE);
    assert_eq!((&kept.key, &kept.owner, kept.fence), (&lock.key, &lock.owner, lock.fence));
    assert_leased_for(&soon(locker.get_current_lock("key")).await.unwrap().unwrap(), 2 * LEASE);
}

#[tokio::test]
async fn a_heartbeat_sets_the_given_lease_end() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let end = SystemTime::now() + 2 * LEASE;
    let input = HeartbeatLockInput { original_lock: lock, lease_end: Some(end), lease_duration: None };
    assert_eq!(soon(locker.heartbeat_lock(input)).await.unwrap().leased_until, end);
}

#[tokio::test]
async fn a_heartbeat_revives_an_expired_lock() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire_over(&locker, "key", "owner1", LEASE).await;
    assert_leased_for(&heartbeat(&locker, &lock, LEASE).await.unwrap(), LEASE);
    assert_unavailable(acquire(&locker, "key", "owner2").await, "owner1");
}

#[tokio::test]
async fn a_heartbeat_fails_once_another_owner_took_the_lock() {
    let server = server!();
    let locker = locker(&server).await;
    let lost = acquire_over(&locker, "key", "owner1", LEASE).await;
    let stolen = acquire(&locker, "key", "owner2").await.unwrap();
    assert_unavailable(heartbeat(&locker, &lost, LEASE).await, "owner2");
    soon(locker.release_lock(&stolen)).await.unwrap();
    assert_gone(heartbeat(&locker, &lost, LEASE).await);
}

#[tokio::test]
async fn acquire_and_heartbeat_set_created_at() {
    let server = server!();
    let locker = locker(&server).await;
    let before = SystemTime::now();
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    assert!(before <= lock.created_at && lock.created_at <= SystemTime::now());
    let pause = Duration::from_millis(100);
    tokio::time::sleep(pause).await;
    let begin = Instant::now();
    let kept = heartbeat(&locker, &lock, LEASE).await.unwrap();
    assert!(lock.created_at + pause <= kept.created_at && kept.created_at <= SystemTime::now());
    let current = soon(locker.get_current_lock("key")).await.unwrap().unwrap();
    // The error is at most the time of the two calls, which are usually much faster than the pause.
    assert!(
        off(current.created_at, kept.created_at) <= begin.elapsed() + ROUNDING,
        "{current:?} is not {kept:?}"
    );
}

#[tokio::test]
async fn get_current_lock_returns_all_fields() {
    let server = server!();
    let locker = locker(&server).await;
    let begin = Instant::now();
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let current = soon(locker.get_current_lock("key")).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert_eq!(
        (&current.key[..], &current.owner[..], current.fence),
        (&lock.key[..], &lock.owner[..], lock.fence)
    );
    assert_leased_for(&current, LEASE);
    assert!(off(current.created_at, lock.created_at) <= took + ROUNDING);
}

#[tokio::test]
async fn get_current_lock_returns_an_expired_lock() {
    let server = server!();
    let locker = locker(&server).await;
    let lock = acquire_over(&locker, "key", "owner1", LEASE).await;
    let current = soon(locker.get_current_lock("key")).await.unwrap().unwrap();
    assert!(off(current.leased_until, lock.leased_until) < MINUTE);
}

#[tokio::test]
async fn get_current_lock_returns_none_for_an_unknown_key() {
    let server = server!();
    assert_eq!(soon(locker(&server).await.get_current_lock("nobody's")).await.unwrap(), None);
}

/// An instant has no time zone here, so the case of a test of the original cannot fail. A time made from local times is
/// compared as an instant, also to fractions of a second.
#[tokio::test]
async fn lease_ends_are_compared_as_instants() {
    let server = server!();
    let locker = locker(&server).await;
    let second = SystemTime::UNIX_EPOCH
        + Duration::from_secs(
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 300,
        );
    for end in [second, second + Duration::from_millis(500)] {
        soon(locker.acquire_lock(until("key", "owner1", end))).await.unwrap();
        let begin = Instant::now();
        let current = soon(locker.get_current_lock("key")).await.unwrap().unwrap();
        let off = off(current.leased_until, end);
        // A comparison as text would put the fraction first.
        assert!(off <= begin.elapsed() + ROUNDING, "{off:?} off after {:?}", begin.elapsed());
        assert!(acquire(&locker, "key", "owner2").await.unwrap_err().is_unavailable());
    }
}

#[tokio::test]
async fn an_expired_lock_stays_with_its_owner_during_the_grace_period() {
    let server = server!();
    let locker = locker(&server).await;
    let error =
        within_grace(&locker, async |lock| acquire(&locker, &lock.key, "owner2").await).await.unwrap_err();
    assert_eq!(error.to_string(), r#"lock unavailable: held by "owner1", whose lease has expired"#);
    acquire_over(&locker, "beyond", "owner1", GRACE + Duration::from_secs(1)).await;
    assert_eq!(acquire(&locker, "beyond", "owner2").await.unwrap().owner, "owner2");
}

#[tokio::test]
async fn another_owner_can_release_an_expired_lock_after_the_grace_period() {
    let server = server!();
    let locker = locker(&server).await;
    let others = |lock: &Lock| Lock { owner: "owner2".to_owned(), ..lock.clone() };
    let released = within_grace(&locker, async |lock| soon(locker.release_lock(&others(&lock))).await).await;
    let error = released.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let beyond = acquire_over(&locker, "beyond", "owner1", GRACE + Duration::from_secs(1)).await;
    soon(locker.release_lock(&others(&beyond))).await.unwrap();
    assert_gone(heartbeat(&locker, &beyond, LEASE).await);
    soon(locker.release_lock(&beyond)).await.unwrap();
}

#[tokio::test]
async fn acquire_any_lock_takes_the_first_available_key() {
    let server = server!();
    let locker = locker(&server).await;
    acquire(&locker, "a", "owner1").await.unwrap();
    let lock = soon(locker.acquire_any_lock(any(&["a", "b", "c"], "owner2"))).await.unwrap();
    assert_eq!(lock.key, "b");
    assert_leased_for(&lock, LEASE);
    assert_eq!(soon(locker.get_current_lock("c")).await.unwrap(), None);
}

#[tokio::test]
async fn acquire_any_lock_lists_all_unavailable_keys() {
    let server = server!();
    let locker = locker(&server).await;
    acquire(&locker, "a", "owner1").await.unwrap();
    acquire(&locker, "b", "owner3").await.unwrap();
    let error = soon(locker.acquire_any_lock(any(&["a", "b"], "owner2"))).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(r#"lock unavailable: locking key a: lock unavailable: held by "owner1""#),
        "{text}"
    );
    assert!(text.contains(r#"; locking key b: lock unavailable: held by "owner3""#), "{text}");
    let Error::Unavailable(Unavailable::All(errors)) = error else { panic!("{text}") };
    assert_eq!(errors.iter().map(|failed| &failed.key[..]).collect::<Vec<_>>(), ["a", "b"]);
}

/// The call continues after a failed key, and the error names the reason for each key.
#[tokio::test]
async fn acquire_any_lock_reports_other_failures_and_tries_the_next_key() {
    let server = server!();
    let (client, locker) = locker_by(&server, &ManualClock::new()).await;
    client.operator(NamespaceKind::Lazy).freeze("frozen").await.unwrap();
    acquire(&locker, "busy", "owner1").await.unwrap();
    let error = soon(locker.acquire_any_lock(any(&["frozen", "busy"], "owner2"))).await.unwrap_err();
    let text = error.to_string();
    assert!(!error.is_unavailable(), "{text}");
    let Error::NoneOfSeveral(errors) = error else { panic!("{text}") };
    assert!(matches!(errors[0].error, Error::System(waymaker_client::Error::Frozen { .. })), "{text}");
    assert!(errors[1].error.is_unavailable(), "{text}");
    assert!(text.starts_with("locking key frozen: ") && text.contains("; locking key busy: "), "{text}");
    let free = soon(locker.acquire_any_lock(any(&["frozen", "busy", "free"], "owner2"))).await.unwrap();
    assert_eq!(free.key, "free");
}

/// With four keys, the probability that a key is never the first in 64 orders is one in a hundred million.
#[tokio::test]
async fn every_key_can_come_first_in_a_random_order() {
    let server = server!();
    let locker = locker(&server).await;
    let mut firsts = std::collections::BTreeSet::new();
    for _ in 0..64 {
        let input = AcquireAnyLockInput { randomize_order: true, ..any(&["a", "b", "c", "d"], "owner") };
        let lock = soon(locker.acquire_any_lock(input)).await.unwrap();
        soon(locker.release_lock(&lock)).await.unwrap();
        firsts.insert(lock.key);
    }
    assert_eq!(firsts.len(), 4, "{firsts:?}");
}

#[tokio::test]
async fn a_random_order_tries_all_keys() {
    let server = server!();
    let locker = locker(&server).await;
    for key in ["a", "b", "c"] {
        acquire(&locker, key, "owner1").await.unwrap();
    }
    for _ in 0..8 {
        let input = AcquireAnyLockInput { randomize_order: true, ..any(&["a", "b", "c", "d"], "owner2") };
        assert_eq!(soon(locker.acquire_any_lock(input)).await.unwrap().key, "d");
    }
}

#[tokio::test]
async fn invalid_input_is_rejected_with_the_field_name() {
    let server = server!();
    let locker = locker(&server).await;
    let good = lasting("key", "owner", LEASE);
    let both = AcquireLockInput { lease_end: Some(SystemTime::now()), ..good.clone() };
    let neither = AcquireLockInput { lease_duration: None, ..good.clone() };
    for (input, field) in [
        (both, "lease"),
        (neither, "lease"),
        (lasting("key", "owner", Duration::ZERO), "lease"),
        (AcquireLockInput { key: String::new(), ..good.clone() }, "key"),
        (AcquireLockInput { key: "k".repeat(1_025), ..good.clone() }, "key"),
        (AcquireLockInput { owner: String::new(), ..good.clone() }, "owner"),
        (AcquireLockInput { owner: "o".repeat(257), ..good }, "owner"),
    ] {
        assert_invalid(soon(locker.acquire_lock(input)).await, field);
    }
    assert_eq!(soon(locker.get_current_lock("key")).await.unwrap(), None);
    assert_invalid(soon(locker.get_current_lock("")).await, "key");
    assert_invalid(soon(locker.acquire_any_lock(any(&[], "owner"))).await, "keys");
    assert_invalid(soon(locker.acquire_any_lock(any(&["a", ""], ""))).await, "owner");
    let lock = acquire(&locker, "key", "owner").await.unwrap();
    let input = HeartbeatLockInput { original_lock: lock.clone(), lease_end: None, lease_duration: None };
    assert_invalid(soon(locker.heartbeat_lock(input)).await, "lease");
    assert_invalid(locker.start_background_heartbeats(&lock, Duration::ZERO, LEASE), "heartbeat_interval");
    assert_invalid(locker.start_background_heartbeats(&lock, LEASE, Duration::ZERO), "lease_duration");
    assert_invalid(soon(Locker::connect(server.url(), "")).await, "table");
}

#[tokio::test]
async fn tables_are_independent() {
    let server = server!();
    let one = locker(&server).await;
    let other = soon(async {
        loop {
            match Locker::connect(server.url(), "other").await {
                // The server did not answer in time.
                Err(Error::System(waymaker_client::Error::Unavailable(_))) => {}
                connected => return connected.unwrap(),
            }
        }
    })
    .await;
    acquire(&one, "key", "owner1").await.unwrap();
    acquire(&other, "key", "owner2").await.unwrap();
}

/// Ends when the lock has been kept once more.
async fn kept(heartbeats: &BackgroundHeartbeats, before: &Lock) -> Lock {
    eventually(async || heartbeats.lock().leased_until > before.leased_until).await;
    heartbeats.lock()
}

#[tokio::test]
async fn background_heartbeats_keep_a_lock_until_they_are_stopped() {
    let (server, clock) = (server!(), ManualClock::new());
    let (client, locker) = locker_by(&server, &clock).await;
    let lock = soon(locker.acquire_lock(lasting("key", "owner1", 2 * MINUTE))).await.unwrap();
    let mut heartbeats = locker.start_background_heartbeats(&lock, INTERVAL, LEASE).unwrap();
    assert_eq!(heartbeats.lock(), lock);
    // The first comes one interval after the start.
    pass(&client, &locker, &clock, INTERVAL / 2).await;
    assert_eq!(heartbeats.lock(), lock);
    pass(&client, &locker, &clock, INTERVAL / 2).await;
    let first = kept(&heartbeats, &lock).await;
    assert_leased_for(&first, LEASE);
    pass(&client, &locker, &clock, INTERVAL).await;
    kept(&heartbeats, &first).await;
    heartbeats.stop();
    assert!(soon(heartbeats.error()).await.is_none(), "stopped without an error");
    soon(locker.acquire_lock(lasting("key", "owner1", MINUTE))).await.unwrap();
    pass(&client, &locker, &clock, 4 * INTERVAL).await;
    assert_leased_for(&soon(locker.get_current_lock("key")).await.unwrap().unwrap(), MINUTE);
}

#[tokio::test]
async fn background_heartbeats_stop_when_they_are_dropped() {
    let (server, clock) = (server!(), ManualClock::new());
    let (client, locker) = locker_by(&server, &clock).await;
    let lock = soon(locker.acquire_lock(lasting("key", "owner1", MINUTE))).await.unwrap();
    drop(locker.start_background_heartbeats(&lock, INTERVAL, LEASE).unwrap());
    pass(&client, &locker, &clock, 4 * INTERVAL).await;
    assert_leased_for(&soon(locker.get_current_lock("key")).await.unwrap().unwrap(), MINUTE);
}

/// The error is read long after.
#[tokio::test]
async fn background_heartbeats_fail_if_another_owner_takes_the_lock() {
    let (server, clock) = (server!(), ManualClock::new());
    let (client, locker) = locker_by(&server, &clock).await;
    let lost = acquire_over(&locker, "key", "owner1", LEASE).await;
    acquire(&locker, "key", "owner2").await.unwrap();
    let mut heartbeats = locker.start_background_heartbeats(&lost, INTERVAL, LEASE).unwrap();
    pass(&client, &locker, &clock, 5 * INTERVAL).await;
    let error = soon(heartbeats.error()).await.unwrap();
    assert!(error.is_unavailable());
    let text = error.to_string();
    assert!(text.starts_with(r#"heartbeat error: lock unavailable: held by "owner2", "#), "{text}");
    assert!(soon(heartbeats.error()).await.is_none(), "there is one error, and then the end");
    assert_eq!(heartbeats.lock(), lost);
}

#[tokio::test]
async fn background_heartbeats_fail_if_the_server_dies() {
    let (mut server, clock) = (server!(), ManualClock::new());
    let (_, locker) = locker_by(&server, &clock).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let mut heartbeats = locker.start_background_heartbeats(&lock, INTERVAL, LEASE).unwrap();
    server.kill();
    // Pauses between attempts to connect move the clock too.
    clock.advance(INTERVAL).await;
    let error = soon(heartbeats.error()).await.unwrap();
    assert!(!error.is_unavailable() && error.to_string().starts_with("heartbeat error: "), "{error}");
}

/// A call waits for the connection for much longer than the lease lasts.
#[tokio::test]
async fn unanswered_background_heartbeats_end_before_the_lease() {
    let (mut server, clock) = (server!(), ManualClock::new());
    let builder = patient().connect_timeout(HOUR).namespace("clever/table").clock(clock.shared());
    let locker = Locker::new(soon(builder.connect(server.url())).await.unwrap());
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let mut heartbeats = locker.start_background_heartbeats(&lock, INTERVAL, LEASE).unwrap();
    server.kill();
    // Less than the lease, by nearly the margin.
    clock.advance(LEASE - Duration::from_secs(3)).await;
    let error = soon(heartbeats.error()).await.unwrap();
    assert!(error.to_string().contains("could not be renewed in time"), "{error}");
}

/// Clients of the gRPC interface find the same locks.
#[tokio::test]
async fn the_grpc_interface_shows_the_same_locks_of_a_table() {
    use waymaker_proto::v1;
    use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;

    let server = server!(None, &["--grpc-listen", "127.0.0.1:0"]);
    let locker = locker(&server).await;
    let lock = acquire(&locker, "key", "owner1").await.unwrap();
    let url = format!("http://{}", server.listener("grpc"));
    let mut grpc = OwnedLockServiceClient::connect(url).await.unwrap();
    let question = v1::GetCurrentLockRequest { table: "table".to_owned(), key: "key".to_owned() };
    let found = grpc.get_current_lock(question).await.unwrap().into_inner().lock.unwrap();
    assert_eq!((&found.owner[..], found.fence), ("owner1", lock.fence));
}

/// The Go package and a program in Rust share the locks of a table.
#[tokio::test]
async fn a_client_of_dynamodb_uses_the_same_locks() {
    let server = server!(None, &PORT);
    let table = Table::create(server.listener("dynamodb"), "table");
    let locker = locker(&server).await;
    assert!(table.acquire("key", "go"));
    assert!(matches!(acquire(&locker, "key", "rust").await, Err(Error::Unavailable(_))));
    let found = soon(locker.get_current_lock("key")).await.unwrap().unwrap();
    assert_eq!((&*found.key, &*found.owner), ("key", "go"));
    assert!(table.release("key", "go"));
    let lock = acquire(&locker, "key", "rust").await.unwrap();
    assert!(table.current("key").contains(r#""owner":{"S":"rust"}"#), "{}", table.current("key"));
    assert!(!table.acquire("key", "go") && !table.release("key", "go"));
    soon(locker.release_lock(&lock)).await.unwrap();
    assert!(table.acquire("key", "go"));
}
