//! A client that sends what Clever's package sends.

use super::http::{Answer, Http};
use crate::harness::Server;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub(super) const PORT: [&str; 2] = ["--dynamodb-listen", "127.0.0.1:0"];
pub(super) const TABLE: &str = "locks";
pub(super) const MINUTE: i64 = 60;
/// Error of a condition that does not hold.
pub(super) const FAILED: &str = "ConditionalCheckFailedException";

/// The condition of AcquireLock and ReleaseLock.
const TAKE: &str = "(attribute_not_exists (#0)) OR (#1 < :0) OR (#2 = :1)";

/// The text of an instant this many seconds from now.
pub(super) fn in_seconds(seconds: i64) -> String {
    let now = OffsetDateTime::from(SystemTime::now());
    let instant = now.checked_add(time::Duration::seconds(seconds)).expect("a time");
    instant.format(&Rfc3339).expect("a time")
}

/// A client of one table on a connection of its own.
pub(super) struct Table {
    http: Http,
    name: String,
}

impl Table {
    /// Connects, and creates the table.
    pub(super) fn create(server: &Server) -> Self {
        let mut table = Self::connect(server);
        table.ask("CreateTable", &create(TABLE)).ok();
        table
    }

    /// Connects to a server that has the table.
    pub(super) fn connect(server: &Server) -> Self {
        Self { http: Http::connect(server), name: TABLE.to_owned() }
    }

    pub(super) fn ask(&mut self, operation: &str, body: &Value) -> Answer {
        self.http.ask(operation, &body.to_string())
    }

    /// The body of an acquire.
    pub(super) fn acquire_body(&self, key: &str, owner: &str, lease_s: i64) -> Value {
        json!({
            "TableName": self.name,
            "Item": row(key, owner, lease_s),
            "ConditionExpression": TAKE,
            "ExpressionAttributeNames": {"#0": "key", "#1": "leasedUntil", "#2": "owner"},
            "ExpressionAttributeValues": {":0": {"S": in_seconds(-5)}, ":1": {"S": owner}},
        })
    }

    pub(super) fn acquire(&mut self, key: &str, owner: &str, lease_s: i64) -> Answer {
        let body = self.acquire_body(key, owner, lease_s);
        self.ask("PutItem", &body)
    }

    pub(super) fn heartbeat(&mut self, key: &str, owner: &str, lease_s: i64) -> Answer {
        let body = json!({
            "TableName": self.name,
            "Item": row(key, owner, lease_s),
            "ConditionExpression": "#0 = :0",
            "ExpressionAttributeNames": {"#0": "owner"},
            "ExpressionAttributeValues": {":0": {"S": owner}},
        });
        self.ask("PutItem", &body)
    }

    pub(super) fn release_body(&self, key: &str, owner: &str) -> Value {
        let mut body = self.acquire_body(key, owner, 0);
        body.as_object_mut().expect("an object").remove("Item");
        body["Key"] = json!({"key": {"S": key}});
        body
    }

    pub(super) fn release(&mut self, key: &str, owner: &str) -> Answer {
        let body = self.release_body(key, owner);
        self.ask("DeleteItem", &body)
    }

    /// The row of a key, or null.
    pub(super) fn current(&mut self, key: &str) -> Value {
        let body = json!({"TableName": self.name, "Key": {"key": {"S": key}}, "ConsistentRead": true});
        self.ask("GetItem", &body).ok()["Item"].clone()
    }
}

/// A row that the package writes.
pub(super) fn row(key: &str, owner: &str, lease_s: i64) -> Value {
    json!({
        "key": {"S": key}, "owner": {"S": owner}, "leasedUntil": {"S": in_seconds(lease_s)},
        "createdAt": {"S": in_seconds(0)}, "ttl": {"S": in_seconds(lease_s + 48 * 3600)},
    })
}

/// The body of CreateTable.
pub(super) fn create(name: &str) -> Value {
    json!({
        "TableName": name,
        "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
    })
}

/// Asserts that a text is an instant about this many seconds from now.
pub(super) fn assert_about(text: &Value, seconds: i64) {
    let text = text["S"].as_str().unwrap_or_else(|| panic!("{text}"));
    let instant = OffsetDateTime::parse(text, &Rfc3339).expect(text);
    let expected = OffsetDateTime::from(SystemTime::now()) + time::Duration::seconds(seconds);
    assert!((instant - expected).unsigned_abs() < Duration::from_secs(60), "{text} is not {expected}");
}
