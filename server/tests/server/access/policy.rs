//! What becomes of open connections when the policy changes.

use super::{Office, hello_with, unix_s};
use crate::harness::{Client, Server, wait_until};
use std::net::TcpStream;
use waymaker_protocol::{Acquire, ErrorCode, KeepAlive, NamespaceKind, Release, Request};

fn may_acquire(client: &mut Client<TcpStream>) -> bool {
    let acquire = Request::Acquire(Acquire { key: b"key", wait_ms: 0, ..Acquire::default() });
    client.code_of(acquire) != Some(ErrorCode::Unauthorized)
}

fn hang_up(server: &Server) {
    server.signal("HUP");
}

#[test]
fn new_rules_apply_to_open_connections() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\", \"list\"]\n");
    let alice = office.token("alice");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    let held = client.acquire(b"held", 0);
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"list\"]\n");
    hang_up(&server);
    wait_until("the right is gone", || !may_acquire(&mut client));
    // What is held stays held, and its holder may release it.
    assert_eq!(client.code_of(Request::Release(Release { id: held.id, key: None, own: false })), None);
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n");
    hang_up(&server);
    wait_until("the right is back", || may_acquire(&mut client));
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n");
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &alice);
    office.set_rules("this is no TOML");
    hang_up(&server);
    office.revoke(&bob);
    assert!(may_acquire(&mut client));
    // A change that can be read takes effect, so the server has looked at the file above before.
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"list\"]\n");
    hang_up(&server);
    wait_until("the right is gone", || !may_acquire(&mut client));
}

#[test]
fn a_revoked_or_expired_token_ends_its_connections_and_no_other() {
    let office = Office::new("[[rule]]\neveryone = true\nallow = [\"all\"]\n");
    let (alice, bob) = (office.token("alice"), office.token("bob"));
    let brief = office.token_until("alice", Some(unix_s() + 2));
    let server = office.server(&[]);
    let [mut revoked, mut other, mut expiring] =
        [&alice, &bob, &brief].map(|token| server.client_with(NamespaceKind::Flat, token));
    office.revoke(&alice);
    hang_up(&server);
    for client in [&mut revoked, &mut expiring] {
        let last = client.receive();
        assert_eq!(last.refusal().0, ErrorCode::Unauthorized);
        assert!(client.try_receive().is_none(), "the connection is closed");
    }
    assert_eq!(other.code_of(Request::KeepAlive(KeepAlive)), None);
    for token in [&alice, &brief] {
        let answer = server.stranger().refused_hello(hello_with(NamespaceKind::Flat, token));
        assert_eq!(answer.0, ErrorCode::Unauthorized);
    }
}
