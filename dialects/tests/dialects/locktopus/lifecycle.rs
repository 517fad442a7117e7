//! Connecting, locking and releasing: the tests of the Go client and of the TypeScript client.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waymaker_dialects::locktopus::{CloseReason, LocktopusClient, LocktopusError};

use super::{connect, locktopus_server, options, set, url};
use crate::patience::soon;

#[tokio::test]
async fn clients_connect_by_address_and_by_options() {
    let server = locktopus_server!();
    let address = format!("{}&abandon-timeout-ms=1000", url(&server, "test"));
    let by_address = LocktopusClient::connect(&address).await.unwrap();
    let options = options(&server, "test").abandon_timeout(Duration::from_secs(1));
    let by_options = LocktopusClient::connect_with(&options).await.unwrap();
    // In the same namespace.
    assert_eq!(by_address.lock(&set("W a")).await, Ok(true));
    assert_eq!(by_options.lock(&set("W a")).await, Ok(false));
}

#[tokio::test]
async fn a_namespace_may_have_any_characters() {
    let server = locktopus_server!();
    let address = url(&server, "a+%26b%3Dc%2F%C3%A9%23%25");
    let by_address = LocktopusClient::connect(&address).await.unwrap();
    let by_options = LocktopusClient::connect_with(&options(&server, "a &b=c/é#%")).await.unwrap();
    assert_eq!(by_address.lock(&set("W a")).await, Ok(true));
    assert_eq!(by_options.lock(&set("W a")).await, Ok(false));
    assert_eq!(
        connect(&server).await.lock(&set("W a")).await,
        Ok(true),
        "another namespace is another world"
    );
}

#[tokio::test]
async fn the_first_lock_is_acquired_at_once_and_has_an_id() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    assert_eq!((client.lock_id(), client.is_acquired()), (None, false));
    assert_eq!(client.lock(&set("W a")).await, Ok(true));
    assert_eq!((client.lock_id().as_deref(), client.is_acquired()), (Some("1"), true));
    assert_eq!(client.acquire().await, Ok(()), "it is acquired already");
    assert_eq!(client.release().await, Ok(()));
    assert_eq!((client.lock_id().as_deref(), client.is_acquired()), (Some("1"), false));
}

#[tokio::test]
async fn a_second_lock_waits_for_the_release_of_the_first() {
    let server = locktopus_server!();
    let (first, second) = (connect(&server).await, connect(&server).await);
    assert_eq!(first.lock(&set("W a")).await, Ok(true));
    assert_eq!(second.lock(&set("W a")).await, Ok(false));
    assert_eq!((first.is_acquired(), second.is_acquired()), (true, false));
    let (acquired, released) = soon(async { tokio::join!(second.acquire(), first.release()) }).await;
    assert_eq!((acquired, released), (Ok(()), Ok(())));
    assert_eq!((second.is_acquired(), second.lock_id().as_deref()), (true, Some("2")));
}

#[tokio::test]
async fn a_connection_can_lock_again_after_each_release() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    for id in 1..=10 {
        assert_eq!(client.lock(&set("W a, R b")).await, Ok(true));
        assert_eq!(client.lock_id(), Some(id.to_string()));
        assert_eq!(client.release().await, Ok(()));
    }
}

#[tokio::test]
async fn a_waiting_lock_can_be_released_and_is_then_never_acquired() {
    let server = locktopus_server!();
    let (first, second) = (connect(&server).await, connect(&server).await);
    for path in ["W a", "W []"] {
        assert_eq!(first.lock(&set(path)).await, Ok(true));
        assert_eq!(second.lock(&set(path)).await, Ok(false));
        assert_eq!(second.release().await, Ok(()));
        assert_eq!(second.acquire().await, Err(LocktopusError::ReleasedBeforeAcquired));
        assert_eq!(first.release().await, Ok(()));
        assert!(!second.is_acquired());
    }
}

#[tokio::test]
async fn a_waiting_acquire_call_fails_when_its_lock_is_released() {
    let server = locktopus_server!();
    let (first, second) = (connect(&server).await, connect(&server).await);
    for path in ["W a", "W []"] {
        assert_eq!(first.lock(&set(path)).await, Ok(true));
        assert_eq!(second.lock(&set(path)).await, Ok(false));
        // The order of the polls: it waits, then it is released.
        let (acquired, released) = soon(async { tokio::join!(second.acquire(), second.release()) }).await;
        assert_eq!(acquired.unwrap_err().to_string(), "released before acquired");
        assert_eq!(released, Ok(()));
        assert_eq!(first.release().await, Ok(()));
    }
}

#[tokio::test]
async fn dropping_an_acquire_call_keeps_the_lock_waiting() {
    let server = locktopus_server!();
    let (first, second) = (connect(&server).await, connect(&server).await);
    for released_while_waiting in [false, true] {
        assert_eq!(first.lock(&set("W a")).await, Ok(true));
        assert_eq!(second.lock(&set("W a")).await, Ok(false));
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = second.acquire() => panic!("the first has it"),
                () = tokio::task::yield_now() => {}
            }
        }
        if released_while_waiting {
            assert_eq!(second.release().await, Ok(()));
            assert_eq!(first.release().await, Ok(()));
        } else {
            assert_eq!(first.release().await, Ok(()));
            assert_eq!(soon(second.acquire()).await, Ok(()));
            assert_eq!(second.release().await, Ok(()));
        }
    }
}

#[tokio::test]
async fn a_dropped_call_is_still_sent_to_the_server() {
    let server = locktopus_server!();
    let (first, second) = (connect(&server).await, connect(&server).await);
    let resources = set("W a");
    tokio::select! {
        biased;
        _ = first.lock(&resources) => panic!("the server cannot have answered yet"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(soon(first.acquire()).await, Ok(()));
    assert_eq!(second.lock(&set("W a")).await, Ok(false));
    tokio::select! {
        biased;
        _ = first.release() => panic!("the server cannot have answered yet"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(soon(second.acquire()).await, Ok(()));
    assert_eq!(soon(first.lock(&set("W a"))).await, Ok(false), "a lock waits for the release before it");
}

#[tokio::test]
async fn invalid_calls_are_rejected_and_the_connection_stays_usable() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    assert_eq!(client.lock(&[]).await, Err(LocktopusError::NoResources));
    assert_eq!(client.release().await, Err(LocktopusError::NotLocked));
    assert_eq!(client.acquire().await, Err(LocktopusError::NotLocked));
    assert_eq!(client.lock(&set("W a")).await, Ok(true));
    assert_eq!(client.lock(&set("W b")).await, Err(LocktopusError::Locked));
    assert_eq!(client.release().await, Ok(()));
    assert_eq!(client.release().await, Err(LocktopusError::NotLocked));
    assert_eq!(client.lock(&set("W b")).await, Ok(true));
}

#[tokio::test]
async fn a_released_lock_does_not_stay_for_the_abandon_timeout() {
    let server = locktopus_server!();
    let long = options(&server, "test").abandon_timeout(Duration::from_secs(3_600));
    let first = LocktopusClient::connect_with(&long).await.unwrap();
    assert_eq!(first.lock(&set("W a")).await, Ok(true));
    assert_eq!(first.release().await, Ok(()));
    first.close().await;
    assert_eq!(connect(&server).await.lock(&set("W a")).await, Ok(true));
}

#[tokio::test]
async fn an_unreleased_lock_stays_for_the_abandon_timeout() {
    let server = locktopus_server!();
    let timeout = Duration::from_millis(100);
    let short = options(&server, "test").abandon_timeout(timeout);
    let first = LocktopusClient::connect_with(&short).await.unwrap();
    let second = connect(&server).await;
    assert_eq!(first.lock(&set("W a")).await, Ok(true));
    assert_eq!(second.lock(&set("W a")).await, Ok(false));
    let closed = Instant::now();
    first.close().await;
    assert_eq!(soon(second.acquire()).await, Ok(()));
    // The clock of the server counts whole milliseconds.
    assert!(closed.elapsed() + Duration::from_millis(1) >= timeout, "after {:?}", closed.elapsed());
}

#[tokio::test]
async fn closing_is_reported_to_listeners_and_later_calls_fail() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    assert_eq!(client.lock(&set("W a")).await, Ok(true));
    let closed = client.closed();
    client.close().await;
    assert_eq!(soon(closed).await, CloseReason::ByClient);
    assert!(!client.is_acquired());
    let error = LocktopusError::Closed(CloseReason::ByClient);
    assert_eq!(client.lock(&set("W a")).await, Err(error.clone()));
    assert_eq!(client.acquire().await, Err(error.clone()));
    assert_eq!(client.release().await, Err(error));
    client.close().await;
    // A client that is dropped closes too.
    let closed = connect(&server).await.closed();
    assert_eq!(soon(closed).await, CloseReason::ByClient);
}

#[tokio::test]
async fn a_dropped_guard_releases_and_a_dropped_hold_call_leaves_the_queue() {
    let server = locktopus_server!();
    let (mut first, mut second) = (connect(&server).await, connect(&server).await);
    let third = connect(&server).await;
    let lock = first.hold(&set("W a")).await.unwrap();
    assert_eq!(lock.id(), "1");
    let resources = set("W a, W b");
    let stands_behind = async {
        while third.lock(&set("W b")).await == Ok(true) {
            third.release().await.unwrap();
        }
    };
    tokio::select! {
        _ = second.hold(&resources) => panic!("the first has it"),
        () = soon(stands_behind) => {}
    }
    // The second is gone, the first has never had b.
    assert_eq!(soon(third.acquire()).await, Ok(()));
    assert_eq!(third.release().await, Ok(()));
    drop(lock);
    let lock = soon(second.hold(&resources)).await.unwrap();
    assert_eq!(lock.release().await, Ok(()));
    // A lock that it did not ask for itself is not its business.
    assert_eq!(second.lock(&resources).await, Ok(true));
    assert_eq!(second.hold(&resources).await.map(drop), Err(LocktopusError::Locked));
    assert!(second.is_acquired());
}

#[tokio::test]
async fn statistics_exist_after_the_first_connection_to_a_namespace() {
    let server = locktopus_server!();
    let get = async || {
        let mut socket = TcpStream::connect(server.listener("http")).await.unwrap();
        let request = "GET /stats_v1?namespace=test HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(socket.read_to_string(&mut answer)).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    };
    assert_eq!(get().await, ("404".to_owned(), "Namespace not found".to_owned()));
    let client = connect(&server).await;
    assert_eq!(client.lock(&set("W a, W a/b")).await, Ok(true));
    let (status, body) = get().await;
    let numbers: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&*status, &numbers["LastGroupID"], &numbers["LocksAcquired"]), ("200", &1.into(), &1.into()));
}
