//! The limit of the server's memory.

use crate::harness::{Client, Server, anonymous_len, wait_until};
use std::net::TcpStream;
use waymaker_protocol::{
    Acquire, AcquireOptions, ErrorCode, Extend, LockId, Release, Request, Response, SessionRequest, Watch,
};

const LIMIT_LEN: u64 = 96 << 20;
/// Acquires that are sent at once.
const BURST: u32 = 200;

fn server() -> Server {
    Server::start(&["--memory-limit", "96MiB", "--workers", "1"])
}

/// Fills the server with holds until it refuses one. Returns some of the holds, and the refusal.
fn fill(client: &mut Client<TcpStream>) -> (Vec<LockId>, (ErrorCode, String, u64)) {
    let metadata = [b'm'; 4096];
    let options = AcquireOptions { metadata: Some(&metadata), ..AcquireOptions::default() };
    let mut held = Vec::new();
    for number in 0_u32.. {
        for place in 0..BURST {
            let key = (number * BURST + place).to_le_bytes();
            client.send(Request::Acquire(Acquire {
                key: &key,
                lease_ms: 600_000,
                options,
                ..Acquire::default()
            }));
        }
        let mut refusal = None;
        for _ in 0..BURST {
            let answer = client.receive();
            match answer.response() {
                Response::Granted(granted) => held.push(granted.id),
                _ => {
                    let (code, field, value) = answer.refusal();
                    refusal = Some((code, field.to_owned(), value));
                }
            }
        }
        if let Some(refusal) = refusal {
            return (held, refusal);
        }
    }
    unreachable!("the server has no end")
}

#[test]
fn a_full_server_refuses_claims_and_serves_renewals_and_releases() {
    let server = server();
    let mut client = server.client("full");
    // Connections are refused while much more than the limit is used.
    let (mut stranger, mut operator) = (server.stranger(), server.stranger());
    let (held, refusal) = fill(&mut client);
    assert_eq!(refusal, (ErrorCode::Overloaded, "bytes of memory".to_owned(), LIMIT_LEN));
    assert!(anonymous_len(&server) < LIMIT_LEN / 100 * 110, "{} bytes", anonymous_len(&server));

    let watch = client.ask(Request::Watch(Watch { key: b"key" }));
    assert_eq!(watch.refusal(), (ErrorCode::Overloaded, "bytes of memory", LIMIT_LEN));
    let hello = crate::harness::default_hello();
    let session = SessionRequest::New { lease_ms: 10_000 };
    let refused = stranger.ask(Request::Hello(waymaker_protocol::Hello { session, ..hello }));
    assert_eq!(refused.refusal(), (ErrorCode::Overloaded, "bytes of memory", LIMIT_LEN));
    // An operator without a session gets in.
    operator.open(hello);

    let extended =
        client.ask(Request::Extend(Extend { id: held[0], key: None, lease_ms: 60_000, own: false }));
    assert!(matches!(extended.response(), Response::Extended(_)), "{extended:?}");
    for part in held.chunks(BURST as usize) {
        for id in part {
            client.send(Request::Release(Release { id: *id, key: None, own: false }));
        }
        for _ in part {
            assert!(matches!(client.receive().response(), Response::Released(_)));
        }
    }
    wait_until("a claim that is served again", || {
        let answer = client.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
        matches!(answer.response(), Response::Granted(_))
    });
}

#[test]
fn a_limit_that_is_none_is_refused_by_name() {
    let (status, stderr) = crate::harness::refused(&["--memory-limit", "much"]);
    assert!(!status.success());
    assert!(stderr.contains("--memory-limit") && stderr.contains("512MiB"), "{stderr}");
}
