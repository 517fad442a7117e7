//! Tables, and the rows in them.

use super::client::{FAILED, MINUTE, PORT, TABLE, Table, assert_about, create, in_seconds, row};
use super::http::{Http, request};
use crate::harness::{Server, default_hello, wait_until};
use serde_json::{Value, json};
use std::thread;
use waymaker_protocol::{Hello, Namespaces, Request, Response};

#[test]
fn a_lock_is_taken_kept_and_released_by_its_owner_alone() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    assert_eq!(table.heartbeat("k", "me", MINUTE).error(), FAILED);
    assert_eq!(table.acquire("k", "me", MINUTE).ok(), json!({}));
    assert_eq!(table.acquire("k", "you", MINUTE).error(), FAILED);
    assert_eq!(table.heartbeat("k", "you", MINUTE).error(), FAILED);
    assert_eq!(table.release("k", "you").error(), FAILED);
    assert_eq!(table.heartbeat("k", "me", 10 * MINUTE).ok(), json!({}));
    assert_about(&table.current("k")["leasedUntil"], 10 * MINUTE);
    table.acquire("k", "me", 2 * MINUTE).ok();
    assert_about(&table.current("k")["leasedUntil"], 2 * MINUTE);
    assert_eq!(table.release("k", "me").ok(), json!({}));
    assert_eq!(table.release("k", "me").ok(), json!({}));
    assert_eq!(table.current("k"), Value::Null);
}

#[test]
fn another_owner_takes_over_once_lease_and_grace_are_over() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    for (lease_s, is_over) in [(MINUTE, false), (0, false), (-6, true), (-100 * MINUTE, true)] {
        table.acquire("k", "me", lease_s).ok();
        assert_eq!(table.acquire("k", "you", MINUTE).status == 200, is_over, "{lease_s}");
        table.release("k", if is_over { "you" } else { "me" }).ok();
    }
    table.acquire("k", "me", -6).ok();
    assert_eq!(table.heartbeat("k", "me", -6).ok(), json!({}));
    assert_eq!(table.release("k", "you").ok(), json!({}), "a late lock can be released by everybody");
    assert_eq!(table.heartbeat("k", "me", MINUTE).error(), FAILED);
}

/// The client's clock decides nothing: not the instant of its condition either.
#[test]
fn the_instant_of_the_condition_takes_no_lock_away() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    table.acquire("k", "me", MINUTE).ok();
    let mut body = table.acquire_body("k", "you", MINUTE);
    body["ExpressionAttributeValues"][":0"] = json!({"S": in_seconds(100 * MINUTE)});
    assert_eq!(table.ask("PutItem", &body).error(), FAILED);
}

#[test]
fn a_row_comes_back_attribute_by_attribute() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    let mut body = table.acquire_body("ключ", "größe", MINUTE);
    let item = &mut body["Item"];
    item["leasedUntil"] = json!({"S": in_seconds(MINUTE).replace('Z', "+00:00")});
    item["createdAt"] = json!({"N": "1795986000.50"});
    item["note"] = json!({"M": {"a": {"L": [{"NULL": true}, {"B": "AP8="}]}, "b": {"SS": ["x", "y"]}}});
    item.as_object_mut().expect("an object").remove("ttl");
    let item = item.clone();
    table.ask("PutItem", &body).ok();
    assert_eq!(table.current("ключ"), item);
}

/// SDKs write the members of an object in any order, and one writes them in another order in each request.
#[test]
fn members_come_in_any_order() {
    let server = Server::start(&PORT);
    let table = Table::create(&server);
    let body = table.acquire_body("k", "me", MINUTE);
    let members: Vec<_> = body.as_object().expect("an object").iter().collect();
    let mut http = Http::connect(&server);
    for first in 0..members.len() {
        let rotated = members[first..].iter().chain(&members[..first]);
        let texts: Vec<_> = rotated.map(|(name, value)| format!("\"{name}\": {value}")).collect();
        http.ask("PutItem", &format!("{{{}}}", texts.join(","))).ok();
    }
}

#[test]
fn bodies_come_in_chunks_after_a_question_or_close_behind_each_other() {
    let server = Server::start(&PORT);
    let table = Table::create(&server);
    let body = table.acquire_body("k", "me", MINUTE).to_string();
    let mut http = Http::connect(&server);
    let head = |more: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\n{more}\r\n\r\n"
        )
    };
    let (first, second) = body.split_at(7);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    http.write(format!("{}{chunks}", head("Transfer-Encoding: chunked")).as_bytes());
    http.answer().ok();
    http.write(head(&format!("Expect: 100-continue\r\nContent-Length: {}", body.len())).as_bytes());
    assert_eq!(http.answer().status, 100);
    http.write(body.as_bytes());
    http.answer().ok();
    http.write(request("PutItem", &body).repeat(20).as_bytes());
    (0..20).for_each(|_| drop(http.answer().ok()));
}

#[test]
fn tables_are_created_described_listed_and_deleted() {
    for server in servers() {
        let mut table = Table::create(&server);
        assert_eq!(table.ask("CreateTable", &create(TABLE)).error(), "ResourceInUseException");
        let named = json!({"TableName": TABLE});
        let described = table.ask("DescribeTable", &named).ok();
        assert_eq!(described["Table"]["TableStatus"], "ACTIVE");
        assert_eq!(described["Table"]["KeySchema"], create(TABLE)["KeySchema"]);
        let created = described["Table"]["CreationDateTime"].as_f64().expect("a time");
        assert!(created > 1.7e9, "{described}");
        for number in 0..150 {
            table.acquire(&format!("k{number}"), "me", MINUTE).ok();
        }
        assert_eq!(table.ask("DeleteTable", &named).ok()["TableDescription"]["TableStatus"], "DELETING");
        for operation in ["DescribeTable", "DeleteTable"] {
            assert_eq!(table.ask(operation, &named).error(), "ResourceNotFoundException");
        }
        assert_eq!(table.acquire("k", "me", MINUTE).error(), "ResourceNotFoundException");
        table.ask("CreateTable", &create(TABLE)).ok();
        assert_eq!(table.current("k7"), Value::Null);
    }
}

fn servers() -> impl Iterator<Item = Server> {
    ["1", "3"].into_iter().map(|workers| Server::start(&[&PORT[..], &["--workers", workers]].concat()))
}

/// Otherwise the deletion of the old table would release the locks of the new one.
#[test]
fn the_locks_of_a_new_table_survive_the_deletion_of_the_old_one() {
    for server in servers() {
        let mut table = Table::create(&server);
        for number in 0..1_000 {
            table.acquire(&format!("old{number}"), "old", MINUTE).ok();
        }
        let (mut deleting, named) = (Table::connect(&server), json!({"TableName": TABLE}));
        thread::scope(|scope| {
            scope.spawn(|| deleting.ask("DeleteTable", &named).ok());
            wait_until("the old table is gone", || table.ask("CreateTable", &create(TABLE)).status == 200);
            for number in 0..20 {
                table.acquire(&format!("new{number}"), "new", MINUTE).ok();
            }
        });
        for number in 0..20 {
            assert_eq!(table.acquire(&format!("new{number}"), "other", MINUTE).error(), FAILED);
        }
        assert_eq!(table.current("old7"), Value::Null);
    }
}

/// The deletion ends though its client left.
#[test]
fn a_table_is_deleted_once_its_deletion_has_begun() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    for number in 0..500 {
        table.acquire(&format!("k{number}"), "me", MINUTE).ok();
    }
    let named = json!({"TableName": TABLE});
    let mut leaving = Http::connect(&server);
    leaving.write(request("DeleteTable", &named.to_string()).as_bytes());
    drop(leaving);
    wait_until("the table is gone", || table.ask("DescribeTable", &named).status == 400);
    table.ask("CreateTable", &create(TABLE)).ok();
    assert_eq!(table.current("k499"), Value::Null);
}

#[test]
fn a_namespace_of_another_kind_is_no_table() {
    let server = Server::start(&PORT);
    let mut native = server.stranger();
    native.open(Hello { namespace: b"lazy/clever/locks", ..default_hello() });
    let mut table = Table::connect(&server);
    let refused = table.ask("CreateTable", &create(TABLE));
    assert_eq!(refused.error(), "ValidationException");
    assert!(refused.body.contains("has kind flat, not lazy"), "{refused:?}");
    assert_eq!(table.ask("ListTables", &json!({})).ok(), json!({"TableNames": []}));
}

#[test]
fn a_table_without_locks_does_not_delay_a_stop() {
    let mut server = Server::start(&[&PORT[..], &["--drain", "1h"]].concat());
    Table::create(&server);
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn settings_that_ask_for_nothing_are_accepted() {
    let server = Server::start(&PORT);
    let mut table = Table::connect(&server);
    let mut body = create(TABLE);
    body["StreamSpecification"] = json!({"StreamEnabled": true});
    assert!(table.ask("CreateTable", &body).body.contains("StreamSpecification.StreamEnabled"));
    body["StreamSpecification"] = json!({"StreamEnabled": false});
    body["DeletionProtectionEnabled"] = json!(true);
    assert!(table.ask("CreateTable", &body).body.contains("DeletionProtectionEnabled"));
    body["DeletionProtectionEnabled"] = json!(false);
    table.ask("CreateTable", &body).ok();
}

#[test]
fn tables_are_listed_in_parts() {
    let server = Server::start(&PORT);
    let mut table = Table::connect(&server);
    for number in [3, 1, 2, 5, 4] {
        table.ask("CreateTable", &create(&format!("table{number}"))).ok();
    }
    let mut list = |body: &Value| table.ask("ListTables", body).ok();
    let first = list(&json!({"Limit": 2}));
    assert_eq!(first, json!({"TableNames": ["table1", "table2"], "LastEvaluatedTableName": "table2"}));
    let rest = list(&json!({"Limit": 3, "ExclusiveStartTableName": "table2"}));
    assert_eq!(rest, json!({"TableNames": ["table3", "table4", "table5"]}));
    assert_eq!(list(&json!({})).get("LastEvaluatedTableName"), None);
}

#[test]
fn a_declared_namespace_is_a_table_that_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("waymaker.toml");
    let declared = "[[namespace]]\nname = \"lazy/clever/locks\"\nkind = \"lazy\"\n";
    std::fs::write(&path, declared).expect("a file");
    let config = format!("--config={}", path.display());
    let server = Server::start(&[&PORT[..], &[&config]].concat());
    let mut table = Table::connect(&server);
    table.acquire("k", "me", MINUTE).ok();
    assert_eq!(table.ask("ListTables", &json!({})).ok(), json!({"TableNames": [TABLE]}));
    for (operation, body) in [("DeleteTable", json!({"TableName": TABLE})), ("CreateTable", create(TABLE))] {
        assert_eq!(table.ask(operation, &body).error(), "ResourceInUseException");
    }
    assert_eq!(table.current("k")["owner"], row("k", "me", 0)["owner"]);
}

#[test]
fn locks_and_tables_outlive_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = format!("--data-dir={}", directory.path().display());
    let arguments = [&PORT[..], &[&data]].concat();
    let server = Server::start(&arguments);
    let mut table = Table::create(&server);
    table.acquire("k", "me", MINUTE).ok();
    let before = table.current("k");
    // The end of the value kills the process.
    drop(server);
    let server = Server::start(&arguments);
    let mut table = Table::connect(&server);
    assert_eq!(table.current("k"), before);
    assert_eq!(table.acquire("k", "you", MINUTE).error(), FAILED);
    table.heartbeat("k", "me", MINUTE).ok();
}

#[test]
fn tables_have_a_maximum_and_a_declared_one_is_listed_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = format!("--data-dir={}", directory.path().join("data").display());
    let server = Server::start(&[&PORT[..], &[&data]].concat());
    let mut table = Table::connect(&server);
    for number in 0..1_000 {
        table.ask("CreateTable", &create(&format!("t{number:0>4}"))).ok();
    }
    assert_eq!(table.ask("CreateTable", &create("t1000")).error(), "LimitExceededException");
    drop(server);
    let path = directory.path().join("waymaker.toml");
    std::fs::write(&path, "[[namespace]]\nname = \"lazy/clever/t0000\"\nkind = \"lazy\"\n").expect("a file");
    let config = format!("--config={}", path.display());
    let server = Server::start(&[&PORT[..], &[&data, &config]].concat());
    let mut table = Table::connect(&server);
    let names = table.ask("ListTables", &json!({"Limit": 2})).ok()["TableNames"].clone();
    assert_eq!(names, json!(["t0000", "t0001"]));
}

/// A server can make a limited number of namespaces until its next start, so a table keeps its own while it has no locks.
#[test]
fn idle_tables_keep_their_namespaces() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = format!("--data-dir={}", directory.path().display());
    let arguments = [&PORT[..], &[&data, "--limits-namespace-idle=1s"]].concat();
    let server = Server::start(&arguments);
    Table::create(&server);
    drop(server);
    let server = Server::start(&arguments);
    let mut table = Table::connect(&server);
    table.ask("CreateTable", &create("fresh")).ok();
    let mut idle = server.stranger();
    idle.open(Hello { namespace: b"idle", ..default_hello() });
    drop(idle);
    let mut native = server.stranger();
    native.open(default_hello());
    let mut has = |name: &str| {
        let listed = native.ask(Request::Namespaces(Namespaces::default()));
        let Response::NamespacesListed(listed) = listed.response() else { panic!("{listed:?}") };
        listed.namespaces.iter().any(|namespace| namespace.name == name.as_bytes())
    };
    wait_until("the idle namespace is gone", || !has("idle"));
    for name in [TABLE, "fresh"] {
        let namespace = format!("lazy/clever/{name}");
        assert!(has(&namespace));
        table.ask("DeleteTable", &json!({"TableName": name})).ok();
        wait_until("the namespace of the table is gone", || !has(&namespace));
    }
}
