//! A client of DynamoDB that sends what Clever's Go package sends, for tests of locks that several protocols use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The port, as arguments of a server.
pub(crate) const PORT: [&str; 2] = ["--dynamodb-listen", "127.0.0.1:0"];

const CONDITION: &str = r##""ConditionExpression":"(attribute_not_exists (#0)) OR (#1 < :0) OR (#2 = :1)","ExpressionAttributeNames":{"#0":"key","#1":"leasedUntil","#2":"owner"}"##;

/// One table at an address.
pub(crate) struct Table<'a> {
    address: &'a str,
    name: &'a str,
}

impl<'a> Table<'a> {
    /// Creates the table.
    pub(crate) fn create(address: &'a str, name: &'a str) -> Self {
        let table = Self { address, name };
        let schema = r#""KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]"#;
        let (status, body) = table.ask("CreateTable", schema);
        assert_eq!(status, 200, "{body}");
        table
    }

    /// Takes a lock until the year 2096. Returns whether it was free.
    pub(crate) fn acquire(&self, key: &str, owner: &str) -> bool {
        let item = format!(
            r#""Item":{{"key":{{"S":"{key}"}},"owner":{{"S":"{owner}"}},"leasedUntil":{{"S":"2096-11-29T21:00:00Z"}}}}"#
        );
        self.is_true("PutItem", &item, owner)
    }

    /// Releases a lock. Returns whether another owner has it not.
    pub(crate) fn release(&self, key: &str, owner: &str) -> bool {
        self.is_true("DeleteItem", &format!(r#""Key":{{"key":{{"S":"{key}"}}}}"#), owner)
    }

    /// The answer to a read, as JSON.
    pub(crate) fn current(&self, key: &str) -> String {
        self.ask("GetItem", &format!(r#""Key":{{"key":{{"S":"{key}"}}}}"#)).1
    }

    /// Returns whether the condition of a write held.
    fn is_true(&self, operation: &str, member: &str, owner: &str) -> bool {
        let values = format!(
            r#""ExpressionAttributeValues":{{":0":{{"S":"2026-11-29T21:00:00.5Z"}},":1":{{"S":"{owner}"}}}}"#
        );
        let (status, body) = self.ask(operation, &format!("{member},{CONDITION},{values}"));
        assert!(status == 200 || body.contains("#ConditionalCheckFailedException"), "{body}");
        status == 200
    }

    fn ask(&self, operation: &str, members: &str) -> (u16, String) {
        let body = format!(r#"{{"TableName":"{}",{members}}}"#, self.name);
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let len = body.len();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Length: {len}\r\n\r\n"
        );
        socket.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
