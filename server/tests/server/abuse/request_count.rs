//! More requests on one connection than it may have.

use super::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, SETTINGS, call_headers, frame, prefixed,
};
use super::server;
use crate::harness::within;
use prost::Message as _;
use std::io::Write as _;
use std::time::Duration;
use waymaker_proto::v1;
use waymaker_proto::waymaker::{MultiLockKey, MultiLockRequest, MultiLockResponse};

/// Waiters of one connection.
const WAITING_MAX: usize = 10_000;
/// Requests of one connection that did not arrive whole yet.
const AWAITED_MAX: usize = 1_024;
/// Streams of one connection.
const STREAM_COUNT_MAX: u32 = 100_000;

const RESOURCE_EXHAUSTED: u32 = 8;

fn wait_for(key: &str, wait_ms: u32) -> MultiLockRequest {
    MultiLockRequest {
        keys: vec![MultiLockKey { key: key.to_owned(), write_lock: true }],
        max_wait_period: wait_ms,
        max_lease_period: 600_000,
        ..Default::default()
    }
}

/// Sends this call so many times, and waits until the server has read them all.
fn send_many(client: &mut Http2, path: &str, message: &[u8], count: usize) {
    let block = call_headers(path);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let stream = client.stream();
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
        bytes.extend(frame(DATA, END_STREAM, stream, &prefixed(message)));
    }
    bytes.extend(frame(PING, 0, 0, b"all read"));
    let mut writer = client.socket.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&bytes).expect("the server reads"));
        loop {
            let received = client.receive();
            assert_eq!(received.kind, PING, "everybody waits: {received:?}");
            if received.flags & ACK != 0 {
                return;
            }
        }
    });
}

#[test]
fn a_connection_has_a_waiter_limit_and_refuses_the_next_waiter() {
    let server = server();
    let mut client = Http2::connect(&server);
    let path = "/waymaker.WaymakerService/MultiLock";
    let held: MultiLockResponse = client.ask(path, &wait_for("key", 0));
    assert!(held.success);
    let first = client.send(path, &wait_for("key", 600_000));
    send_many(&mut client, path, &wait_for("key", 600_000).encode_to_vec(), WAITING_MAX - 1);
    // This contract says it in its answer.
    let refused: MultiLockResponse = client.ask(path, &wait_for("key", 600_000));
    assert!(!refused.success && refused.leases.is_empty());
    assert_eq!(refused.result_code, "internal");
    assert!(refused.message.contains("overloaded"), "{}", refused.message);
    // What asks for no lock is served, and of those who wait the first is the first.
    let lease = &held.leases[0];
    let unlock = waymaker_proto::waymaker::UnLockRequest { key: lease.key.clone(), id: lease.id.clone() };
    client.send("/waymaker.WaymakerService/UnLock", &unlock);
    let granted = client.answer(first);
    assert!(granted.decode::<MultiLockResponse>().success);
}

#[test]
fn the_v1_contract_answers_resource_exhausted_at_the_waiter_limit() {
    let server = server();
    let mut client = Http2::connect(&server);
    let path = "/waymaker.v1.LockService/Acquire";
    let mut other = Http2::connect(&server);
    let acquire = |max_wait_ms| v1::AcquireKeysRequest {
        keys: vec![v1::LockKey { key: "key".to_owned(), shared: false }],
        max_wait_ms,
        options: Some(v1::AcquireOptions { lease_ms: 600_000, ..Default::default() }),
        ..Default::default()
    };
    let held = other.call("/waymaker.v1.LockService/TryAcquire", &acquire(0));
    assert_eq!(held.status, Some(0), "{held:?}");
    for _ in 0..WAITING_MAX {
        client.send(path, &acquire(600_000));
    }
    let answer = client.call(path, &acquire(600_000));
    assert_eq!(answer.status, Some(RESOURCE_EXHAUSTED), "{answer:?}");
    assert!(answer.message.contains("10000"), "{answer:?}");
    client.assert_serves();
}

#[test]
fn a_connection_has_a_limit_of_incomplete_requests_and_refuses_the_next() {
    // The server fails a request that has not arrived whole after this time.
    within(Duration::from_secs(10), |arrival| {
        let server = server();
        let mut client = Http2::connect(&server);
        let path = "/waymaker.WaymakerService/MultiLock";
        arrival.begins();
        let first = client.begin(path);
        (1..AWAITED_MAX).for_each(|_| {
            client.begin(path);
        });
        let beyond = client.begin(path);
        let refused = client.answer(beyond);
        assert_eq!(refused.status, Some(RESOURCE_EXHAUSTED), "{refused:?}");
        assert!(refused.message.contains("1024"), "{refused:?}");
        // What arrives whole is served.
        let granted: MultiLockResponse = client.ask(path, &wait_for("key", 0));
        assert!(granted.success, "{granted:?}");
        client.write(&frame(DATA, END_STREAM, first, &prefixed(&wait_for("another", 0).encode_to_vec())));
        let granted = client.answer(first);
        assert!(granted.decode::<MultiLockResponse>().success);
    });
}

#[test]
fn the_server_announces_its_stream_limit() {
    let server = server();
    let mut client = Http2::connect(&server);
    let settings = client.receive();
    assert_eq!((settings.kind, settings.flags), (SETTINGS, 0));
    let limit = [&[0, 3][..], &STREAM_COUNT_MAX.to_be_bytes()].concat();
    assert!(settings.payload.chunks(6).any(|setting| setting == limit), "{settings:?}");
}
