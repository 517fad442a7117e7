//! Calls that begin and never arrive whole.

use super::bystander::{Delay, ask_idle, assert_delayed};
use super::http2::{ACK, DATA, END_HEADERS, HEADERS, Http2, PING, call_headers, frame, prefixed};
use super::server;
use crate::harness::{Server, memory_len};
use prost::Message as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{LockRequest, MultiLockRequest};

/// One call of each contract, and of what is served beside them.
const CALLS: [&str; 5] = [
    "/waymaker.WaymakerService/Lock",
    "/waymaker.WaymakerService/MultiLock",
    "/waymaker.v1.LockService/Acquire",
    "/models.Locket/Fetch",
    "/grpc.health.v1.Health/Check",
];

/// Time in which a request has to arrive whole.
const ARRIVAL: Duration = Duration::from_secs(10);

#[test]
fn an_incomplete_call_times_out_and_other_calls_on_its_connection_continue() {
    let server = server();
    let half = &prefixed(&LockRequest { key: "key".repeat(100), ..Default::default() }.encode_to_vec())[..50];
    std::thread::scope(|scope| {
        scope.spawn(|| assert_fails_byte_by_byte(&server));
        for path in CALLS {
            for begin in [&b""[..], &half[..3], half] {
                let server = &server;
                scope.spawn(move || {
                    let mut client = Http2::connect(server);
                    let begun = Instant::now();
                    let stream = client.begin(path);
                    if !begin.is_empty() {
                        client.write(&frame(DATA, 0, stream, begin));
                    }
                    let mut witness = server.witness(2 * ARRIVAL);
                    let other = client.call(CALLS[1], &MultiLockRequest::default());
                    assert_eq!(other.status, Some(0), "{path}: {other:?}");
                    let answer = client.answer_before(&mut witness, stream);
                    let took = begun.elapsed();
                    assert!(took >= ARRIVAL, "{path}, {begin:?}: {answer:?} after {took:?}");
                    assert!(answer.status.is_some_and(|status| status != 0), "{path}: {answer:?}");
                    client.assert_serves();
                });
            }
        }
    });
}

/// Asserts that a call fails in time that goes on with one byte at a time.
fn assert_fails_byte_by_byte(server: &Server) {
    let message = prefixed(&LockRequest { key: "k".repeat(1_000), ..Default::default() }.encode_to_vec());
    let mut client = Http2::connect(server);
    let begun = Instant::now();
    let stream = client.begin(CALLS[0]);
    let mut witness = server.witness(2 * ARRIVAL);
    let mut writer = client.socket.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for byte in message.chunks(1).take(20) {
                if writer.write_all(&frame(DATA, 0, stream, byte)).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(600));
            }
        });
        let answer = client.answer_before(&mut witness, stream);
        let took = begun.elapsed();
        assert!(took >= ARRIVAL, "{answer:?} after {took:?}");
        assert!(answer.status.is_some_and(|status| status != 0), "{answer:?}");
        client.assert_serves();
    });
}

#[test]
fn calls_without_a_body_use_little_memory_and_barely_delay_others() {
    let server = server();
    let idle = ask_idle(&server);
    let before = memory_len(&server);
    let mut client = Http2::connect(&server);
    // It confirms the server's settings now: where the kernel takes the burst in parts, a frame that is written meanwhile would
    // stand in the middle of another.
    client.assert_serves();
    let block = call_headers(CALLS[1]);
    let mut bytes = Vec::new();
    for _ in 0..20_000 {
        bytes.extend(frame(HEADERS, END_HEADERS, client.stream(), &block));
    }
    bytes.extend(frame(PING, 0, 0, b"was that"));
    let mut writer = client.socket.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writer.write_all(&bytes);
        });
        loop {
            let received = client.receive();
            if received.kind == PING && received.flags & ACK != 0 {
                break;
            }
        }
    });
    let taken = memory_len(&server) - before;
    assert!(taken < 100 << 20, "{taken} bytes");
    assert_delayed(&server, &idle, Delay::of_calls(10, 10));
}
