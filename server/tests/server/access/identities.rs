//! Who is let in: tokens, certificates, users of the Unix socket, and clients without an identity.

use super::{Office, hello_with, unix_s};
use crate::authority::Authority;
use crate::harness::{Client, QUIET, Server, default_hello, refused};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use waymaker_protocol::{ErrorCode, Hello, NamespaceKind};

const ALICE: &str = "[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n";

#[test]
fn a_valid_token_lets_its_identity_in_and_any_other_does_not() {
    let office = Office::new(ALICE);
    let (alice, expired) = (office.token("alice"), office.token_until("alice", Some(unix_s() - 1)));
    let server = office.server(&[]);
    server.client_with(NamespaceKind::Flat, &alice).acquire(b"key", 0);

    let mut wrong_secret = alice.clone();
    let last = wrong_secret.pop();
    wrong_secret.push(if last == Some('A') { 'Q' } else { 'A' });
    for token in ["", "nonsense", &wrong_secret, &expired, &alice[..alice.len() - 1]] {
        let hello = hello_with(NamespaceKind::Flat, token);
        let answer = server.stranger().refused_hello(hello);
        assert_eq!(answer, (ErrorCode::Unauthorized, "credentials".to_owned()), "{token:?}");
    }
}

#[test]
fn an_identity_without_a_rule_for_a_namespace_makes_no_namespace() {
    let office = Office::new(&format!(
        "{ALICE}[[rule]]\nidentity = \"bob\"\nnamespace = \"bobs\"\nallow = [\"list\"]"
    ));
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    let server = office.server(&[]);
    for namespace in [&b"new"[..], b"bobs2", b"bob"] {
        let hello = Hello { namespace, ..hello_with(NamespaceKind::Flat, &bob) };
        let answer = server.stranger().refused_hello(hello);
        assert_eq!(answer, (ErrorCode::Unauthorized, "namespace".to_owned()));
    }
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    assert_eq!(super::operations::namespaces(&mut client), ["flat"], "the refusals made no namespace");
}

#[test]
fn without_rules_loopback_is_open_and_a_wrong_token_is_refused_still() {
    let office = Office::new("");
    let alice = office.token("alice");
    let server = office.server(&[]);
    server.client("nobody").acquire(b"a", 0);
    server.client_with(NamespaceKind::Flat, &alice).acquire(b"b", 0);
    let hello = hello_with(NamespaceKind::Flat, "nonsense");
    assert_eq!(server.stranger().refused_hello(hello).0, ErrorCode::Unauthorized);
}

#[test]
fn the_access_file_may_name_an_identity_for_clients_without_credentials() {
    let office =
        Office::new("anonymous = \"guest\"\n[[rule]]\nidentity = \"guest\"\nallow = [\"acquire_shared\"]\n");
    let server = office.server(&[]);
    let mut guest = server.client("guest");
    let shared = waymaker_protocol::Acquire { key: b"key", shared: true, ..Default::default() };
    assert_eq!(guest.code_of(waymaker_protocol::Request::Acquire(shared)), None);
    let exclusive = waymaker_protocol::Acquire { key: b"key", ..Default::default() };
    assert_eq!(guest.code_of(waymaker_protocol::Request::Acquire(exclusive)), Some(ErrorCode::Unauthorized));
}

#[test]
fn a_user_of_the_unix_socket_has_an_identity() {
    let uid = nix::unistd::getuid();
    let rules = format!("[users]\n{uid} = \"me\"\n[[rule]]\nidentity = \"me\"\nallow = [\"all\"]\n");
    let office = Office::new(&rules);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = office.server(&["--unix", path.to_str().unwrap()]);
    let mut client = Client::new(UnixStream::connect(&path).unwrap());
    client.open(default_hello());
    client.acquire(b"key", 0);
    let answer = server.stranger().refused_hello(default_hello());
    assert_eq!(answer.0, ErrorCode::Unauthorized, "a TCP connection has no user");

    office.set_rules(&format!("[[rule]]\nidentity = \"uid:{uid}\"\nallow = [\"acquire\"]\n"));
    let unmapped = office.server(&["--unix", directory.path().join("other").to_str().unwrap()]);
    let mut client = Client::new(UnixStream::connect(unmapped.address("unix")).unwrap());
    client.open(default_hello());
    client.acquire(b"key", 0);
}

#[test]
fn a_token_counts_before_the_user_of_the_unix_socket() {
    let rules = format!("{ALICE}[users]\n{} = \"me\"\n", nix::unistd::getuid());
    let office = Office::new(&rules);
    let alice = office.token("alice");
    let directory = tempfile::tempdir().unwrap();
    let server = office.server(&["--unix", directory.path().join("socket").to_str().unwrap()]);
    let client = || Client::new(UnixStream::connect(server.address("unix")).unwrap());
    client().open(hello_with(NamespaceKind::Flat, &alice));
    assert_eq!(client().refused_hello(default_hello()).1, "namespace", "the user has no right");
    let wrong = hello_with(NamespaceKind::Flat, "nonsense");
    assert_eq!(
        client().refused_hello(wrong).1,
        "credentials",
        "a wrong token does not fall back to the user"
    );
}

#[test]
fn a_directory_of_tokens_may_have_other_files() {
    let office = Office::new(ALICE);
    let alice = office.token("alice");
    office.write("tokens/README.md", "no tokens");
    office.server(&[]).client_with(NamespaceKind::Flat, &alice).acquire(b"key", 0);
}

#[test]
fn a_client_certificate_is_an_identity() {
    let authority = Authority::new();
    let (issued, client) = (authority.issue("server"), authority.issue("client"));
    let office = Office::new(
        "[certificates]\nlocalhost = \"machine\"\n[[rule]]\nidentity = \"machine\"\nallow = [\"acquire\"]\n",
    );
    let own = office.arguments();
    let mut arguments: Vec<&str> = own.iter().map(String::as_str).collect();
    let ca = authority.ca();
    arguments.extend(["--tls-cert", issued.cert(), "--tls-key", issued.key()]);
    arguments.extend(["--tls-client-ca", ca.to_str().unwrap()]);
    let server = Server::start(&arguments);
    let mut certified = crate::tls::client_with(&server, &authority, Some(&client));
    certified.open(default_hello());
    certified.acquire(b"key", 0);

    office.set_rules("[certificates]\nother = \"machine\"\n[[rule]]\neveryone = true\nallow = [\"all\"]\n");
    let unmapped = Server::start(&arguments);
    let mut certified = crate::tls::client_with(&unmapped, &authority, Some(&client));
    assert_eq!(certified.refused_hello(default_hello()).0, ErrorCode::Unauthorized);
}

#[test]
fn a_listener_beyond_loopback_serves_no_client_without_an_identity() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let office = Office::new("");
    let alice = office.token("alice");
    let own = office.arguments();
    let tls = ["--tls-cert", issued.cert(), "--tls-key", issued.key()];
    let tokens: Vec<&str> = own.iter().map(String::as_str).collect();
    let beyond = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
        command.args(["--listen", "0.0.0.0:0"]).args(arguments).envs(QUIET);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for (arguments, remedy) in [(&tokens[..], "--tls-cert"), (&tls, "--tokens")] {
        let output = beyond(arguments).output().expect("the server runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(remedy), "{text}");
    }
    let server = Server::start_with(&mut beyond(&[&tokens[..], &tls].concat()), None);
    let mut client = crate::tls::client_with(&server, &authority, None);
    assert_eq!(client.refused_hello(default_hello()), (ErrorCode::Unauthorized, "credentials".to_owned()));
    let mut client = crate::tls::client_with(&server, &authority, None);
    client.open(hello_with(NamespaceKind::Flat, &alice));
    client.acquire(b"key", 0);
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"lock\"]\n");
    let own = office.arguments();
    let arguments: Vec<&str> = own.iter().map(String::as_str).collect();
    let (status, text) = refused(&arguments);
    assert!(!status.success());
    for word in ["--access", "access.toml", "rule 1", "\"lock\""] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let (status, text) = refused(&["--tokens", "/nowhere/tokens.toml"]);
    assert!(!status.success() && text.contains("--tokens: cannot read /nowhere/tokens.toml"), "{text}");
}
