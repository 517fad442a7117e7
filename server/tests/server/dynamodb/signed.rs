//! Signed requests: the identities of their keys, and the files of keys.

use super::client::{MINUTE, PORT, TABLE, Table, create};
use super::http::{Answer, Http};
use crate::access::Office;
use crate::authority::Authority;
use crate::harness::{Server, refused, wait_until};
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::SystemTime;
use time::OffsetDateTime;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Signs a request of an operation as SDKs do.
fn signed(id: &str, secret: &str, operation: &str, body: &str) -> String {
    let now = OffsetDateTime::from(SystemTime::now());
    let day = format!("{:04}{:02}{:02}", now.year(), u8::from(now.month()), now.day());
    let date = format!("{day}T{:02}{:02}{:02}Z", now.hour(), now.minute(), now.second());
    let target = format!("DynamoDB_20120810.{operation}");
    let names = "host;x-amz-date;x-amz-target";
    let canonical = format!(
        "POST\n/\n\nhost:localhost:8000\nx-amz-date:{date}\nx-amz-target:{target}\n\n{names}\n{}",
        hex(digest(&SHA256, body.as_bytes()).as_ref())
    );
    let scope = format!("{day}/eu-west-1/dynamodb/aws4_request");
    let text =
        format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(digest(&SHA256, canonical.as_bytes()).as_ref()));
    let key = [&day, "eu-west-1", "dynamodb", "aws4_request"]
        .iter()
        .fold(Key::new(HMAC_SHA256, format!("AWS4{secret}").as_bytes()), |key, part| {
            Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref())
        });
    let signature = hex(sign(&key, text.as_bytes()).as_ref());
    format!(
        "POST / HTTP/1.1\r\nHost: localhost:8000\r\nContent-Length: {}\r\nX-Amz-Date: {date}\r\nX-Amz-Target: {target}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\r\n{body}",
        body.len()
    )
}

/// A key for alice, and one for bob.
const KEYS: &str = "[[key]]\naccess_key_id = \"WAYMAKERALICE001\"\nsecret_access_key = \"alice-alice-alice-1\"\nidentity = \"alice\"\n\
[[key]]\naccess_key_id = \"WAYMAKERBOB00001\"\nsecret_access_key = \"bob-bob-bob-bob-1\"\nidentity = \"bob\"\n";

/// Asks with the key of alice or bob.
fn ask(http: &mut Http, who: &str, operation: &str, body: &Value) -> Answer {
    let (id, secret) = if who == "alice" {
        ("WAYMAKERALICE001", "alice-alice-alice-1")
    } else {
        ("WAYMAKERBOB00001", "bob-bob-bob-bob-1")
    };
    http.write(signed(id, secret, operation, &body.to_string()).as_bytes());
    http.answer()
}

/// A server with both keys and the rights that rules give to bob; alice has all of them.
fn server(office: &Office) -> Server {
    let keys = format!("--dynamodb-keys={}", office.write("keys.toml", KEYS).display());
    office.server(&[&PORT[..], &[&keys]].concat())
}

#[test]
fn a_signed_request_has_the_identity_of_its_key() {
    let office =
        Office::new("[[rule]]\nidentity = \"alice\"\nnamespace = \"lazy/clever/*\"\nallow = [\"all\"]\n");
    let server = server(&office);
    let mut http = Http::connect(&server);
    ask(&mut http, "alice", "CreateTable", &create(TABLE)).ok();
    assert_eq!(
        ask(&mut http, "bob", "DescribeTable", &json!({"TableName": TABLE})).error(),
        "AccessDeniedException"
    );
    ask(&mut http, "alice", "DescribeTable", &json!({"TableName": TABLE})).ok();
}

/// A table has the locks of all clients.
#[test]
fn a_table_is_deleted_only_by_who_may_release_all_its_locks() {
    for bob in [
        "allow = [\"list\", \"inspect\", \"acquire\", \"release_others\"]",
        "allow = [\"admin\", \"inspect\", \"acquire\", \"release_others\"]",
        "allow = [\"admin\", \"list\", \"acquire\", \"release_others\"]",
        "allow = [\"admin\", \"list\", \"inspect\", \"acquire\"]",
        "prefix = \"bob/\"\nallow = [\"all\"]",
    ] {
        let office = Office::new(&format!(
            "[[rule]]\nidentity = \"alice\"\nnamespace = \"lazy/clever/*\"\nallow = [\"all\"]\n\
             [[rule]]\nidentity = \"bob\"\nnamespace = \"lazy/clever/*\"\n{bob}\n"
        ));
        let server = server(&office);
        let table = Table::connect(&server);
        let mut http = Http::connect(&server);
        ask(&mut http, "alice", "CreateTable", &create(TABLE)).ok();
        ask(&mut http, "alice", "PutItem", &table.acquire_body("k", "me", MINUTE)).ok();
        let named = json!({"TableName": TABLE});
        assert_eq!(ask(&mut http, "bob", "DeleteTable", &named).error(), "AccessDeniedException", "{bob}");
        ask(&mut http, "alice", "PutItem", &table.acquire_body("k", "me", MINUTE)).ok();
        ask(&mut http, "alice", "DeleteTable", &named).ok();
    }
}

#[test]
fn changed_keys_apply_to_open_connections_and_broken_ones_do_not() {
    let office = Office::new("");
    let path = office.write("keys.toml", KEYS);
    let keys = format!("--dynamodb-keys={}", path.display());
    let server = Server::start_logged(&[&PORT[..], &[&keys]].concat());
    let mut http = Http::connect(&server);
    let list = |http: &mut Http, who| ask(http, who, "ListTables", &json!({})).status;
    assert_eq!((list(&mut http, "alice"), list(&mut http, "bob")), (200, 200));
    office.write("keys.toml", "[[key]]\nbroken");
    server.signal("HUP");
    wait_until("the file is refused", || server.log().contains("keys.toml"));
    assert_eq!((list(&mut http, "alice"), list(&mut http, "bob")), (200, 200));
    assert_eq!(Http::connect(&server).ask("ListTables", "{}").error(), "MissingAuthenticationTokenException");
    office.write("keys.toml", KEYS.split_once("[[key]]\naccess_key_id = \"WAYMAKERBOB").expect("two keys").0);
    server.signal("HUP");
    wait_until("the key is gone", || list(&mut http, "bob") == 400);
    assert_eq!(list(&mut http, "alice"), 200);
}

#[test]
fn a_changed_file_is_read_again_and_an_expired_key_is_refused() {
    let office = Office::new("");
    let server = server(&office);
    let mut http = Http::connect(&server);
    ask(&mut http, "alice", "ListTables", &json!({})).ok();
    office.write("keys.toml", &KEYS.replacen("identity", "expires = \"2026-01-01T00:00:00Z\"\nidentity", 1));
    wait_until("the file is read", || ask(&mut http, "alice", "ListTables", &json!({})).status == 400);
    assert_eq!(ask(&mut http, "alice", "ListTables", &json!({})).error(), "UnrecognizedClientException");
    ask(&mut http, "bob", "ListTables", &json!({})).ok();
    // The server looks at the files once after its start, changed or not; from then on only at changed ones.
    office.write("keys.toml", KEYS);
    wait_until("the file is read again", || ask(&mut http, "alice", "ListTables", &json!({})).status == 200);
}

#[test]
fn wrong_signatures_pause_their_address_but_not_right_ones() {
    let office = Office::new("");
    let keys = format!("--dynamodb-keys={}", office.write("keys.toml", KEYS).display());
    let server =
        Server::start(&[&PORT[..], &[&keys, "--limit-loopback", "--failed-logins-per-second=1"]].concat());
    let mut http = Http::connect(&server);
    for _ in 0..3 {
        assert_eq!(http.ask("ListTables", "{}").error(), "MissingAuthenticationTokenException");
    }
    ask(&mut http, "alice", "ListTables", &json!({})).ok();
    http.write(signed("WAYMAKERALICE001", "another secret 1", "ListTables", "{}").as_bytes());
    assert_eq!(http.answer().error(), "InvalidSignatureException");
    http.write(signed("WAYMAKERALICE001", "another secret 1", "ListTables", "{}").as_bytes());
    assert_eq!(http.answer().error(), "ThrottlingException");
    // Otherwise a client could end the heartbeats of all others at its address.
    ask(&mut http, "alice", "ListTables", &json!({})).ok();
}

#[test]
fn an_open_address_needs_the_credentials_of_its_protocol() {
    let authority = Authority::new();
    let issued = authority.issue("localhost");
    let office = Office::new("");
    let keys = format!("--dynamodb-keys={}", office.write("keys.toml", KEYS).display());
    let tokens = office.arguments();
    let tls = [format!("--tls-cert={}", issued.cert()), format!("--tls-key={}", issued.key())];
    let log = |more: &[&str]| {
        let mut all = vec!["--data-dir=none", &*tls[0], &*tls[1]];
        all.extend(more);
        let (status, log) = refused(&all);
        assert!(!status.success(), "{log}");
        log
    };
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let refused = log(&[&["--dynamodb-listen=0.0.0.0:0"], &tokens[..]].concat());
    assert!(refused.contains("set --dynamodb-keys or --tls-client-ca"), "{refused}");
    // Keys are no credentials of the other ports.
    let refused = log(&["--grpc-listen=0.0.0.0:0", &keys]);
    assert!(refused.contains("set --tokens or --tls-client-ca"), "{refused}");
    // The first address is safe, the second is not.
    let refused = log(&[&["--grpc-listen=0.0.0.0:0", "--dynamodb-listen=0.0.0.0:0"], &tokens[..]].concat());
    assert!(refused.contains("--dynamodb-listen: 0.0.0.0:0"), "{refused}");
}
