//! Everything that is printed, as JSON.

use serde_json::Value;

use crate::program::{Running, ctl, output, stderr, stdout};
use crate::real::server;

/// Each line as the object that it must be.
fn objects(text: &str) -> Vec<Value> {
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")));
    objects.inspect(|object: &Value| assert!(object.is_object(), "{object}")).collect()
}

#[test]
fn every_command_that_prints_something_prints_json_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()));
    let start = |words: &[&str]| {
        let command = ["--", "sh", "-c", "echo held $WAYMAKER_LOCK_ID; sleep 1000"];
        let mut running = Running::start(ctl(server.url(), &[words, &command].concat()));
        let id = running.line().unwrap().replace("held ", "");
        (running, id)
    };
    let (_lock, id) = start(&["lock", "k"]);
    let _permit = start(&["semaphore", "pool", "--capacity", "2"]);
    let _presence = start(&["presence", "set", "web"]);
    let data_dir = directory.path().to_str().unwrap();
    for (words, member) in [
        (&["locks", "list"][..], "key"),
        (&["locks", "list", "--kind", "pool"], "key"),
        (&["locks", "inspect", "k"], "holders"),
        (&["locks", "inspect", "--tree", "a/b"], "holders"),
        (&["pools", "inspect", "pool"], "capacity"),
        (&["pools", "list"], "capacity_is_set"),
        (&["registry", "list"], "value"),
        (&["presence", "list"], "value"),
        (&["presence", "get", "web"], "value"),
        (&["namespaces", "list"], "namespace"),
        (&["locks", "verify", "k", "1"], "is_newest"),
        (&["throttle", "b", "--rate", "5/s"], "remaining"),
        (&["throttle", "b", "--rate", "5/s", "--peek"], "full_in_ms"),
        (&["pools", "resize", "pool", "3"], "previous_capacity"),
        (&["prefixes", "freeze", "eu/"], "is_frozen"),
        (&["locks", "force-release", &id, "--reason", "a test"], "owner"),
        (&["log", "inspect", data_dir], "about"),
        (&["log", "inspect", data_dir, "--records"], "about"),
        (&["log", "verify", data_dir], "end"),
    ] {
        for option in [&["--output", "json"][..], &["--json"]] {
            if words.contains(&"force-release") && option == ["--json"] {
                // There is nothing left to release.
                continue;
            }
            // The option may stand in front as well.
            let printed = output(ctl(server.url(), &[option, words].concat()));
            assert_eq!(printed.status.code(), Some(0), "{words:?}: {}", stderr(&printed));
            let objects = objects(&stdout(&printed));
            assert!(!objects.is_empty(), "{words:?}");
            for object in objects {
                assert!(object.get(member).is_some(), "{words:?}: {object}");
            }
        }
        if !words.contains(&"force-release") {
            let table = output(ctl(server.url(), &[words, &["--output", "table"]].concat()));
            let line = stdout(&table).lines().next().unwrap().to_owned();
            assert!(serde_json::from_str::<Value>(&line).is_err(), "{words:?} is for people: {line}");
        }
    }
    let mut watch = Running::start(ctl(server.url(), &["locks", "watch", "k", "--output", "json"]));
    assert!(objects(&watch.line().unwrap())[0]["fence"].is_u64());
}

#[test]
fn errors_and_notes_are_told_as_json_too() {
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
        assert_eq!(error["exit_code"], code);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let elected = output(ctl(server.url(), &["elect", "k", "--json", "--", "true"]));
    let notes = objects(&stderr(&elected));
    assert_eq!(notes.last().unwrap()["note"], "k: leading, fence 2");
}
