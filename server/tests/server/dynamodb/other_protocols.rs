//! A lock is the same for every protocol.

use super::client::{FAILED, MINUTE, PORT, TABLE, Table, assert_about, row};
use crate::harness::{Client, Server, default_hello};
use serde_json::{Value, json};
use std::net::TcpStream;
use waymaker_protocol::{
    ErrorCode, Freeze, Heartbeat, Hello, LookUp, NamespaceKind, Register, Request, Response, Unregister,
};

/// A client of the binary protocol in the namespace of the table.
fn native(server: &Server) -> Client<TcpStream> {
    let mut native = server.stranger();
    native.open(Hello { kind: NamespaceKind::Lazy, namespace: b"lazy/clever/locks", ..default_hello() });
    native
}

#[test]
fn a_row_is_an_entry_of_the_binary_protocol() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    let mut native = native(&server);
    table.acquire("k", "me", MINUTE).ok();
    let found = native.ask(Request::LookUp(LookUp { key: b"k" }));
    let Response::LookedUp(found) = found.response() else { panic!("{found:?}") };
    assert!(found.found && found.entry.owner == b"me", "{found:?}");
    assert!((50_000..=60_000).contains(&found.entry.remaining_ms), "{found:?}");
    let register = Register { lease_ms: 60_000, key: b"k", owner: b"you", ..Register::default() };
    assert_eq!(native.ask(Request::Register(register)).error().code, ErrorCode::Busy);
    let unregister = Unregister { key: b"k", owner: b"you" };
    assert_eq!(native.ask(Request::Unregister(unregister)).error().code, ErrorCode::NotOwner);
    native.ask(Request::Unregister(Unregister { key: b"k", owner: b"me" }));
    assert_eq!(table.current("k"), Value::Null);
}

#[test]
fn an_entry_of_the_binary_protocol_is_a_row() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    let mut native = native(&server);
    let register = Register { lease_ms: 600_000, key: b"k", owner: b"me", ..Register::default() };
    native.ask(Request::Register(register));
    let found = table.current("k");
    assert_eq!((&found["key"], &found["owner"]), (&json!({"S": "k"}), &json!({"S": "me"})));
    assert_about(&found["leasedUntil"], 10 * MINUTE);
    assert_about(&found["createdAt"], 0);
    assert_about(&found["ttl"], 10 * MINUTE + 48 * 3600);
    assert_eq!(table.acquire("k", "you", MINUTE).error(), FAILED);
    // The same owner may use both.
    table.heartbeat("k", "me", MINUTE).ok();
    assert_about(&table.current("k")["leasedUntil"], MINUTE);
    native.ask(Request::Heartbeat(Heartbeat(register)));
    assert_about(&table.current("k")["leasedUntil"], 10 * MINUTE);
    table.release("k", "me").ok();
    let found = native.ask(Request::LookUp(LookUp { key: b"k" }));
    assert!(matches!(found.response(), Response::LookedUp(found) if !found.found));
}

/// A client of another protocol writes a value that looks like a row and is none.
#[test]
fn a_value_that_is_no_row_is_not_shown() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    let mut native = native(&server);
    let other = row("other", "me", MINUTE).to_string();
    for value in ["", "{", "{\"key\": 1}", &other] {
        let register = Register {
            lease_ms: 600_000,
            key: b"k",
            owner: b"me",
            value: value.as_bytes(),
            type_name: b"dynamodb-row",
            ..Register::default()
        };
        native.ask(Request::Register(register));
        assert_eq!(table.current("k")["key"], json!({"S": "k"}), "{value}");
    }
}

/// A table is there once it was created, whether another protocol uses its namespace or not.
#[test]
fn a_namespace_of_another_protocol_is_no_table_until_it_is_created() {
    let server = Server::start(&PORT);
    let mut native = native(&server);
    native.ask(Request::Register(Register {
        lease_ms: 600_000,
        key: b"k",
        owner: b"me",
        ..Register::default()
    }));
    let mut table = Table::connect(&server);
    assert_eq!(table.acquire("k", "you", MINUTE).error(), "ResourceNotFoundException");
    let mut table = Table::create(&server);
    assert_eq!(table.acquire("k", "you", MINUTE).error(), FAILED);
    assert_eq!(table.ask("ListTables", &json!({})).ok(), json!({"TableNames": [TABLE]}));
}

/// The server keeps its tables in it.
#[test]
fn no_client_opens_the_namespace_of_tables() {
    let server = Server::start(&PORT);
    Table::create(&server);
    let mut native = server.stranger();
    let hello = Hello { kind: NamespaceKind::Registry, namespace: b"registry/dynamodb", ..default_hello() };
    assert_eq!(native.refused_hello(hello), (ErrorCode::BadInput, "namespace".to_owned()));
}

#[test]
fn a_frozen_lock_is_unavailable_for_a_while() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    table.acquire("held", "me", MINUTE).ok();
    let mut native = native(&server);
    native.ask(Request::Freeze(Freeze::default()));
    let refused = table.acquire("k", "me", MINUTE);
    assert_eq!((refused.status, refused.error().as_str()), (503, "ServiceUnavailableException"));
    table.heartbeat("held", "me", MINUTE).ok();
}
