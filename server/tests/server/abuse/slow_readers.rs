//! Clients that ask and do not read.

use super::bystander::{Delay, ask_idle, assert_delayed};
use super::http2::{Http2, PING, frame, narrow_socket};
use super::long_lists::hold;
use super::server;
use super::web_socket::{self, LOCK, RELEASE, TEXT, WebSocket};
use crate::harness::{LOOK, Server, is_nothing_yet, memory_len, wait_until_rested};
use procfs::net::TcpState;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{ListAcquiredLocksRequest, LockRequest};

/// What a server may take for a client that does not read, beside what it holds.
const MEMORY_LEN_MAX: u64 = 64 << 20;
/// How long a connection may take no bytes before the server closes it.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the server may take no bytes before a connection counts as stuck.
const STUCK_AFTER: Duration = Duration::from_millis(200);

/// Writes `bytes` over and over until the server takes no more. Asserts that the server then closes the connection after
/// [`LIMIT`], but before its clock has advanced by twice the limit.
fn assert_closed_after_limit(what: &str, server: &Server, socket: &mut TcpStream, bytes: &[u8]) {
    socket.set_write_timeout(Some(STUCK_AFTER)).expect("a socket");
    let begun = Instant::now();
    let mut rest = bytes;
    while write_until_stuck(socket, bytes, &mut rest) {
        let Some(len_before) = taken_len(socket) else { break };
        // If the socket takes or brings more after all, the limit begins again, and so does the witness.
        let mut witness = server.witness(2 * LIMIT);
        witness.assert_before_end(&format!("{what}: the end of a connection that takes nothing"), || {
            match socket.write(rest) {
                Ok(len) => rest = if len < rest.len() { &rest[len..] } else { bytes },
                Err(error) if is_nothing_yet(&error) => return taken_len(socket) != Some(len_before),
                // The connection was cut; the next write fails too.
                Err(_) => {}
            }
            true
        });
    }
    let borne = begun.elapsed();
    assert!(borne >= LIMIT, "{what}: {borne:?}");
}

/// Returns the number of bytes that the kernel has taken from the server for this client, although nobody reads them: it
/// makes room for a few more now and then. `None` once the server has closed the connection. The client may learn of that
/// much later, because the end comes after the unread bytes, and its kernel tries less and less often to send more.
fn taken_len(socket: &TcpStream) -> Option<u64> {
    let unread_len = rustix::io::ioctl_fionread(socket).expect("a socket");
    let ends = (socket.peer_addr().ok()?, socket.local_addr().expect("a socket"));
    let mut sockets = procfs::net::tcp().expect("the kernel lists the sockets").into_iter();
    let of_server = sockets.find(|socket| (socket.local_address, socket.remote_address) == ends)?;
    (of_server.state == TcpState::Established).then(|| unread_len + u64::from(of_server.tx_queue))
}

/// Writes until the connection is stuck. Returns false if the connection was cut before that.
fn write_until_stuck<'a>(socket: &mut TcpStream, bytes: &'a [u8], rest: &mut &'a [u8]) -> bool {
    loop {
        match socket.write(rest) {
            Ok(len) => *rest = if len < rest.len() { &rest[len..] } else { bytes },
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return is_nothing_yet(&error),
        }
    }
}

#[test]
fn a_client_that_never_reads_its_answers_is_closed_in_time() {
    let server = server();
    let before = memory_len(&server);
    std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || {
            let mut client = Http2::connect_narrow(server);
            lock_streams(&mut client, 1_000);
            let pings = frame(PING, 0, 0, b"and over").repeat(1_000);
            assert_closed_after_limit("streams", server, &mut client.socket, &pings);
        });
        scope.spawn(move || {
            let mut client = WebSocket::connect_narrow(server, "pairs");
            let pair = [web_socket::frame(TEXT, LOCK), web_socket::frame(TEXT, RELEASE)].concat();
            assert_closed_after_limit("pairs", server, &mut client.socket, &pair.repeat(100));
        });
        scope.spawn(move || {
            let mut client = WebSocket::connect_narrow(server, "pings");
            let pings = web_socket::frame(web_socket::PING, &[b'x'; 125]).repeat(100);
            assert_closed_after_limit("pings of a WebSocket", server, &mut client.socket, &pings);
        });
        for port in ["http", "locktopus"] {
            scope.spawn(move || {
                let mut socket = narrow_socket(server, port);
                let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
                assert_closed_after_limit(port, server, &mut socket, &request);
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
fn a_client_with_a_thousand_unread_streams_barely_delays_others() {
    let server = server();
    let idle = ask_idle(&server);
    let before = memory_len(&server);
    let mut client = Http2::connect_narrow(&server);
    lock_streams(&mut client, 1_000);
    // So much to write at once fills what the kernel takes.
    client.write(&frame(PING, 0, 0, b"and over").repeat(20_000));
    assert_delayed(&server, &idle, Delay::of_calls(40, 50));
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < MEMORY_LEN_MAX, "{grown} bytes");
}

#[test]
fn streams_without_a_window_use_little_memory() {
    let server = server();
    let idle = ask_idle(&server);
    let before = memory_len(&server);
    let mut client = Http2::connect_without_window(&server);
    lock_streams(&mut client, 1_000);
    // The client reads, but sends no window updates. The leases of 500 ms end meanwhile, and each stream has events to write.
    let mut witness = server.witness(Duration::from_secs(3));
    client.socket.set_read_timeout(Some(LOOK)).expect("a socket");
    while !witness.is_over() {
        let _ = client.try_receive();
    }
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < MEMORY_LEN_MAX, "{grown} bytes");
    assert_delayed(&server, &idle, Delay::of_calls(10, 10));
}

#[test]
fn many_unread_long_lists_use_the_memory_of_one() {
    let server = server();
    let _holder = hold(&server, 100_000, 0);
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
    wait_until_rested(&server);
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
