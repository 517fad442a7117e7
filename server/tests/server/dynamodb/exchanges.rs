//! Recorded requests of real clients, with the answers.
//!
//! A file has one exchange after the other: after `===` the test of the package and the operation, then the request, and after `---` the
//! status and members of the answer. `{now+300}` is the text of the instant 300 seconds after the beginning of the test, so the signatures do
//! not fit the bodies any more. The lengths of bodies are filled in.

use super::client::{PORT, in_seconds};
use super::http::Http;
use crate::harness::Server;
use serde_json::Value;
use std::collections::BTreeMap;

/// All requests of the tests of Clever's package, over version 1 of the SDK.
const CLEVER_V0: &str = include_str!("exchanges/clever-v0.4.2.txt");
/// The same over version 2 of the SDK.
const CLEVER_V1: &str = include_str!("exchanges/clever-v1.1.0.txt");
/// The lock client of AWS Labs, version 1.3.0 for Java, as far as it comes.
const AWSLABS: &str = include_str!("exchanges/awslabs.txt");

/// Texts of instants, each the same in a whole file.
#[derive(Default)]
struct Instants(BTreeMap<String, String>);

impl Instants {
    /// Replaces every `{now+300}` in a text.
    fn fill(&mut self, text: &str) -> String {
        let mut pieces = text.split("{now");
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (seconds, rest) = piece.split_once('}').expect("the end of an instant");
            let instant = || in_seconds(seconds.parse().expect("seconds"));
            filled += self.0.entry(seconds.to_owned()).or_insert_with(instant);
            filled += rest;
        }
        filled
    }
}

/// Replays exchanges, and returns how many there were.
fn replay(exchanges: &str) -> usize {
    let server = Server::start(&PORT);
    let mut http = Http::connect(&server);
    let mut instants = Instants::default();
    let exchanges = exchanges.split("=== ").skip(1).map(|exchange| instants.fill(exchange));
    exchanges
        .map(|exchange| {
            let (title, exchange) = exchange.split_once('\n').expect("a title");
            let (request, answer) = exchange.split_once("\n---\n").expect(title);
            let (head, body) = request.split_once("\n\n").expect(title);
            let head = format!("{head}\nContent-Length: {}\n\n", body.len()).replace('\n', "\r\n");
            http.write(format!("{head}{body}").as_bytes());
            let (status, expected) = answer.split_once('\n').expect(title);
            let answer = http.answer();
            assert_eq!(answer.status.to_string(), status, "{title}: {request}\n{answer:?}");
            assert_contains(&answer.value(), &serde_json::from_str(expected).expect(title), title);
        })
        .count()
}

/// Asserts that a value has everything that is expected. Objects may have more members.
fn assert_contains(found: &Value, expected: &Value, title: &str) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, expected) in expected {
                assert_contains(found.get(name).unwrap_or(&Value::Null), expected, title);
            }
        }
        _ => assert_eq!(found, expected, "{title}"),
    }
}

#[test]
fn clever_over_version_1_of_the_sdk() {
    assert_eq!(replay(CLEVER_V0), 91);
}

#[test]
fn clever_over_version_2_of_the_sdk() {
    assert_eq!(replay(CLEVER_V1), 91);
}

/// It creates its table and looks for a lock. Its first write is refused, before anything is locked.
#[test]
fn the_client_of_aws_labs_is_refused_before_it_locks() {
    assert_eq!(replay(AWSLABS), 4);
}
