//! Locks of a real server.

use std::fs;

use nix::sys::signal::Signal;

use crate::program::{Running, ctl, output, stderr, stdout};
use crate::real::{RealServer, server};

/// Starts a command that holds the key until it is dropped or gets a signal.
fn holder(server: &RealServer, key: &str) -> Running {
    let mut running =
        Running::start(ctl(server.url(), &["lock", key, "--", "sh", "-c", "echo held; sleep 1000"]));
    assert_eq!(running.line().unwrap(), "held");
    running
}

fn run(server: &RealServer, words: &[&str]) -> std::process::Output {
    output(ctl(server.url(), words))
}

/// Each process reads a counter from a file and writes it back, without any other protection.
#[test]
fn a_hundred_processes_under_one_lock_lose_no_update() {
    let server = server!();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("count"), "0\n").unwrap();
    let script = "read n < count; echo $((n+1)) > count";
    let children: Vec<_> = (0..100)
        .map(|_| {
            let mut command = ctl(server.url(), &["lock", "count", "--", "sh", "-c", script]);
            command.current_dir(directory.path()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(directory.path().join("count")).unwrap(), "100\n");
    let status = run(&server, &["locks", "inspect", "count"]);
    assert_eq!(stdout(&status), "count: free, 0 waiting, fence 100\n");
}

#[test]
fn a_busy_lock_fails_at_once_or_after_the_wait_and_names_its_holder() {
    let server = server!();
    let words = ["lock", "k", "--owner", "the other one", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "held");
    for wait in ["0s", "50ms"] {
        let output = run(&server, &["lock", "k", "--wait", wait, "--", "true"]);
        assert_eq!(output.status.code(), Some(120));
        assert!(stderr(&output).contains(r#"held by "the other one""#), "{}", stderr(&output));
    }
}

#[test]
fn readers_share_a_lock_and_exclude_a_writer() {
    let server = server!();
    let words = ["lock", "k", "--read", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut readers = [0, 1].map(|_| Running::start(ctl(server.url(), &words)));
    for reader in &mut readers {
        assert_eq!(reader.line().unwrap(), "held");
    }
    assert_eq!(run(&server, &["lock", "k", "--wait", "0s", "--", "true"]).status.code(), Some(120));
    let status = stdout(&run(&server, &["locks", "inspect", "k"]));
    assert!(status.starts_with("k: held by 2 for reading, 0 waiting"), "{status}");
}

#[test]
fn a_command_waits_for_the_release_of_the_lock() {
    let server = server!();
    let first = holder(&server, "k");
    let mut second = Running::start(ctl(server.url(), &["lock", "k", "--", "echo", "second"]));
    while !stdout(&run(&server, &["locks", "inspect", "k"])).contains("1 waiting") {}
    first.signal(Signal::SIGTERM);
    assert_eq!(second.line().unwrap(), "second");
    assert_eq!(second.wait().code(), Some(0));
}

#[test]
fn a_signal_during_a_wait_cancels_the_wait() {
    let server = server!();
    let _first = holder(&server, "k");
    let mut second = Running::start(ctl(server.url(), &["lock", "k", "--", "echo", "never"]));
    while !stdout(&run(&server, &["locks", "inspect", "k"])).contains("1 waiting") {}
    second.signal(Signal::SIGINT);
    assert_eq!(second.wait().code(), Some(130));
    assert_eq!(second.line(), None);
    assert!(stdout(&run(&server, &["locks", "inspect", "k"])).contains("0 waiting"));
}

#[test]
fn inspect_lists_holders_and_then_waiters() {
    let server = server!();
    let _holder = holder(&server, "k");
    let lock = |owner: &str, options: &[&str]| {
        let words = [&["lock", "k", "--owner", owner], options, &["--", "echo", owner]].concat();
        Running::start(ctl(server.url(), &words))
    };
    let status = |options: &[&str]| stdout(&run(&server, &[&["locks", "inspect", "k"], options].concat()));
    let mut late = lock("late", &["--wait", "1h"]);
    while !status(&[]).contains("1 waiting") {}
    let mut early = lock("early", &["--read", "--priority", "2"]);
    while !status(&[]).contains("2 waiting") {}
    let page = status(&[]);
    let rows: Vec<Vec<_>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 6, "{page}");
    assert_eq!(rows[1], ["MODE", "OWNER", "FENCE", "HELD", "LEFT", "ID"]);
    assert_eq!(rows[3], ["MODE", "OWNER", "PRIORITY", "WAITING", "LEFT", "ID"]);
    assert_eq!((&rows[4][..3], rows[4][4]), (&["read", "early", "2"][..], "-"), "{page}");
    assert_eq!(rows[5][..3], ["write", "late", "0"], "{page}");
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    let [first, second] = [&json["waiters"][0], &json["waiters"][1]];
    assert_eq!(
        (&first["owner"], &first["mode"], &first["priority"]),
        (&"early".into(), &"read".into(), &2.into())
    );
    assert!(first["remaining_ms"].is_null() && first["age_ms"].is_u64());
    assert!(first["ticket"].as_u64().unwrap() > second["ticket"].as_u64().unwrap());
    let left = second["remaining_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{left}");
    // An id also cancels a wait.
    let id = second["id"].as_str().unwrap();
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(0));
    assert_eq!(late.wait().code(), Some(123));
    let id = json["holders"][0]["id"].as_str().unwrap();
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(0));
    assert_eq!(early.line().unwrap(), "early");
}

#[test]
fn the_list_is_ordered_by_key_and_complete_in_json() {
    let server = server!();
    let _holders = ["b/2", "a", "b/1"].map(|key| holder(&server, key));
    let table = stdout(&run(&server, &["locks", "list"]));
    let keys: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(keys, ["KEY", "a", "b/1", "b/2"]);
    let lines = stdout(&run(&server, &["locks", "list", "--prefix", "b/", "--json"]));
    let locks: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(locks.len(), 2);
    assert_eq!(
        (&locks[0]["key"], &locks[0]["mode"], &locks[0]["fence"]),
        (&"b/1".into(), &"write".into(), &1.into())
    );
    assert_eq!(locks[0]["id"].as_str().unwrap().len(), 32);
    assert!(locks[0]["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert!(locks[0]["owner"].as_str().unwrap().contains("process"));
}

#[test]
fn a_release_by_id_stops_the_command_of_the_holder() {
    let server = server!();
    let mut running = holder(&server, "k");
    let status = stdout(&run(&server, &["locks", "inspect", "k", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let id = status["holders"][0]["id"].as_str().unwrap();
    assert_eq!(run(&server, &["locks", "release", "another", id]).status.code(), Some(123));
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(0));
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(123));
}

#[test]
fn a_command_is_stopped_in_time_after_a_crash_of_the_server() {
    let mut server = server!();
    let words = ["lock", "k", "--lease", "1s", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "held");
    server.kill();
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
}

#[test]
fn options_choose_the_namespace_and_the_unix_socket() {
    let server = server!();
    let _holder = holder(&server, "k");
    let socket = server.unix_url();
    let other = output(ctl("", &["--server", &socket, "--namespace", "red", "locks", "inspect", "k"]));
    assert_eq!(stdout(&other), "k: free, 0 waiting, fence 0\n");
    let same = output(ctl("", &["--server", &socket, "locks", "inspect", "k"]));
    assert!(stdout(&same).starts_with("k: held, 0 waiting, fence 1\n"));
}
