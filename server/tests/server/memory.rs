//! The limit of the server's memory.

use crate::harness::{Client, Server, anonymous_len, default_hello, wait_until};
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, Bucket, ErrorCode, Extend, Hello, LockId, NamespaceKind,
    Namespaces, PoolOrder, Release, Request, Response, SessionRequest, SetCapacity, Throttle, Watch,
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
                terms: AcquireTerms { lease_ms: 600_000, options, ..AcquireTerms::default() },
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
fn a_server_at_its_memory_limit_refuses_claims_and_serves_releases() {
    let server = server();
    let mut client = server.client("full");
    // Connections are refused while much more than the limit is used.
    let (mut stranger, mut operator) = (server.stranger(), server.stranger());
    let (held, refusal) = fill(&mut client);
    assert_eq!(refusal, (ErrorCode::Overloaded, "bytes of memory".to_owned(), LIMIT_LEN));
    assert!(anonymous_len(&server) < LIMIT_LEN / 100 * 110, "{} bytes", anonymous_len(&server));

    let watch = client.ask(Request::Watch(Watch { key: b"key" }));
    assert_eq!(watch.refusal(), (ErrorCode::Overloaded, "bytes of memory", LIMIT_LEN));
    let hello = default_hello();
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

/// A new bucket or pool needs memory, and a known one needs none.
#[test]
fn a_server_at_its_memory_limit_refuses_only_new_buckets_and_pools() {
    let server = server();
    let mut client = server.client("full");
    let mut limited = server.client_of(NamespaceKind::Limit, "limited");
    let mut pools = server.client_of(NamespaceKind::Pool, "pools");
    let throttle = |name| {
        let bucket = Bucket { rate: 1, period_ns: 3_600_000_000_000, burst: 10, cost: 1, name };
        Request::Throttle(Throttle { bucket, refund: false })
    };
    let set = |name| {
        Request::SetCapacity(SetCapacity {
            capacity: 2,
            order: PoolOrder::Arrival,
            name,
            ..SetCapacity::default()
        })
    };
    for is_full in [false, true] {
        if is_full {
            fill(&mut client);
            for answer in [limited.ask(throttle(b"new")), pools.ask(set(b"new"))] {
                assert_eq!(answer.refusal(), (ErrorCode::Overloaded, "bytes of memory", LIMIT_LEN));
            }
        }
        let throttled = limited.ask(throttle(b"known"));
        assert!(matches!(throttled.response(), Response::Throttled(_)), "{throttled:?}");
        let set = pools.ask(set(b"known"));
        assert!(matches!(set.response(), Response::CapacitySet(_)), "{set:?}");
    }
}

#[test]
fn a_server_far_above_its_memory_limit_refuses_connections_with_the_reason() {
    // It uses more than this without a client.
    let server = Server::start(&["--memory-limit", "1MiB", "--workers", "1"]);
    wait_until("a connection is refused", || {
        let mut stranger = server.stranger();
        // A connection before the first look at the memory is served.
        let mut hello = Vec::new();
        Request::Hello(default_hello()).encode(1, &mut hello);
        let _ = stranger.socket.write_all(&hello);
        let first = stranger.try_receive().expect("it hears why it is refused");
        let is_refused = !matches!(first.response(), Response::Welcome(_));
        if is_refused {
            assert_eq!(first.refusal(), (ErrorCode::Overloaded, "bytes of memory", 1 << 20));
            assert!(stranger.try_receive().is_none(), "the connection is closed");
        }
        is_refused
    });
}

#[test]
fn operators_can_use_the_unix_socket_at_the_memory_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let unix = path.to_str().expect("text");
    // It uses more than this without a client.
    let server = Server::start(&["--memory-limit", "1MiB", "--workers", "2", "--unix", unix]);
    wait_until("the server is full", || server.stranger().try_receive().is_some());
    for worker in [0, 1] {
        let mut operator = Client::new(UnixStream::connect(&path).expect("the system accepts"));
        let session = SessionRequest::New { lease_ms: 10_000 };
        let welcome = operator.open(Hello { worker, session, ..default_hello() });
        assert_eq!(welcome.worker, worker);
        let answer = operator.ask(Request::Namespaces(Namespaces::default()));
        assert!(matches!(answer.response(), Response::NamespacesListed(_)), "{answer:?}");
        let answer = operator.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
        assert_eq!(answer.refusal(), (ErrorCode::Overloaded, "bytes of memory", 1 << 20));
    }
}

#[test]
fn an_invalid_memory_limit_is_rejected_by_name() {
    let (status, stderr) = crate::harness::refused(&["--memory-limit", "much"]);
    assert!(!status.success());
    assert!(stderr.contains("--memory-limit") && stderr.contains("512MiB"), "{stderr}");
}
