//! Limits, registries, watches, sessions and operators' commands, with a real server.

use std::future::IntoFuture;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use waymaker_client::{
    CancelReason, Error, ErrorCode, KeyState, LockState, LossReason, NamespaceKind, RevokeReason,
    path_segments,
};

use crate::against_server::waiting;
use crate::connected::{connect, connect_by};
use crate::manual_clock::ManualClock;
use crate::patience::{HOUR, LEASE, eventually, patient, soon};
use crate::real::server;
use crate::relay::Relay;

#[tokio::test]
async fn a_bucket_grants_its_burst_and_then_reports_the_retry_delay() {
    let server = server!();
    let client = connect(&server, "").await;
    let limiter = client.limiter("mail", 1, HOUR, 3);
    assert_eq!(limiter.take(2).await.unwrap().remaining, 1);
    let error = limiter.take(2).await.unwrap_err();
    let Error::Throttled { retry_after: Some(retry_after), bucket } = error else { panic!("{error}") };
    assert!(retry_after <= HOUR && retry_after > HOUR - Duration::from_secs(60), "{retry_after:?}");
    let bucket = bucket.unwrap();
    assert_eq!(bucket.remaining, 1);
    assert!(bucket.reset_after > HOUR && bucket.reset_after <= HOUR * 2, "{bucket:?}");
    assert_eq!(limiter.peek().await.unwrap().remaining, 1);
    assert_eq!(limiter.refund(1).await.unwrap().remaining, 2);
    limiter.take(2).await.unwrap();
    assert!(matches!(limiter.take(4).await, Err(Error::Throttled { retry_after: None, .. })));
    let error = client.limiter("mail", 0, HOUR, 1).take(1).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BadInput));
}

#[tokio::test]
async fn several_buckets_grant_together_or_not_at_all() {
    let server = server!();
    let client = connect(&server, "").await;
    let (small, large) = (client.limiter("small", 1, HOUR, 1), client.limiter("large", 1, HOUR, 10));
    client.take_all([small.cost(1), large.cost(4)]).await.unwrap();
    let error = client.take_all([small.cost(1), large.cost(4)]).await.unwrap_err();
    assert!(matches!(error, Error::Throttled { retry_after: Some(_), .. }));
    assert_eq!(large.peek().await.unwrap().remaining, 6);
    client.refund_all([small.cost(1)]).await.unwrap();
    small.take(1).await.unwrap();
    assert_eq!(client.take_all([]).await.unwrap_err().code(), Some(ErrorCode::BadInput));
}

/// The client tries again at the time that the server named, and not before.
#[tokio::test]
async fn waiting_for_a_token_takes_as_long_as_the_server_says() {
    let (server, clock) = (server!(), ManualClock::new());
    let (client, other) = (connect_by(&server, &clock).await, connect(&server, "").await);
    let limiter = client.limiter("b", 1, LEASE, 1);
    limiter.take(1).await.unwrap();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.wait(1).await }
    });
    // The server refused the request and named a time in two minutes.
    eventually(async || clock.is_armed_for(LEASE / 10..LEASE)).await;
    other.limiter("b", 1, LEASE, 1).refund(1).await.unwrap();
    let answered = async || {
        soon(client.inspect("k")).await.unwrap();
        soon(limiter.peek()).await.unwrap();
    };
    clock.advance_with(LEASE / 2, answered).await;
    assert!(!waiting.is_finished());
    clock.advance_with(LEASE / 2, answered).await;
    soon(waiting).await.unwrap().unwrap();
}

/// A take counts once, even if its response was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_taken_once_despite_repeated_connection_cuts() {
    const TAKE_COUNT: u64 = 300;
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = patient().clock(ManualClock::new().shared()).connect(relay.url()).await.unwrap();
    let limiter = client.limiter("b", 1, HOUR, 1_000);
    let done = watch::Sender::new(0);
    let taking = tokio::spawn({
        let (limiter, done) = (limiter.clone(), done.clone());
        async move {
            for _ in 0..TAKE_COUNT {
                limiter.take(1).await.unwrap();
                done.send_modify(|count| *count += 1);
            }
        }
    });
    relay.cut_until(&done, TAKE_COUNT).await;
    soon(taking).await.unwrap();
    assert_eq!(limiter.peek().await.unwrap().remaining, 1_000 - TAKE_COUNT);
}

#[tokio::test]
async fn only_the_owner_can_renew_change_or_remove_a_registration() {
    let server = server!();
    let client = connect(&server, "host-1").await;
    let registry = client.registry();
    let minute = Duration::from_secs(60);
    let registration = registry.registration("printer").value("10.0.0.7").type_name("device");
    let registered = registration.register(minute).await.unwrap();
    assert!(!registered.renewed && registered.remaining.unwrap() <= minute);
    let stranger = registry.registration("printer").owner("host-2");
    let error = stranger.register(minute).await.unwrap_err();
    assert_eq!(error.contention().unwrap().owner, b"host-1", "{error}");
    let again = registration.clone().value("10.0.0.8").heartbeat(HOUR).await.unwrap();
    assert!(again.renewed && again.remaining.unwrap() > minute);
    assert_eq!((again.id, again.fence), (registered.id, 1));
    registry.registration("other").register(minute).await.unwrap();
    let found = registry.look_up("printer").await.unwrap().unwrap();
    assert_eq!((&found.owner[..], &found.value[..]), (&b"host-1"[..], &b"10.0.0.8"[..]));
    assert_eq!(registry.list_type("device").await.unwrap().len(), 1);
    assert_eq!(registry.list().await.unwrap().len(), 2);
    assert!(matches!(stranger.unregister().await, Err(Error::NotOwner(_))));
    assert!(!registration.unregister().await.unwrap());
    assert_eq!(registry.look_up("printer").await.unwrap(), None);
    assert_eq!(registration.heartbeat(minute).await.unwrap_err().code(), Some(ErrorCode::NotFound));
    let nameless = connect(&server, "").await;
    let error = nameless.registry().registration("k").register(minute).await.unwrap_err();
    assert_eq!(error.to_string(), "bad_input: owner: must not be empty");
}

#[tokio::test]
async fn a_lazy_registration_stays_after_it_has_expired() {
    let server = server!();
    let client = connect(&server, "me").await;
    let registration = client.lazy().registration("k");
    let past = SystemTime::now() - HOUR;
    let registered = registration.register_until(past).await.unwrap();
    assert_eq!(registered.remaining, None);
    // The wall clock may be adjusted meanwhile.
    let almost = HOUR - Duration::from_secs(60);
    assert!(registered.overdue.unwrap() >= almost);
    let found = client.lazy().look_up("k").await.unwrap().unwrap();
    assert_eq!((found.remaining, &found.owner[..]), (None, &b"me"[..]));
    assert!(found.overdue.unwrap() >= almost);
    let until = SystemTime::now() + HOUR;
    let revived = registration.heartbeat_until(until).await.unwrap();
    assert!(revived.remaining.unwrap() <= HOUR && revived.overdue.is_none());
    assert_eq!(client.registry().look_up("k").await.unwrap(), None, "another namespace");
}

#[tokio::test]
async fn a_watch_reports_the_holder_of_a_key_and_when_it_is_free() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "other").await);
    let lock = other.write("k").await.unwrap();
    let mut watch = client.watch("k").await.unwrap();
    assert_eq!(soon(watch.next()).await, Some(KeyState::Held { fence: 1, holder: None }));
    lock.release().await.unwrap();
    assert_eq!(soon(watch.next()).await, Some(KeyState::Free { fence: 1 }));
    let lock = other.read("k").await.unwrap();
    let Some(KeyState::Held { fence: 2, holder: Some(holder) }) = soon(watch.next()).await else { panic!() };
    assert!(holder.shared);
    assert_eq!(holder.owner, b"other");
    drop(watch);
    drop(lock);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_survives_cut_connections_and_reports_missed_changes() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let (client, other) = (patient().connect(relay.url()).await.unwrap(), connect(&server, "").await);
    let mut watch = client.watch("k").await.unwrap();
    assert_eq!(soon(watch.next()).await, Some(KeyState::Free { fence: 0 }));
    for round in 0..5 {
        relay.cut();
        let lock = other.write("k").await.unwrap();
        assert_eq!(soon(watch.next()).await.unwrap().fence(), round + 1);
        lock.release().await.unwrap();
        while soon(watch.next()).await != Some(KeyState::Free { fence: round + 1 }) {}
    }
}

#[tokio::test]
async fn verify_reports_whether_a_fence_is_the_newest_and_held() {
    let server = server!();
    let client = connect(&server, "").await;
    client.write("k").await.unwrap().release().await.unwrap();
    let lock = client.write("k").await.unwrap();
    let old = client.verify("k", 1).await.unwrap();
    assert_eq!((old.is_newest, old.is_held, old.newest_fence), (false, false, 2));
    let new = client.verify("k", lock.fence()).await.unwrap();
    assert!(new.is_newest && new.is_held);
    lock.release().await.unwrap();
    let over = client.verify("k", 2).await.unwrap();
    assert!(over.is_newest && !over.is_held);
}

#[tokio::test]
async fn inspect_lists_waiters_in_the_order_in_which_they_are_served() {
    let server = server!();
    let (first, last) = (connect(&server, "first").await, connect(&server, "last").await);
    let operator = connect(&server, "").await;
    let lock = operator.write("k").await.unwrap();
    assert_eq!(operator.inspect("k").await.unwrap().waiters, []);
    // The first to arrive is served last, because the other claim has priority.
    let writer = tokio::spawn(last.write("k").wait(HOUR).into_future());
    waiting(&operator, "k", 1).await;
    let reader = tokio::spawn(first.read("k").priority(3).into_future());
    waiting(&operator, "k", 2).await;
    let status = operator.inspect("k").await.unwrap();
    assert_eq!((status.holders.len(), status.holders[0].id), (1, lock.id()));
    let [reads, writes] = &status.waiters[..] else { panic!("{status:?}") };
    assert_eq!(
        (&reads.owner[..], reads.shared, reads.priority, reads.remaining),
        (&b"first"[..], true, 3, None)
    );
    assert_eq!((&writes.owner[..], writes.shared, writes.priority), (&b"last"[..], false, 0));
    let left = writes.remaining.unwrap();
    assert!(left <= HOUR && left > HOUR - Duration::from_secs(60), "{left:?}");
    assert!(writes.ticket < reads.ticket && writes.age >= reads.age);
    assert_eq!(operator.status(writes.id).await.unwrap().state, LockState::Waiting);
    assert!(operator.release(writes.id, "k").await.unwrap());
    let error = soon(writer).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Cancelled { reason: CancelReason::Asked, .. }), "{error:?}");
    let id = reads.id;
    lock.release().await.unwrap();
    assert_eq!(soon(reader).await.unwrap().unwrap().id(), id, "it keeps its id");
}

#[tokio::test]
async fn inspect_counts_waiters_beyond_those_it_lists() {
    let server = server!();
    let client = connect(&server, "me").await;
    let _lock = client.write("k").await.unwrap();
    let _waiters: Vec<_> = (0..70).map(|_| tokio::spawn(client.write("k").into_future())).collect();
    waiting(&client, "k", 70).await;
    let status = client.inspect("k").await.unwrap();
    assert_eq!((status.waiter_count, status.waiters.len()), (70, 64));
    assert!(status.waiters.is_sorted_by_key(|waiter| waiter.ticket));
}

#[tokio::test]
async fn claims_that_wait_are_listed_by_prefix() {
    let server = server!();
    let (client, operator) = (connect(&server, "client").await, connect(&server, "").await);
    let _held = client.multi(["eu/1", "eu/2", "us/1"]).await.unwrap();
    assert_eq!(operator.list_waiting("").await.unwrap(), []);
    let writes = client.write("eu/1").wait(HOUR).priority(3).request_id("attempt").metadata("host 7");
    let writer = tokio::spawn(writes.into_future());
    let reader = tokio::spawn(client.read("eu/2").into_future());
    let several = tokio::spawn(client.multi(["eu/1", "us/1"]).into_future());
    for (key, count) in [("eu/1", 2), ("eu/2", 1), ("us/1", 1)] {
        waiting(&operator, key, count).await;
    }
    let mut claims = operator.list_waiting("eu/").await.unwrap();
    claims.sort_by(|left, right| (&left.key, &left.metadata).cmp(&(&right.key, &right.metadata)));
    let [first, writes, reads] = &claims[..] else { panic!("{claims:?}") };
    assert_eq!((&writes.key[..], &writes.owner[..]), (&b"eu/1"[..], &b"client"[..]));
    assert_eq!((&writes.request_id[..], &writes.metadata[..]), (&b"attempt"[..], &b"host 7"[..]));
    assert_eq!((writes.shared, writes.priority), (false, 3));
    let left = writes.remaining.unwrap();
    assert!(left <= HOUR && left + writes.age >= HOUR - Duration::from_secs(1), "{writes:?}");
    assert_eq!((&reads.key[..], reads.shared, reads.remaining), (&b"eu/2"[..], true, None));
    let elsewhere = operator.list_waiting("us/").await.unwrap();
    let [last] = &elsewhere[..] else { panic!("{elsewhere:?}") };
    assert_eq!((&first.key[..], &last.key[..]), (&b"eu/1"[..], &b"us/1"[..]));
    assert_eq!(first.id, last.id, "a claim on several keys is listed for each");
    assert!(operator.force_release(writes.id, "").await.unwrap().was_waiting);
    assert!(matches!(soon(writer).await.unwrap(), Err(Error::Cancelled { .. })));
    assert_eq!(operator.list_waiting("eu/1").await.unwrap().len(), 1);
    let long = operator.list_waiting("p".repeat(100_000)).await.unwrap_err();
    assert_eq!(long.code(), Some(ErrorCode::BadInput));
    reader.abort();
    several.abort();
}

#[tokio::test]
async fn more_waiters_than_a_page_has_are_listed_each_once() {
    const WAITER_COUNT: usize = 1_100;
    let server = server!();
    let client = connect(&server, "").await;
    let pool = client.semaphore("p", 1);
    let _permit = pool.acquire().await.unwrap();
    let waits: Vec<_> = (0..WAITER_COUNT).map(|_| tokio::spawn(pool.acquire().into_future())).collect();
    soon(async { while (pool.describe().await.unwrap().waiter_count as usize) < WAITER_COUNT {} }).await;
    let claims = client.operator(NamespaceKind::Pool).list_waiting("p").await.unwrap();
    assert!(claims.iter().all(|claim| claim.key == b"p" && claim.remaining.is_none()));
    let ids: std::collections::BTreeSet<_> = claims.iter().map(|claim| claim.id).collect();
    assert_eq!((claims.len(), ids.len()), (WAITER_COUNT, WAITER_COUNT));
    assert_eq!(client.list_waiting("").await.unwrap(), [], "another namespace");
    waits.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn claims_that_wait_for_paths_are_listed_below_a_path() {
    let server = server!();
    let client = connect(&server, "me").await;
    let tree = client.tree();
    let _lock = tree.write(["a"]).read(["b"]).await.unwrap();
    let below = tokio::spawn(tree.read(["a", "1"]).wait(HOUR).into_future());
    let beside = tokio::spawn(tree.write(["b"]).into_future());
    soon(async { while tree.list_waiting([""; 0]).await.unwrap().len() < 2 {} }).await;
    let claims = tree.list_waiting(["a"]).await.unwrap();
    let [claim] = &claims[..] else { panic!("{claims:?}") };
    assert_eq!((path_segments(&claim.key), &claim.owner[..]), (vec![&b"a"[..], b"1"], &b"me"[..]));
    assert!(claim.remaining.unwrap() <= HOUR);
    assert_eq!(tree.list_waiting(["c"]).await.unwrap(), []);
    below.abort();
    beside.abort();
}

/// Returns the fields of the audit log's lines about these acts.
fn audited(path: &Path) -> Vec<[String; 3]> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told = lines.filter(|line| !["start", "stop"].contains(&line["act"].as_str().unwrap()));
    told.map(|line| ["act", "key", "reason"].map(|name| line[name].as_str().unwrap_or("none").to_owned()))
        .collect()
}

#[tokio::test]
async fn reasons_of_operators_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let server = server!(None, &["--audit", path.to_str().unwrap()]);
    let client = connect(&server, "op").await;
    let keys = client.operator(NamespaceKind::Flat);
    assert!(keys.clone().reason("the region moves").freeze("eu/").await.unwrap().changed);
    assert!(keys.clone().reason("it has moved").thaw("eu/").await.unwrap().changed);
    assert!(client.freeze("us/").await.unwrap().changed);
    let pool = client.semaphore("p", 1);
    assert_eq!(pool.clone().reason("a new machine").set_capacity(3).await.unwrap(), None);
    assert_eq!(pool.clone().reason("it is gone").remove_pool().await.unwrap(), Some(3));
    assert_eq!(pool.set_capacity(4).await.unwrap(), None);
    let long = "r".repeat(257);
    let error = keys.reason(&long).freeze("asia/").await.unwrap_err();
    assert_eq!(error.to_string(), "bad_input: reason: 257 bytes; the maximum is 256");
    let error = pool.reason(&long).set_capacity(5).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BadInput));
    let expected = [
        ["freeze", "eu/", "the region moves"],
        ["thaw", "eu/", "it has moved"],
        ["freeze", "us/", "none"],
        ["set-capacity", "p", "a new machine"],
        ["set-capacity", "p", "it is gone"],
        ["set-capacity", "p", "none"],
    ];
    eventually(async || audited(&path).len() >= expected.len()).await;
    assert_eq!(audited(&path), expected);
}

#[tokio::test]
async fn inspecting_a_path_shows_waiters_for_paths_above_and_below() {
    let server = server!();
    let client = connect(&server, "me").await;
    let tree = client.tree();
    let _lock = tree.read(["a", "b"]).read(["a", "c"]).await.unwrap();
    let above = tree.inspect(["a"]).await.unwrap();
    assert_eq!((above.holder_count, above.holders.len()), (1, 1), "a set counts once");
    let waiter = tokio::spawn(tree.write(["a"]).into_future());
    soon(async { while tree.inspect(["a", "b"]).await.unwrap().waiter_count == 0 {} }).await;
    let status = tree.inspect(["a", "b"]).await.unwrap();
    assert_eq!((status.waiters.len(), &status.waiters[0].owner[..]), (1, &b"me"[..]));
    assert!(!status.waiters[0].shared);
    assert_eq!(tree.inspect(["b"]).await.unwrap().waiters, []);
    waiter.abort();
}

#[tokio::test]
async fn a_forced_release_reports_its_reason_and_grants_the_waiter() {
    let server = server!();
    let (client, operator) = (connect(&server, "client").await, connect(&server, "").await);
    let lock = client.write("k").await.unwrap();
    let waiter = tokio::spawn(client.write("k").into_future());
    waiting(&operator, "k", 1).await;
    let released = operator.force_release(lock.id(), "it hangs").await.unwrap();
    assert_eq!((&released.key[..], &released.owner[..], released.fence), (&b"k"[..], &b"client"[..], 1));
    assert!(!released.was_waiting);
    assert_eq!(soon(lock.lost()).await, LossReason::Revoked(RevokeReason::Forced));
    assert_eq!(lock.loss_message(), "it hangs");
    let next = soon(waiter).await.unwrap().unwrap();
    let error = operator.force_release(lock.id(), "").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotFound));
    assert!(next.is_held());
}

#[tokio::test]
async fn frozen_keys_are_not_granted_and_held_locks_stay_held() {
    let server = server!();
    let (client, operator) = (connect(&server, "").await, connect(&server, "").await);
    let held = client.write("eu/held").await.unwrap();
    let frozen = operator.freeze("eu/").await.unwrap();
    assert!(frozen.changed && frozen.frozen_count == 1);
    assert!(!operator.freeze("eu/").await.unwrap().changed);
    let error = client.write("eu/k").try_().await.unwrap_err();
    assert!(matches!(error, Error::Frozen { .. }), "{error}");
    drop(client.write("us/k").try_().await.unwrap());
    held.extend(HOUR).await.unwrap();
    held.release().await.unwrap();
    let waiter = tokio::spawn(client.write("eu/k").into_future());
    waiting(&operator, "eu/k", 1).await;
    assert!(!waiter.is_finished());
    operator.thaw("eu/").await.unwrap();
    drop(soon(waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn namespaces_are_listed_with_their_number_of_holds() {
    let server = server!();
    let client = patient().namespace("blue").connect(server.url()).await.unwrap();
    let _lock = client.write("k").await.unwrap();
    let _permit = client.semaphore("p", 1).acquire().await.unwrap();
    let _path = client.tree().write(["a"]).await.unwrap();
    let namespaces = client.namespaces().await.unwrap();
    for (name, kind) in
        [("blue", NamespaceKind::Flat), ("sem/blue", NamespaceKind::Pool), ("tree/blue", NamespaceKind::Tree)]
    {
        let namespace = namespaces.iter().find(|namespace| namespace.name == name.as_bytes());
        let namespace = namespace.unwrap_or_else(|| panic!("{name} in {namespaces:?}"));
        assert_eq!((namespace.kind, namespace.held), (kind, 1), "{name}");
    }
}

#[tokio::test]
async fn all_connections_of_a_client_share_one_session_and_its_holds() {
    let server = server!();
    let (client, other) = (connect(&server, "").await, connect(&server, "").await);
    let lock = client.write("k").session_lease().await.unwrap();
    let permit = client.semaphore("p", 1).acquire().session_lease().await.unwrap();
    let path = client.tree().write(["a"]).session_lease().await.unwrap();
    client.limiter("b", 1, HOUR, 1).take(1).await.unwrap();
    let session = client.session();
    assert!(session.id().is_some() && session.remaining() <= session.lease());
    assert!(session.remaining() > session.lease() / 2);
    let mut held: Vec<_> = session.holds().await.unwrap().into_iter().map(|hold| hold.id).collect();
    let mut expected = vec![lock.id(), permit.id(), path.id()];
    held.sort();
    expected.sort();
    assert_eq!(held, expected);
    // The last connection of the session ends it, and with it the holds on its lease.
    client.close().await.unwrap();
    drop(soon(other.write("k").into_future()).await.unwrap());
    drop(soon(other.semaphore("p", 1).acquire().into_future()).await.unwrap());
    drop(soon(other.tree().write(["a"]).into_future()).await.unwrap());
}

/// The guard of a permit needs its connection, and the session whose lease it is on.
#[tokio::test]
async fn a_guard_keeps_the_session_after_all_handles_are_dropped() {
    let (server, clock) = (server!(), ManualClock::new());
    let builder = patient().session_lease(LEASE).clock(clock.shared());
    let client = soon(builder.connect(server.url())).await.unwrap();
    let other = connect(&server, "").await;
    let permit = client.semaphore("p", 1).acquire().session_lease().await.unwrap();
    drop(client);
    // The server refuses this, because the hold is on the lease of the session.
    let answered = async || drop(soon(permit.extend(LEASE)).await.unwrap_err());
    clock.advance_with(2 * LEASE, answered).await;
    assert!(permit.is_held());
    let pool = other.semaphore("p", 1);
    assert!(matches!(pool.acquire().try_().await, Err(Error::Busy(_))));
    drop(permit);
    drop(soon(pool.acquire().into_future()).await.unwrap());
}

#[tokio::test]
async fn a_session_without_keep_alives_is_lost_on_all_connections() {
    let (server, clock) = (server!(), ManualClock::new());
    let relay = Relay::to(server.url()).await;
    let client = patient().session_lease(LEASE).clock(clock.shared()).connect(relay.url()).await.unwrap();
    let lock = client.write("k").session_lease().await.unwrap();
    let permit = client.semaphore("p", 1).acquire().session_lease().await.unwrap();
    let session = client.session();
    let expired = session.expired();
    let url = relay.url().to_owned();
    drop(relay);
    clock.advance_until(LEASE / 100, async || session.remaining().is_zero()).await;
    soon(expired).await;
    soon(lock.lost()).await;
    soon(permit.lost()).await;
    assert!(session.remaining().is_zero() && session.loss_reason().is_some(), "{url}");
}

/// Without holds, the client stops reconnecting long before that, but must still report the loss.
#[tokio::test]
async fn a_session_without_holds_is_reported_lost() {
    let (server, clock) = (server!(), ManualClock::new());
    let relay = Relay::to(server.url()).await;
    let client = patient().session_lease(LEASE).clock(clock.shared()).connect(relay.url()).await.unwrap();
    let session = client.session();
    drop(relay);
    clock.advance_until(LEASE / 100, async || session.remaining().is_zero()).await;
    assert_eq!(soon(session.expired()).await, LossReason::LocalDeadline);
}

#[tokio::test]
async fn permits_and_paths_survive_cut_connections() {
    let server = server!();
    let relay = Relay::to(server.url()).await;
    let client = patient().connect(relay.url()).await.unwrap();
    let other = connect(&server, "").await;
    let permit = client.semaphore("p", 1).acquire().session_lease().await.unwrap();
    let path = client.tree().write(["a"]).await.unwrap();
    let session = client.session().id();
    for _ in 0..5 {
        relay.cut();
        assert_eq!(soon(client.session().holds()).await.unwrap().len(), 2);
        assert!(permit.is_held() && path.is_held());
        assert!(matches!(other.semaphore("p", 1).acquire().try_().await, Err(Error::Busy(_))));
        assert!(matches!(other.tree().read(["a", "b"]).try_().await, Err(Error::Busy(_))));
    }
    assert_eq!(client.session().id(), session);
    permit.release().await.unwrap();
    path.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_a_frozen_key_fails_as_frozen() {
    let server = server!();
    let client = connect(&server, "").await;
    client.freeze("k").await.unwrap();
    let wait = Duration::from_millis(50);
    let error = soon(client.write("k").wait(wait).into_future()).await.unwrap_err();
    assert!(matches!(error, Error::Frozen { .. }), "{error:?} {error}");
    let error = soon(client.multi(["k", "l"]).wait(wait).into_future()).await.unwrap_err();
    assert!(matches!(error, Error::Frozen { .. }), "{error:?} {error}");
}
