//! Connections that do not begin, or begin and never come to an end.

use super::good_client::assert_unnoticed;
use super::http2::{CONTINUATION, HEADERS, PREFACE, SETTINGS, frame};
use super::server;
use crate::harness::{PATIENCE, Server, allow_files};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sends the first bytes, if there are any, then goes on with one of the others each second. How long the server bears it.
fn borne(server: &Server, port: &str, begin: &[u8], then: &[u8]) -> Duration {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(server.address(port)).expect("the server accepts");
    socket.write_all(begin).expect("the server reads");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
    let mut then = then.chunks(1);
    let mut buffer = [0; 1024];
    loop {
        match socket.read(&mut buffer) {
            // Some say first what they think of it.
            Ok(len) if len > 0 => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(begun.elapsed() < 2 * PATIENCE, "it is borne for ever");
                let _ = socket.write_all(then.next().unwrap_or_default());
            }
            Ok(_) | Err(_) => return begun.elapsed(),
        }
    }
}

#[test]
fn whoever_does_not_come_to_the_point_is_closed_in_time() {
    let server = server();
    let settings = frame(SETTINGS, 0, 0, &[]);
    let preface = [PREFACE, &settings].concat();
    let headers = [&preface[..], &frame(HEADERS, 0, 1, &[]), &frame(CONTINUATION, 0, 1, &[])].concat();
    // The frame that it announces is long.
    let half_frame = [&preface[..], &[0, 64, 0, HEADERS, 0, 0, 0, 0, 1]].concat();
    let half_head = b"GET /healthz HTTP/1.1\r\nHost: somewhere\r\nX: ";
    let whole_request = b"GET /healthz HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    // What they begin with, what they go on with each second, and for how many seconds they are borne.
    let mut cases: Vec<(&str, &[u8], &[u8], f64)> = vec![
        ("grpc", b"", PREFACE, 5.0),
        ("grpc", PREFACE, b"", 5.0),
        // They answer no ping, be they idle or in the middle of something.
        ("grpc", &preface, b"", 20.0),
        ("grpc", &headers, b"", 20.0),
        ("grpc", &half_frame, &[0; 100], 20.0),
    ];
    let slow_head = [b'x'; 100];
    for port in ["grpc", "http", "locktopus"] {
        cases.push((port, b"", b"", 5.0));
    }
    for port in ["http", "locktopus"] {
        // After a request as well.
        for begin in [&half_head[..], whole_request] {
            cases.push((port, begin, b"", 10.0));
        }
        cases.extend([(port, &half_head[..], &slow_head[..], 10.0), (port, b"", b"GET /healthz", 5.0)]);
    }
    std::thread::scope(|scope| {
        for (port, begin, then, seconds) in cases {
            let server = &server;
            scope.spawn(move || {
                let borne = borne(server, port, begin, then).as_secs_f64();
                let begin = String::from_utf8_lossy(begin);
                assert!((borne - seconds).abs() <= 1.0, "{port}, {begin:?}, then {then:?}: {borne} s");
            });
        }
    });
    server.assert_serves();
}

#[test]
fn a_thousand_that_trickle_hurt_nobody_else() {
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
    assert_unnoticed(&server, |abuse| {
        while abuse.goes_on() {
            for mut socket in &sockets {
                let _ = socket.write_all(b"x");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}
