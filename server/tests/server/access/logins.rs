//! Failed logins pause their source address, on every front end together. All clients of a test have loopback addresses, so the servers run
//! with `--limit-loopback`.

use super::fronts::{PORTS, by, key};
use super::{Office, hello_with};
use crate::addresses::connect_from;
use crate::authority::Authority;
use crate::harness::{Client, LOOK, QUIET, Server, is_nothing_yet, own_host, wait_for, wait_until};
use crate::tls::{client_with, refusal_of};
use prost::Message as _;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use tonic::transport::Channel;
use tonic::{Code, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_protocol::{ErrorCode, NamespaceKind, Request, Response};

const WRONG: &str = "nonsense";
const LONGEST_PAUSE_MS: u64 = 60_000;
/// Arguments of a server without a limit of the connections of one address.
const UNLIMITED_CONNECTIONS: [&str; 4] =
    ["--new-connections-per-second", "none", "--connections-per-address", "none"];

/// Everything is allowed to one identity.
fn office() -> (Office, String) {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n");
    let token = office.token("alice");
    (office, token)
}

/// A server that limits failed logins from loopback, and no connections.
fn server(office: &Office, arguments: &[&str]) -> Server {
    office.server(&[&["--limit-loopback"], &UNLIMITED_CONNECTIONS[..], &PORTS, arguments].concat())
}

/// The result of one login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    Accepted,
    Failed,
    /// The server does not look at credentials for this time.
    Paused(u64),
}

impl Login {
    fn is_paused(self) -> bool {
        match self {
            Self::Paused(ms) => {
                assert!((1..=LONGEST_PAUSE_MS).contains(&ms), "{ms}");
                true
            }
            Self::Accepted | Self::Failed => false,
        }
    }
}

fn binary_login_from(socket: TcpStream, token: &str) -> Login {
    let mut client = Client::new(socket);
    client.send(Request::Hello(hello_with(NamespaceKind::Flat, token)));
    let answer = client.receive();
    if matches!(answer.response(), Response::Welcome(_)) {
        return Login::Accepted;
    }
    let login = match answer.refusal() {
        (ErrorCode::Unauthorized, "credentials", 0) => Login::Failed,
        (ErrorCode::Overloaded, "credentials", ms) => Login::Paused(ms),
        other => panic!("{other:?}"),
    };
    assert!(client.try_receive().is_none(), "the connection is closed");
    login
}

fn binary_login(server: &Server, token: &str) -> Login {
    binary_login_from(server.socket(), token)
}

/// Sends a request to the port for HTTP and returns the answer, or its head if the connection goes on.
fn http_answer(server: &Server, path: &str, headers: &str) -> String {
    let mut socket = TcpStream::connect(server.address("http")).unwrap();
    socket.set_read_timeout(Some(crate::harness::WATCHDOG)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.starts_with(b"HTTP/1.1 101") || !answer.ends_with(b"\r\n\r\n") {
        if socket.read(&mut byte).unwrap() == 0 {
            break;
        }
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

fn login_of(answer: &str) -> Login {
    match answer.split(' ').nth(1) {
        Some("200" | "101") => Login::Accepted,
        Some("401") => Login::Failed,
        Some("429") => {
            let seconds = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
            Login::Paused(seconds.parse::<u64>().unwrap() * 1_000)
        }
        _ => panic!("{answer}"),
    }
}

fn http_login(server: &Server, token: &str) -> Login {
    let headers = format!("Connection: close\r\nAuthorization: Bearer {token}\r\n");
    login_of(&http_answer(server, "/metrics", &headers))
}

fn web_socket_login(server: &Server, token: &str) -> Login {
    let headers = "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    login_of(&http_answer(server, &format!("/v1?namespace=n&access_token={token}"), headers))
}

fn login_of_status(result: Result<(), Status>) -> Login {
    let Err(status) = result else { return Login::Accepted };
    match status.code() {
        Code::Unauthenticated => Login::Failed,
        Code::ResourceExhausted => {
            let details = tonic_types::pb::Status::decode(status.details()).unwrap().details;
            let refusal = v1::Refusal::decode(&*details[0].value).unwrap();
            let named = (refusal.code, refusal.field.as_str());
            assert_eq!(named, (i32::from(ErrorCode::Overloaded.number()), "credentials"));
            Login::Paused(refusal.value)
        }
        _ => panic!("{status}"),
    }
}

async fn channel(server: &Server) -> Channel {
    let url = format!("http://{}", server.address("grpc"));
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

/// Makes a call on an open connection.
async fn call(channel: &Channel, token: &str) -> Login {
    let mut locks = LockServiceClient::new(channel.clone());
    let acquire = v1::AcquireKeysRequest {
        keys: vec![key(&format!("key {}", rand::random::<u64>()))],
        ..Default::default()
    };
    login_of_status(locks.try_acquire(by(token, acquire)).await.map(drop))
}

/// Makes a call on a new connection.
fn grpc_login(server: &Server, token: &str) -> Login {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { call(&channel(server).await, token).await })
}

/// Logs in with a token on a new connection.
type LogIn = fn(&Server, &str) -> Login;

const FRONT_ENDS: [(&str, LogIn); 4] =
    [("binary", binary_login), ("gRPC", grpc_login), ("HTTP", http_login), ("WebSocket", web_socket_login)];

/// Lets logins fail until one is refused because of that.
fn fail_until_paused(server: &Server, login: LogIn) {
    wait_until("a pause", || {
        let login = login(server, WRONG);
        assert_ne!(login, Login::Accepted);
        login.is_paused()
    });
}

/// The lines of an act in an audit log.
fn lines(path: &Path, act: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["act"] == act).collect()
}

#[test]
fn failed_logins_of_each_front_end_pause_the_address_on_all_of_them() {
    for (name, login) in FRONT_ENDS {
        let (office, token) = office();
        let server = server(&office, &[]);
        for (other_name, other_login) in FRONT_ENDS {
            // A pause may end before the login with the valid token. The next pause is twice as long.
            wait_until(&format!("a refusal of {other_name} after failures of {name}"), || {
                fail_until_paused(&server, login);
                other_login(&server, &token).is_paused()
            });
        }
        for (name, login) in FRONT_ENDS {
            wait_until(&format!("{name} after the pause"), || {
                let login = login(&server, &token);
                assert_ne!(login, Login::Failed);
                login == Login::Accepted
            });
        }
    }
}

#[test]
fn five_failures_in_a_second_begin_a_pause_which_is_audited_once() {
    let (office, _) = office();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let server = server(&office, &["--audit", path.to_str().unwrap()]);
    // On a slow machine a pause may end before the next login.
    let failed_count = wait_for("a pause", || (0..1_000).find(|_| binary_login(&server, WRONG).is_paused()));
    assert!(failed_count >= 5, "{failed_count}");
    for _ in 0..20 {
        binary_login(&server, WRONG);
    }
    let line = wait_for("a line about the pause", || lines(&path, "pause-logins").into_iter().next());
    assert_eq!(
        (&line["network"], &line["pause_ms"], &line["front_end"], &line["result"]),
        (&"127.0.0.1".into(), &1_000.into(), &"binary".into(), &"done".into())
    );
    // Each pause has at least five failures before it, and refused logins have no line.
    wait_until("a line for each five failures of a pause", || {
        let (pause_count, failed_count) =
            (lines(&path, "pause-logins").len(), lines(&path, "authenticate").len());
        pause_count >= 1 && 5 * pause_count <= failed_count
    });
}

#[test]
fn a_refused_client_certificate_is_a_failed_login_on_every_port() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let (issued, ca, client, stranger) =
        (authority.issue("server"), clients.ca(), clients.issue("client"), strangers.issue("stranger"));
    for name in ["binary", "grpc", "http", "locktopus"] {
        let (office, token) = office();
        let path = office.write("audit.jsonl", "");
        let arguments = [
            ["--tls-cert", issued.cert(), "--tls-key", issued.key()],
            ["--tls-client-ca", ca.to_str().unwrap(), "--audit", path.to_str().unwrap()],
        ];
        let server =
            server(&office, &[&arguments.concat()[..], &["--failed-logins-per-second", "1"]].concat());
        let log_in = || {
            let mut client = client_with(&server, &authority, Some(&client));
            client.send(Request::Hello(hello_with(NamespaceKind::Flat, &token)));
            client.receive()
        };
        assert!(matches!(log_in().response(), Response::Welcome(_)), "{name}");
        // A pause may end before the login.
        wait_until("a pause", || {
            let refusal = refusal_of(server.address(name), &authority, &stranger);
            assert!(refusal.contains("UnknownCA"), "{refusal}");
            let answer = log_in();
            let is_paused = matches!(answer.response(), Response::Error(_));
            assert!(!is_paused || answer.error().code == ErrorCode::Overloaded, "{name}");
            is_paused
        });
        let line = wait_for("a line", || lines(&path, "authenticate").into_iter().next());
        assert_eq!((&line["front_end"], &line["code"]), (&name.into(), &"unauthorized".into()), "{line}");
        let message = line["message"].as_str().unwrap();
        assert!(message.contains("client certificate") && message.contains("UnknownIssuer"), "{message}");
        wait_until("a line about the pause", || !lines(&path, "pause-logins").is_empty());

        // With a limit of one failure each failure begins a pause. During a pause no login counts as failed.
        for _ in 0..10 {
            refusal_of(server.address(name), &authority, &stranger);
        }
        wait_until("the end of the pause", || matches!(log_in().response(), Response::Welcome(_)));
        let pause_count = lines(&path, "pause-logins").len();
        refusal_of(server.address(name), &authority, &stranger);
        let counts = wait_for("the lines of the last failure", || {
            // The line about a pause comes before the line about its failure, so failures are counted first.
            let counts = ["authenticate", "pause-logins"].map(|act| lines(&path, act).len());
            (counts[1] > pause_count && counts[0] >= counts[1]).then_some(counts)
        });
        assert_eq!(counts[0], counts[1], "{name}: failures and pauses");
    }
}

/// Starts a server that has descriptors for a few connections only.
fn start_small(arguments: &[&str]) -> Server {
    let script = "ulimit -n 64 && exec \"$0\" --listen 127.0.0.1:0 \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_waymaker-server")]).args(arguments).envs(QUIET);
    command.env("WAYMAKER_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    Server::start_with(&mut command, None)
}

/// Returns whether the server closes a new connection at once because it has no room for it.
fn is_full(server: &Server) -> bool {
    let mut socket = server.socket();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    match socket.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => !is_nothing_yet(&error),
    }
}

#[test]
fn a_refused_client_certificate_is_a_failed_login_while_other_clients_have_all_connections() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let (issued, ca, stranger) = (authority.issue("server"), clients.ca(), strangers.issue("stranger"));
    let (office, _) = office();
    let path = office.write("audit.jsonl", "");
    let arguments = [
        &UNLIMITED_CONNECTIONS[..],
        &["--http-listen", "127.0.0.1:0", "--tls-cert", issued.cert(), "--tls-key", issued.key()],
        &["--tls-client-ca", ca.to_str().unwrap(), "--audit", path.to_str().unwrap()],
    ];
    let server = office.start(&arguments.concat(), start_small);
    let mut others = Vec::new();
    wait_until("the server is full", || {
        others.push(server.socket());
        is_full(&server)
    });
    // Only the port for HTTP has a reserve.
    let refusal = refusal_of(server.address("http"), &authority, &stranger);
    assert!(refusal.contains("UnknownCA"), "{refusal}");
    let line = wait_for("a line", || lines(&path, "authenticate").into_iter().next());
    assert_eq!((&line["front_end"], &line["code"]), (&"http".into(), &"unauthorized".into()), "{line}");
    assert!(is_full(&server), "the other clients still have all connections");
}

#[test]
fn open_connections_other_addresses_and_clients_without_credentials_are_served_during_a_pause() {
    let (office, token) = office();
    let unix = office.socket();
    let server = server(&office, &["--unix", unix.to_str().unwrap()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut open = server.client_with(NamespaceKind::Flat, &token);
    let channel = runtime.block_on(channel(&server));
    assert_eq!(runtime.block_on(call(&channel, &token)), Login::Accepted);
    let stranger = own_host();
    // Between two refusals of a valid token by the same pause.
    wait_until("all of it during one pause", || {
        fail_until_paused(&server, binary_login);
        let Login::Paused(before_ms) = binary_login(&server, &token) else { return false };
        let held = open.acquire(b"key", 0);
        open.release(held.id);
        assert_eq!(runtime.block_on(call(&channel, &token)), Login::Accepted);
        assert_eq!(binary_login_from(connect_from(&stranger, &server, "binary"), &token), Login::Accepted);
        assert!(http_answer(&server, "/readyz", "Connection: close\r\n").starts_with("HTTP/1.1 200"));
        assert_eq!(binary_login(&server, ""), Login::Failed);
        let socket = UnixStream::connect(&unix).unwrap();
        let refused = Client::new(socket).refused_hello(hello_with(NamespaceKind::Flat, WRONG));
        assert_eq!(refused.0, ErrorCode::Unauthorized);
        matches!(binary_login(&server, &token), Login::Paused(after_ms) if after_ms <= before_ms)
    });
}

#[test]
fn a_login_without_credentials_does_not_fail_and_an_expired_token_does() {
    let (office, token) = office();
    let expired = office.token_until("alice", Some(1));
    let server = server(&office, &["--failed-logins-per-second", "1"]);
    for (name, login) in FRONT_ENDS.iter().filter(|(name, _)| *name != "HTTP") {
        for _ in 0..5 {
            assert_eq!(login(&server, ""), Login::Failed, "{name}");
        }
    }
    assert_eq!(binary_login(&server, &token), Login::Accepted);
    wait_until("a pause", || {
        binary_login(&server, &expired) == Login::Failed && binary_login(&server, &token).is_paused()
    });
}

#[test]
fn failed_and_refused_logins_are_counted() {
    let (office, token) = office();
    let server = server(&office, &["--failed-logins-per-second", "1"]);
    let count = |name: &str| {
        let headers = format!("Connection: close\r\nAuthorization: Bearer {token}\r\n");
        let metrics = wait_for("the metrics", || {
            let answer = http_answer(&server, "/metrics", &headers);
            (login_of(&answer) == Login::Accepted).then_some(answer)
        });
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().unwrap()
    };
    assert_eq!((count("waymaker_failed_logins_total"), count("waymaker_refused_logins_total")), (0, 0));
    assert_eq!(binary_login(&server, WRONG), Login::Failed);
    assert_eq!(count("waymaker_failed_logins_total"), 1);
    fail_until_paused(&server, binary_login);
    assert!(count("waymaker_refused_logins_total") >= 1);
}

#[test]
fn loopback_and_a_server_without_the_limit_have_no_pauses() {
    let (office, token) = office();
    for arguments in [&[][..], &["--limit-loopback", "--failed-logins-per-second", "none"]] {
        let server = office.server(&[&PORTS[..], arguments].concat());
        for (name, login) in FRONT_ENDS {
            for _ in 0..20 {
                assert_eq!(login(&server, WRONG), Login::Failed, "{name}");
            }
            assert_eq!(login(&server, &token), Login::Accepted, "{name}");
        }
    }
}
