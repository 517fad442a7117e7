//! Who may use the port: identities, their rights, and signatures.

use super::client::{MINUTE, PORT, TABLE, Table, create};
use super::http::{Http, request};
use crate::access::Office;
use crate::harness::{Server, refused, wait_for};
use serde_json::json;
use std::fs::read_to_string;

const DENIED: &str = "AccessDeniedException";

/// Asks everything that some right allows, and returns the served requests.
fn served(server: &Server) -> Vec<&'static str> {
    let mut table = Table::connect(server);
    let named = json!({"TableName": "locks"});
    let asked = [
        ("acquire", table.acquire("k", "me", MINUTE)),
        ("heartbeat", table.heartbeat("k", "me", MINUTE)),
        ("get", table.ask("GetItem", &json!({"TableName": "locks", "Key": {"key": {"S": "k"}}}))),
        ("release", table.release("k", "me")),
        ("describe", table.ask("DescribeTable", &named)),
        ("create", table.ask("CreateTable", &create("other"))),
        ("delete", table.ask("DeleteTable", &json!({"TableName": "other"}))),
    ];
    let is_served = |(name, answer): (&'static str, super::http::Answer)| match answer.status {
        200 => Some(name),
        _ => {
            assert_eq!(answer.error(), DENIED, "{name}");
            None
        }
    };
    asked.into_iter().filter_map(is_served).collect()
}

#[test]
fn each_operation_needs_its_right() {
    for (rights, expected) in [
        ("\"acquire\"", &["acquire", "heartbeat", "release"][..]),
        ("\"inspect\"", &["get", "describe"]),
        ("\"admin\", \"list\", \"inspect\"", &["get", "describe", "create"]),
        ("\"admin\", \"list\", \"inspect\", \"release_others\"", &["get", "describe", "create", "delete"]),
        ("\"freeze\"", &[]),
        ("\"all\"", &["acquire", "heartbeat", "get", "release", "describe", "create", "delete"]),
    ] {
        let declared = "[[namespace]]\nname = \"lazy/clever/locks\"\nkind = \"lazy\"\n";
        let rule = format!(
            "anonymous = \"app\"\n[[rule]]\nidentity = \"app\"\nnamespace = \"lazy/clever/*\"\nallow = [{rights}]\n"
        );
        let office = Office::new(&rule);
        let config = format!("--config={}", office.write("waymaker.toml", declared).display());
        let server = office.server(&[&PORT[..], &[&config]].concat());
        assert_eq!(served(&server), expected, "{rights}");
    }
}

/// A table has the locks of all clients.
#[test]
fn a_right_for_some_keys_is_none_for_a_table() {
    let office = Office::new(
        "anonymous = \"app\"\n[[rule]]\nidentity = \"app\"\nnamespace = \"lazy/clever/locks\"\nprefix = \"a/\"\nallow = [\"all\"]\n",
    );
    let declared = "[[namespace]]\nname = \"lazy/clever/locks\"\nkind = \"lazy\"\n";
    let config = format!("--config={}", office.write("waymaker.toml", declared).display());
    let server = office.server(&[&PORT[..], &[&config]].concat());
    let mut table = Table::connect(&server);
    table.acquire("a/k", "me", MINUTE).ok();
    assert_eq!(table.acquire("b/k", "me", MINUTE).error(), DENIED);
    for (operation, body) in
        [("CreateTable", create("locks")), ("DeleteTable", json!({"TableName": "locks"}))]
    {
        let refused = table.ask(operation, &body);
        assert_eq!(refused.error(), DENIED);
        assert!(refused.body.contains("`admin`"), "{refused:?}");
    }
    table.acquire("a/k", "me", MINUTE).ok();
}

#[test]
fn changes_of_tables_are_in_the_audit_log() {
    let office = Office::new("");
    let path = office.write("audit.jsonl", "");
    let audit = format!("--audit={}", path.display());
    let server = Server::start(&[&PORT[..], &[&audit]].concat());
    let mut table = Table::create(&server);
    table.ask("DeleteTable", &json!({"TableName": "locks"})).ok();
    for act in ["create-table", "delete-table"] {
        let line = wait_for(act, || {
            let lines = read_to_string(&path).expect("the audit log");
            lines.lines().find(|line| line.contains(&format!("\"act\":\"{act}\""))).map(str::to_owned)
        });
        assert!(
            line.contains("\"namespace\":\"lazy/clever/locks\"") && line.contains("\"result\":\"done\""),
            "{line}"
        );
        assert!(line.contains("\"front_end\":\"dynamodb\""), "{line}");
    }
}

/// A client without a right in a table does not learn whether there is one.
#[test]
fn a_table_without_a_right_looks_like_one_that_is_missing() {
    let office = Office::new(
        "anonymous = \"app\"\n[[rule]]\nidentity = \"app\"\nnamespace = \"lazy/clever/own*\"\nallow = [\"all\"]\n",
    );
    let server = office.server(&PORT);
    let mut table = Table::connect(&server);
    table.ask("CreateTable", &create("own1")).ok();
    assert_eq!(table.ask("CreateTable", &create("locks")).error(), DENIED);
    assert_eq!(table.acquire("k", "me", MINUTE).error(), DENIED);
    assert_eq!(table.ask("DescribeTable", &json!({"TableName": "locks"})).error(), DENIED);
    assert_eq!(
        table.ask("DescribeTable", &json!({"TableName": "own2"})).error(),
        "ResourceNotFoundException"
    );
    assert_eq!(table.ask("ListTables", &json!({})).ok(), json!({"TableNames": ["own1"]}));
}

#[test]
fn an_open_address_needs_keys_or_insecure() {
    let (status, log) = refused(&["--dynamodb-listen", "0.0.0.0:0"]);
    assert!(!status.success(), "{log}");
    assert!(log.contains("--dynamodb-listen: 0.0.0.0:0 is not a loopback address"), "{log}");
    assert!(log.contains("--dynamodb-keys or --tls-client-ca"), "{log}");
}

#[test]
fn with_keys_every_request_has_to_be_signed() {
    let office = Office::new("");
    let keys = "[[key]]\naccess_key_id = \"WAYMAKERBILLING1\"\nsecret_access_key = \"wJalrXUtnFEMI/K7MDENG\"\nidentity = \"billing\"\n";
    let keys = format!("--dynamodb-keys={}", office.write("keys.toml", keys).display());
    let server = Server::start(&[&PORT[..], &[&keys]].concat());
    let signed = |authorization: &str| {
        let header =
            format!("\r\nX-Amz-Date: 20261129T210000Z\r\nAuthorization: {authorization}\r\nUser-Agent");
        let mut http = Http::connect(&server);
        http.write(request("ListTables", "{}").replacen("\r\nUser-Agent", &header, 1).as_bytes());
        http.answer().error()
    };
    assert_eq!(Http::connect(&server).ask("ListTables", "{}").error(), "MissingAuthenticationTokenException");
    assert_eq!(signed("Bearer abc"), "IncompleteSignatureException");
    let scope = "20261129/eu-west-1/dynamodb/aws4_request";
    let headers = "SignedHeaders=host;x-amz-date;x-amz-target";
    let wrong = "0".repeat(64);
    let by = |id: &str| format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, {headers}, Signature={wrong}");
    assert_eq!(signed(&by("WAYMAKERBILLING1")), "InvalidSignatureException");
    assert_eq!(signed(&by("WAYMAKERBILLING2")), "UnrecognizedClientException");
}

#[test]
fn a_key_without_a_right_is_denied_and_quotas_throttle() {
    let office = Office::new(
        "anonymous = \"app\"\n[[rule]]\nidentity = \"app\"\nnamespace = \"lazy/clever/*\"\nallow = [\"admin\"]\n\
         [[rule]]\nidentity = \"app\"\nnamespace = \"lazy/clever/*\"\nprefix = \"own/\"\nallow = [\"all\"]\n\
         [[quota]]\nidentity = \"app\"\nclaims = 1\n",
    );
    let server = office.server(&PORT);
    let mut table = Table::connect(&server);
    table.ask("CreateTable", &create(TABLE)).ok();
    assert_eq!(table.acquire("k", "me", MINUTE).error(), "AccessDeniedException");
    table.acquire("own/1", "me", MINUTE).ok();
    assert_eq!(table.acquire("own/2", "me", MINUTE).error(), "ThrottlingException");
    table.acquire("own/1", "me", MINUTE).ok();
}

#[test]
fn with_tokens_alone_no_client_is_known() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n");
    let server = office.server(&PORT);
    let refused = Http::connect(&server).ask("ListTables", "{}");
    assert_eq!(refused.error(), "UnrecognizedClientException");
    assert!(refused.body.contains("--dynamodb-keys"), "{refused:?}");
}
