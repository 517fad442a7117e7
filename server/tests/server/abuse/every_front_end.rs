//! Floods of the front ends, plain and encrypted. Requests of bystanders and the ends of their leases are measured, and no renewal that
//! arrived while the server was stopped is lost.

use super::expiry::assert_leases_end_in_time;
use super::fill::{Unsent, skip_input};
use super::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    call_headers, frame, prefixed,
};
use super::web_socket::{self, LOCK, RELEASE, TEXT, WebSocket};
use super::{PORTS, server};
use crate::harness::{Client, Server, SetWhenDropped, again_if_given_up, give_up};
use prost::Message as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{ListAcquiredLocksRequest, LockRequest};
use waymaker_protocol::{Extend, KeepAlive, LockId, Release, Request, Response};

/// Bytes that a flood makes at once.
const BURST_LEN: usize = 32 << 10;

/// A flood: its name, and the connection that it opens.
pub(super) type Flood = (&'static str, fn(&Server) -> Flooding);

/// A connection of a flood.
pub(super) struct Flooding {
    socket: TcpStream,
    /// Whether the answers are read.
    reads: bool,
    /// Encodes some more.
    next: Box<dyn FnMut() -> Vec<u8>>,
}

fn http2(server: &Server, reads: bool, mut next: impl FnMut(&mut Http2) -> Vec<u8> + 'static) -> Flooding {
    let mut client = Http2::connect(server);
    let socket = client.socket.try_clone().expect("a socket");
    Flooding { socket, reads, next: Box::new(move || next(&mut client)) }
}

/// Sends these bytes over and over.
fn same(socket: &TcpStream, reads: bool, bytes: Vec<u8>) -> Flooding {
    let socket = socket.try_clone().expect("a socket");
    Flooding { socket, reads, next: Box::new(move || bytes.repeat(1 + BURST_LEN / bytes.len())) }
}

fn call(client: &mut Http2, path: &str, message: &[u8]) -> Vec<u8> {
    let stream = client.stream();
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(path));
    bytes.extend(frame(DATA, END_STREAM, stream, &prefixed(message)));
    bytes
}

fn calls(server: &Server, reads: bool, path: &'static str, message: Vec<u8>) -> Flooding {
    http2(server, reads, move |client| (0..100).flat_map(|_| call(client, path, &message)).collect())
}

fn http1(server: &Server, reads: bool, path: &str) -> Flooding {
    let socket = TcpStream::connect(server.address("http")).expect("the server accepts");
    same(&socket, reads, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes())
}

fn web_socket(server: &Server, reads: bool, bytes: Vec<u8>) -> Flooding {
    same(&WebSocket::connect(server, "flood").socket, reads, bytes)
}

const LOCK_PATH: &str = "/waymaker.WaymakerService/Lock";
const LIST_PATH: &str = "/waymaker.WaymakerService/ListAcquiredLocks";

fn lock_request() -> Vec<u8> {
    LockRequest { key: "flood".to_owned(), max_wait_period: 10, ..LockRequest::default() }.encode_to_vec()
}

pub(super) const FLOODS: [Flood; 17] = [
    ("binary KEEP_ALIVE", |server| {
        let mut bytes = Vec::new();
        Request::KeepAlive(KeepAlive).encode(1, &mut bytes);
        same(&server.client("flood").socket, true, bytes)
    }),
    ("binary KEEP_ALIVE, unread", |server| {
        let mut bytes = Vec::new();
        Request::KeepAlive(KeepAlive).encode(1, &mut bytes);
        same(&server.client("flood").socket, false, bytes)
    }),
    ("HTTP/2 PING", |server| http2(server, true, |_| frame(PING, 0, 0, b"and over").repeat(1_000))),
    ("HTTP/2 PING, unread", |server| http2(server, false, |_| frame(PING, 0, 0, b"and over").repeat(1_000))),
    ("HTTP/2 SETTINGS", |server| http2(server, true, |_| frame(SETTINGS, 0, 0, &[]).repeat(1_000))),
    ("HTTP/2 streams that are reset", |server| {
        http2(server, true, |client| {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(LOCK_PATH));
            bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
            bytes
        })
    }),
    ("HTTP/2 streams with errors", |server| {
        http2(server, true, |client| {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(LOCK_PATH));
            bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
            bytes
        })
    }),
    ("gRPC messages in tiny pieces", |server| {
        http2(server, true, |client| {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(LOCK_PATH));
            bytes.extend(frame(DATA, 0, stream, &[0, 0, 15, 255, 255]));
            bytes.extend(frame(DATA, 0, stream, b"x").repeat(500));
            bytes
        })
    }),
    ("gRPC Lock", |server| calls(server, true, LOCK_PATH, lock_request())),
    ("gRPC Lock, unread", |server| calls(server, false, LOCK_PATH, lock_request())),
    ("gRPC ListAcquiredLocks", |server| {
        calls(server, true, LIST_PATH, ListAcquiredLocksRequest::default().encode_to_vec())
    }),
    ("gRPC ListAcquiredLocks, unread", |server| {
        calls(server, false, LIST_PATH, ListAcquiredLocksRequest::default().encode_to_vec())
    }),
    ("WebSocket pings", |server| web_socket(server, true, web_socket::frame(web_socket::PING, b"ping"))),
    ("WebSocket pings, unread", |server| {
        web_socket(server, false, web_socket::frame(web_socket::PING, b"ping"))
    }),
    ("WebSocket locks", |server| {
        let pair = [web_socket::frame(TEXT, LOCK), web_socket::frame(TEXT, RELEASE)].concat();
        web_socket(server, true, pair)
    }),
    ("HTTP/1 /healthz", |server| http1(server, true, "/healthz")),
    ("HTTP/1 /metrics, unread", |server| http1(server, false, "/metrics")),
];

/// Lets a flood run until `stop` is true. It reconnects if the server ends the connection.
pub(super) fn run(server: &Server, begin: fn(&Server) -> Flooding, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Flooding { socket, reads, mut next } = begin(server);
        let mut unsent = Unsent::default();
        while !stop.load(Ordering::Relaxed) && unsent.fill(&socket, &mut next) {
            if reads {
                skip_input(&socket);
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}

pub(super) fn encrypted_server() -> Server {
    let ports = ["binary", "grpc", "http", "locktopus"];
    Server::start_encrypted(&[&PORTS[..], &["--workers", "1"]].concat(), &ports)
}

#[test]
fn a_flood_of_any_front_end_does_not_delay_lease_expiry() {
    let server = server();
    for (name, begin) in FLOODS {
        assert_leases_end_in_time(&format!("{name}, plain"), &server, |stop| run(&server, begin, stop));
    }
}

#[test]
fn an_encrypted_flood_does_not_delay_lease_expiry() {
    let server = encrypted_server();
    for (name, begin) in FLOODS {
        assert_leases_end_in_time(&format!("{name}, TLS"), &server, |stop| run(&server, begin, stop));
    }
}

/// Clients that renew their leases.
const RENEWING_COUNT: usize = 50;
const LEASE_MS: u32 = 1_000;
const RENEW_EVERY: Duration = Duration::from_millis(200);
/// Renewals of each client while the server is stopped.
const PAUSED_COUNT: u32 = LEASE_MS / 200 + 2;

#[test]
fn renewals_sent_during_a_suspension_are_served_before_expiry() {
    let server = server();
    for (name, begin) in FLOODS {
        again_if_given_up(|| assert_no_lease_is_lost(&format!("{name}, plain"), &server, begin));
    }
}

#[test]
fn encrypted_renewals_sent_during_a_suspension_are_served_before_expiry() {
    let server = encrypted_server();
    for (name, begin) in FLOODS {
        again_if_given_up(|| assert_no_lease_is_lost(&format!("{name}, TLS"), &server, begin));
    }
}

/// A client that renews its lease.
struct Renewing {
    client: Client<TcpStream>,
    id: LockId,
    /// When it last sent a request for its lease.
    sent: Instant,
    /// Its lease may have ended, because a request was sent too late.
    is_late: bool,
}

impl Renewing {
    fn begin(server: &Server) -> Self {
        let mut client = server.client("renewing");
        let key = format!("renewed by {:?}", client.socket.local_addr());
        let sent = Instant::now();
        let id = client.acquire(key.as_bytes(), LEASE_MS).id;
        Self { client, id, sent, is_late: false }
    }

    fn send(&mut self, request: Request<'_>) {
        self.client.send(request);
        self.is_late |= self.sent.elapsed() >= Duration::from_millis(LEASE_MS.into());
        self.sent = Instant::now();
    }

    fn renew(&mut self) {
        self.send(Request::Extend(Extend { id: self.id, key: None, lease_ms: LEASE_MS, own: false }));
    }

    fn release(&mut self) {
        self.send(Request::Release(Release { id: self.id, key: None, own: false }));
    }

    /// Asserts that the lease was renewed this many times and released.
    fn finish(mut self, name: &str, renewal_count: u32) {
        if self.is_late {
            give_up("a renewal was sent after the end of its lease");
        }
        for _ in 0..renewal_count {
            let answer = self.client.receive();
            let response = answer.response();
            assert!(matches!(response, Response::Extended(_)), "{name}: {}: {response:?}", self.id);
        }
        assert!(matches!(self.client.receive().response(), Response::Released(_)), "{name}: {}", self.id);
    }
}

/// Stops the server for longer than a lease, while clients send renewals and a flood fills its socket.
fn assert_no_lease_is_lost(name: &str, server: &Server, begin: fn(&Server) -> Flooding) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = SetWhenDropped(&stop);
        let mut renewing: Vec<_> = (0..RENEWING_COUNT).map(|_| Renewing::begin(server)).collect();
        scope.spawn(|| run(server, begin, &stop));
        let mut renew = |count: u32| {
            for _ in 0..count {
                renewing.iter_mut().for_each(Renewing::renew);
                thread::sleep(RENEW_EVERY);
            }
        };
        renew(1);
        server.pause();
        renew(PAUSED_COUNT);
        server.resume();
        renew(2);
        // All of them before the answers, which take long during a flood.
        renewing.iter_mut().for_each(Renewing::release);
        renewing.into_iter().for_each(|one| one.finish(name, 1 + PAUSED_COUNT + 2));
        println!("{name}: no lease is lost");
    });
}
