//! `OwnedLockService`: the rules of the Clever lock.

use super::{assert_after, assert_bad_input, assert_same, refusal, server, unix_ms};
use crate::harness::Server;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Status};
use waymaker_proto::v1::owned_lease::Lease;
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_proto::v1::{
    AcquireAnyLockRequest, AcquireLockRequest, ErrorCode, GetCurrentLockRequest, HeartbeatLockRequest,
    OwnedLease, OwnedLock, ReleaseLockRequest,
};

const TABLE: &str = "locks";
const MINUTE_MS: i64 = 60_000;
const FORGET_MS: i64 = 48 * 60 * MINUTE_MS;

/// A table and whoever asks it.
struct Table(OwnedLockServiceClient<Channel>);

async fn table() -> (Server, Table) {
    let (server, channel) = server().await;
    (server, Table(OwnedLockServiceClient::new(channel)))
}

fn lasting(duration_ms: i64) -> Option<OwnedLease> {
    Some(OwnedLease { lease: Some(Lease::DurationMs(duration_ms)) })
}

fn until(end_at_ms: i64) -> Option<OwnedLease> {
    Some(OwnedLease { lease: Some(Lease::EndAtMs(end_at_ms)) })
}

impl Table {
    async fn acquire(
        &mut self,
        key: &str,
        owner: &str,
        lease: Option<OwnedLease>,
    ) -> Result<OwnedLock, Status> {
        let (table, key, owner) = (TABLE.to_owned(), key.to_owned(), owner.to_owned());
        let acquired = self.0.acquire_lock(AcquireLockRequest { table, key, owner, lease }).await?;
        Ok(acquired.into_inner().lock.expect("a lock"))
    }

    async fn heartbeat(
        &mut self,
        key: &str,
        owner: &str,
        lease: Option<OwnedLease>,
    ) -> Result<OwnedLock, Status> {
        let (table, key, owner) = (TABLE.to_owned(), key.to_owned(), owner.to_owned());
        let kept = self.0.heartbeat_lock(HeartbeatLockRequest { table, key, owner, lease }).await?;
        Ok(kept.into_inner().lock.expect("a lock"))
    }

    async fn release(&mut self, key: &str, owner: &str) -> Result<(), Status> {
        let (table, key, owner) = (TABLE.to_owned(), key.to_owned(), owner.to_owned());
        self.0.release_lock(ReleaseLockRequest { table, key, owner }).await.map(|_| ())
    }

    async fn any(&mut self, keys: &[&str], owner: &str, randomize_order: bool) -> Result<OwnedLock, Status> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let (table, owner, lease) = (TABLE.to_owned(), owner.to_owned(), lasting(MINUTE_MS));
        let request = AcquireAnyLockRequest { table, keys, owner, lease, randomize_order };
        Ok(self.0.acquire_any_lock(request).await?.into_inner().lock.expect("a lock"))
    }

    async fn current(&mut self, key: &str) -> Option<OwnedLock> {
        let request = GetCurrentLockRequest { table: TABLE.to_owned(), key: key.to_owned() };
        self.0.get_current_lock(request).await.unwrap().into_inner().lock
    }
}

/// Asserts that a lock is somebody's, here named.
#[track_caller]
fn assert_unavailable<T>(result: Result<T, Status>, owner: &str) -> i64 {
    if let Err(status) = &result {
        assert!(status.message().starts_with("lock unavailable"), "{status:?}");
    }
    let (code, error, refusal) = refusal(result);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(matches!(error, ErrorCode::Busy | ErrorCode::NotOwner), "{error:?}");
    let contention = refusal.contention.expect("who it is");
    assert_eq!(contention.owner, owner);
    contention.ends_at_ms
}

#[tokio::test]
async fn a_lock_is_acquired_shown_and_released() {
    let (_server, mut table) = table().await;
    let begun_ms = unix_ms();
    assert_eq!(table.current("key").await, None);
    let lock = table.acquire("key", "a", lasting(5 * MINUTE_MS)).await.unwrap();
    assert_eq!((lock.key.as_str(), lock.owner.as_str(), lock.fence), ("key", "a", 1));
    assert_after(lock.created_at_ms, begun_ms, 0);
    assert_after(lock.leased_until_ms, begun_ms, 5 * MINUTE_MS);
    assert_eq!(lock.ttl_ms, lock.leased_until_ms + FORGET_MS);
    let shown = table.current("key").await.expect("a lock");
    assert_eq!((shown.owner.as_str(), shown.fence), ("a", 1));
    assert_same(shown.leased_until_ms, lock.leased_until_ms);
    assert_same(shown.created_at_ms, lock.created_at_ms);

    let ends_at_ms = assert_unavailable(table.acquire("key", "b", lasting(MINUTE_MS)).await, "a");
    assert_same(ends_at_ms, lock.leased_until_ms);
    assert_unavailable(table.release("key", "b").await, "a");
    let shorter = table.acquire("key", "a", lasting(2 * MINUTE_MS)).await.unwrap();
    assert_eq!(shorter.fence, 1);
    assert_after(shorter.leased_until_ms, begun_ms, 2 * MINUTE_MS);

    table.release("key", "a").await.unwrap();
    table.release("key", "a").await.unwrap();
    assert_eq!(table.current("key").await, None);
    assert_eq!(table.acquire("key", "b", lasting(MINUTE_MS)).await.unwrap().fence, 2);
}

#[tokio::test]
async fn an_expired_lease_stays_with_its_owner_for_five_more_seconds() {
    let (_server, mut table) = table().await;
    let over_ms = |ms| until(unix_ms() - ms);
    for attempt in 0.. {
        let (key, begun) = (format!("grace {attempt}"), Instant::now());
        let lock = table.acquire(&key, "a", over_ms(1_000)).await.unwrap();
        assert!(lock.remaining_ms < 0);
        let acquired = table.acquire(&key, "b", lasting(MINUTE_MS)).await;
        let released = table.release(&key, "b").await;
        // Later than that the grace may have ended, and the answers say nothing.
        if begun.elapsed() < Duration::from_secs(4) {
            assert_unavailable(acquired, "a");
            assert_unavailable(released, "a");
            break;
        }
    }

    table.acquire("old", "a", over_ms(5 * MINUTE_MS)).await.unwrap();
    assert_eq!(table.heartbeat("old", "a", over_ms(6_000)).await.unwrap().fence, 1);
    assert_eq!(table.current("old").await.expect("it is shown still").owner, "a");
    assert_eq!(table.acquire("old", "b", lasting(MINUTE_MS)).await.unwrap().fence, 2);
    assert_unavailable(table.heartbeat("old", "a", lasting(MINUTE_MS)).await, "b");

    table.acquire("taken out", "a", over_ms(6_000)).await.unwrap();
    table.release("taken out", "b").await.unwrap();
    assert_eq!(table.current("taken out").await, None);
}

#[tokio::test]
async fn a_heartbeat_needs_an_existing_lock() {
    let (_server, mut table) = table().await;
    let begun_ms = unix_ms();
    let refused = table.heartbeat("key", "a", lasting(MINUTE_MS)).await;
    assert!(refused.as_ref().is_err_and(|status| status.message().starts_with("lock unavailable")));
    let (code, error, _) = refusal(refused);
    assert_eq!((code, error), (Code::FailedPrecondition, ErrorCode::NotFound));
    table.acquire("key", "a", lasting(MINUTE_MS)).await.unwrap();
    let kept = table.heartbeat("key", "a", lasting(10 * MINUTE_MS)).await.unwrap();
    assert_after(kept.leased_until_ms, begun_ms, 10 * MINUTE_MS);
    assert_eq!(kept.ttl_ms, kept.leased_until_ms + FORGET_MS);
}

#[tokio::test]
async fn the_first_available_of_several_locks_is_acquired() {
    let (_server, mut table) = table().await;
    let keys = ["1", "2", "3"];
    for expected in keys {
        assert_eq!(table.any(&keys, expected, false).await.unwrap().key, expected);
    }
    // Of all leases this one ends first.
    let begun_ms = unix_ms();
    table.heartbeat("1", "1", lasting(60 * MINUTE_MS)).await.unwrap();
    table.heartbeat("2", "2", lasting(30 * MINUTE_MS)).await.unwrap();
    table.heartbeat("3", "3", lasting(60 * MINUTE_MS)).await.unwrap();
    let ends_at_ms = assert_unavailable(table.any(&keys, "late", false).await, "2");
    assert_after(ends_at_ms, begun_ms, 30 * MINUTE_MS);

    let many = ["a", "b", "c", "d"];
    let mut reached = BTreeSet::new();
    while reached.len() < many.len() {
        let lock = table.any(&many, "me", true).await.unwrap();
        table.release(&lock.key, "me").await.unwrap();
        reached.insert(lock.key);
    }
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field() {
    let (_server, mut table) = table().await;
    assert_bad_input(table.acquire("", "a", lasting(1)).await, "key", 0);
    assert_bad_input(table.acquire("key", "", lasting(1)).await, "owner", 0);
    assert_bad_input(table.acquire("key", "a", None).await, "lease", 0);
    assert_bad_input(table.heartbeat("key", "a", Some(OwnedLease { lease: None })).await, "lease", 0);
    assert_bad_input(table.release("key", "").await, "owner", 0);
    assert_bad_input(table.any(&[], "a", false).await, "keys", 0);
    assert_bad_input(table.any(&["k"; 1025], "a", false).await, "keys", 1024);
    assert_bad_input(table.any(&["", "key"], "a", false).await, "key", 0);
    assert_bad_input(table.acquire(&"k".repeat(1025), "a", lasting(1)).await, "key", 1024);
}
