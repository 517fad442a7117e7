//! JSON output of every command, compared with its schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::program::{Running, ctl, eventually, output, stderr, stdout};
use crate::real::{RealServer, server};
use crate::schema::{check, commands_with_schema};

/// Parses each line as one JSON object.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")));
    objects.inspect(|object: &Value| assert!(object.is_object(), "{object}")).collect()
}

/// Runs commands and remembers which of them printed objects.
struct Printer {
    server: RealServer,
    checked: BTreeSet<String>,
}

impl Printer {
    /// Runs a command in all formats. Returns the objects that it printed last.
    fn repeat(&mut self, name: &str, words: &[&str]) -> Vec<Value> {
        let table = output(ctl(self.server.url(), &[words, &["--output", "table"]].concat()));
        let line = stdout(&table)
            .lines()
            .next()
            .unwrap_or_else(|| panic!("{words:?}: {}", stderr(&table)))
            .to_owned();
        assert!(serde_json::from_str::<Value>(&line).is_err(), "{words:?} is for people: {line}");
        self.once(name, &[&["--output", "json"], words].concat());
        self.once(name, &[words, &["--json"]].concat())
    }

    /// Runs a command whose words choose JSON.
    fn once(&mut self, name: &str, words: &[&str]) -> Vec<Value> {
        let printed = output(ctl(self.server.url(), words));
        assert_eq!(printed.status.code(), Some(0), "{words:?}: {}", stderr(&printed));
        let objects = objects(&stdout(&printed));
        assert!(!objects.is_empty(), "{words:?}");
        for object in &objects {
            check(name, object);
        }
        self.checked.insert(name.to_owned());
        objects
    }
}

#[test]
fn the_json_output_of_every_command_follows_its_schema() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()));
    let start = |words: &[&str]| {
        let command = ["--", "sh", "-c", "echo held; exec sleep 1000"];
        let mut running = Running::start(ctl(server.url(), &[words, &command].concat()));
        assert_eq!(running.line().unwrap(), "held");
        running
    };
    let _lock = start(&["lock", "k"]);
    let _permit = start(&["semaphore", "pool", "--capacity", "2"]);
    let _presence = start(&["presence", "set", "web"]);
    let mut waits = Running::start(ctl(server.url(), &["lock", "k", "--wait", "1h", "--", "true"]));
    let mut permits_wait = Running::start(ctl(
        server.url(),
        &["semaphore", "pool", "--capacity", "2", "--permits", "2", "--", "true"],
    ));
    let mut printer = Printer { server, checked: BTreeSet::new() };
    while printer.once("locks inspect", &["locks", "inspect", "k", "--json"])[0]["waiter_count"] != 1 {}
    while printer.once("pools inspect", &["pools", "inspect", "pool", "--json"])[0]["waiter_count"] != 1 {}

    printer.repeat("locks list", &["locks", "list"]);
    printer.repeat("locks list", &["locks", "list", "--kind", "pool"]);
    printer.repeat("locks list --waiting", &["locks", "list", "--waiting"]);
    printer.repeat("locks inspect", &["locks", "inspect", "k"]);
    printer.repeat("locks inspect", &["locks", "inspect", "--tree", "a/b"]);
    printer.repeat("locks verify", &["locks", "verify", "k", "1"]);
    printer.repeat("pools inspect", &["pools", "inspect", "pool"]);
    printer.repeat("pools list", &["pools", "list"]);
    printer.repeat("pools resize", &["pools", "resize", "other", "3"]);
    printer.once("pools remove", &["pools", "remove", "other", "--json"]);
    printer.repeat("presence get", &["presence", "get", "web"]);
    printer.repeat("presence list", &["presence", "list"]);
    printer.repeat("registry set", &["registry", "set", "r", "--value", "v"]);
    printer.repeat("registry set", &["registry", "set", "r", "--value", "v", "--lazy", "--ttl", "10ms"]);
    printer.repeat("registry get", &["registry", "get", "r"]);
    printer.repeat("registry get", &["registry", "get", "r", "--lazy"]);
    printer.repeat("registry list", &["registry", "list"]);
    printer.once("registry remove", &["registry", "remove", "r", "--json"]);
    printer.repeat("prefixes freeze", &["prefixes", "freeze", "eu/"]);
    printer.repeat("prefixes thaw", &["prefixes", "thaw", "eu/"]);
    printer.repeat("namespaces list", &["namespaces", "list"]);
    printer.repeat("server status", &["server", "status"]);
    printer.repeat("throttle", &["throttle", "b", "--rate", "5/s"]);
    printer.repeat("throttle", &["throttle", "b", "--rate", "5/s", "--peek"]);

    let acquire = ["--json", "locks", "acquire", "acquired", "--scope", "local"];
    let id = printer.once("locks acquire", &acquire)[0]["id"].as_str().unwrap().to_owned();
    printer.repeat("locks extend", &["locks", "extend", "acquired", &id]);
    let words = ["--json", "locks", "force-release", &id, "--reason", "a test"];
    printer.once("locks force-release", &words);

    let data_dir = directory.path().to_str().unwrap();
    printer.repeat("log inspect", &["log", "inspect", data_dir]);
    printer.repeat("log inspect", &["log", "inspect", data_dir, "--records"]);
    printer.repeat("log verify", &["log", "verify", data_dir]);

    let mut watch = Running::start(ctl(printer.server.url(), &["locks", "watch", "k", "--output", "json"]));
    check("locks watch", &objects(&watch.line().unwrap())[0]);
    printer.checked.insert("locks watch".to_owned());
    // The namespace is empty after its connection has ended.
    output(ctl(printer.server.url(), &["--namespace", "blue", "lock", "k", "--", "true"]));
    let remove = ["--json", "namespaces", "remove", "blue"];
    let mut removed = String::new();
    eventually(|| {
        removed = stdout(&output(ctl(printer.server.url(), &remove)));
        !removed.is_empty()
    });
    check("namespaces remove", &objects(&removed)[0]);
    printer.checked.insert("namespaces remove".to_owned());

    for running in [&mut waits, &mut permits_wait] {
        running.signal(nix::sys::signal::Signal::SIGTERM);
        running.wait();
    }
    let certificates = tempfile::tempdir().unwrap();
    let certificates = certificates.path().to_str().unwrap();
    printer.once("tls init", &["--json", "tls", "init", certificates]);
    printer.once("tls client", &["--json", "tls", "client", certificates, "alice"]);
    printer.once("tls revoke", &["--json", "tls", "revoke", certificates, "alice"]);
    // Other tests check these.
    let others = [
        "backup",
        "backup verify",
        "error",
        "note",
        "restore",
        "tokens create",
        "tokens list",
        "tokens revoke",
    ]
    .map(str::to_owned);
    assert_eq!(printer.checked.into_iter().chain(others).collect::<BTreeSet<_>>(), commands_with_schema());
}

/// Members that accompany text which is not UTF-8.
#[test]
fn json_of_bytes_that_are_not_utf8_has_their_hexadecimal_digits() {
    use std::os::unix::ffi::OsStrExt;
    let server = server!();
    let key = std::ffi::OsStr::from_bytes(b"\xffk");
    let mut acquire = ctl(server.url(), &["locks", "acquire", "--json"]);
    acquire.arg(key);
    let acquired = &objects(&stdout(&output(acquire)))[0];
    check("locks acquire", acquired);
    assert_eq!(acquired["key_hex"], "ff6b");
    let held = &objects(&stdout(&output(ctl(server.url(), &["locks", "list", "--json"]))))[0];
    check("locks list", held);
    assert_eq!(held["key_hex"], "ff6b");
}

#[test]
fn errors_and_notes_are_json_too() {
    let server = server!();
    for (words, code) in [
        (&["locks", "release", "k", "00000000000000010000000000000002"][..], 123),
        (&["presence", "get", "nobody"], 118),
        (&["lock", "k", "--", "./no-such-command"], 127),
        (&["log", "verify", "/no/such/directory"], 125),
    ] {
        let output =
            output(ctl(server.url(), &[words[..1].to_vec(), vec!["--json"], words[1..].to_vec()].concat()));
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        let text = stderr(&output);
        let [error] = &objects(&text)[..] else { panic!("{text}") };
        check("error", error);
        assert_eq!(error["exit_code"], code);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let elected = output(ctl(server.url(), &["elect", "k", "--json", "--", "true"]));
    let notes = objects(&stderr(&elected));
    notes.iter().for_each(|note| check("note", note));
    assert_eq!(notes.last().unwrap()["note"], "k: leading, fence 2");
}
