//! HTTP as SDKs of AWS speak it.

use crate::harness::{Server, WATCHDOG};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection that stays open between requests.
pub(super) struct Http(BufReader<TcpStream>);

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// By name in small letters.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Http {
    pub(super) fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address("dynamodb")).expect("the server accepts");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        Self(BufReader::new(socket))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it is read");
    }

    /// Sends a request of an operation, and reads its answer.
    pub(super) fn ask(&mut self, operation: &str, body: &str) -> Answer {
        self.write(request(operation, body).as_bytes());
        self.answer()
    }

    /// Reads one answer, which has the headers of every answer.
    pub(super) fn answer(&mut self) -> Answer {
        let mut line = || {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line in time");
            line.trim_end().to_owned()
        };
        let first = line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{first:?} is not the first line of an answer"));
        let mut headers = BTreeMap::new();
        loop {
            let line = line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let len = headers.get("content-length").map_or(0, |len| len.parse().expect("a length"));
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).expect("a body in time");
        let body = String::from_utf8(body).expect("text");
        Answer { status, headers, body }
    }
}

/// A request as an SDK sends it.
pub(super) fn request(operation: &str, body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: aws-sdk-go-v2/1.36.5\r\nContent-Length: {}\r\n\
         Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\nAccept-Encoding: identity\r\n\r\n{body}",
        body.len()
    )
}

impl Answer {
    /// Checks what every answer has, and returns the body.
    pub(super) fn value(&self) -> Value {
        let header =
            |name: &str| self.headers.get(name).unwrap_or_else(|| panic!("{name}: {self:?}")).as_str();
        assert_eq!(header("content-type"), "application/x-amz-json-1.0");
        assert_eq!(header("x-amz-crc32"), crc32fast::hash(self.body.as_bytes()).to_string());
        let id = header("x-amzn-requestid");
        assert!(
            id.len() == 52 && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()),
            "{id}"
        );
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the body of a success.
    pub(super) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.value()
    }

    /// Returns the name of the error, without its namespace.
    pub(super) fn error(&self) -> String {
        assert_ne!(self.status, 200, "{self:?}");
        let value = self.value();
        let (name, message) = (value["__type"].as_str(), value["message"].as_str());
        assert!(message.is_some_and(|message| !message.is_empty()), "{self:?}");
        name.and_then(|name| name.split_once('#')).unwrap_or_else(|| panic!("{self:?}")).1.to_owned()
    }
}
