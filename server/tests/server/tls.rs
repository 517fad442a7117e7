//! Encrypted connections.

use crate::authority::{Authority, Issued};
use crate::harness::{
    Client, LOOK, QUIET, Server, WATCHDOG, Witness, assert_not_early, default_hello, is_nothing_yet, refused,
};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waymaker_protocol::limits::{INSPECT_HOLDERS_MAX, OWNER_LEN_MAX};
use waymaker_protocol::{
    Acquire, AcquireTerms, ErrorCode, Hello, Inspect, Release, Request, Response, SessionRequest,
};

pub(crate) type TlsSocket = StreamOwned<ClientConnection, TcpStream>;

const OLD: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
const NEW: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// How a client of a test encrypts: whom it believes, what it shows, what it speaks.
struct Manner<'a> {
    authority: &'a Authority,
    shows: Option<&'a Issued>,
    versions: &'static [&'static SupportedProtocolVersion],
}

impl<'a> Manner<'a> {
    fn believing(authority: &'a Authority) -> Self {
        Self { authority, shows: None, versions: rustls::ALL_VERSIONS }
    }

    fn showing(self, shows: &'a Issued) -> Self {
        Self { shows: Some(shows), ..self }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let certificates = |path: &Path| CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&self.authority.ca()));
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match self.shows {
            None => builder.with_no_client_auth(),
            Some(issued) => {
                let chain = certificates(issued.cert().as_ref()).collect();
                let key = PrivateKeyDer::from_pem_file(issued.key()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }

    /// A connection with which hands were shaken, as far as the client can tell.
    fn try_connect(&self, server: &Server) -> std::io::Result<TlsSocket> {
        self.shake_hands(server.socket())
    }

    fn shake_hands(&self, socket: TcpStream) -> std::io::Result<TlsSocket> {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(self.config(), name).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => drop(result?),
            }
        }
        Ok(stream)
    }

    /// A connection that said nothing yet.
    fn stranger(&self, server: &Server) -> Client<TlsSocket> {
        Client::new(self.try_connect(server).expect("the two come to terms"))
    }

    fn client(&self, server: &Server) -> Client<TlsSocket> {
        let mut client = self.stranger(server);
        client.hello("encrypted", SessionRequest::None);
        client
    }

    fn assert_served(&self, server: &Server) {
        let mut client = self.client(server);
        let granted = client.acquire(b"still serving", 0);
        client.release(granted.id);
    }
}

/// A client that shows this certificate, if any, and said nothing yet.
pub(crate) fn client_with(
    server: &Server,
    authority: &Authority,
    shows: Option<&Issued>,
) -> Client<TlsSocket> {
    Manner { authority, shows, versions: rustls::ALL_VERSIONS }.stranger(server)
}

/// Shows a certificate that the server at this address refuses, and returns the error of the client.
pub(crate) fn refusal_of(address: &str, authority: &Authority, shows: &Issued) -> String {
    let socket = TcpStream::connect(address).expect("the server accepts");
    let manner = Manner::believing(authority).showing(shows);
    refusal(manner.shake_hands(socket).expect("with TLS 1.3 a client hears of it only when it reads"))
}

fn arguments<'a>(issued: &'a Issued, more: &[&'a str]) -> Vec<&'a str> {
    [&["--tls-cert", issued.cert(), "--tls-key", issued.key()], more].concat()
}

fn server(issued: &Issued, more: &[&str]) -> Server {
    Server::start(&arguments(issued, more))
}

/// What a side says that the server does not let in.
fn refusal(mut socket: TlsSocket) -> String {
    loop {
        match socket.read(&mut [0; 16]) {
            Ok(0) => panic!("it is told why"),
            Ok(_) => panic!("it is let in"),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn a_client_is_served_over_tls() {
    let authority = Authority::new();
    for workers in ["1", "3"] {
        let server = server(&authority.issue("server"), &["--workers", workers]);
        let mut client = Manner::believing(&authority).client(&server);
        let mut other = Manner::believing(&authority).client(&server);
        let held = client.acquire(b"key", 0);
        let number = other.wait_for(b"key", 60_000);
        client.release(held.id);
        let granted = other.receive();
        assert_eq!((granted.number(), granted.granted().fence), (number, held.fence + 1));
    }
}

#[test]
fn a_client_that_trusts_another_ca_fails_and_others_continue() {
    let (authority, another) = (Authority::new(), Authority::new());
    let server = server(&authority.issue("server"), &["--workers", "1"]);
    let mut client = Manner::believing(&authority).client(&server);
    let error = Manner::believing(&another).try_connect(&server).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let granted = client.acquire(b"key", 0);
    client.release(granted.id);
}

#[test]
fn a_client_ca_admits_only_clients_with_its_certificates() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let ca = clients.ca();
    let server = server(&authority.issue("server"), &["--tls-client-ca", ca.to_str().unwrap()]);
    let manner = || Manner::believing(&authority);
    // With TLS 1.3 a client hears of it only when it reads.
    assert!(refusal(manner().try_connect(&server).unwrap()).contains("CertificateRequired"));
    let stranger = strangers.issue("stranger");
    let refused = refusal(manner().showing(&stranger).try_connect(&server).unwrap());
    assert!(refused.contains("UnknownCA") || refused.contains("BadCertificate"), "{refused}");
    manner().showing(&clients.issue("client")).assert_served(&server);
}

#[test]
fn an_unencrypted_client_is_closed_and_others_continue() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), &["--workers", "1"]);
    let mut client = Manner::believing(&authority).client(&server);
    let mut plain = server.socket();
    let mut hello = Vec::new();
    Request::Hello(default_hello()).encode(1, &mut hello);
    plain.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    match plain.read_to_end(&mut answer) {
        Ok(_) => assert!(answer.len() < 16, "an alert, and no welcome"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let granted = client.acquire(b"key", 0);
    client.release(granted.id);
}

/// Time that the server allows for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Connects to the Unix socket of a server, which is not encrypted. Reads of the socket time out after `read_timeout`.
fn plain_client(server: &Server, read_timeout: Duration) -> Client<UnixStream> {
    let socket = UnixStream::connect(server.address("unix")).unwrap();
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut client = Client::new(socket);
    client.hello("plain", SessionRequest::None);
    client.socket.set_read_timeout(Some(read_timeout)).unwrap();
    client
}

#[test]
fn a_stalled_handshake_is_closed_after_five_seconds_and_others_continue() {
    let authority = Authority::new();
    let path = authority.ca().with_file_name("socket");
    let server = server(&authority.issue("server"), &["--workers", "1", "--unix", path.to_str().unwrap()]);
    let begin = Instant::now();
    let silent = server.socket();
    let mut begun = server.socket();
    // The head of a record that never comes.
    begun.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    let mut witness = Witness::begin(plain_client(&server, LOOK), 2 * HANDSHAKE_MAX);
    Manner::believing(&authority).assert_served(&server);
    for mut socket in [silent, begun] {
        socket.set_read_timeout(Some(LOOK)).unwrap();
        witness.assert_before_end("the end of a handshake that stalls", || match socket.read(&mut [0; 16]) {
            Ok(0) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
            Err(error) if is_nothing_yet(&error) => false,
            other => panic!("{other:?}"),
        });
        assert_not_early(begin, HANDSHAKE_MAX);
    }
    Manner::believing(&authority).assert_served(&server);
}

#[test]
fn sighup_loads_a_new_certificate_and_keeps_old_connections() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let server = Server::start_logged(&arguments(&issued, &[]));
    let manner = Manner::believing(&authority);
    let shown = |client: &Client<TlsSocket>| client.socket.conn.peer_certificates().unwrap()[0].to_vec();
    let mut old = manner.client(&server);
    let before = shown(&old);

    authority.issue("server");
    server.signal("HUP");
    server.log_places(&[
        &["INFO", "reloaded the certificates"],
        &["audit", "reload result=done", "certificates"],
    ]);
    let between = shown(&manner.client(&server));
    assert_ne!(before, between);

    std::fs::write(issued.cert(), "no certificate").unwrap();
    server.signal("HUP");
    server.log_places(&[
        &["ERROR", "the previous ones stay in use", "tls-cert", issued.cert()],
        &["audit", "reload result=refused", "tls-cert", issued.cert()],
    ]);
    assert_eq!(shown(&manner.client(&server)), between);

    let granted = old.acquire(b"key", 0);
    old.release(granted.id);
}

/// Copies a file of `new` over the same file of `old`.
fn replace(file: fn(&Issued) -> &str, old: &Issued, new: &Issued) {
    std::fs::copy(file(new), file(old)).unwrap();
}

/// Returns the number of lines of the log with all of these words.
fn count_logged(server: &Server, words: &[&str]) -> usize {
    let log = server.log();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

#[test]
fn changed_files_are_loaded_without_a_signal_and_a_half_written_pair_is_not() {
    let authority = Authority::new();
    let (issued, other) = (authority.issue("server"), authority.issue("other"));
    let server = Server::start_logged(&arguments(&issued, &[]));
    let manner = Manner::believing(&authority);
    let shown = || manner.client(&server).socket.conn.peer_certificates().unwrap()[0].to_vec();
    let before = shown();

    replace(Issued::key, &issued, &other);
    let half =
        &["WARN", "could not reload the certificates", "--tls-key", "does not belong to the certificate"];
    server.log_places(&[half]);
    assert_eq!(shown(), before);

    replace(Issued::cert, &issued, &other);
    server.log_places(&[&["INFO", "reloaded the certificates because a file changed"]]);
    assert_ne!(shown(), before);
    assert_eq!(count_logged(&server, half), 1);
}

#[test]
fn sighup_without_tls_ends_no_server() {
    let server = Server::start_logged(&[]);
    server.signal("HUP");
    server.log_places(&[&["INFO", "SIGHUP", "no files"]]);
    server.assert_serves();
}

#[test]
fn a_revoked_client_is_refused_with_an_alert_and_others_are_served() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (good, bad) = (clients.issue("good"), clients.issue("bad"));
    let (ca, list) = (clients.ca(), clients.revoke(&[&bad]));
    let (ca, list) = (ca.to_str().unwrap(), list.to_str().unwrap());
    let issued = authority.issue("server");
    let server =
        server(&issued, &["--tls-client-ca", ca, "--tls-client-crl", list, "--tls-min-version", "1.2"]);
    for versions in [OLD, NEW] {
        let manner = || Manner { versions, ..Manner::believing(&authority) };
        let refused = match manner().showing(&bad).try_connect(&server) {
            Ok(socket) => refusal(socket),
            // With TLS 1.2 a client hears of it in the handshake.
            Err(error) => error.to_string(),
        };
        assert!(refused.contains("CertificateRevoked"), "{refused}");
        manner().showing(&good).assert_served(&server);
    }
}

/// A session that was begun before the revocation is no way in.
#[test]
fn a_revocation_takes_effect_while_the_server_runs() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let client = clients.issue("client");
    let (ca, list) = (clients.ca(), clients.revoke(&[]));
    let files = ["--tls-client-ca", ca.to_str().unwrap(), "--tls-client-crl", list.to_str().unwrap()];
    let issued = authority.issue("server");
    let server = Server::start_logged(&arguments(&issued, &files));
    // All connections share a configuration, and with it the tickets of earlier sessions.
    let config = Manner::believing(&authority).showing(&client).config();
    let connect = || {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        Client::new(StreamOwned::new(connection, server.socket()))
    };
    let mut open = connect();
    open.hello("client", SessionRequest::None);
    let mut resumed = connect();
    resumed.hello("client", SessionRequest::None);
    assert_eq!(resumed.socket.conn.handshake_kind(), Some(rustls::HandshakeKind::Resumed));

    clients.revoke(&[&client]);
    server.log_places(&[&["INFO", "reloaded the certificates because a file changed"]]);
    let mut hello = Vec::new();
    Request::Hello(default_hello()).encode(1, &mut hello);
    let mut late = connect();
    let refused = late.socket.write_all(&hello).err().map(|error| error.to_string());
    let refused = refused.unwrap_or_else(|| refusal(late.socket));
    assert!(refused.contains("CertificateRevoked"), "{refused}");
    let granted = open.acquire(b"key", 0);
    open.release(granted.id);
}

#[test]
fn a_client_of_a_ca_without_a_revocation_list_is_refused() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let (ca, list) = (clients.ca(), clients.revoke(&[]));
    let both = std::fs::read_to_string(&ca).unwrap() + &std::fs::read_to_string(others.ca()).unwrap();
    std::fs::write(&ca, both).unwrap();
    let files = ["--tls-client-ca", ca.to_str().unwrap(), "--tls-client-crl", list.to_str().unwrap()];
    let server = server(&authority.issue("server"), &files);
    let manner = || Manner::believing(&authority);
    let stranger = others.issue("stranger");
    let refused = refusal(manner().showing(&stranger).try_connect(&server).unwrap());
    assert!(refused.contains("UnknownCA") || refused.contains("BadCertificate"), "{refused}");
    manner().showing(&clients.issue("client")).assert_served(&server);
}

#[test]
fn tls_1_2_is_accepted_only_if_configured() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let manner = Manner { versions: OLD, ..Manner::believing(&authority) };
    let error = manner.try_connect(&server(&issued, &[])).unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    manner.assert_served(&server(&issued, &["--tls-min-version", "1.2"]));
}

#[test]
fn a_connection_moves_to_its_chosen_worker_or_that_of_its_session() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), &["--workers", "2"]);
    let manner = Manner::believing(&authority);
    for worker in [0, 1, 0, 1] {
        let mut client = manner.stranger(&server);
        let session = SessionRequest::New { lease_ms: 0 };
        let welcome = client.open(Hello { worker, session, ..default_hello() });
        assert_eq!(welcome.worker, worker);
        let acquire = Acquire {
            key: b"key",
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let granted = client.ask(Request::Acquire(acquire)).granted();
        // The one that was accepted meanwhile is with the other worker.
        for _ in 0..2 {
            let session = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
            let mut again = manner.stranger(&server);
            let resumed = again.open(Hello { session, ..default_hello() });
            assert_eq!((resumed.resumed, resumed.worker), (true, worker));
            assert!(client.try_receive().is_none(), "the old connection is closed");
            client = again;
        }
        client.send_numbered(100, Request::Release(Release { id: granted.id, key: None, own: false }));
        assert!(matches!(client.receive().response(), Response::Released(_)));
    }
}

/// The questions come with the end of the handshake, and most of them before the connection is with its worker.
#[test]
fn many_pipelined_requests_are_answered_in_order_to_a_slow_reader() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), &["--workers", "2"]);
    let manner = Manner::believing(&authority);
    let owner = vec![b'o'; OWNER_LEN_MAX];
    let mut client = manner.stranger(&server);
    client.open(Hello { owner: &owner, ..default_hello() });
    for _ in 0..INSPECT_HOLDERS_MAX {
        let acquire = Acquire { key: b"key", shared: true, ..Acquire::default() };
        client.ask(Request::Acquire(acquire)).granted();
    }

    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(manner.config(), name).unwrap();
    let socket = server.socket();
    // Answers soon fill what the kernel buffers.
    socket2::SockRef::from(&socket).set_recv_buffer_size(256 << 10).unwrap();
    let mut asking = Client::new(StreamOwned::new(connection, socket));
    let questions = 300;
    let mut bytes = Vec::new();
    Request::Hello(Hello { worker: 1, ..default_hello() }).encode(1, &mut bytes);
    for number in 0..questions {
        Request::Inspect(Inspect { key: b"key" }).encode(2 + number, &mut bytes);
    }
    asking.write(&bytes);
    assert!(matches!(asking.receive().response(), Response::Welcome(_)));
    for number in 0..questions {
        let answer = asking.receive();
        assert_eq!(answer.number(), 2 + number);
        let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(inspected.holders.iter().all(|holder| holder.owner == owner));
        assert_eq!(inspected.holders.len(), INSPECT_HOLDERS_MAX);
    }
}

#[test]
fn a_unix_socket_stays_unencrypted_beside_tls() {
    let authority = Authority::new();
    let path = authority.ca().with_file_name("socket");
    let server = server(&authority.issue("server"), &["--unix", path.to_str().unwrap()]);
    plain_client(&server, WATCHDOG).acquire(b"key", 0);
    let mut encrypted = Manner::believing(&authority).client(&server);
    let answer = encrypted.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
    assert_eq!(answer.error().code, ErrorCode::Busy);
}

#[test]
fn invalid_tls_options_are_named_with_their_files() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("one"), authority.issue("other"));
    let ca = authority.ca();
    let with_list = |list| {
        [
            "--tls-cert",
            one.cert(),
            "--tls-key",
            one.key(),
            "--tls-client-ca",
            ca.to_str().unwrap(),
            "--tls-client-crl",
            list,
        ]
    };
    let garbage = ca.with_file_name("garbage");
    std::fs::write(&garbage, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n").unwrap();
    let garbage = garbage.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 13] = [
        (&["--tls-client-crl", one.cert()], &["tls-client-crl", "needs --tls-client-ca"]),
        (
            &["--tls-cert", one.cert(), "--tls-key", one.key(), "--tls-client-crl", one.cert()],
            &["tls-client-crl", "needs --tls-client-ca"],
        ),
        (&with_list("/nonexistent.crl"), &["tls-client-crl", "/nonexistent.crl"]),
        (&with_list(one.cert()), &["tls-client-crl", "no certificate revocation list", one.cert()]),
        (&with_list(garbage), &["tls-client-crl", "cannot use", garbage]),
        (&["--tls-cert", one.cert()], &["tls-cert", "needs --tls-key"]),
        (&["--tls-key", one.key()], &["tls-key", "needs --tls-cert"]),
        (&["--tls-client-ca", one.cert()], &["tls-client-ca", "needs --tls-cert"]),
        (&["--tls-min-version", "1.2"], &["tls-min-version", "needs --tls-cert"]),
        (&["--tls-cert", "/nonexistent.pem", "--tls-key", one.key()], &["tls-cert", "/nonexistent.pem"]),
        (&["--tls-cert", one.key(), "--tls-key", one.key()], &["tls-cert", "no certificate", one.key()]),
        (&["--tls-cert", one.cert(), "--tls-key", one.cert()], &["tls-key", one.cert()]),
        (
            &["--tls-cert", one.cert(), "--tls-key", other.key()],
            &["tls-key", other.key(), "does not belong to the certificate in", one.cert()],
        ),
    ];
    for (arguments, words) in cases {
        let (status, message) = refused(arguments);
        assert_eq!(status.code(), Some(1), "{arguments:?}");
        assert!(words.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
    }
    let (status, message) = refused(&["--tls-min-version", "1.1"]);
    assert!(!status.success() && message.contains("--tls-min-version"), "{message}");
}

#[test]
fn tls_beyond_loopback_needs_a_client_ca() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let open = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
        command.args(["--listen", "0.0.0.0:0"]).args(more).envs(QUIET);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let output = open(&arguments(&issued, &[])).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(message.contains("--tls-client-ca") && message.contains("--insecure"), "{message}");
    let ca = authority.ca();
    Server::start_with(&mut open(&arguments(&issued, &["--tls-client-ca", ca.to_str().unwrap()])), None);
    Server::start_with(&mut open(&arguments(&issued, &["--insecure"])), None);
}
