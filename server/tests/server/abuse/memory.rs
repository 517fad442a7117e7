//! Clients that make the server keep much for them. Each is bounded by itself, far below any limit of the whole server.

use super::http2::{DATA, END_HEADERS, HEADERS, Http2, call_headers, frame, prefixed};
use super::server;
use super::web_socket::{WebSocket, frame as piece};
use crate::harness::{Client, Received, Server, memory_len, wait_until_rested};
use std::io::Write as _;
use std::net::TcpStream;
use std::ops::Range;
use waymaker_protocol::{
    AcquireKeys, AcquireTerms, ErrorCode, Items, KeyItem, Request, Response, SessionRequest,
};

/// Growth that a client may cause.
const GROWN_MAX: u64 = 48 << 20;

pub(super) fn assert_grows_little(server: &Server, what: &str, abuse: impl FnOnce()) {
    wait_until_rested(server);
    let before = memory_len(server);
    abuse();
    let grown = memory_len(server).saturating_sub(before);
    println!("{what}: {} KiB more", grown >> 10);
    assert!(grown < GROWN_MAX, "{what}: {grown} bytes more");
    server.assert_serves();
}

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const RESOURCE_EXHAUSTED: u32 = 8;

#[test]
fn open_reflection_and_health_calls_are_limited() {
    let server = server();
    for path in [REFLECTION, WATCH] {
        let mut client = Http2::connect(&server);
        assert_grows_little(&server, path, || {
            for _ in 0..20_000 {
                client.begin(path);
            }
            let last = client.begin(path);
            let answer = client.answer(last);
            assert_eq!(answer.status, Some(RESOURCE_EXHAUSTED), "{answer:?}");
            assert!(answer.message.contains("16"), "{answer:?}");
        });
    }
}

#[test]
fn incomplete_messages_use_memory_only_for_the_bytes_received() {
    let server = server();
    let mut client = Http2::connect(&server);
    let path = "/waymaker.v1.LockService/Acquire";
    assert_grows_little(&server, "announced messages", || {
        for _ in 0..1_000 {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(path));
            // A message of 2 MiB, of which a byte arrives.
            bytes.extend(frame(DATA, 0, stream, &[0, 0, 32, 0, 0, b'x']));
            client.write(&bytes);
        }
        client.assert_serves();
    });
    let mut client = Http2::connect(&server);
    assert_grows_little(&server, "long messages", || {
        let body = prefixed(&[b'x'; 2 << 20]);
        // All but the end of each. The server lets a connection have a few of them.
        let refused = (0..8).any(|_| {
            let stream = client.begin(path);
            client.send_body(stream, &body[..1 << 20]);
            matches!(client.try_receive(), Ok(Some(received)) if received.kind == HEADERS)
        });
        let _ = refused;
    });
}

#[test]
fn web_socket_message_fragments_are_limited() {
    let server = server();
    let mut clients: Vec<_> = (0..20).map(|_| WebSocket::connect(&server, "pieces")).collect();
    assert_grows_little(&server, "pieces of messages", || {
        for client in &mut clients {
            let _ = client.socket.write_all(&piece(0x01, &[b' '; 1 << 10]));
            for _ in 0..1_000 {
                if client.socket.write_all(&piece(0x00, &[b' '; 1 << 10])).is_err() {
                    break;
                }
            }
        }
    });
}

/// Keys whose grant is a long answer, which is kept for a client that may come again.
fn many_keys() -> Vec<Vec<u8>> {
    (0..1024_u32).map(|key| [&key.to_le_bytes()[..], &[b'k'; 110]].concat()).collect()
}

/// Takes the keys under each of these numbers.
fn take_keys(client: &mut Client<TcpStream>, items: Items<'_, KeyItem<'_>>, numbers: Range<u32>) {
    for number in numbers {
        let claim = AcquireKeys { items, terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() } };
        client.send_numbered(number, Request::AcquireKeys(claim));
        let answer = receive_answer(client);
        assert!(matches!(answer.response(), Response::GrantedKeys(_)), "{number}: {answer:?}");
    }
}

#[test]
fn kept_answers_of_a_session_are_limited() {
    let server = server();
    let (mut client, _) = server.session_client(SessionRequest::New { lease_ms: 600_000 });
    let (keys, mut buffer) = (many_keys(), Vec::new());
    let items = keys.iter().map(|key| KeyItem { shared: true, key });
    let items = Items::new(items, &mut buffer).expect("keys");
    assert_grows_little(&server, "kept answers", || take_keys(&mut client, items, 2..102));
    take_keys(&mut client, items, 101..102);
    let claim = Request::AcquireKeys(AcquireKeys {
        items,
        terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() },
    });
    client.send_numbered(2, claim);
    let dropped = receive_answer(&mut client);
    assert_eq!(dropped.refusal(), (ErrorCode::Unknown, "bytes of kept responses", 4 << 20));
}

#[test]
fn kept_answers_of_all_lanes_of_a_session_are_limited() {
    let server = server();
    let (first, welcome) = server.session_client(SessionRequest::New { lease_ms: 600_000 });
    let join = || server.session_client(SessionRequest::Join { id: welcome.session_id }).0;
    let mut lanes: Vec<_> = std::iter::once(first).chain((1..64).map(|_| join())).collect();
    let (keys, mut buffer) = (many_keys(), Vec::new());
    let items = keys.iter().map(|key| KeyItem { shared: true, key });
    let items = Items::new(items, &mut buffer).expect("keys");
    // 64 lanes with all that one lane may keep would be 256 MiB.
    assert_grows_little(&server, "kept answers of 64 lanes", || {
        lanes.iter_mut().for_each(|lane| take_keys(lane, items, 2..42));
    });
}

/// Returns the next frame that is no event.
fn receive_answer(client: &mut Client<TcpStream>) -> Received {
    loop {
        let frame = client.receive();
        if frame.number() != 0 {
            return frame;
        }
    }
}
