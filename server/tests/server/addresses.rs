//! Limits per source address. All clients of a test have loopback addresses, so the servers run with `--limit-loopback`.

use crate::authority::Authority;
use crate::harness::{Client, Server, default_hello, own_host, wait_for, wait_until};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use waymaker_protocol::{ErrorCode, Hello, Request, Response, SessionRequest};

/// Starts a server with limits, one of which applies to loopback.
fn server(arguments: &[&str]) -> Server {
    Server::start(&[&["--limit-loopback"], arguments].concat())
}

/// Connects from this address to a port of the server.
pub(crate) fn connect_from(host: &str, server: &Server, port: &str) -> TcpStream {
    let host: IpAddr = host.parse().unwrap();
    let address: SocketAddr = server.address(port).parse().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(host, 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(crate::harness::WATCHDOG)).unwrap();
    socket
}

fn client_from(host: &str, server: &Server) -> Client<TcpStream> {
    let mut client = Client::new(connect_from(host, server, "binary"));
    client.hello(host, SessionRequest::None);
    client
}

/// Returns whether a new connection from this address is served, and else the limit that refuses it.
fn attempt(host: &str, server: &Server) -> Result<(), (String, u64)> {
    let mut client = Client::new(connect_from(host, server, "binary"));
    let mut hello = Vec::new();
    Request::Hello(default_hello()).encode(1, &mut hello);
    let _ = client.socket.write_all(&hello);
    let Ok(Some(first)) = client.read_frame() else {
        // A refused client that has sent something may get a reset instead of the answer.
        return Err((String::new(), 0));
    };
    if matches!(first.response(), Response::Welcome(_)) {
        return Ok(());
    }
    let (code, field, limit) = first.refusal();
    assert_eq!(code, ErrorCode::Overloaded);
    Err((field.to_owned(), limit))
}

/// Waits for a place, which the attempt before may still have, and takes it with a connection to this worker.
fn client_once_there_is_a_place(host: &str, server: &Server, worker: u16) -> Client<TcpStream> {
    wait_for("a place for the address", || {
        let mut client = Client::new(connect_from(host, server, "binary"));
        let mut hello = Vec::new();
        Request::Hello(Hello { worker, ..default_hello() }).encode(1, &mut hello);
        let _ = client.socket.write_all(&hello);
        let answer = client.read_frame().ok().flatten()?;
        match answer.response() {
            Response::Welcome(welcome) => assert_eq!(welcome.worker, worker),
            _ => return None,
        }
        Some(client)
    })
}

/// Waits until a connection of this address has given its place back.
fn wait_for_place(host: &str, server: &Server) {
    wait_until("a place for the address", || attempt(host, server).is_ok());
}

/// Returns whether the server closes the connection without a word. It is silent itself until then.
fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 16]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

pub(crate) fn get(server: &Server, path: &str) -> String {
    let mut socket = TcpStream::connect(server.address("http")).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn an_address_with_too_many_connections_is_refused_by_name_and_others_are_served() {
    let server = server(&["--connections-per-address", "3"]);
    let (greedy, modest) = (own_host(), own_host());
    let mut clients: Vec<_> = (0..3).map(|_| client_from(&greedy, &server)).collect();
    let mut fourth = Client::new(connect_from(&greedy, &server, "binary"));
    let refused = fourth.receive();
    assert_eq!(
        (refused.number(), refused.refusal()),
        (0, (ErrorCode::Overloaded, "connections per address", 3))
    );
    assert!(fourth.try_receive().is_none(), "the connection is closed");
    assert_eq!(attempt(&modest, &server), Ok(()));
    for client in &mut clients {
        let granted = client.acquire(b"key", 0);
        client.release(granted.id);
    }
    drop(clients.pop());
    wait_for_place(&greedy, &server);
}

/// Every end of a connection gives its place back, and a move to another worker keeps it.
#[test]
fn a_connection_keeps_its_place_when_it_moves_and_gives_it_back_when_it_ends() {
    let ports = ["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let server = server(&[&["--connections-per-address", "1", "--workers", "2"], &ports[..]].concat());
    let host = own_host();
    for worker in [0, 1, 0, 1] {
        let client = client_once_there_is_a_place(&host, &server, worker);
        assert!(attempt(&host, &server).is_err());
        drop(client);
        wait_for_place(&host, &server);
    }
    // Garbage, after which the server closes the connection.
    let mut garbage = connect_from(&host, &server, "binary");
    let _ = garbage.write_all(&[0xff; 64]);
    wait_for_place(&host, &server);
    for (port, request) in [
        ("http", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("http", "nonsense\r\n\r\n"),
        ("grpc", "nonsense that is no HTTP/2 and longer than its greeting\r\n\r\n"),
    ] {
        let mut socket = connect_from(&host, &server, port);
        socket.write_all(request.as_bytes()).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        wait_for_place(&host, &server);
    }
}

#[test]
fn a_web_socket_keeps_its_place_until_it_closes() {
    let server = server(&["--connections-per-address", "1", "--http-listen", "127.0.0.1:0"]);
    let host = own_host();
    let mut socket = connect_from(&host, &server, "http");
    let upgrade = "GET /v1?namespace=n HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(upgrade.as_bytes()).unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 101");
    assert!(attempt(&host, &server).is_err());
    drop(socket);
    wait_for_place(&host, &server);
}

#[test]
fn an_address_that_connects_too_often_is_refused_until_its_tokens_are_back() {
    let server = server(&["--new-connections-per-second", "1"]);
    let (hasty, modest) = (own_host(), own_host());
    let limit = Err(("new connections per second".to_owned(), 1));
    wait_until("a refusal of an address that connects twice in a second", || {
        attempt(&hasty, &server) == limit
    });
    assert_eq!(attempt(&modest, &server), Ok(()));
    wait_for_place(&hasty, &server);
}

/// A client that encrypts, and has finished its handshake.
fn encrypted_from(
    host: &str,
    server: &Server,
    config: &Arc<ClientConfig>,
) -> Option<Client<impl Read + Write + use<>>> {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, connect_from(host, server, "binary"));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    Some(Client::new(stream))
}

#[test]
fn unfinished_handshakes_of_an_address_are_limited_and_finished_ones_are_not() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let files = ["--tls-cert", issued.cert(), "--tls-key", issued.key()];
    let server = server(&[&["--handshakes-per-address", "2"], &files[..]].concat());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let (greedy, modest) = (own_host(), own_host());
    let mut finished = Vec::new();
    for number in 0..4 {
        // The server may notice the end of a handshake after the client.
        wait_until("a place for a handshake", || {
            finished.extend(encrypted_from(&greedy, &server, &config));
            finished.len() > number
        });
    }
    // Sockets that begin no handshake, each of which has a place for five seconds. A refused one is closed at once.
    let mut silent = Vec::new();
    wait_until("a refusal of a handshake", || {
        let mut socket = connect_from(&greedy, &server, "binary");
        socket.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        if is_closed(&mut socket) {
            // Before that, the place of a finished handshake may not be free again yet.
            return silent.len() >= 2;
        }
        silent.push(socket);
        false
    });
    assert!(encrypted_from(&modest, &server, &config).is_some());
    for client in &mut finished {
        client.hello("finished", SessionRequest::None);
    }
    drop(silent);
    wait_until("a place for a handshake", || encrypted_from(&greedy, &server, &config).is_some());
}

#[test]
fn refusals_are_counted_by_limit() {
    let server = server(&["--connections-per-address", "1", "--http-listen", "127.0.0.1:0"]);
    let host = own_host();
    let _client = client_from(&host, &server);
    for _ in 0..2 {
        assert!(attempt(&host, &server).is_err());
    }
    let metrics = get(&server, "/metrics");
    let has = |limit: &str, count: u32| {
        let line = format!("waymaker_rejected_total{{limit=\"{limit}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    };
    has("connections_per_address", 2);
    has("new_connections_per_second", 0);
    has("handshakes_per_address", 0);
    has("connections", 0);
    has("bytes_of_memory", 0);
}

#[test]
fn loopback_has_no_limits_by_default() {
    let server = Server::start(&["--connections-per-address", "1", "--new-connections-per-second", "1"]);
    let mut clients: Vec<_> = (0..10).map(|_| server.client("one of many")).collect();
    for client in &mut clients {
        let granted = client.acquire(b"key", 0);
        client.release(granted.id);
    }
}
