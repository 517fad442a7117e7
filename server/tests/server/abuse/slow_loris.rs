//! Connections that do not begin, or begin and never come to an end.

use super::bystander::{Delay, assert_abuse_delays};
use super::http2::{CONTINUATION, HEADERS, PREFACE, SETTINGS, frame};
use super::server;
use crate::harness::{Server, allow_files, is_nothing_yet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time between two bytes of a slow client.
const STEP: Duration = Duration::from_secs(1);

/// Sends `begin`, then one byte of `then` each second. Asserts that the server closes the connection after `limit`, but before
/// the server's clock has advanced by twice the limit.
fn assert_closed_after(limit: Duration, server: &Server, port: &str, begin: &[u8], then: &[u8]) {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(server.address(port)).expect("the server accepts");
    socket.write_all(begin).expect("the server reads");
    socket.set_read_timeout(Some(STEP)).expect("a socket");
    let mut witness = server.witness(2 * limit);
    let mut then = then.chunks(1);
    let mut buffer = [0; 1024];
    let what =
        format!("{port}, {:?}, then {then:?}: the end of the connection", String::from_utf8_lossy(begin));
    witness.assert_before_end(&what, || {
        loop {
            match socket.read(&mut buffer) {
                // Some ports answer with an error first.
                Ok(len) if len > 0 => {}
                Err(error) if is_nothing_yet(&error) => {
                    let _ = socket.write_all(then.next().unwrap_or_default());
                    return false;
                }
                Ok(_) | Err(_) => return true,
            }
        }
    });
    let borne = begun.elapsed();
    assert!(borne >= limit, "{what} after {borne:?}");
}

#[test]
fn a_connection_without_a_complete_request_is_closed_in_time() {
    let server = server();
    let settings = frame(SETTINGS, 0, 0, &[]);
    let preface = [PREFACE, &settings].concat();
    let headers = [&preface[..], &frame(HEADERS, 0, 1, &[]), &frame(CONTINUATION, 0, 1, &[])].concat();
    // The frame that it announces is long.
    let half_frame = [&preface[..], &[0, 64, 0, HEADERS, 0, 0, 0, 0, 1]].concat();
    let half_head = b"GET /healthz HTTP/1.1\r\nHost: somewhere\r\nX: ";
    let whole_request = b"GET /healthz HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    // The port, the first bytes, the bytes that follow one each second, and the seconds until the server closes the connection.
    let mut cases: Vec<(&str, &[u8], &[u8], u64)> = vec![
        ("grpc", b"", PREFACE, 5),
        ("grpc", PREFACE, b"", 5),
        // They answer no ping, be they idle or in the middle of something.
        ("grpc", &preface, b"", 20),
        ("grpc", &headers, b"", 20),
        ("grpc", &half_frame, &[0; 100], 20),
    ];
    let slow_head = [b'x'; 100];
    for port in ["grpc", "http", "locktopus"] {
        cases.push((port, b"", b"", 5));
    }
    for port in ["http", "locktopus"] {
        // After a request as well.
        for begin in [&half_head[..], whole_request] {
            cases.push((port, begin, b"", 10));
        }
        cases.extend([(port, &half_head[..], &slow_head[..], 10), (port, b"", b"GET /healthz", 5)]);
    }
    std::thread::scope(|scope| {
        for (port, begin, then, seconds) in cases {
            let server = &server;
            let limit = Duration::from_secs(seconds);
            scope.spawn(move || assert_closed_after(limit, server, port, begin, then));
        }
    });
    server.assert_serves();
}

#[test]
fn a_thousand_trickling_connections_barely_delay_other_clients() {
    allow_files(1_000);
    let server = server();
    let begin: [(&str, &[u8]); 3] =
        [("grpc", PREFACE), ("http", b"GET /healthz HTTP/1.1\r\nX: "), ("locktopus", b"GET /v1?namespace=")];
    let sockets: Vec<TcpStream> = (0..1_000)
        .map(|number| {
            let (port, begin) = begin[number % begin.len()];
            let mut socket = TcpStream::connect(server.address(port)).expect("the server accepts");
            socket.write_all(begin).expect("the server reads");
            socket
        })
        .collect();
    assert_abuse_delays(&server, Delay::of_calls(500, 700), || {
        for mut socket in &sockets {
            let _ = socket.write_all(b"x");
        }
    });
}
