//! Clients that ask and do not read.

use super::good_client::assert_unnoticed;
use super::http2::{Http2, PING, frame, narrow_socket};
use super::process::memory_len;
use super::server;
use super::web_socket::{self, LOCK, RELEASE, TEXT, WebSocket};
use crate::harness::{PATIENCE, Server};
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{
    ListAcquiredLocksRequest, LockRequest, MultiLockKey, MultiLockRequest, MultiLockResponse,
};

/// What a server may take for a client that does not read, beside what it holds.
const MEMORY_LEN_MAX: u64 = 64 << 20;

/// Writes this over and over until the server takes no more, and then waits for it to end the connection. How long it
/// bears that.
fn borne(socket: &mut TcpStream, bytes: &[u8]) -> Duration {
    socket.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let begun = Instant::now();
    let mut rest = bytes;
    loop {
        match socket.write(rest) {
            Ok(len) => rest = if len < rest.len() { &rest[len..] } else { bytes },
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return begun.elapsed(),
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "it is borne for ever");
    }
}

fn assert_borne(what: &str, borne: Duration) {
    // It takes some time until nothing goes any more.
    let seconds = borne.as_secs_f64();
    assert!((9.5..=13.0).contains(&seconds), "{what}: {seconds} s");
}

#[test]
fn whoever_asks_and_takes_no_answer_is_closed_in_time() {
    let server = server();
    let before = memory_len(&server);
    std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || {
            let mut client = Http2::connect_narrow(server);
            lock_streams(&mut client, 1_000);
            let pings = frame(PING, 0, 0, b"and over").repeat(1_000);
            assert_borne("streams", borne(&mut client.socket, &pings));
        });
        scope.spawn(move || {
            let mut client = WebSocket::connect_narrow(server, "pairs");
            let pair = [web_socket::frame(TEXT, LOCK), web_socket::frame(TEXT, RELEASE)].concat();
            assert_borne("pairs", borne(&mut client.socket, &pair.repeat(100)));
        });
        scope.spawn(move || {
            let mut client = WebSocket::connect_narrow(server, "pings");
            let pings = web_socket::frame(web_socket::PING, &[b'x'; 125]).repeat(100);
            assert_borne("pings of a WebSocket", borne(&mut client.socket, &pings));
        });
        for port in ["http", "locktopus"] {
            scope.spawn(move || {
                let mut socket = narrow_socket(server, port);
                let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
                assert_borne(port, borne(&mut socket, &request));
            });
        }
    });
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < MEMORY_LEN_MAX, "{grown} bytes");
    server.assert_serves();
}

/// Streams on locks that are held, with short leases: each has something to say all the time.
fn lock_streams(client: &mut Http2, count: usize) {
    for number in 0..count {
        let request = LockRequest {
            key: format!("held {}", number % 500),
            max_wait_period: 60_000,
            max_lease_period: 500,
            requester_info: "x".repeat(500),
            ..Default::default()
        };
        client.send("/waymaker.WaymakerService/Lock", &request);
    }
}

#[test]
fn nobody_notices_whoever_reads_nothing_of_a_thousand_streams() {
    let server = server();
    let before = memory_len(&server);
    let mut client = Http2::connect_narrow(&server);
    lock_streams(&mut client, 1_000);
    // So much to write at once fills what the kernel takes.
    client.write(&frame(PING, 0, 0, b"and over").repeat(20_000));
    assert_unnoticed(&server, |_| {});
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < MEMORY_LEN_MAX, "{grown} bytes");
}

#[test]
fn streams_without_a_window_take_little_memory() {
    let server = server();
    let before = memory_len(&server);
    let mut client = Http2::connect_without_window(&server);
    lock_streams(&mut client, 1_000);
    let end = Instant::now() + Duration::from_secs(3);
    // It reads, but never says so to the server.
    client.socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    while Instant::now() < end {
        let _ = client.try_receive();
    }
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < MEMORY_LEN_MAX, "{grown} bytes");
    assert_unnoticed(&server, |_| {});
}

/// Holds so many keys, as many at once as one request may name.
fn hold(server: &Server, count: usize) -> Http2 {
    let mut holder = Http2::connect(server);
    for batch in 0..count.div_ceil(500) {
        let keys = (0..500)
            .map(|number| MultiLockKey { key: format!("one of many {batch} {number}"), write_lock: true })
            .collect();
        let request = MultiLockRequest {
            keys,
            max_lease_period: 600_000,
            requester_application: "somebody".to_owned(),
            ..Default::default()
        };
        let granted: MultiLockResponse = holder.ask("/waymaker.WaymakerService/MultiLock", &request);
        assert!(granted.success, "{}", granted.message);
    }
    holder
}

#[test]
fn long_lists_that_nobody_reads_take_the_memory_of_one() {
    let server = server();
    let _holder = hold(&server, 100_000);
    let before = memory_len(&server);
    let lists = |client: &mut Http2| {
        for _ in 0..100 {
            client.send("/waymaker.WaymakerService/ListAcquiredLocks", &ListAcquiredLocksRequest::default());
        }
    };
    let mut without_window = Http2::connect_without_window(&server);
    lists(&mut without_window);
    let mut narrow = Http2::connect_narrow(&server);
    lists(&mut narrow);
    std::thread::sleep(Duration::from_secs(4));
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < 4 * MEMORY_LEN_MAX, "{grown} bytes");
    // Who reads gets all of them.
    let mut reader = Http2::connect(&server);
    for stream in [(); 3].map(|()| {
        reader.send("/waymaker.WaymakerService/ListAcquiredLocks", &ListAcquiredLocksRequest::default())
    }) {
        let answer = reader.answer(stream);
        assert_eq!(answer.status, Some(0));
        assert!(answer.body.len() > 100_000 * 50, "{} bytes", answer.body.len());
    }
}
