//! Whatever arrives, the answer says what is wrong, and nobody else is disturbed.

use crate::harness::{QUIET, Server, Watchdog, assert_not_early, default_hello, refused};
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use waymaker_protocol::frame::put_frame;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireOptions, Cancel, ErrorCode, Extend, Hello, Inspect, List, LockId, NamespaceKind, Release,
    Request, SessionId, SessionRequest, Status,
};

#[test]
fn an_invalid_hello_is_answered_and_the_connection_closed() {
    let server = Server::start(&[]);
    let hello = default_hello();
    let unknown = SessionId { place: 7 << 48, secret: 1 };
    // Whoever names a namespace first says of which kind it is.
    let _flat = server.client("flat");
    for (wrong, code, field) in [
        (Hello { version_min: 3, version_max: 9, ..hello }, ErrorCode::BadInput, "version"),
        (Hello { namespace: b"", ..hello }, ErrorCode::BadInput, "namespace"),
        (Hello { kind: NamespaceKind::Tree, ..hello }, ErrorCode::BadInput, "kind"),
        (Hello { worker: 4_000, ..hello }, ErrorCode::BadInput, "worker"),
        (
            Hello { session: SessionRequest::New { lease_ms: 1 }, ..hello },
            ErrorCode::BadInput,
            "session_lease_ms",
        ),
        (
            Hello { session: SessionRequest::Join { id: unknown }, ..hello },
            ErrorCode::SessionGone,
            "session_id",
        ),
        (
            Hello { session: SessionRequest::Resume { id: SessionId::default(), lane: 0 }, ..hello },
            ErrorCode::SessionGone,
            "session_id",
        ),
    ] {
        let mut client = server.stranger();
        let answer = client.ask(Request::Hello(wrong));
        let (actual_code, actual_field, _) = answer.refusal();
        assert_eq!((actual_code, actual_field), (code, field), "{wrong:?}");
        assert!(client.try_receive().is_none(), "closed");
    }
    server.assert_serves();
}

#[test]
fn other_protocols_are_answered_with_an_error() {
    let server = Server::start(&[]);
    let mut wrong_magic = Vec::new();
    put_frame(&mut wrong_magic, opcode::HELLO, 0, 1, |out| out.extend_from_slice(b"MAYWAKER and so on"));
    let mut not_hello = Vec::new();
    Request::Inspect(Inspect { key: b"key" }).encode(1, &mut not_hello);
    for (bytes, field) in [
        (&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], "length"),
        // A web page chooses the body of its request, but not the bytes before it.
        (&b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n"[..], "length"),
        (&b"*1\r\n$4\r\nPING\r\n"[..], "length"),
        (&[0; 16][..], "length"),
        (&wrong_magic[..], "magic"),
        (&not_hello[..], "magic"),
    ] {
        let mut client = server.stranger();
        client.write(bytes);
        let answer = client.receive();
        assert_eq!(answer.refusal().1, field);
        assert!(client.try_receive().is_none(), "closed");
    }
    server.assert_serves();
}

#[test]
fn an_invalid_request_is_rejected_by_field_and_the_connection_continues() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    let long = [b'k'; 1025];
    let acquire = |acquire| Request::Acquire(acquire);
    let key = Acquire { key: b"key", ..Acquire::default() };
    let option = |options| key.with_terms(|terms| terms.options = options);
    let none = AcquireOptions::default();
    let unknown = LockId { place: 3, secret: 4 };
    let nowhere = LockId { place: u64::MAX, secret: 4 };
    let cases = [
        (acquire(Acquire { key: b"", ..key }), ErrorCode::BadInput, "key", 0),
        (acquire(Acquire { key: &long, ..key }), ErrorCode::BadInput, "key", 1024),
        (acquire(key.with_terms(|terms| terms.lease_ms = 9)), ErrorCode::BadInput, "lease_ms", 10),
        (
            acquire(option(AcquireOptions { request_id: Some(b""), ..none })),
            ErrorCode::BadInput,
            "request_id",
            0,
        ),
        (acquire(option(AcquireOptions { owner: Some(&long), ..none })), ErrorCode::BadInput, "owner", 256),
        (acquire(option(AcquireOptions { scope: Some(9), ..none })), ErrorCode::BadInput, "scope", 3),
        (acquire(option(AcquireOptions { scope: Some(2), ..none })), ErrorCode::ScopeUnavailable, "scope", 0),
        (acquire(option(AcquireOptions { scope: Some(3), ..none })), ErrorCode::ScopeUnavailable, "scope", 0),
        (Request::Release(Release { id: unknown, key: None, own: false }), ErrorCode::NotFound, "id", 0),
        (Request::Release(Release { id: nowhere, key: None, own: false }), ErrorCode::NotFound, "id", 0),
        (Request::Extend(Extend { id: unknown, ..Extend::default() }), ErrorCode::NotFound, "id", 0),
        (
            Request::Extend(Extend { id: unknown, lease_ms: 1, key: None, own: false }),
            ErrorCode::BadInput,
            "lease_ms",
            10,
        ),
        (Request::Status(Status { id: unknown, key: None }), ErrorCode::NotFound, "id", 0),
        (Request::Inspect(Inspect { key: b"" }), ErrorCode::BadInput, "key", 0),
        (Request::Inspect(Inspect { key: &long }), ErrorCode::BadInput, "key", 1024),
        (Request::Cancel(Cancel { acquire_number: 1, key: b"" }), ErrorCode::BadInput, "key", 0),
        (Request::Cancel(Cancel { acquire_number: 1, key: &long }), ErrorCode::BadInput, "key", 1024),
        (Request::List(List { prefix: &long, ..List::default() }), ErrorCode::BadInput, "prefix", 1024),
        (Request::Hello(default_hello()), ErrorCode::BadInput, "opcode", 0),
    ];
    for (request, code, field, value) in cases {
        let answer = client.ask(request);
        assert_eq!(answer.refusal(), (code, field, value), "{request:?}");
    }
    let answer = client.ask(Request::List(List { cursor: u64::MAX, ..List::default() }));
    assert_eq!(answer.refusal().1, "cursor");
    assert_eq!(client.acquire(b"key", 0).fence, 1, "no refused acquire spent a fence");
}

#[test]
fn a_malformed_frame_is_rejected_with_its_number_and_the_connection_continues() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    let body = |bytes: &'static [u8]| move |out: &mut Vec<u8>| out.extend_from_slice(bytes);
    let mut frames = Vec::new();
    put_frame(&mut frames, 0x7f, 0, 50, body(b""));
    put_frame(&mut frames, opcode::ACQUIRE, 0x8000, 51, body(b"\0\0\0\0\0\0\0\0\x03\0key"));
    put_frame(&mut frames, opcode::ACQUIRE, 0, 52, body(b"\0\0"));
    put_frame(&mut frames, opcode::ACQUIRE, 0, 53, body(b"\0\0\0\0\0\0\0\0\xff\0key"));
    put_frame(&mut frames, opcode::RELEASE, 0, 54, body(b"short"));
    put_frame(&mut frames, opcode::RELEASE, 0, 55, body(&[0; 17]));
    put_frame(&mut frames, opcode::KEEP_ALIVE, 0, 56, body(b"more"));
    put_frame(&mut frames, opcode::LIST, 0, 57, body(b""));
    client.write(&frames);
    let mut answered: Vec<_> = (50..58)
        .map(|_| {
            let answer = client.receive();
            let (code, field, _) = answer.refusal();
            assert_eq!(code, ErrorCode::BadInput);
            (answer.number(), field.to_owned())
        })
        .collect();
    answered.sort_unstable();
    let fields: Vec<_> = answered.iter().map(|(_, field)| field.as_str()).collect();
    assert_eq!(fields, ["opcode", "flags", "lease_ms", "key", "id", "body", "body", "cursor"]);
    client.acquire(b"key", 0);
}

#[test]
fn an_oversized_frame_is_answered_and_its_connection_closed() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    client.write(&[0xff, 0xff, 0xff, 0x7f, 1, 2, 3]);
    let answer = client.receive();
    assert_eq!(answer.number(), 0);
    assert_eq!(answer.refusal(), (ErrorCode::BadInput, "length", 1 << 20));
    assert!(client.try_receive().is_none());
    server.assert_serves();
}

#[test]
fn a_connection_that_ends_inside_a_frame_has_no_effect() {
    let server = Server::start(&[]);
    let mut whole = Vec::new();
    Request::Acquire(Acquire { key: b"half", ..Acquire::default() }).encode(2, &mut whole);
    for cut in 0..whole.len() {
        let mut client = server.client("a");
        client.write(&whole[..cut]);
        client.socket.shutdown(Shutdown::Write).unwrap();
        assert!(client.try_receive().is_none());
    }
    assert_eq!(server.client("b").acquire(b"half", 0).fence, 1, "half a request has no effect");
}

#[test]
fn a_client_that_shuts_down_its_write_side_still_gets_its_answers() {
    let server = Server::start(&[]);
    for _ in 0..50 {
        let mut client = server.client("a");
        client.send(Request::Inspect(Inspect { key: b"key" }));
        client.socket.shutdown(Shutdown::Write).unwrap();
        assert!(matches!(client.receive().response(), waymaker_protocol::Response::Inspected(_)));
        assert!(client.try_receive().is_none());
    }
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    let mut bytes = Vec::new();
    Request::Acquire(Acquire { key: b"key", ..Acquire::default() }).encode(9, &mut bytes);
    for byte in bytes {
        client.write(&[byte]);
    }
    assert_eq!(client.receive().granted().fence, 1);
}

#[test]
fn random_bytes_never_harm_the_server() {
    let server = Server::start(&["--workers", "2"]);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..200 {
        let mut client = if round % 2 == 0 { server.stranger() } else { server.client("noise") };
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let opcode = next() as u8;
            let flags = next() as u16 & next() as u16;
            let body: Vec<u8> = (0..next() % 64).map(|_| next() as u8 & next() as u8).collect();
            put_frame(&mut bytes, opcode, flags, next() as u32, |out| out.extend_from_slice(&body));
        }
        // The server may close before all of it is written.
        let _ = client.socket.write_all(&bytes);
    }
    server.assert_serves();
}

#[test]
fn a_client_that_never_reads_is_paused_and_then_closed() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    for number in 0..200_u32 {
        client.acquire(&number.to_le_bytes(), 0);
    }
    client.socket.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        Request::List(List::default()).encode(1, &mut bytes);
    }
    // Each request asks for kilobytes: at some point the server stops taking them, and in the end it gives up.
    let mut sent = 0_u64;
    let begin = Instant::now();
    let mut watchdog = Watchdog::start();
    loop {
        match client.socket.write(&bytes) {
            Ok(len) => sent += len as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                server.assert_serves();
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) => {
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64 << 20, "the server takes everything");
        watchdog.look_again(|| "the end of the connection".to_owned());
    }
    assert_not_early(begin, Duration::from_secs(10));
}

#[test]
fn a_server_that_cannot_start_names_the_wrong_option() {
    let server = Server::start(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--listen", server.address("binary")], "listen"),
        (&["--listen", "nonsense"], "listen"),
        (&["--listen", "0.0.0.0:0"], "--insecure"),
        (&["--data-dir", path], "data-dir"),
        (&["--config", "/nonexistent/file.toml"], "/nonexistent/file.toml"),
        (&["--workers", "0"], "'0' for '--workers <N>': use a number from 1 to 1024"),
        (&["--log-segment-len", "5"], "'5' for '--log-segment-len <BYTES>': use a multiple of 4096"),
    ];
    for (arguments, named) in cases {
        // The last of a repeated flag would be an error of its own, so the port of the harness is left out.
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
        let output = command.args(arguments).envs(QUIET).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(message.contains(named), "{arguments:?}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn a_server_that_cannot_listen_creates_no_data_directory() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
    command.args(["--listen", server.address("binary"), "--data-dir", path.to_str().unwrap()]);
    let output = command.envs(QUIET).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    // A supervisor may try again later.
    assert_eq!(output.status.code(), Some(69));
    assert!(message.contains("--listen: cannot listen on "), "{message}");
    assert!(!path.exists(), "the data directory was created");
}

#[test]
fn a_data_directory_in_use_refuses_a_second_server_with_the_pid() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let path = path.to_str().unwrap();
    let first = Server::start(&["--data-dir", path]);
    let (status, message) = refused(&["--data-dir", path]);
    assert!(!status.success());
    assert!(message.contains("in use by another server (pid "), "{message}");
    first.assert_serves();
}
