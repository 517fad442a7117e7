//! The four calls.

use super::fake::FakeServer;
use super::*;
use std::time::Instant;
use waymaker_client::{Credentials, Tls};
use waymaker_dialects::locket::FetchAllRequest;

/// A time to live that ends after the test.
const TTL_S: i64 = 3_600;

fn filter(type_code: i32, r#type: &str) -> FetchAllRequest {
    FetchAllRequest { r#type: r#type.to_owned(), type_code }
}

#[tokio::test]
async fn fetch_returns_the_locked_resource_and_another_owner_collides() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    let jims = Resource { value: "test-data".to_owned(), r#type: "lock".to_owned(), ..lock("test", "jim") };
    locket.lock(jims.clone(), TTL_S).await.unwrap();
    assert_eq!(locket.fetch("test").await.unwrap(), jims);
    assert!(matches!(locket.lock(lock("test", "nima"), TTL_S).await, Err(Error::LockCollision)));
    assert_eq!(locket.fetch("test").await.unwrap(), jims);
}

#[tokio::test]
async fn a_second_lock_by_the_same_owner_replaces_value_and_type() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    locket.lock(lock("k", "jim"), TTL_S).await.unwrap();
    let presence = Resource { value: "new".to_owned(), ..resource("k", "jim", TypeCode::Presence) };
    locket.lock(presence, TTL_S).await.unwrap();
    let found = locket.fetch("k").await.unwrap();
    assert_eq!((&*found.value, &*found.r#type, found.type_code()), ("new", "presence", TypeCode::Presence));
    let collision = locket.lock(resource("k", "nima", TypeCode::Presence), TTL_S).await;
    assert!(matches!(collision, Err(Error::LockCollision)), "locks and presences share their keys");
}

#[tokio::test]
async fn an_unrenewed_resource_expires_after_its_ttl() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    let began = Instant::now();
    locket.lock(lock("k", "jim"), 1).await.unwrap();
    until_gone(&locket, "k").await;
    let lasted = began.elapsed();
    assert!(Duration::from_millis(990) <= lasted, "{lasted:?}");
    locket.lock(lock("k", "nima"), 1).await.unwrap();
}

#[tokio::test]
async fn a_resource_keeps_its_ttl_across_a_server_crash() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()), GRPC);
    let before = client(&server).await;
    before.lock(lock("long", "jim"), TTL_S).await.unwrap();
    let began = Instant::now();
    before.lock(lock("short", "jim"), 1).await.unwrap();
    drop(server);
    let server = server!(Some(directory.path()), GRPC);
    let locket = client(&server).await;
    assert_eq!(locket.fetch("long").await.unwrap().owner, "jim");
    until_gone(&locket, "short").await;
    assert!(Duration::from_millis(990) <= began.elapsed(), "{:?}", began.elapsed());
}

#[tokio::test]
async fn only_the_owner_can_release_a_resource() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    locket.lock(lock("k", "jim"), TTL_S).await.unwrap();
    assert!(matches!(locket.release(lock("k", "nima")).await, Err(Error::LockCollision)));
    assert_eq!(locket.fetch("k").await.unwrap().owner, "jim");
    let whatever = Resource { r#type: "dawg".to_owned(), type_code: 9, ..lock("k", "jim") };
    locket.release(whatever).await.expect("neither type nor value matters");
    assert!(matches!(locket.fetch("k").await, Err(Error::ResourceNotFound)));
    locket.lock(lock("k", "nima"), TTL_S).await.unwrap();
}

#[tokio::test]
async fn releasing_a_missing_resource_depends_on_the_compatibility_option() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    assert!(matches!(locket.release(lock("k", "jim")).await, Err(Error::ResourceNotFound)));
    let server = server!(None, &[GRPC, &["--locket-compatibility", "2024"]].concat());
    client(&server).await.release(lock("k", "jim")).await.unwrap();
}

#[tokio::test]
async fn fetch_all_returns_only_resources_of_the_type_with_its_name() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    assert_eq!(locket.fetch_all(filter(1, "")).await.unwrap(), []);
    for (key, type_code) in [
        ("l1", TypeCode::Lock),
        ("p1", TypeCode::Presence),
        ("l2", TypeCode::Lock),
        ("p2", TypeCode::Presence),
    ] {
        locket.lock(resource(key, "jim", type_code), TTL_S).await.unwrap();
    }
    for (type_code, name, keys) in
        [(TypeCode::Lock, "lock", ["l1", "l2"]), (TypeCode::Presence, "presence", ["p1", "p2"])]
    {
        let mut found = locket.fetch_all(filter(type_code.into(), "")).await.unwrap();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let expected =
            keys.map(|key| Resource { r#type: name.to_owned(), ..resource(key, "jim", type_code) });
        assert_eq!(found, expected);
    }
}

/// Checks codes and texts of errors, filters of lists, and the effects of a lock.
#[tokio::test]
async fn the_type_code_and_type_name_must_agree() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    for (type_code, r#type, is_filter, is_type) in [
        (1, "", true, true),
        (2, "", true, true),
        (1, "lock", true, true),
        (2, "presence", true, true),
        (0, "lock", true, true),
        (0, "presence", true, true),
        (0, "", false, true),
        (1, "presence", false, false),
        (2, "lock", false, false),
        (1, "dawg", false, false),
        (0, "dawg", false, false),
        (0, "random", false, false),
        (4, "", false, false),
    ] {
        let case = format!("{type_code} {type:?}");
        match locket.fetch_all(filter(type_code, r#type)).await {
            Ok(_) => assert!(is_filter, "{case}"),
            Err(error) => assert!(!is_filter && matches!(error, Error::InvalidType), "{case}: {error}"),
        }
        let wanted = Resource { r#type: r#type.to_owned(), type_code, ..lock("k", "jim") };
        match locket.lock(wanted, TTL_S).await {
            Ok(()) => assert!(is_type, "{case}"),
            Err(error) => assert!(!is_type && matches!(error, Error::InvalidType), "{case}: {error}"),
        }
    }
}

#[tokio::test]
async fn errors_are_checked_in_the_order_type_ttl_owner_collision() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    locket.lock(lock("k", "jim"), TTL_S).await.unwrap();
    let invalid = Resource { r#type: "dawg".to_owned(), ..lock("k", "") };
    assert!(matches!(locket.lock(invalid, 0).await, Err(Error::InvalidType)));
    for ttl in [0, -1, i64::MIN] {
        assert!(matches!(locket.lock(lock("k", ""), ttl).await, Err(Error::InvalidTtl)));
    }
    assert!(matches!(locket.lock(lock("k", ""), TTL_S).await, Err(Error::InvalidOwner)));
    assert!(matches!(locket.lock(lock("k", "nima"), TTL_S).await, Err(Error::LockCollision)));
}

#[tokio::test]
async fn an_unknown_grpc_status_is_returned_unchanged() {
    let server = server!(None, GRPC);
    let locket = client(&server).await;
    let long = Resource { value: "x".repeat(4097), ..lock("k", "jim") };
    let error = locket.lock(long, TTL_S).await.unwrap_err();
    assert!(matches!(&error, Error::Status(status) if status.message() == "sql-bad-request"), "{error}");
}

#[tokio::test]
async fn each_call_carries_the_credentials() {
    let server = FakeServer::start().await;
    let (tls, credentials) = (Tls::new(), Credentials::new("wm_x.y"));
    let connected = Locket::connect_as(&server.address, &tls, &credentials).await.unwrap();
    let lazy = Locket::connect_lazily_as(&server.address, &tls, &credentials).unwrap();
    for locket in [connected, lazy] {
        let Err(Error::Status(status)) = locket.fetch_all(filter(1, "")).await else { panic!("a refusal") };
        assert_eq!((status.code(), status.message()), (tonic::Code::Unauthenticated, "Bearer wm_x.y"));
    }
}
