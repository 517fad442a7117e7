//! The audit log: a line for each act of an operator, wherever the lines go and however slowly they are taken.

use crate::harness::{Client, Server, command, refused, wait_for, wait_until};
use crate::locktopus::{http, parts};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, read_to_string, rename};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use waymaker_protocol::{
    ErrorCode, ForceRelease, Freeze, LockId, NamespaceKind, PoolOrder, RemoveNamespace, Request, SetCapacity,
};

/// Members of every line.
const MEMBERS: [&str; 11] =
    ["at", "act", "result", "identity", "address", "front_end", "owner", "namespace", "key", "reason", "id"];

/// A folder for a file of the audit log.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    fn server(&self, arguments: &[&str]) -> Server {
        let path = self.path();
        let audit = ["--audit", path.to_str().expect("text")];
        Server::start(&[&audit, arguments].concat())
    }
}

/// Waits for this number of lines after the line of the start, and returns them.
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let lines = wait_for(&format!("{count} lines in {}", path.display()), || {
        let text = read_to_string(path).ok()?;
        let lines: Vec<_> =
            text.lines().filter(|line| !line.contains("\"act\":\"start\"")).map(parsed).collect();
        (lines.len() >= count).then_some(lines)
    });
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
}

/// Returns the members that are not null, without the time, which has to be recent.
fn known(line: &Value) -> Value {
    let members = line.as_object().expect("an object");
    let missing: Vec<_> = MEMBERS.iter().filter(|name| !members.contains_key(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {line}");
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("a time").as_millis() as u64;
    let at_ms = line["at"].as_u64().expect("a number");
    assert!(now_ms - 600_000 < at_ms && at_ms <= now_ms + 600_000, "{at_ms} and {now_ms}");
    let known = members.iter().filter(|(name, value)| *name != "at" && !value.is_null());
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn set_capacity(client: &mut Client<TcpStream>, name: &[u8], capacity: u64) {
    let set = SetCapacity { capacity, order: PoolOrder::Arrival, name, ..SetCapacity::default() };
    client.ask(Request::SetCapacity(set));
}

fn freeze(client: &mut Client<TcpStream>, prefix: &[u8], thaw: bool) {
    client.ask(Request::Freeze(Freeze { prefix, thaw, ..Freeze::default() }));
}

#[test]
fn each_act_of_an_operator_is_a_line() {
    for workers in ["1", "3"] {
        let place = Place::new();
        let mut server = place.server(&["--workers", workers]);
        let [mut holder, mut operator] = ["the holder", "op"].map(|name| server.client(name));
        let held = holder.acquire(b"key", 0);
        let release = ForceRelease { id: held.id, reason: b"it hangs" };
        operator.ask(Request::ForceRelease(release));
        operator.ask(Request::ForceRelease(release));
        // No shard has this id.
        let nowhere = ForceRelease { id: LockId::from_bytes([0xff; 16]), reason: b"a guess" };
        operator.ask(Request::ForceRelease(nowhere));
        freeze(&mut operator, b"pre\xff", false);
        freeze(&mut operator, b"pre\xff", false);
        freeze(&mut operator, b"pre\xff", true);
        let mut pools = server.client_of(NamespaceKind::Pool, "op");
        set_capacity(&mut pools, b"pool", 5);
        set_capacity(&mut pools, b"pool", 6);
        drop(server.client_of(NamespaceKind::Lazy, "visitor"));
        operator.ask(Request::RemoveNamespace(RemoveNamespace { name: b"unknown" }));
        wait_until("the visitor has left", || {
            let answer = operator.ask(Request::RemoveNamespace(RemoveNamespace { name: b"lazy" }));
            answer.bytes().len() < 20
        });
        server.signal("TERM");
        assert!(server.wait().success());

        let all: Vec<_> = read_to_string(place.path()).expect("a file").lines().map(parsed).collect();
        let start = known(&all[0]);
        assert_eq!((&start["act"], &start["insecure"]), (&json!("start"), &json!(false)), "{start}");
        assert!(start["listen"][0].as_str().is_some_and(|address| address.starts_with("binary=127.0.0.1:")));
        let id = held.id.to_string();
        let op = |act: &str, namespace: &str, others: Value| {
            let mut event = json!({ "act": act, "result": "done", "owner": "op", "namespace": namespace });
            let others = others.as_object().expect("an object").clone();
            event.as_object_mut().expect("an object").extend(others);
            event
        };
        let not_found = "no claim of this namespace has this id; it may have expired or been released";
        let frozen = |changed: bool| json!({ "key_hex": "707265ff", "changed": changed });
        let expected = [
            op(
                "force-release",
                "default",
                json!({
                    "key": "key", "id": id, "fence": 1, "holder": "the holder", "waiting": false, "reason": "it hangs"
                }),
            ),
            op(
                "force-release",
                "default",
                json!({
                    "result": "refused", "code": "not_found", "message": not_found, "id": id, "reason": "it hangs"
                }),
            ),
            op(
                "force-release",
                "default",
                json!({
                    "result": "refused", "code": "not_found", "message": not_found, "id": "f".repeat(32), "reason": "a guess"
                }),
            ),
            op("freeze", "default", frozen(true)),
            op("freeze", "default", frozen(false)),
            op("thaw", "default", frozen(true)),
            op("set-capacity", "pool", json!({ "key": "pool", "capacity": 5, "previous": 0 })),
            op("set-capacity", "pool", json!({ "key": "pool", "capacity": 6, "previous": 5 })),
            op(
                "remove-namespace",
                "unknown",
                json!({ "result": "refused", "code": "not_found", "message": "there is no namespace of this name" }),
            ),
        ];
        let mut acts: Vec<_> = all[1..].iter().map(known).collect();
        for act in acts.iter_mut().filter(|act| act["act"] != "stop") {
            let members = act.as_object_mut().expect("an object");
            assert_eq!(members.remove("front_end"), Some(json!("binary")));
            let address = members.remove("address").expect("the address of the client");
            assert!(address.as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{address}");
        }
        assert_eq!(acts[..expected.len()], expected, "{workers} workers");
        let [attempts @ .., removed, stop] = &acts[expected.len()..] else { panic!("{acts:#?}") };
        assert!(attempts.iter().all(|attempt| attempt["code"] == "bad_input"), "{attempts:#?}");
        assert_eq!(*removed, op("remove-namespace", "lazy", json!({})));
        assert_eq!(*stop, json!({ "act": "stop", "result": "done" }));
    }
}

#[test]
fn a_durable_act_has_one_line_too() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let server = place.server(&["--data-dir", data.to_str().expect("text"), "--workers", "3"]);
    let mut operator = server.client("op");
    freeze(&mut operator, b"a", false);
    let held = operator.acquire(b"b", 0);
    // The operator leaves without its response.
    operator.send(Request::ForceRelease(ForceRelease { id: held.id, reason: b"" }));
    drop(operator);
    let acts: BTreeSet<_> = lines(&place.path(), 2)
        .iter()
        .map(|line| (line["act"].to_string(), line["result"].to_string()))
        .collect();
    let expected = ["freeze", "force-release"].map(|act| (json!(act).to_string(), json!("done").to_string()));
    assert_eq!(acts, BTreeSet::from(expected));
}

#[test]
fn a_rotated_file_is_created_again() {
    let place = Place::new();
    let server = place.server(&[]);
    let mut operator = server.client("op");
    freeze(&mut operator, b"a", false);
    lines(&place.path(), 1);
    let rotated = place.folder.path().join("audit.jsonl.1");
    rename(place.path(), &rotated).expect("a file");
    freeze(&mut operator, b"b", false);
    assert_eq!(lines(&place.path(), 1)[0]["key"], "b");
    assert_eq!(lines(&rotated, 1)[0]["key"], "a");

    // Without TLS no other part of the server takes the signal.
    rename(place.path(), &rotated).expect("a file");
    server.signal("HUP");
    wait_until("the file is there", || place.path().exists());
    freeze(&mut operator, b"c", false);
    assert_eq!(lines(&place.path(), 1)[0]["key"], "c");
}

/// Reads lines until one fits.
fn find_line(reader: &mut impl BufRead, fits: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("text") > 0, "the audit log has ended");
        let line = parsed(&line);
        if fits(&line) {
            return line;
        }
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let answer = http(server, "http", "GET /metrics");
    let (_, _, body) = parts(&answer);
    let value = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {body}"))
}

/// The pipe takes a few hundred lines, and then the thread that writes them stands still.
#[test]
fn a_flood_with_a_reader_that_stands_still_drops_lines_and_delays_nobody() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path()).status().expect("mkfifo");
    assert!(made.success());
    // Opened for both, so that neither side waits for the other.
    let pipe = OpenOptions::new().read(true).write(true).open(place.path()).expect("a pipe");
    let server = place.server(&["--workers", "1", "--http-listen", "127.0.0.1:0"]);
    let mut pools = server.client_of(NamespaceKind::Pool, "op");
    for number in 0..6_000_u64 {
        set_capacity(&mut pools, b"pool", number % 7 + 1);
    }
    let mut operator = server.client("op");
    freeze(&mut operator, b"key", false);
    freeze(&mut operator, b"key", true);
    server.assert_serves();
    let dropped = metric(&server, "waymaker_audit_dropped_lines_total");
    assert!(dropped > 0, "the queue is bounded");

    let mut reader = BufReader::new(pipe);
    let line = find_line(&mut reader, |line| line["act"] == "dropped");
    assert_eq!(line["count"], dropped);
    freeze(&mut operator, b"again", false);
    find_line(&mut reader, |line| line["key"] == "again");
}

#[test]
fn a_failing_write_is_counted_and_the_server_continues() {
    // The harness does not read the stream after the line `ready`.
    let server = Server::start_logged(&["--audit", "stdout", "--http-listen", "127.0.0.1:0"]);
    let mut operator = server.client("op");
    wait_until("a failed write", || {
        // A process that another test is starting at this moment may still have the other end of the stream.
        freeze(&mut operator, b"a", false);
        metric(&server, "waymaker_audit_write_failures_total") > 0
    });
    assert!(metric(&server, "waymaker_audit_dropped_lines_total") > 0);
    server.log_places(&[&["ERROR", "could not write the audit log", "--audit"]]);
    server.assert_serves();
}

#[test]
fn by_default_acts_are_in_the_log_of_the_server() {
    let server = Server::start_logged(&[]);
    let mut operator = server.client("op");
    let id = LockId { place: 3, secret: 4 };
    let answer = operator.ask(Request::ForceRelease(ForceRelease { id, reason: b"a\nb" }));
    assert_eq!(answer.error().code, ErrorCode::NotFound);
    server.log_places(&[
        &["WARN", "audit", "start result=done", "insecure=false"],
        &["WARN", "audit", "force-release result=refused code=not_found", "owner=\"op\"", "reason=\"a\\nb\""],
    ]);
}

#[test]
fn acts_go_nowhere_if_nobody_wants_them() {
    let server = Server::start_logged(&["--audit", "none"]);
    let mut operator = server.client("op");
    freeze(&mut operator, b"a", false);
    server.signal("TERM");
    server.log_places(&[&["draining"]]);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let (status, said) = refused(&["--audit", "/nonexistent/audit.jsonl"]);
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("--audit: cannot open /nonexistent/audit.jsonl"), "{said}");
}

#[test]
fn standard_error_has_json_whatever_the_level_of_the_log_is() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let stderr: File = log.reopen().expect("a file");
    let server =
        Server::start_with(command(&["--audit", "stderr"]).env("WAYMAKER_LOG", "error").stderr(stderr), None);
    let mut operator = server.client("op");
    freeze(&mut operator, b"a", false);
    assert_eq!(lines(log.path(), 1)[0]["act"], "freeze");
}
