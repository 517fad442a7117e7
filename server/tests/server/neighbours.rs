//! Clients of other versions: the server reads their frames, and sends only frames of their version.

use crate::durable::Place;
use crate::harness::{Client, Server, default_hello};
use std::net::TcpStream;
use waymaker_protocol::{
    Capabilities, ErrorCode, Hello, NamespaceKind, Request, Response, SessionRequest, VERSION, VERSION_MIN,
    Welcome,
};

/// Frames of version 1 as its clients send and expect them.
mod v1 {
    pub(super) const HELLO: &str = include_str!("../../../protocol/tests/golden/v1/hello_session_none.hex");
    pub(super) const HELLO_NEW: &str =
        include_str!("../../../protocol/tests/golden/v1/hello_session_new.hex");
    pub(super) const WELCOME: &str = include_str!("../../../protocol/tests/golden/v1/welcome.hex");
    pub(super) const WELCOME_SESSION: &str =
        include_str!("../../../protocol/tests/golden/v1/welcome_session.hex");
    pub(super) const ACQUIRE: &str = include_str!("../../../protocol/tests/golden/v1/acquire.hex");
    pub(super) const GRANTED: &str = include_str!("../../../protocol/tests/golden/v1/granted.hex");
    pub(super) const RELEASE: &str = include_str!("../../../protocol/tests/golden/v1/release.hex");
    pub(super) const RELEASED: &str = include_str!("../../../protocol/tests/golden/v1/released.hex");
    pub(super) const KEEP_ALIVE: &str = include_str!("../../../protocol/tests/golden/v1/keep_alive.hex");
    pub(super) const KEPT_ALIVE: &str = include_str!("../../../protocol/tests/golden/v1/kept_alive.hex");
}

/// The bytes of a golden file: hexadecimal digits; `#` begins a comment.
fn bytes_of(golden: &str) -> Vec<u8> {
    let digits = golden.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits")).collect()
}

/// The bytes of a golden file, with some fields of `actual`: each an offset and a length.
fn expected(golden: &str, actual: &[u8], own_fields: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = bytes_of(golden);
    for (offset, len) in own_fields {
        bytes[*offset..offset + len].copy_from_slice(&actual[*offset..offset + len]);
    }
    bytes
}

/// Sends these bytes and returns the frame that answers them.
fn exchange(client: &mut Client<TcpStream>, bytes: &[u8]) -> Vec<u8> {
    client.write(bytes);
    client.receive().bytes().to_vec()
}

const ID: (usize, usize) = (12, 16);
/// Field of GRANTED.
const STAMP_MS: (usize, usize) = (40, 8);
/// Fields of WELCOME that differ from server to server: workers, shards, clock and id.
const OWN_OF_WELCOME: [(usize, usize); 5] = [(14, 2), (16, 2), (18, 2), (46, 8), (54, 8)];

#[test]
fn a_version_1_client_is_served_with_version_1_frames() {
    let place = Place::new();
    let server = place.start(&["--workers", "2"]);
    let mut client = server.stranger();
    let welcome = exchange(&mut client, &bytes_of(v1::HELLO));
    assert_eq!(welcome, expected(v1::WELCOME, &welcome, &OWN_OF_WELCOME));

    let granted = exchange(&mut client, &bytes_of(v1::ACQUIRE));
    let fence = 1_u64.to_le_bytes();
    let mut first = expected(v1::GRANTED, &granted, &[ID, STAMP_MS]);
    first[28..36].copy_from_slice(&fence);
    assert_eq!(granted, first);

    let mut release = bytes_of(v1::RELEASE);
    release[12..28].copy_from_slice(&granted[12..28]);
    assert_eq!(exchange(&mut client, &release), bytes_of(v1::RELEASED));
    let kept = exchange(&mut client, &bytes_of(v1::KEEP_ALIVE));
    assert_eq!(kept.len(), bytes_of(v1::KEPT_ALIVE).len());
}

#[test]
fn a_version_1_session_gets_a_version_1_welcome() {
    let server = Server::start(&[]);
    let mut client = server.stranger();
    let welcome = exchange(&mut client, &bytes_of(v1::HELLO_NEW));
    let session_id = (24, 16);
    assert_eq!(
        welcome,
        expected(v1::WELCOME_SESSION, &welcome, &[&OWN_OF_WELCOME[..], &[session_id]].concat())
    );
    assert_ne!(welcome[24..40], [0; 16], "it has a session");
}

#[test]
fn the_newest_common_version_is_selected() {
    let server = Server::start(&[]);
    for (version_min, version_max, picked) in [
        (1, 1, Some(1)),
        (1, 2, Some(2)),
        (2, 2, Some(2)),
        (0, 1, Some(1)),
        (1, 9, Some(2)),
        (2, u16::MAX, Some(2)),
    ]
    .into_iter()
    .chain([(0, 0, None), (3, 3, None), (3, u16::MAX, None), (2, 1, None)])
    {
        let hello = Hello { version_min, version_max, ..default_hello() };
        let mut client = server.stranger();
        let answer = client.ask(Request::Hello(hello));
        match picked {
            Some(version) => {
                let Response::Welcome(welcome) = answer.response() else { panic!("{:?}", answer.response()) };
                assert_eq!(welcome.version, version, "{version_min} to {version_max}");
            }
            None => {
                assert_eq!(answer.refusal(), (ErrorCode::BadInput, "version", u64::from(VERSION)));
                let words = format!(
                    "the client supports protocol versions {version_min} to {version_max}, but this server supports 1 to 2"
                );
                assert!(answer.error().to_string().contains(&words), "{}", answer.error());
                assert!(client.try_receive().is_none(), "closed");
            }
        }
    }
}

/// What every server of this version offers, however it is configured.
const OF_EVERY_SERVER: Capabilities = Capabilities::LIST_POOLS
    .union(Capabilities::REMOVE_NAMESPACE)
    .union(Capabilities::SERVER_STATUS)
    .union(Capabilities::REASON)
    .union(Capabilities::LIST_WAITING)
    .union(Capabilities::TRACEPARENT)
    .union(Capabilities::OWN_CLAIM)
    .union(Capabilities::PING);

/// The answer to this HELLO on a new connection.
fn welcomed(server: &Server, hello: Hello<'_>) -> Welcome {
    server.stranger().open(hello)
}

#[test]
fn a_server_reports_its_configured_capabilities_only_on_request() {
    let place = Place::new();
    // No member listens there: the capability means that a cluster is configured.
    let quorum = ["--quorum-endpoints", "http://127.0.0.1:9"];
    let (local, cluster) = (Capabilities::SCOPE_LOCAL, Capabilities::SCOPE_QUORUM);
    for (server, configured) in [
        (Server::start(&[]), Capabilities::NONE),
        (place.start(&[]), local),
        (Server::start(&quorum), cluster),
        (Place::new().start(&quorum), local.union(cluster)),
    ] {
        let offered = configured.union(OF_EVERY_SERVER);
        // The bits of the client change nothing, not even unknown ones.
        for said in [Capabilities::NONE, Capabilities::KNOWN, Capabilities::from_bits(u64::MAX)] {
            let hello = Hello { version_min: VERSION_MIN, capabilities: Some(said), ..default_hello() };
            let welcome = welcomed(&server, hello);
            assert_eq!((welcome.version, welcome.capabilities), (VERSION, Some(offered)), "{said:?}");
        }
        assert_eq!(welcomed(&server, default_hello()).capabilities, None);
    }
}

#[test]
fn capabilities_are_reported_by_every_worker_and_on_resume() {
    let place = Place::new();
    let server = place.start(&["--workers", "4"]);
    let hello = Hello { capabilities: Some(Capabilities::KNOWN), ..default_hello() };
    let offered = Capabilities::SCOPE_LOCAL.union(OF_EVERY_SERVER);
    for worker in 0..4 {
        let session = SessionRequest::New { lease_ms: 10_000 };
        let mut client = server.stranger();
        let welcome = client.open(Hello { worker, session, ..hello });
        assert_eq!((welcome.worker, welcome.capabilities), (worker, Some(offered)));
        drop(client);
        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        // A client may come back as one of the other version.
        let older = Hello { version_min: 1, version_max: 1, capabilities: None, ..hello };
        for (hello, expected) in [(hello, (2, Some(offered))), (older, (1, None))] {
            let again = welcomed(&server, Hello { session: resume, ..hello });
            assert!(again.resumed);
            assert_eq!((again.version, again.capabilities), expected);
        }
    }
}

#[test]
fn the_longest_hello_is_accepted() {
    let server = Server::start(&[]);
    let (namespace, owner, credentials) = ([b'n'; 256], [b'o'; 256], [b'c'; 400]);
    let hello = Hello {
        kind: NamespaceKind::Flat,
        namespace: &namespace,
        owner: &owner,
        credentials: &credentials,
        attempt: Some(1),
        notify_taken_up: true,
        capabilities: Some(Capabilities::from_bits(u64::MAX)),
        ..default_hello()
    };
    assert_eq!(welcomed(&server, hello).capabilities, Some(OF_EVERY_SERVER));
}

#[test]
fn an_unknown_hello_flag_is_rejected_and_the_connection_closed() {
    let server = Server::start(&[]);
    let mut hello = Vec::new();
    Request::Hello(default_hello()).encode(1, &mut hello);
    hello[10] |= 1 << 3;
    let mut client = server.stranger();
    client.write(&hello);
    let answer = client.receive();
    assert_eq!((answer.number(), answer.refusal()), (1, (ErrorCode::BadInput, "flags", 0)));
    assert!(client.try_receive().is_none(), "closed");
}
