//! `OperatorService`, call by call.

use super::locks::{keys, release, waiting, with};
use super::{
    assert_after, assert_bad_input, assert_refused, hold, next, queued, refusal, server, tried, unix_ms,
};
use crate::harness::{Server, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::v1::{
    AcquireOptions, AcquirePathsRequest, ErrorCode, ForceReleaseRequest, FreezeRequest, Hold, InspectRequest,
    ListEntriesRequest, ListFrozenRequest, ListNamespacesRequest, ListRequest, LockPath, NamespaceKind, Path,
    RemoveNamespaceRequest, SetCapacityRequest, ThawRequest, Waiter,
};

async fn operator() -> (Server, LockServiceClient<Channel>, OperatorServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, LockServiceClient::new(channel.clone()), OperatorServiceClient::new(channel))
}

/// Everything that is listed, page after page.
async fn list_pages(
    operator: &mut OperatorServiceClient<Channel>,
    mut request: ListRequest,
) -> (Vec<Hold>, Vec<Waiter>) {
    let (mut holds, mut waiters) = (Vec::new(), Vec::new());
    loop {
        let page = operator.list(request.clone()).await.unwrap().into_inner();
        holds.extend(page.holds);
        waiters.extend(page.waiters);
        if page.next_cursor.is_empty() {
            return (holds, waiters);
        }
        request.cursor = page.next_cursor;
    }
}

/// All holds that are listed.
async fn list_all(operator: &mut OperatorServiceClient<Channel>, request: ListRequest) -> Vec<Hold> {
    let (holds, waiters) = list_pages(operator, request).await;
    assert!(waiters.is_empty(), "{waiters:?}");
    holds
}

/// All waiters that are listed.
async fn list_waiters(operator: &mut OperatorServiceClient<Channel>, request: ListRequest) -> Vec<Waiter> {
    let (holds, waiters) = list_pages(operator, ListRequest { waiting: true, ..request }).await;
    assert!(holds.is_empty(), "{holds:?}");
    waiters
}

#[tokio::test]
async fn holds_are_listed_by_prefix_and_page_by_page() {
    let (_server, mut locks, mut operator) = operator().await;
    let begun_ms = unix_ms();
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let options = AcquireOptions {
            owner: "worker".to_owned(),
            request_id: "attempt".to_owned(),
            metadata: "host 7".to_owned(),
            priority: 2,
            ..AcquireOptions::default()
        };
        let key = format!("job/{number}");
        tried(locks.try_acquire(with(keys(&[&key]), options)).await.unwrap());
        expected.insert(key);
    }
    tried(locks.try_acquire(keys(&["other"])).await.unwrap());
    let mut request = ListRequest { prefix: "job/".to_owned(), page_size: 10, ..ListRequest::default() };
    let mut found = BTreeSet::new();
    loop {
        let page = operator.list(request.clone()).await.unwrap().into_inner();
        assert!(page.holds.len() <= 10);
        for hold in page.holds {
            assert_eq!((hold.id.len(), hold.fence, hold.shared, hold.priority), (32, 1, false, 2));
            assert_eq!((hold.owner.as_str(), hold.request_id.as_str()), ("worker", "attempt"));
            assert_eq!(hold.metadata, "host 7");
            assert_after(hold.acquired_at_ms, begun_ms, 0);
            assert_after(hold.lease_expires_at_ms, begun_ms, 30_000);
            assert!(found.insert(hold.key));
        }
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!(found, expected);
    let everything = ListRequest { page_size: 100_000, ..ListRequest::default() };
    assert_eq!(list_all(&mut operator, everything).await.len(), 26);
}

#[tokio::test]
async fn waiters_are_listed_by_prefix_and_page_by_page() {
    let (_server, mut locks, mut operator) = operator().await;
    let begun_ms = unix_ms();
    for key in ["job/1", "other"] {
        tried(locks.try_acquire(keys(&[key])).await.unwrap());
    }
    let options = |owner: &str| AcquireOptions {
        owner: owner.to_owned(),
        request_id: format!("request of {owner}"),
        metadata: "host 7".to_owned(),
        priority: 2,
        ..AcquireOptions::default()
    };
    let mut streams = Vec::new();
    let mut ids = BTreeSet::new();
    for (number, key) in ["job/1", "job/1", "job/1", "other"].into_iter().enumerate() {
        let request = with(waiting(key, 60_000), options(&number.to_string()));
        let mut stream = locks.acquire(request).await.unwrap().into_inner();
        ids.insert(queued(&mut stream).await);
        streams.push(stream);
    }
    let mut request =
        ListRequest { prefix: "job/".to_owned(), page_size: 2, waiting: true, ..ListRequest::default() };
    let mut owners = BTreeSet::new();
    loop {
        let page = operator.list(request.clone()).await.unwrap().into_inner();
        assert!(page.waiters.len() <= 2 && page.holds.is_empty(), "{page:?}");
        for waiter in page.waiters {
            assert!(ids.contains(&waiter.id), "{waiter:?}");
            assert_eq!((waiter.key.as_str(), waiter.shared, waiter.priority), ("job/1", false, 2));
            assert_eq!(waiter.request_id, format!("request of {}", waiter.owner));
            assert_eq!((waiter.metadata.as_str(), waiter.ticket, waiter.permits), ("host 7", 0, 0));
            assert_after(waiter.waiting_since_ms, begun_ms, 0);
            assert_after(waiter.wait_ends_at_ms, begun_ms, 60_000);
            assert!((1..=60_000).contains(&waiter.remaining_ms), "{waiter:?}");
            assert!(owners.insert(waiter.owner));
        }
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!(owners, BTreeSet::from(["0", "1", "2"].map(str::to_owned)));
    assert_eq!(list_waiters(&mut operator, ListRequest::default()).await.len(), 4);
    assert_eq!(list_all(&mut operator, ListRequest::default()).await.len(), 2);
}

#[tokio::test]
async fn an_inspection_names_holders_and_waiters() {
    let (_server, mut locks, mut operator) = operator().await;
    let begun_ms = unix_ms();
    let options = |owner: &str| AcquireOptions { owner: owner.to_owned(), ..AcquireOptions::default() };
    let held = tried(locks.try_acquire(with(keys(&["key"]), options("a"))).await.unwrap());
    let mut stream = locks.acquire(with(waiting("key", 60_000), options("b"))).await.unwrap().into_inner();
    let id = queued(&mut stream).await;
    let inspect = InspectRequest { key: "key".to_owned(), ..InspectRequest::default() };
    let answer = operator.inspect(inspect).await.unwrap().into_inner();
    assert_eq!((answer.fence, answer.holder_count, answer.waiter_count), (1, 1, 1));
    let (holder, waiter) = (&answer.holders[0], &answer.waiters[0]);
    assert_eq!((&holder.id, holder.owner.as_str(), holder.fence), (&held.id, "a", 1));
    assert_eq!((&waiter.id, waiter.owner.as_str()), (&id, "b"));
    assert_after(waiter.wait_ends_at_ms, begun_ms, 60_000);
    assert_after(waiter.waiting_since_ms, begun_ms, 0);

    let force = ForceReleaseRequest { id, ..ForceReleaseRequest::default() };
    assert!(operator.force_release(force).await.unwrap().into_inner().was_waiting);
    assert_refused(next(&mut stream).await, Code::Aborted, ErrorCode::Cancelled);
}

#[tokio::test]
async fn a_frozen_prefix_grants_nothing_until_it_is_thawed() {
    let (_server, mut locks, mut operator) = operator().await;
    let held = tried(locks.try_acquire(keys(&["job/1"])).await.unwrap());
    let mut waiter = locks.acquire(waiting("job/1", 60_000)).await.unwrap().into_inner();
    queued(&mut waiter).await;
    let freeze = FreezeRequest { prefix: "job/".to_owned(), ..FreezeRequest::default() };
    let frozen = operator.freeze(freeze.clone()).await.unwrap().into_inner();
    assert!(frozen.changed && frozen.frozen_count == 1);
    assert!(!operator.freeze(freeze).await.unwrap().into_inner().changed);
    let list = operator.list_frozen(ListFrozenRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.prefixes, ["job/"]);

    let refused = locks.try_acquire(keys(&["job/2"])).await;
    assert_refused(refused, Code::FailedPrecondition, ErrorCode::Frozen);
    tried(locks.try_acquire(keys(&["other"])).await.unwrap());
    locks.release(release(&held.id)).await.unwrap();
    let thaw = ThawRequest { prefix: "job/".to_owned(), ..ThawRequest::default() };
    let thawed = operator.thaw(thaw).await.unwrap().into_inner();
    assert!(thawed.changed && thawed.frozen_count == 0);
    assert_eq!(hold(&mut waiter).await.fence, 2);
    let list = operator.list_frozen(ListFrozenRequest::default()).await.unwrap().into_inner();
    assert!(list.prefixes.is_empty());
}

#[tokio::test]
async fn reasons_of_operators_are_in_the_audit_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = ["--audit", path.to_str().expect("text")];
    let server = Server::start(&[&audit[..], &["--grpc-listen", "127.0.0.1:0"]].concat());
    let channel = super::connect(&server).await;
    tried(LockServiceClient::new(channel.clone()).try_acquire(keys(&["key"])).await.unwrap());
    let mut operator = OperatorServiceClient::new(channel.clone());
    let (prefix, text) = ("eu/".to_owned(), str::to_owned);
    let freeze = FreezeRequest { prefix: prefix.clone(), reason: text("it moves"), ..Default::default() };
    operator.freeze(freeze).await.unwrap();
    let thaw = ThawRequest { prefix, reason: text("it has moved"), ..Default::default() };
    operator.thaw(thaw).await.unwrap();
    operator.freeze(FreezeRequest { prefix: text("us/"), ..Default::default() }).await.unwrap();
    let (name, reason) = (text("pool"), text("a new machine"));
    let set = SetCapacityRequest { name, capacity: 3, reason, ..Default::default() };
    SemaphoreServiceClient::new(channel).set_capacity(set).await.unwrap();
    let expected = [
        ["freeze", "eu/", "it moves"],
        ["thaw", "eu/", "it has moved"],
        ["freeze", "us/", "none"],
        ["set-capacity", "pool", "a new machine"],
    ];
    let audited = wait_for("the lines of the audit log", || {
        let written = std::fs::read_to_string(&path).expect("a file");
        let lines = written.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("an object"));
        let acts: Vec<_> = lines.filter(|line| line["act"] != "start").collect();
        (acts.len() >= expected.len()).then_some(acts)
    });
    let told =
        |line: &Value| ["act", "key", "reason"].map(|name| line[name].as_str().unwrap_or("none").to_owned());
    assert_eq!(audited.iter().map(told).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn paths_of_a_tree_are_listed_and_inspected() {
    let (server, _, mut operator) = operator().await;
    let mut trees = TreeServiceClient::new(super::connect(&server).await);
    let path = |segments: &[&str]| Path { segments: segments.iter().map(|s| (*s).to_owned()).collect() };
    let lock = |segments: &[&str]| LockPath { path: Some(path(segments)), shared: false };
    for locked in [&["a", "1"], &["a", "2"], &["b", "1"]] {
        let request = AcquirePathsRequest { paths: vec![lock(locked)], ..AcquirePathsRequest::default() };
        tried(trees.try_acquire(request).await.unwrap());
    }
    let namespace = || "tree/default".to_owned();
    let list = ListRequest { namespace: namespace(), path: Some(path(&["a"])), ..ListRequest::default() };
    let holds = list_all(&mut operator, list.clone()).await;
    let found: BTreeSet<_> =
        holds.into_iter().filter_map(|hold| hold.path).map(|path| path.segments).collect();
    assert_eq!(found, BTreeSet::from([path(&["a", "1"]).segments, path(&["a", "2"]).segments]));
    let inspect =
        InspectRequest { namespace: namespace(), path: Some(path(&["a"])), ..InspectRequest::default() };
    assert_eq!(operator.inspect(inspect).await.unwrap().into_inner().holder_count, 2);

    let mut streams = Vec::new();
    for awaited in [&["a", "1"], &["b", "1"]] {
        let paths = vec![lock(awaited)];
        let request = AcquirePathsRequest { paths, max_wait_ms: u32::MAX, ..AcquirePathsRequest::default() };
        let mut stream = trees.acquire(request).await.unwrap().into_inner();
        queued(&mut stream).await;
        streams.push(stream);
    }
    let waiters = list_waiters(&mut operator, list.clone()).await;
    let [waiter] = &waiters[..] else { panic!("{waiters:?}") };
    assert_eq!((waiter.key.as_str(), &waiter.path), ("", &Some(path(&["a", "1"]))));
    assert_eq!((waiter.remaining_ms, waiter.wait_ends_at_ms), (u32::MAX, 0), "it has no end");

    let prefix = ListRequest { prefix: "a".to_owned(), ..list };
    assert_bad_input(operator.list(prefix).await, "prefix", 0);
    let freeze = FreezeRequest { namespace: namespace(), prefix: "a".to_owned(), ..FreezeRequest::default() };
    assert_bad_input(operator.freeze(freeze).await, "prefix", 0);
}

#[tokio::test]
async fn listing_namespaces_does_not_create_any() {
    let (_server, mut locks, mut operator) = operator().await;
    let none = operator.list_namespaces(ListNamespacesRequest::default()).await.unwrap().into_inner();
    assert!(none.namespaces.is_empty() && none.next_cursor.is_empty());
    assert_refused(operator.list(ListRequest::default()).await, Code::NotFound, ErrorCode::NotFound);
    let frozen = operator.list_frozen(ListFrozenRequest::default()).await;
    assert_refused(frozen, Code::NotFound, ErrorCode::NotFound);

    for namespace in ["one", "two", "three"] {
        let request =
            waymaker_proto::v1::AcquireKeysRequest { namespace: namespace.to_owned(), ..keys(&["key"]) };
        tried(locks.try_acquire(request).await.unwrap());
    }
    let mut request = ListNamespacesRequest { page_size: 2, ..ListNamespacesRequest::default() };
    let first = operator.list_namespaces(request.clone()).await.unwrap().into_inner();
    request.cursor = first.next_cursor;
    let second = operator.list_namespaces(request).await.unwrap().into_inner();
    assert_eq!((first.namespaces.len(), second.namespaces.len()), (2, 1));
    assert!(second.next_cursor.is_empty());
    let mut names = BTreeSet::new();
    for namespace in first.namespaces.into_iter().chain(second.namespaces) {
        assert_eq!((namespace.kind(), namespace.held, namespace.waiting), (NamespaceKind::Flat, 1, 0));
        names.insert(namespace.name);
    }
    assert_eq!(names, BTreeSet::from(["one", "three", "two"].map(str::to_owned)));
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, mut locks, mut operator) = operator().await;
    tried(locks.try_acquire(keys(&["key"])).await.unwrap());
    let cursor = ListRequest { cursor: "-1".to_owned(), ..ListRequest::default() };
    assert_bad_input(operator.list(cursor).await, "cursor", 0);
    let path = ListRequest { path: Some(Path::default()), ..ListRequest::default() };
    assert_bad_input(operator.list(path).await, "path", 0);
    let force = ForceReleaseRequest { id: "1".to_owned(), ..ForceReleaseRequest::default() };
    assert_bad_input(operator.force_release(force).await, "id", 0);
    let force =
        ForceReleaseRequest { id: "0".repeat(32), reason: "r".repeat(257), ..ForceReleaseRequest::default() };
    assert_bad_input(operator.force_release(force).await, "reason", 256);
    let freeze = FreezeRequest { prefix: "p".repeat(1025), ..FreezeRequest::default() };
    assert_bad_input(operator.freeze(freeze).await, "prefix", 1024);
    let reason = "r".repeat(257);
    let freeze = FreezeRequest { reason: reason.clone(), ..FreezeRequest::default() };
    assert_bad_input(operator.freeze(freeze).await, "reason", 256);
    let thaw = ThawRequest { reason, ..ThawRequest::default() };
    assert_bad_input(operator.thaw(thaw).await, "reason", 256);
    let frozen = operator.list_frozen(ListFrozenRequest::default()).await.unwrap().into_inner();
    assert!(frozen.prefixes.is_empty(), "{frozen:?}");
    // A namespace of keys has no entries.
    assert_bad_input(operator.list_entries(ListEntriesRequest::default()).await, "kind", 0);
    for number in 0..64 {
        let freeze = FreezeRequest { prefix: number.to_string(), ..FreezeRequest::default() };
        operator.freeze(freeze).await.unwrap();
    }
    let freeze = FreezeRequest { prefix: "one more".to_owned(), ..FreezeRequest::default() };
    let (code, error, detail) = refusal(operator.freeze(freeze).await);
    assert_eq!((code, error), (Code::ResourceExhausted, ErrorCode::Overloaded));
    assert_eq!((detail.field.as_str(), detail.value), ("frozen prefixes", 64));
}

#[tokio::test]
async fn an_empty_namespace_can_be_removed() {
    let (server, mut locks, mut operator) = operator().await;
    let name = |name: &str| RemoveNamespaceRequest { namespace: name.to_owned() };
    let (code, error, refusal_of_none) = refusal(operator.remove_namespace(name("none")).await);
    assert_eq!((code, error), (Code::NotFound, ErrorCode::NotFound), "{refusal_of_none:?}");
    let mut own = keys(&["k"]);
    own.namespace = "jobs".to_owned();
    tried(locks.try_acquire(own).await.unwrap());
    assert_bad_input(operator.remove_namespace(name("jobs")).await, "connections", 2);
    // Nobody uses it once that connection is gone, but the hold is still there.
    drop((locks, operator));
    let mut operator = OperatorServiceClient::new(super::connect(&server).await);
    loop {
        let (_, _, refusal) = refusal(operator.remove_namespace(name("jobs")).await);
        if refusal.field != "connections" {
            assert_eq!(refusal.field, "contents", "{refusal:?}");
            break;
        }
    }
    let held =
        operator.list(ListRequest { namespace: "jobs".to_owned(), ..Default::default() }).await.unwrap();
    let [held] = &held.into_inner().holds[..] else { panic!("one hold") };
    let end = ForceReleaseRequest { namespace: "jobs".to_owned(), id: held.id.clone(), ..Default::default() };
    operator.force_release(end).await.unwrap();
    drop(operator);
    let mut operator = OperatorServiceClient::new(super::connect(&server).await);
    while operator.remove_namespace(name("jobs")).await.is_err() {}
    let (code, ..) = refusal(operator.remove_namespace(name("jobs")).await);
    assert_eq!(code, Code::NotFound, "it is gone");
}
