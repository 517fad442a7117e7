//! DynamoDB: bodies of requests, signatures, and whole connections.
//!
//! The first byte of the input selects the meaning of the rest:
//! - 0: the number of an operation, and the body of its request
//! - 1: all bytes of a connection
//! - 2: requests of a connection to a table that exists, each with the number of its operation and a length of two bytes
//! - 3: a signature: the header `Authorization`, and in the next line the time of the request
#![no_main]

use libfuzzer_sys::fuzz_target;
use waymaker_access::{AccessKeys, SignedRequest};
use waymaker_fuzz::bytes::Bytes;
use waymaker_fuzz::memory;
use waymaker_server::fuzzing::{read_dynamodb, serve};
use waymaker_server::port::Port;

const OPERATIONS: [&str; 8] =
    ["PutItem", "DeleteItem", "GetItem", "CreateTable", "DescribeTable", "DeleteTable", "ListTables", "Scan"];
const CREATE: &str = r#"{"TableName":"locks","KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]}"#;
const KEYS: &str = "[[key]]\naccess_key_id = \"WAYMAKERBILLING1\"\nsecret_access_key = \"wJalrXUtnFEMI/K7MDENG\"\nidentity = \"billing\"\n";
/// Most requests of a connection.
const REQUEST_COUNT_MAX: usize = 32;

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mode = input.below(4);
    memory::bounded(memory::LARGE, || match mode {
        0 => {
            let operation = OPERATIONS[input.below(OPERATIONS.len())];
            read_dynamodb(format!("DynamoDB_20120810.{operation}").as_bytes(), input.rest());
        }
        1 => drop(serve(Port::Dynamodb, &[input.rest()])),
        2 => {
            let requests = std::iter::from_fn(|| {
                let operation = OPERATIONS[input.below(OPERATIONS.len())];
                (!input.is_empty()).then(|| request(operation, input.piece()))
            });
            let create = request("CreateTable", CREATE.as_bytes());
            let requests: Vec<_> = std::iter::once(create).chain(requests).take(REQUEST_COUNT_MAX).collect();
            let pieces: Vec<_> = requests.iter().map(Vec::as_slice).collect();
            let output = serve(Port::Dynamodb, &pieces);
            assert!(output.starts_with(b"HTTP/1.1 200 "), "the first request is valid");
        }
        _ => verify(input.rest()),
    });
});

fn request(operation: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn verify(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (authorization, date) = text.split_once('\n').unwrap_or((text, "20261129T210000Z"));
    let headers = [("host", "localhost"), ("x-amz-date", date), ("authorization", authorization)];
    let request = SignedRequest { method: "POST", headers: &headers, body: b"{}" };
    let keys = AccessKeys::parse(KEYS).expect("a file of keys");
    keys.verify(&request, 1_795_986_000).expect_err("nobody guesses a signature");
}
