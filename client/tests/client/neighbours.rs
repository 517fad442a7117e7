//! Servers of other versions: version 1, scripted with the golden bytes of that version, and newer versions.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waymaker_client::{
    Capabilities, Client, ClientBuilder, DecodeError, Error, ErrorCode, FenceScope, Lock, NamespaceKind,
    TraceParent,
};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{ErrorAnswer, ErrorDetail, next_frame};

use crate::patience::soon;
use crate::real::server;

macro_rules! golden {
    ($file:literal) => {
        bytes_of(include_str!(concat!("../../../protocol/tests/golden/", $file, ".hex")))
    };
}

/// Response of a server of version 1 to a HELLO with capabilities. The server then closes the connection.
const FLAGS_REFUSED: &str = "
    35 00 00 00 00 00 00 00 ff 00 00 00 # header
    0a 00                               # code
    00 00 00 00 00 00 00 00             # value
    05 00 66 6c 61 67 73                # field: flags
    1a 00 66 6c 61 67 73 3a 20 75 6e 6b 6e 6f 77 6e 20 62 69 74 73 20 30 78 30 30 30 34 # message
";
/// Offset of the oldest version in HELLO.
const VERSION_MIN_OFFSET: usize = 20;
/// Offset of the newest version in HELLO.
const VERSION_MAX_OFFSET: usize = 22;

/// Parses a golden file: hexadecimal digits, with comments after `#`.
fn bytes_of(golden: &str) -> Vec<u8> {
    let digits = golden.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

/// A server that reads and writes bytes, without this version's codec.
struct Scripted {
    listener: TcpListener,
}

impl Scripted {
    async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn url(&self) -> String {
        format!("waymaker://{}", self.listener.local_addr().unwrap())
    }

    async fn accept(&self) -> Connection {
        let (stream, _) = soon(self.listener.accept()).await.unwrap();
        Connection { stream, received: Vec::new() }
    }

    /// Accepts a connection whose HELLO has capabilities, and refuses it as version 1 does.
    async fn refuse_capabilities(&self) {
        let mut connection = self.accept().await;
        let hello = connection.receive().await;
        assert_eq!((hello[8], hello[10] & 1 << 2), (opcode::HELLO, 1 << 2), "HELLO with capabilities");
        assert_eq!(hello[VERSION_MIN_OFFSET..][..4], [1, 0, 2, 0], "versions 1 to 2");
        assert_eq!(hello[hello.len() - 8..], Capabilities::KNOWN.bits().to_le_bytes());
        connection.answer(&hello, bytes_of(FLAGS_REFUSED)).await;
    }

    /// Accepts a connection and refuses its HELLO as bad input.
    async fn refuse(&self, detail: ErrorDetail<'_>) {
        let mut connection = self.accept().await;
        let hello = connection.receive().await;
        let mut bytes = Vec::new();
        ErrorAnswer { code: ErrorCode::BadInput, detail }.encode(0, &mut bytes);
        connection.answer(&hello, bytes).await;
    }

    /// Returns whether no connection waits to be accepted.
    fn left_alone(self) -> bool {
        let listener = self.listener.into_std().unwrap();
        listener.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Returns the next frame. Answers keep-alives and lists of holds itself.
    async fn receive(&mut self) -> Vec<u8> {
        loop {
            let frame = soon(self.next()).await;
            match frame[8] {
                opcode::KEEP_ALIVE => self.answer(&frame, golden!("v1/kept_alive")).await,
                opcode::HOLDS => self.answer(&frame, golden!("v1/listed_empty")).await,
                _ => return frame,
            }
        }
    }

    async fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(frame) = next_frame(&self.received, FRAME_LEN_MAX).unwrap() {
                let len = frame.len();
                return self.received.drain(..len).collect();
            }
            assert_ne!(self.stream.read_buf(&mut self.received).await.unwrap(), 0, "the client stays");
        }
    }

    /// Expects these bytes as the next frame, except for its number and `own_end_len` bytes at its end.
    async fn expect(&mut self, mut expected: Vec<u8>, own_end_len: usize) -> Vec<u8> {
        let frame = self.receive().await;
        let end = expected.len() - own_end_len;
        expected[4..8].copy_from_slice(&frame[4..8]);
        expected.truncate(end);
        assert_eq!(frame[..end], expected);
        assert_eq!(frame.len(), end + own_end_len);
        frame
    }

    /// Answers a request with a frame, under the number of the request.
    async fn answer(&mut self, request: &[u8], mut frame: Vec<u8>) {
        frame[4..8].copy_from_slice(&request[4..8]);
        self.stream.write_all(&frame).await.unwrap();
    }

    async fn answer_next(&mut self, expected: Vec<u8>, answer: Vec<u8>) {
        let request = self.expect(expected, 0).await;
        self.answer(&request, answer).await;
    }
}

/// Offset of `wait_ms` in ACQUIRE.
const WAIT_MS_OFFSET: usize = 16;

/// Returns the settings of the client in the golden files.
fn builder() -> ClientBuilder {
    Client::builder().namespace("orders").owner("billing-3").session_lease(Duration::from_secs(10))
}

/// Connects to a server of version 1, which gets both HELLOs.
async fn connected(server: &Scripted) -> (Client, Connection) {
    let url = server.url();
    let served = async {
        server.refuse_capabilities().await;
        let mut connection = server.accept().await;
        connection
            .answer_next(asks_for_taken_up(golden!("v1/hello_session_new")), golden!("v1/welcome_session"))
            .await;
        connection
    };
    let (client, connection) = tokio::join!(builder().connect(&url), served);
    (client.unwrap(), connection)
}

async fn locked(client: &Client, connection: &mut Connection) -> Lock {
    let acquire =
        client.write("order:0000000042").lease(Duration::from_secs(30)).wait(Duration::from_secs(5));
    let mut expected = golden!("v1/acquire");
    // NOTIFY_QUEUED: the client asks for its queue position.
    expected[10] |= 1 << 2;
    let served = async {
        let request = connection.receive().await;
        // The wait counts from the call, so some of it may have passed.
        let wait_ms = &request[WAIT_MS_OFFSET..][..4];
        assert!((1..=5_000).contains(&u32::from_le_bytes(wait_ms.try_into().unwrap())), "{wait_ms:?}");
        expected[WAIT_MS_OFFSET..][..4].copy_from_slice(wait_ms);
        expected[4..8].copy_from_slice(&request[4..8]);
        assert_eq!(request, expected);
        connection.answer(&request, golden!("v1/granted")).await;
    };
    tokio::join!(acquire, served).0.unwrap()
}

/// Sets the flag NOTIFY_TAKEN_UP, which version 1 knows, in a HELLO.
fn asks_for_taken_up(mut hello: Vec<u8>) -> Vec<u8> {
    hello[10] |= 1 << 1;
    hello
}

#[tokio::test]
async fn a_version_1_server_gets_a_second_hello_and_version_1_messages() {
    let server = Scripted::new().await;
    let (client, mut connection) = connected(&server).await;
    let session = client.session();
    assert_eq!((session.protocol_version(), session.server_capabilities()), (1, None));
    let lock = locked(&client, &mut connection).await;
    assert_eq!(lock.fence(), 7);
    let released = connection.answer_next(golden!("v1/release"), golden!("v1/released"));
    tokio::join!(async { lock.release().await.unwrap() }, released);
    let farewell = connection.answer_next(golden!("v1/goodbye"), golden!("v1/farewell"));
    tokio::join!(async { client.close().await.unwrap() }, farewell);
    assert!(server.left_alone());
}

#[tokio::test]
async fn scope_local_is_requested_from_a_version_1_server_without_capabilities() {
    let server = Scripted::new().await;
    let (client, mut connection) = connected(&server).await;
    let acquire = client.write("k").scope(FenceScope::Local);
    let served = async {
        let request = connection.receive().await;
        assert_eq!((request[8], request.last()), (opcode::ACQUIRE, Some(&2)), "scope 2");
        connection.answer(&request, golden!("v1/granted")).await;
    };
    assert_eq!(tokio::join!(acquire, served).0.unwrap().fence(), 7);
}

/// Without this check, the server would refuse the request, or act without recording the reason.
#[track_caller]
fn assert_needs<T: std::fmt::Debug>(result: Result<T, Error>, field: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BadInput), "{error}");
    assert!(matches!(&error, Error::Refused { field: found, .. } if found == field), "{error}");
    assert!(error.to_string().contains("upgrade the server"), "{error}");
}

#[tokio::test]
async fn an_older_server_gets_no_reason_and_no_request_for_waiters() {
    let server = Scripted::new().await;
    let (client, mut connection) = connected(&server).await;
    let keys = client.operator(NamespaceKind::Flat);
    let because = keys.clone().reason("maintenance");
    assert_needs(soon(client.list_waiting("order:")).await, "waiting");
    assert_needs(soon(because.freeze("order:")).await, "reason");
    assert_needs(soon(because.thaw("order:")).await, "reason");
    // The server gets this request first.
    let frozen = connection.answer_next(golden!("v1/freeze"), golden!("v1/frozen_changed"));
    let (outcome, ()) = tokio::join!(async { soon(keys.freeze("order:")).await }, frozen);
    assert!(outcome.unwrap().changed);

    let workers = client.semaphore("workers", 1).by_timestamp();
    let served = async {
        server.refuse_capabilities().await;
        let mut connection = server.accept().await;
        let hello = connection.receive().await;
        connection.answer(&hello, golden!("v1/welcome_session")).await;
        connection.answer_next(golden!("v1/set_capacity"), golden!("v1/capacity_set")).await;
    };
    let asked = async {
        let because = workers.clone().reason("two more disks");
        assert_needs(soon(because.set_capacity(20)).await, "reason");
        assert_needs(soon(because.remove_pool()).await, "reason");
        soon(workers.set_capacity(20)).await.unwrap()
    };
    let (previous, ()) = tokio::join!(asked, served);
    assert!(previous.is_some());
}

/// Accepts a connection that resumes the session with the HELLO of version 1, and answers it.
async fn greet_again(server: &Scripted, answer: Vec<u8>) -> Connection {
    let mut connection = server.accept().await;
    let mut hello = asks_for_taken_up(golden!("v1/hello_session_resume_attempt"));
    // The first welcome gave the client lane 0.
    hello[48] = 0;
    let attempt_len = 4;
    let hello = connection.expect(hello, attempt_len).await;
    connection.answer(&hello, answer).await;
    connection
}

#[tokio::test]
async fn each_outage_costs_one_extra_connection_to_a_version_1_server() {
    let server = Scripted::new().await;
    let (client, mut connection) = connected(&server).await;
    let lock = locked(&client, &mut connection).await;
    let mut resumed = golden!("v1/welcome_resumed");
    resumed[40] = 0;
    for _ in 0..2 {
        drop(connection);
        server.refuse_capabilities().await;
        // The second attempt of the same outage is refused for another reason, and the third is served.
        greet_again(&server, golden!("v1/error_cancelled")).await;
        connection = greet_again(&server, resumed.clone()).await;
        let question = connection.receive().await;
        assert_eq!(question[8], opcode::EXTEND, "the hold is asked for by its id");
        connection.answer(&question, golden!("v1/extended")).await;
    }
    assert!(lock.is_held());
}

#[tokio::test]
async fn an_upgraded_server_is_used_with_version_2_after_the_next_outage() {
    let server = Scripted::new().await;
    let (client, connection) = connected(&server).await;
    drop(connection);
    let mut connection = server.accept().await;
    let hello = connection.receive().await;
    assert_eq!(hello[VERSION_MAX_OFFSET..][..2], [2, 0]);
    connection.answer(&hello, golden!("v2/welcome_capabilities")).await;
    // The response shows that the client has read the welcome.
    let inspected = async {
        let question = connection.receive().await;
        connection.answer(&question, golden!("v1/inspected_free")).await;
    };
    tokio::join!(async { soon(client.inspect("k")).await.unwrap() }, inspected);
    let session = client.session();
    assert_eq!(
        (session.protocol_version(), session.server_capabilities()),
        (2, Some(Capabilities::SCOPE_LOCAL))
    );
}

#[tokio::test]
async fn unknown_capabilities_are_ignored() {
    let server = Scripted::new().await;
    let url = server.url();
    let served = async {
        let mut connection = server.accept().await;
        let hello = connection.receive().await;
        connection.answer(&hello, golden!("v2/welcome_capabilities_newer")).await;
        connection
    };
    let (client, mut connection) = tokio::join!(builder().connect(&url), served);
    let client = client.unwrap();
    let offered = client.session().server_capabilities().unwrap();
    // A later version named one of the capabilities in the frozen file.
    assert_eq!(offered.intersection(Capabilities::KNOWN), Capabilities::LIST_WAITING);
    assert_eq!(format!("{offered:?}"), "{list_waiting, 0x8786858483828000}");
    assert_eq!(locked(&client, &mut connection).await.fence(), 7);
}

#[tokio::test]
async fn a_server_that_refuses_every_hello_gets_only_two() {
    let server = Scripted::new().await;
    let url = server.url();
    let served = async {
        server.refuse_capabilities().await;
        let mut connection = server.accept().await;
        connection
            .answer_next(asks_for_taken_up(golden!("v1/hello_session_new")), bytes_of(FLAGS_REFUSED))
            .await;
    };
    let (refused, ()) = tokio::join!(builder().connect(&url), served);
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::BadInput));
    assert!(server.left_alone());
}

#[tokio::test]
async fn a_server_with_only_newer_versions_is_reported_and_not_retried() {
    let server = Scripted::new().await;
    let url = server.url();
    let message = "the client speaks versions 1 to 2, this server versions 3 to 4";
    let served =
        server.refuse(ErrorDetail::Text { value: 4, field: b"version", message: message.as_bytes() });
    let (refused, ()) = tokio::join!(builder().connect(&url), served);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains(message), "{text}");
    assert!(server.left_alone());
}

#[tokio::test]
async fn a_welcome_with_a_version_that_was_not_offered_is_an_error() {
    for version in [0, 3] {
        let server = Scripted::new().await;
        let url = server.url();
        let served = async {
            let mut connection = server.accept().await;
            let hello = connection.receive().await;
            let mut welcome = golden!("v2/welcome_capabilities");
            welcome[12] = version;
            connection.answer(&hello, welcome).await;
        };
        let (refused, ()) = tokio::join!(builder().connect(&url), served);
        let error = refused.unwrap_err();
        let expected = DecodeError::BadValue { field: "version", value: u64::from(version) };
        assert!(matches!(error, Error::Protocol(found) if found == expected), "{error}");
    }
}

#[tokio::test]
async fn a_server_offered_only_version_1_must_choose_it() {
    let server = Scripted::new().await;
    let url = server.url();
    let served = async {
        server.refuse_capabilities().await;
        let mut connection = server.accept().await;
        let mut welcome = golden!("v1/welcome_session");
        welcome[12] = 2;
        connection.answer_next(asks_for_taken_up(golden!("v1/hello_session_new")), welcome).await;
    };
    let (refused, ()) = tokio::join!(builder().connect(&url), served);
    let error = refused.unwrap_err();
    let expected = DecodeError::BadValue { field: "version", value: 2 };
    assert!(matches!(error, Error::Protocol(found) if found == expected), "{error}");
}

#[tokio::test]
async fn a_refusal_of_the_worker_is_not_retried() {
    let server = Scripted::new().await;
    let url = server.url();
    let served = server.refuse(ErrorDetail::Text { value: 0, field: b"worker", message: b"none" });
    let (refused, ()) = tokio::join!(async { soon(builder().connect(&url)).await }, served);
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::BadInput));
    assert!(server.left_alone());
}

#[tokio::test]
async fn a_current_server_announces_its_capabilities() {
    let directory = tempfile::tempdir().unwrap();
    let durable = server!(Some(&directory.path().join("data")));
    let in_memory = server!();
    let always = Capabilities::LIST_POOLS
        .union(Capabilities::REMOVE_NAMESPACE)
        .union(Capabilities::SERVER_STATUS)
        .union(Capabilities::OWN_CLAIM)
        .union(Capabilities::PING)
        .union(Capabilities::REASON)
        .union(Capabilities::LIST_WAITING)
        .union(Capabilities::TRACEPARENT);
    for (server, configured) in [(&durable, Capabilities::SCOPE_LOCAL), (&in_memory, Capabilities::NONE)] {
        let offered = configured.union(always);
        let client = soon(Client::connect(server.url())).await.unwrap();
        let session = client.session();
        assert_eq!((session.protocol_version(), session.server_capabilities()), (2, Some(offered)));
    }
}

/// Connects to a server of version 2 that offers these capabilities.
async fn connected_to_server_of(server: &Scripted, offered: Capabilities) -> (Client, Connection) {
    let url = server.url();
    let served = async {
        let mut connection = server.accept().await;
        let hello = connection.receive().await;
        let mut welcome = golden!("v2/welcome_capabilities");
        let end = welcome.len() - 8;
        welcome[end..].copy_from_slice(&offered.bits().to_le_bytes());
        connection.answer(&hello, welcome).await;
        connection
    };
    let (client, connection) = tokio::join!(builder().connect(&url), served);
    (client.unwrap(), connection)
}

#[tokio::test]
async fn a_trace_context_is_sent_only_to_a_server_that_knows_it() {
    const TRACEPARENT_FLAG: u16 = 1 << 9;
    let traceparent: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    for (offered, is_sent) in [
        (Capabilities::NONE, false),
        (Capabilities::from_bits(!Capabilities::TRACEPARENT.bits()), false),
        (Capabilities::TRACEPARENT, true),
    ] {
        let server = Scripted::new().await;
        let (client, mut connection) = connected_to_server_of(&server, offered).await;
        let served = async {
            let request = connection.receive().await;
            connection.answer(&request, golden!("v1/granted")).await;
            request
        };
        let acquire = client.write("order:0000000042").traceparent(traceparent);
        let (lock, request) = tokio::join!(acquire, served);
        assert_eq!(lock.unwrap().fence(), 7, "{offered:?}");
        let flags = u16::from_le_bytes([request[10], request[11]]);
        assert_eq!(flags & TRACEPARENT_FLAG != 0, is_sent, "{offered:?}");
        let expected = [&traceparent.trace_id()[..], &traceparent.span_id(), &[1]].concat();
        assert_eq!(request.ends_with(&expected), is_sent, "{offered:?}");
    }
}

/// A server without OTLP checks the trace context, so it would refuse a wrong encoding.
#[tokio::test]
async fn every_acquire_may_have_a_trace_context() {
    let server = server!();
    let client = soon(Client::connect(server.url())).await.unwrap();
    let traceparent: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    soon(client.write("key").traceparent(traceparent).into_future()).await.unwrap().release().await.unwrap();
    let keys = client.multi(["a", "b"]);
    soon(keys.traceparent(traceparent).into_future()).await.unwrap().release().await.unwrap();
    let set = client.tree().write(["users", "42"]);
    soon(set.traceparent(traceparent).into_future()).await.unwrap().release().await.unwrap();
    let permits = client.semaphore("pool", 2).permits(1);
    soon(permits.traceparent(traceparent).into_future()).await.unwrap().release().await.unwrap();
}
