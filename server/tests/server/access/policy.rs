//! What becomes of open connections when the policy changes.

use super::{Office, hello_with, unix_s};
use crate::authority::Authority;
use crate::harness::{Client, Server, WATCHDOG, default_hello, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_protocol::{
    Acquire, AcquireTerms, ErrorCode, Event, Hello, KeepAlive, NamespaceKind, Release, Request,
    SessionRequest,
};

const ALL_FOR_BOB: &str = "[[rule]]\nidentity = \"bob\"\nallow = [\"all\"]\n";
const ALL: &str = "[[rule]]\neveryone = true\nallow = [\"all\"]\n";

fn may_acquire(client: &mut Client<TcpStream>) -> bool {
    let acquire = Request::Acquire(Acquire {
        key: b"key",
        terms: AcquireTerms { wait_ms: 0, ..AcquireTerms::default() },
        ..Acquire::default()
    });
    client.code_of(acquire) != Some(ErrorCode::Unauthorized)
}

pub(super) fn hang_up(server: &Server) {
    server.signal("HUP");
}

/// Asserts that the server ends a connection because of its identity or its rights.
#[track_caller]
pub(super) fn assert_ended<S: Read + Write>(client: &mut Client<S>) {
    let last = client.receive();
    assert_eq!((last.number(), last.refusal().0), (0, ErrorCode::Unauthorized));
    assert!(client.try_receive().is_none(), "the connection is closed");
}

#[test]
fn a_lost_right_ends_the_connection_and_a_gained_right_does_not() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\", \"list\"]\n");
    let alice = office.token("alice");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    let held = client.acquire(b"held", 0);
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"list\"]\n");
    hang_up(&server);
    assert_ended(&mut client);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    assert!(!may_acquire(&mut client));
    // What is held stays held, and its identity may release it.
    assert_eq!(client.code_of(Request::Release(Release { id: held.id, key: None, own: false })), None);
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n");
    hang_up(&server);
    wait_until("the right is there", || may_acquire(&mut client));
}

/// Alice waits in a session, connected or not, loses the right to acquire, and resumes the session or not.
#[test]
fn a_waiter_that_lost_its_right_gets_no_grant() {
    let rules = |alice: &str| format!("{ALL_FOR_BOB}[[rule]]\nidentity = \"alice\"\nallow = [{alice}]\n");
    for (is_connected, resumes) in [(true, false), (true, true), (false, false), (false, true)] {
        let office = Office::new(&rules("\"acquire\", \"list\""));
        let (alice, bob) = (office.token("alice"), office.token("bob"));
        let server = office.server(&[]);
        let mut holder = server.client_with(NamespaceKind::Flat, &bob);
        let held = holder.acquire(b"key", 0);
        let new_session = SessionRequest::New { lease_ms: 60_000 };
        let (mut waiter, welcome) = server.session_with(&alice, new_session);
        let acquire = Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: 60_000, notify_queued: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        waiter.send(Request::Acquire(acquire));
        assert!(matches!(waiter.receive().event(), Event::Queued { .. }));
        let mut waiter = is_connected.then_some(waiter);
        office.set_rules(&rules("\"list\""));
        hang_up(&server);
        if let Some(waiter) = &mut waiter {
            assert_ended(waiter);
        }
        let loses = || !may_acquire(&mut server.client_with(NamespaceKind::Flat, &alice));
        wait_until("the right is gone", loses);
        let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        let _resumed = resumes.then(|| server.session_with(&alice, resume));
        let release = Request::Release(Release { id: held.id, key: None, own: false });
        assert_eq!(holder.code_of(release), None);
        let again = Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: 0, ..AcquireTerms::default() },
            ..Acquire::default()
        });
        assert_eq!(holder.code_of(again), None, "connected {is_connected}, resumes {resumes}");
    }
}

#[test]
fn the_first_rules_end_connections_without_an_identity() {
    let office = Office::new("");
    let server = office.server(&[]);
    let mut client = server.client("nobody");
    let (mut in_session, welcome) = {
        let mut client = server.stranger();
        let welcome = client.hello("nobody", SessionRequest::New { lease_ms: 60_000 });
        (client, welcome)
    };
    office.set_rules(ALL);
    let alice = office.token("alice");
    hang_up(&server);
    assert_ended(&mut client);
    assert_ended(&mut in_session);
    // The session of nobody is nobody's.
    let session = SessionRequest::Join { id: welcome.session_id };
    let hello = Hello { session, ..hello_with(NamespaceKind::Flat, &alice) };
    let code = server.stranger().refused_hello(hello).0;
    assert_eq!(code, ErrorCode::SessionGone);
}

#[test]
fn a_file_that_cannot_be_used_or_has_no_rule_left_changes_nothing() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n");
    let alice = office.token("alice");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    for useless in ["this is no TOML", ""] {
        office.set_rules(useless);
        hang_up(&server);
        assert!(may_acquire(&mut client));
        let stranger = crate::harness::default_hello();
        assert_eq!(server.stranger().refused_hello(stranger).0, ErrorCode::Unauthorized);
    }
    // A change that can be read takes effect, so the server has looked at the files above before.
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"list\"]\n");
    hang_up(&server);
    assert_ended(&mut client);
}

#[test]
fn a_revoked_or_expired_token_ends_its_connections_and_no_other() {
    let office = Office::new(ALL);
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    let brief = office.token_until("alice", Some(unix_s() + 2));
    let server = office.server(&[]);
    let [mut revoked, mut other, mut expiring] =
        [&alice, &bob, &brief].map(|token| server.client_with(NamespaceKind::Flat, token));
    office.revoke(&alice);
    hang_up(&server);
    assert_ended(&mut revoked);
    assert_ended(&mut expiring);
    assert_eq!(other.code_of(Request::KeepAlive(KeepAlive)), None);
    for token in [&alice, &brief] {
        let answer = server.stranger().refused_hello(hello_with(NamespaceKind::Flat, token));
        assert_eq!(answer.0, ErrorCode::Unauthorized);
    }
}

/// Rules with one identity that each way to show one leads to.
const MAPPED: &str = "[[rule]]\nidentity = \"me\"\nallow = [\"acquire\"]\n";

#[test]
fn a_connection_ends_when_the_access_file_maps_its_client_to_no_identity_or_to_another() {
    let uid = nix::unistd::getuid();
    let (authority, directory) = (Authority::new(), tempfile::tempdir().unwrap());
    let (issued, shown) = (authority.issue("server"), authority.issue("client"));
    let (ca, path) = (authority.ca(), directory.path().join("socket"));
    let office = Office::new("");
    let maps = |user: &str, certificate: &str| {
        format!("{MAPPED}[users]\n{uid} = \"{user}\"\n[certificates]\n{certificate} = \"me\"\n")
    };
    office.set_rules(&maps("me", "localhost"));
    let server = office.server(&[
        "--unix",
        path.to_str().unwrap(),
        "--tls-cert",
        issued.cert(),
        "--tls-key",
        issued.key(),
        "--tls-client-ca",
        ca.to_str().unwrap(),
    ]);
    let open_user = || {
        let mut user = Client::new(UnixStream::connect(&path).unwrap());
        user.socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        user.open(default_hello());
        user
    };
    let mut user = open_user();
    let mut certified = crate::tls::client_with(&server, &authority, Some(&shown));
    certified.open(default_hello());
    office.set_rules(&maps("another", "localhost"));
    hang_up(&server);
    assert_ended(&mut user);
    assert_eq!(certified.code_of(Request::KeepAlive(KeepAlive)), None);
    office.set_rules(&maps("me", "other"));
    hang_up(&server);
    assert_ended(&mut certified);
    open_user().acquire(b"key", 0);
}

#[test]
fn a_resumed_session_depends_on_the_token_that_resumed_it() {
    let office = Office::new(ALL);
    let [old, new] = ["alice"; 2].map(|name| office.token(name));
    let server = office.server(&[]);
    let (begun, welcome) = server.session_with(&old, SessionRequest::New { lease_ms: 60_000 });
    // The worker looks at both connections at once.
    let mut other = server.stranger();
    other.open(Hello { worker: welcome.worker, ..hello_with(NamespaceKind::Flat, &old) });
    drop(begun);
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut resumed, _) = server.session_with(&new, resume);
    resumed.number_from(100);
    office.revoke(&old);
    hang_up(&server);
    assert_ended(&mut other);
    assert_eq!(resumed.code_of(Request::KeepAlive(KeepAlive)), None);
    office.revoke(&new);
    hang_up(&server);
    assert_ended(&mut resumed);
}

#[test]
fn a_connection_ends_when_the_record_of_its_token_has_another_identity_or_other_groups() {
    let office = Office::new(ALL);
    let [renamed, regrouped, kept] = ["alice"; 3].map(|name| office.token(name));
    let server = office.server(&[]);
    let [mut first, mut second, mut third] =
        [&renamed, &regrouped, &kept].map(|token| server.client_with(NamespaceKind::Flat, token));
    for (token, line) in
        [(&renamed, "identity = \"bob\""), (&regrouped, "identity = \"alice\"\ngroups = [\"g\"]")]
    {
        let record = office.take_away(token);
        office.give_back(token, &record.replace("identity = \"alice\"", line));
    }
    hang_up(&server);
    assert_ended(&mut first);
    assert_ended(&mut second);
    assert!(may_acquire(&mut third));
}

#[test]
fn a_connection_ends_when_clients_without_credentials_get_another_identity() {
    let office = Office::new(&format!("anonymous = \"me\"\n{MAPPED}"));
    let server = office.server(&[]);
    let mut guest = server.client("guest");
    office.set_rules(&format!("anonymous = \"another\"\n{MAPPED}"));
    hang_up(&server);
    assert_ended(&mut guest);
}

#[test]
fn a_member_who_leaves_a_group_loses_the_rights_of_the_group() {
    let rules = |members: &str| {
        format!(
            "[groups]\noperators = [{members}]\n[[rule]]\ngroup = \"operators\"\nallow = [\"acquire\"]\n\
             [[rule]]\neveryone = true\nallow = [\"list\"]\n"
        )
    };
    let office = Office::new(&rules("\"alice\", \"bob\""));
    let [alice, bob] = ["alice", "bob"].map(|name| office.token(name));
    let server = office.server(&[]);
    let [mut leaver, mut member] = [&alice, &bob].map(|token| server.client_with(NamespaceKind::Flat, token));
    office.set_rules(&rules("\"bob\""));
    hang_up(&server);
    assert_ended(&mut leaver);
    assert!(!may_acquire(&mut server.client_with(NamespaceKind::Flat, &alice)));
    assert!(may_acquire(&mut member));
}

#[tokio::test]
async fn a_token_of_grpc_counts_for_each_call() {
    let office = Office::new(ALL);
    let (alice, bob) = (office.token("alice"), office.token_until("bob", Some(unix_s() + 2)));
    let server = office.server(&["--grpc-listen", "127.0.0.1:0"]);
    let url = format!("http://{}", server.address("grpc"));
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    let mut locks = LockServiceClient::new(channel.clone());
    let mut operators = OperatorServiceClient::new(channel);
    let by = |token: &str| {
        let key = v1::LockKey { key: "key".to_owned(), shared: true };
        let mut request =
            tonic::Request::new(v1::AcquireKeysRequest { keys: vec![key], ..Default::default() });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
        request
    };
    locks.try_acquire(by(&alice)).await.expect("alice is known");
    // A call that opens no lane of its own.
    let frozen = |token: &str| {
        let mut request = tonic::Request::new(v1::ListFrozenRequest::default());
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
        request
    };
    operators.list_frozen(frozen(&bob)).await.expect("bob is known");
    let mut code = Code::Ok;
    while code != Code::Unauthenticated {
        code = operators.list_frozen(frozen(&bob)).await.err().map_or(Code::Ok, |status| status.code());
        tokio::task::yield_now().await;
    }
    assert_eq!(locks.try_acquire(by(&bob)).await.expect_err("it has expired").code(), Code::Unauthenticated);

    // A token that is revoked and comes back works again on the same connection.
    let kept = office.take_away(&alice);
    hang_up(&server);
    let mut code = Code::Ok;
    while code != Code::Unauthenticated {
        code = locks.try_acquire(by(&alice)).await.err().map_or(Code::Ok, |status| status.code());
    }
    office.give_back(&alice, &kept);
    hang_up(&server);
    while locks.try_acquire(by(&alice)).await.is_err() {
        tokio::task::yield_now().await;
    }
}
