//! Notes on stderr during a wait, without a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::fake::FakeServer;
use crate::program::{ctl, output, soon, stderr};
use crate::real::{RealServer, server};
use crate::schema::check;

/// Kills a process at the end of a test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the first line on stderr that is about a wait.
fn note(server: &RealServer, words: &[&str]) -> String {
    let mut child = Killed(ctl(server.url(), words).stderr(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
    soon(move || lines.map(Result::unwrap).find(|line| line.contains("waiting for")).unwrap())
}

#[test]
fn a_wait_names_the_holder() {
    let server = server!();
    for words in [
        &["locks", "acquire", "k", "--owner", "web-3"][..],
        &["locks", "acquire", "leader", "--owner", "web-3"],
    ] {
        assert_eq!(output(ctl(server.url(), words)).status.code(), Some(0));
    }
    let semaphore = ["semaphore", "pool", "--capacity", "1", "--owner", "web-3", "--", "sleep", "1000"];
    let _permit = Killed(ctl(server.url(), &semaphore).spawn().unwrap());
    let inspect = ["pools", "inspect", "pool"];
    crate::program::eventually(|| {
        crate::program::stdout(&output(ctl(server.url(), &inspect))).contains("1 of 1 held")
    });
    for (words, begin) in [
        (&["lock", "k", "--", "true"][..], "waiting for k, held by web-3 for "),
        (&["locks", "acquire", "k"], "waiting for k, held by web-3 for "),
        (&["elect", "leader", "--", "true"], "waiting for leader, led by web-3 for "),
        (&["semaphore", "pool", "--capacity", "1", "--", "true"], "waiting for pool, held by web-3 for "),
    ] {
        let line = note(&server, words);
        assert!(line.starts_with(&format!("waymaker-ctl: {begin}")), "{line}");
        let note: Value = serde_json::from_str(&note(&server, &[&["--json"], words].concat())).unwrap();
        check("note", &note);
        assert!(note["note"].as_str().unwrap().starts_with(begin), "{note}");
        assert_eq!(note["holder"], "web-3");
        assert!(note["held_ms"].is_u64() && note["key"].is_string(), "{note}");
    }
}

#[test]
fn a_long_wait_looks_up_the_holder_rarely() {
    let server = FakeServer::start();
    server.hold_back_grants();
    let words = ["lock", "k", "--wait", "4s", "--connect-timeout", "1h", "--", "true"];
    let waited = output(ctl(server.url(), &words));
    assert_eq!(waited.status.code(), Some(122), "{}", stderr(&waited));
    assert_eq!(server.inspect_count(), 1, "the next lookup is due after a minute");
}

#[test]
fn an_attempt_without_a_wait_ends_after_a_second_without_a_response() {
    let server = FakeServer::start();
    server.hold_back_grants();
    let words = ["lock", "k", "--wait", "0s", "--connect-timeout", "1h", "--", "true"];
    let tried = output(ctl(server.url(), &words));
    assert_eq!(tried.status.code(), Some(122));
    assert!(stderr(&tried).contains("no response within 1s"), "{}", stderr(&tried));
}
