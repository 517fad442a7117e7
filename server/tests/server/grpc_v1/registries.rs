//! `RegistryService`, call by call.

use super::{assert_after, assert_bad_input, assert_refused, assert_same, next, refusal, server, unix_ms};
use crate::harness::Server;
use std::collections::BTreeSet;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1::register_request::Lease;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;
use waymaker_proto::v1::watch_response::Event;
use waymaker_proto::v1::{
    ErrorCode, ListEntriesRequest, LookUpRequest, RegisterRequest, UnregisterRequest, VerifyRequest,
    WatchRequest,
};

async fn registry() -> (Server, RegistryServiceClient<Channel>) {
    let (server, channel) = server().await;
    (server, RegistryServiceClient::new(channel))
}

fn entry(key: &str, owner: &str) -> RegisterRequest {
    RegisterRequest {
        namespace: String::new(),
        key: key.to_owned(),
        owner: owner.to_owned(),
        value: vec![0, 255],
        r#type: "printer".to_owned(),
        lease: Some(Lease::LeaseMs(60_000)),
        ephemeral: false,
    }
}

fn look_up(key: &str) -> LookUpRequest {
    LookUpRequest { namespace: String::new(), key: key.to_owned() }
}

fn unregister(key: &str, owner: &str) -> UnregisterRequest {
    UnregisterRequest { namespace: String::new(), key: key.to_owned(), owner: owner.to_owned() }
}

#[tokio::test]
async fn a_registration_belongs_to_its_owner_until_it_is_removed() {
    let (_server, mut registry) = registry().await;
    let begun_ms = unix_ms();
    assert_refused(registry.heartbeat(entry("key", "a")).await, Code::NotFound, ErrorCode::NotFound);
    let first = registry.register(entry("key", "a")).await.unwrap().into_inner();
    assert_eq!((first.fence, first.remaining_ms, first.renewed), (1, 60_000, false));
    assert_after(first.lease_expires_at_ms, begun_ms, 60_000);
    let end_at_ms = unix_ms() + 120_000;
    let longer = RegisterRequest { lease: Some(Lease::LeaseEndAtMs(end_at_ms)), ..entry("key", "a") };
    let renewed = registry.heartbeat(longer).await.unwrap().into_inner();
    assert!(renewed.renewed && renewed.id == first.id && renewed.fence == 1);
    assert_same(renewed.lease_expires_at_ms, end_at_ms);

    let (code, error, detail) = refusal(registry.register(entry("key", "b")).await);
    assert_eq!((code, error), (Code::FailedPrecondition, ErrorCode::Busy));
    assert_eq!(detail.contention.expect("who it is").owner, "a");
    let refused = registry.heartbeat(entry("key", "b")).await;
    assert_refused(refused, Code::FailedPrecondition, ErrorCode::NotOwner);
    let refused = registry.unregister(unregister("key", "b")).await;
    assert_refused(refused, Code::FailedPrecondition, ErrorCode::NotOwner);

    let found = registry.look_up(look_up("key")).await.unwrap().into_inner().entry.expect("an entry");
    assert_eq!((found.key.as_str(), found.owner.as_str(), found.r#type.as_str()), ("key", "a", "printer"));
    assert_eq!((found.id, found.value, found.fence), (first.id, vec![0, 255], 1));
    assert_after(found.updated_at_ms, begun_ms, 0);
    let verify = VerifyRequest { key: "key".to_owned(), fence: 1, ..VerifyRequest::default() };
    assert!(registry.verify(verify).await.unwrap().into_inner().held);

    registry.unregister(unregister("key", "a")).await.unwrap();
    assert!(registry.look_up(look_up("key")).await.unwrap().into_inner().entry.is_none());
    assert_refused(registry.unregister(unregister("key", "a")).await, Code::NotFound, ErrorCode::NotFound);
    assert_eq!(registry.register(entry("key", "b")).await.unwrap().into_inner().fence, 2);
}

#[tokio::test]
async fn registrations_are_listed_by_type_and_page_by_page() {
    let (_server, mut registry) = registry().await;
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let key = format!("printer/{number}");
        registry.register(entry(&key, "a")).await.unwrap();
        expected.insert(key);
    }
    let scanner = RegisterRequest { r#type: "scanner".to_owned(), ..entry("scanner/1", "a") };
    registry.register(scanner).await.unwrap();
    let mut request = ListEntriesRequest {
        r#type: Some("printer".to_owned()),
        page_size: 10,
        ..ListEntriesRequest::default()
    };
    let mut found = BTreeSet::new();
    loop {
        let page = registry.list_entries(request.clone()).await.unwrap().into_inner();
        assert!(page.entries.len() <= 10);
        for entry in page.entries {
            assert!(found.insert(entry.key));
        }
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!(found, expected);
    let (mut count, mut request) = (0, ListEntriesRequest::default());
    loop {
        let page = registry.list_entries(request.clone()).await.unwrap().into_inner();
        count += page.entries.len();
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!(count, 26);
    let wrong = ListEntriesRequest { cursor: "next".to_owned(), ..ListEntriesRequest::default() };
    assert_bad_input(registry.list_entries(wrong).await, "cursor", 0);
}

#[tokio::test]
async fn a_watch_reports_added_and_removed_registrations() {
    let (_server, mut registry) = registry().await;
    let watch = WatchRequest { namespace: String::new(), key: "key".to_owned() };
    let mut stream = registry.watch(watch).await.unwrap().into_inner();
    let mut told = async || next(&mut stream).await.unwrap().unwrap().event.unwrap();
    assert!(matches!(told().await, Event::Watching(_)));
    registry.register(entry("key", "a")).await.unwrap();
    let Event::Held(held) = told().await else { panic!("it has an owner") };
    assert_eq!((held.owner.as_str(), held.fence), ("a", 1));
    registry.unregister(unregister("key", "a")).await.unwrap();
    assert!(matches!(told().await, Event::Freed(_)));
}

#[tokio::test]
async fn an_invalid_request_is_rejected_by_field_and_limit() {
    let (_server, mut registry) = registry().await;
    let no_lease = RegisterRequest { lease: None, ..entry("key", "a") };
    assert_bad_input(registry.register(no_lease).await, "lease", 0);
    assert_bad_input(registry.register(entry("key", "")).await, "owner", 0);
    assert_bad_input(registry.register(entry(&"k".repeat(1025), "a")).await, "key", 1024);
    let value = RegisterRequest { value: vec![0; 4097], ..entry("key", "a") };
    assert_bad_input(registry.register(value).await, "value", 4096);
    let kind = RegisterRequest { r#type: "t".repeat(257), ..entry("key", "a") };
    assert_bad_input(registry.heartbeat(kind).await, "type", 256);
    registry.register(entry("", "a")).await.unwrap();
}
