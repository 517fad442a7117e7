//! Identities and rights: who may do what, through every front end.

mod audit;
mod fronts;
mod holds;
mod identities;
mod jwt;
mod logins;
mod operations;
mod policy;
mod quotas;

use crate::harness::{Client, Server, default_hello};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use waymaker_access::{Timestamp, Token, TokenRecord, token_table_text};
use waymaker_protocol::{ErrorCode, Hello, NamespaceKind, Request, Response, SessionRequest, Welcome};

/// A directory with an access file, and tokens that were made for identities.
pub(super) struct Office {
    directory: TempDir,
}

/// Seconds since 1970.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

impl Office {
    /// With these rules.
    pub(super) fn new(rules: &str) -> Self {
        let office = Self { directory: tempfile::tempdir().expect("a directory") };
        std::fs::create_dir(office.tokens()).expect("a directory");
        office.set_rules(rules);
        office
    }

    pub(super) fn set_rules(&self, rules: &str) {
        std::fs::write(self.rules(), rules).expect("a file");
    }

    /// Writes a file next to the access file, and returns its path.
    pub(super) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    fn rules(&self) -> PathBuf {
        self.directory.path().join("access.toml")
    }

    fn tokens(&self) -> PathBuf {
        self.directory.path().join("tokens")
    }

    /// Makes a token for this identity and returns its text.
    pub(super) fn token(&self, identity: &str) -> String {
        self.token_until(identity, None)
    }

    /// The same, for a token that expires at that time.
    pub(super) fn token_until(&self, identity: &str, expires_unix_s: Option<u64>) -> String {
        let token = Token::from_random(&std::array::from_fn(|_| rand::random()));
        let record = TokenRecord {
            id: token.id,
            identity: identity.to_owned(),
            groups: Vec::new(),
            secret_sha256: token.secret.digest(),
            created: Timestamp::from_unix_seconds(unix_s()),
            expires: expires_unix_s.map(Timestamp::from_unix_seconds),
            note: String::new(),
        };
        let file = self.tokens().join(format!("{}.toml", token.id));
        std::fs::write(file, token_table_text(&record)).expect("a file");
        token.text().to_string()
    }

    /// Revokes the token with this text.
    pub(super) fn revoke(&self, token: &str) {
        let id = Token::parse(token.as_bytes()).expect("a token").id;
        std::fs::remove_file(self.tokens().join(format!("{id}.toml")))
            .expect("the token was not revoked yet");
    }

    /// Takes the file of a token away, and returns its content.
    pub(super) fn take_away(&self, token: &str) -> String {
        let id = Token::parse(token.as_bytes()).expect("a token").id;
        let content = std::fs::read_to_string(self.tokens().join(format!("{id}.toml"))).expect("a file");
        self.revoke(token);
        content
    }

    /// Puts the file of a token back.
    pub(super) fn give_back(&self, token: &str, content: &str) {
        let id = Token::parse(token.as_bytes()).expect("a token").id;
        std::fs::write(self.tokens().join(format!("{id}.toml")), content).expect("a file");
    }

    /// A path for a Unix socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The arguments of a server that has this office.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("a path of text").to_owned();
        ["--access".to_owned(), text(&self.rules()), "--tokens".to_owned(), text(&self.tokens())].into()
    }

    /// A server with this office and two workers.
    pub(super) fn server(&self, arguments: &[&str]) -> Server {
        self.start(arguments, Server::start)
    }

    /// The same, with TLS at all ports. A relay in front of each of `ports` encrypts.
    pub(super) fn encrypted_server(&self, arguments: &[&str], ports: &[&'static str]) -> Server {
        self.start(arguments, |all| Server::start_encrypted(all, ports))
    }

    /// Starts such a server in this way.
    pub(super) fn start(&self, arguments: &[&str], start: impl FnOnce(&[&str]) -> Server) -> Server {
        let own = self.arguments();
        let mut all: Vec<&str> = own.iter().map(String::as_str).collect();
        all.extend(["--workers", "2"]);
        all.extend(arguments);
        start(&all)
    }
}

/// A greeting with this token, to the namespace of this kind that is named like it.
pub(super) fn hello_with(kind: NamespaceKind, token: &str) -> Hello<'_> {
    Hello {
        kind,
        namespace: kind.name().as_bytes(),
        owner: b"owner",
        credentials: token.as_bytes(),
        ..default_hello()
    }
}

impl Server {
    /// An open connection with this token.
    pub(super) fn client_with(&self, kind: NamespaceKind, token: &str) -> Client<TcpStream> {
        let mut client = self.stranger();
        client.open(hello_with(kind, token));
        client
    }

    /// The same, with a session.
    pub(super) fn session_with(&self, token: &str, session: SessionRequest) -> (Client<TcpStream>, Welcome) {
        let mut client = self.stranger();
        let welcome = client.open(Hello { session, ..hello_with(NamespaceKind::Flat, token) });
        (client, welcome)
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends a greeting that is refused, and returns the code and the field.
    pub(super) fn refused_hello(&mut self, hello: Hello<'_>) -> (ErrorCode, String) {
        self.send(Request::Hello(hello));
        let answer = self.receive();
        let (code, field, _) = answer.refusal();
        (code, field.to_owned())
    }

    /// The code of the refusal of a request, or `None` if it was served.
    pub(super) fn code_of(&mut self, request: Request<'_>) -> Option<ErrorCode> {
        match self.ask(request).response() {
            Response::Error(error) => Some(error.code),
            _ => None,
        }
    }
}
