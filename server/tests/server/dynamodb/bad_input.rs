//! Wrong requests: each gets an error of DynamoDB, changes nothing, and disturbs no other client.

use super::client::{FAILED, MINUTE, PORT, TABLE, Table, create};
use super::http::{Http, request};
use crate::harness::Server;
use serde_json::{Value, json};

/// Sets a value in a body, or removes it if the value is null.
fn with(mut body: Value, path: &str, value: Value) -> Value {
    let (parent, name) = path.rsplit_once('/').expect("a path");
    let parent = body.pointer_mut(parent).and_then(Value::as_object_mut).expect(path);
    if value.is_null() {
        parent.remove(name)
    } else {
        parent.insert(name.to_owned(), value)
    };
    body
}

#[test]
fn a_wrong_request_is_named_and_changes_nothing() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    table.acquire("k", "me", MINUTE).ok();
    let before = table.current("k");
    let put = table.acquire_body("k", "me", 10 * MINUTE);
    let delete = table.release_body("k", "me");
    let deep = format!("{}owner = :1{}", "(".repeat(40), ")".repeat(40));
    let long = format!("owner = :1{}", " ".repeat(5_000));
    let text = |len| json!({"S": "x".repeat(len)});
    for (path, value, error) in [
        ("/TableName", json!("unknown"), "ResourceNotFoundException"),
        ("/TableName", Value::Null, "ValidationException"),
        ("/TableName", json!("a b c"), "ValidationException"),
        ("/TableName", json!(7), "SerializationException"),
        ("/Item", Value::Null, "ValidationException"),
        ("/Item", json!("row"), "SerializationException"),
        ("/Item/key", Value::Null, "ValidationException"),
        ("/Item/key", text(0), "ValidationException"),
        ("/Item/key", text(1_025), "ValidationException"),
        ("/Item/key", json!({"N": "7"}), "ValidationException"),
        ("/Item/key", json!({"S": 7}), "ValidationException"),
        ("/Item/owner", Value::Null, "ValidationException"),
        ("/Item/owner", text(0), "ValidationException"),
        ("/Item/owner", json!({"S": "you"}), "ValidationException"),
        ("/Item/leasedUntil", json!({"S": "soon"}), "ValidationException"),
        ("/Item/leasedUntil", json!({"N": "1795986000"}), "ValidationException"),
        ("/Item/note", text(5_000), "ValidationException"),
        ("/Item/note", json!({"X": 1}), "ValidationException"),
        ("/ConditionExpression", Value::Null, "ValidationException"),
        ("/ConditionExpression", json!(""), "ValidationException"),
        ("/ConditionExpression", json!("(#2 = :1"), "ValidationException"),
        ("/ConditionExpression", json!("#2 = :1"), "ValidationException"),
        (
            "/ConditionExpression",
            json!("attribute_not_exists(#0) OR #1 < :0 OR begins_with(#2, :1)"),
            "ValidationException",
        ),
        ("/ConditionExpression", json!(deep), "ValidationException"),
        ("/ConditionExpression", json!(long), "ValidationException"),
        ("/ExpressionAttributeNames", json!([]), "SerializationException"),
        ("/ExpressionAttributeNames/#3", json!("unused"), "ValidationException"),
        ("/ExpressionAttributeValues/:1", Value::Null, "ValidationException"),
        ("/ReturnValues", json!("ALL_OLD"), "ValidationException"),
        ("/Unknown", json!(true), "ValidationException"),
    ] {
        let answer = table.ask("PutItem", &with(put.clone(), path, value.clone()));
        assert_eq!((answer.status, answer.error().as_str()), (400, error), "{path} {value}: {answer:?}");
    }
    for (path, value) in [
        ("/Key", Value::Null),
        ("/Key/key", text(0)),
        ("/Key/owner", text(1)),
        ("/ConditionExpression", Value::Null),
        ("/ExpressionAttributeValues/:1", text(0)),
    ] {
        let answer = table.ask("DeleteItem", &with(delete.clone(), path, value.clone()));
        assert_eq!(answer.error(), "ValidationException", "{path} {value}: {answer:?}");
    }
    for (operation, error) in [
        ("Scan", "UnknownOperationException"),
        ("UpdateItem", "UnknownOperationException"),
        ("TransactWriteItems", "UnknownOperationException"),
        ("putItem", "UnknownOperationException"),
        ("", "UnknownOperationException"),
    ] {
        assert_eq!(table.ask(operation, &put).error(), error, "{operation}");
    }
    let other = with(create("other"), "/KeySchema", json!([{"AttributeName": "id", "KeyType": "HASH"}]));
    assert_eq!(table.ask("CreateTable", &other).error(), "ValidationException");
    assert_eq!(table.ask("ListTables", &json!({})).ok(), json!({"TableNames": [TABLE]}));
    assert_eq!(table.current("k"), before);
    assert_eq!(table.acquire("k", "you", MINUTE).error(), FAILED);
}

#[test]
fn a_body_that_is_no_json_or_too_long_is_refused() {
    let server = Server::start(&PORT);
    let mut http = Http::connect(&server);
    for body in ["", "[]", "null", "{", "\u{0}", &format!("{{\"a\":{}}}", "[".repeat(10_000))] {
        let answer = http.ask("PutItem", body);
        assert_eq!((answer.status, answer.error().as_str()), (400, "SerializationException"), "{body:.20}");
    }
    for length in ["Content-Length: 1000000000", "Expect: 100-continue\r\nContent-Length: 16385"] {
        let mut http = Http::connect(&server);
        http.write(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n").as_bytes());
        let answer = http.answer();
        assert_eq!((answer.status, answer.error().as_str()), (413, "RequestEntityTooLargeException"));
    }
    let mut http = Http::connect(&server);
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 17 << 10, " ".repeat(17 << 10));
    http.write(
        format!("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}").as_bytes(),
    );
    assert_eq!(http.answer().error(), "RequestEntityTooLargeException");
    let mut http = Http::connect(&server);
    http.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    assert_eq!(http.answer().status, 400);
    Http::connect(&server).ask("ListTables", "{}").ok();
}

/// An SDK writes a character beyond ASCII with six bytes.
#[test]
fn the_longest_row_of_escaped_characters_is_served() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    let mut body = table.acquire_body("k", "me", MINUTE);
    let len = body["Item"].to_string().len();
    body["Item"]["note"] = json!({"S": "ü".repeat((4096 - len - 20) / 2)});
    let escaped = body.to_string().replace('ü', "\\u00fc");
    Http::connect(&server).ask("PutItem", &escaped).ok();
    assert_eq!(table.current("k"), body["Item"]);
}

#[test]
fn a_message_is_short_even_if_the_request_is_not() {
    let server = Server::start(&PORT);
    let mut table = Table::create(&server);
    for (path, value) in [
        ("/Item/note", json!({"X".repeat(3_000): "a"})),
        ("/Item/leasedUntil", json!({"S": "\u{1}".repeat(600)})),
        ("/ExpressionAttributeValues/:0", json!({"S": "\u{1}".repeat(2_000)})),
        (&*format!("/{}", "x".repeat(10_000)), json!(1)),
    ] {
        let body = with(table.acquire_body("k", "me", MINUTE), path, value);
        let answer = table.ask("PutItem", &body);
        assert_eq!(answer.error(), "ValidationException", "{path:.40}");
        assert!(answer.body.len() < 4_000, "{} bytes", answer.body.len());
    }
}

#[test]
fn other_paths_and_methods_are_refused_with_what_is_served() {
    let server = Server::start(&PORT);
    for line in ["GET / HTTP/1.1", "PUT / HTTP/1.1", "POST /locks HTTP/1.1", "GET /metrics HTTP/1.1"] {
        let mut http = Http::connect(&server);
        http.write(format!("{line}\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").as_bytes());
        let answer = http.answer();
        assert_eq!(answer.error(), "UnknownOperationException", "{line}");
        assert!(answer.body.contains("POST /"), "{answer:?}");
    }
    for path in ["/healthz", "/readyz"] {
        let mut http = Http::connect(&server);
        http.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert_eq!(http.answer().status, 200, "{path}");
    }
}

/// A web page that a browser shows on this machine cannot use the port.
#[test]
fn a_page_of_another_origin_is_refused() {
    let server = Server::start(&PORT);
    let page = request("ListTables", "{}");
    for (from, to) in [
        ("Host: localhost:8000", "Host: evil.example"),
        ("\r\nUser-Agent", "\r\nOrigin: http://evil.example\r\nUser-Agent"),
    ] {
        let mut http = Http::connect(&server);
        http.write(page.replacen(from, to, 1).as_bytes());
        assert!([403, 421].contains(&http.answer().status), "{to}");
    }
}

#[test]
fn a_late_body_is_a_timeout() {
    let server = Server::start(&PORT);
    let mut http = Http::connect(&server);
    http.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2\r\n\r\n{");
    assert_eq!(http.answer().status, 408);
}
