//! Presences with a real server.

use nix::sys::signal::Signal;

use crate::program::{Running, ctl, eventually, output, stderr, stdout};
use crate::real::{RealServer, server};

fn run(server: &RealServer, words: &[&str]) -> std::process::Output {
    output(ctl(server.url(), words))
}

/// Starts a command with the presence `w/1` until it is dropped or gets a signal.
fn presence(server: &RealServer, options: &[&str]) -> Running {
    let words =
        [&["presence", "set", "w/1"], options, &["--", "sh", "-c", "echo there; sleep 1000"]].concat();
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "there");
    running
}

fn is_there(server: &RealServer) -> bool {
    match run(server, &["presence", "get", "w/1"]).status.code() {
        Some(0) => true,
        Some(118) => false,
        other => panic!("{other:?}"),
    }
}

fn first_cells(table: &str) -> Vec<&str> {
    table.lines().map(|line| line.split_whitespace().next().unwrap()).collect()
}

#[test]
fn a_presence_is_registered_only_while_its_command_runs() {
    let server = server!();
    assert!(!is_there(&server));
    let mut running = presence(&server, &["--value", "10.0.0.7:80"]);
    let entry = stdout(&run(&server, &["presence", "get", "w/1", "--output", "json"]));
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    assert_eq!((&entry["value"], &entry["type"]), (&"10.0.0.7:80".into(), &"presence".into()));
    assert!(entry["remaining_ms"].as_u64().unwrap() <= 15_000);
    let _device = Running::start(ctl(server.url(), &["presence", "set", "d", "--type", "device"]));
    eventually(|| first_cells(&stdout(&run(&server, &["registry", "list"]))) == ["KEY", "d", "w/1"]);
    assert_eq!(first_cells(&stdout(&run(&server, &["presence", "list"]))), ["KEY", "w/1"]);
    assert_eq!(first_cells(&stdout(&run(&server, &["presence", "list", "--type", "device"]))), ["KEY", "d"]);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(143));
    assert!(!is_there(&server));
}

#[test]
fn a_presence_without_a_command_succeeds_when_interrupted() {
    let server = server!();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut running = Running::start(ctl(server.url(), &["presence", "set", "w/1"]));
        eventually(|| is_there(&server));
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(0), "{signal}");
        assert!(!is_there(&server));
    }
}

#[test]
fn a_presence_is_renewed_beyond_its_ttl_and_expires_after_a_kill() {
    let server = server!();
    let mut running = presence(&server, &["--ttl", "5s"]);
    // The name stays taken for longer than the ttl, so the presence is renewed.
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_secs(6) {
        let refused = run(&server, &["presence", "set", "w/1", "--", "true"]);
        assert_eq!(refused.status.code(), Some(120), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("process"), "its owner is named: {}", stderr(&refused));
    }
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), None, "its command goes with it");
    eventually(|| !is_there(&server));
}

#[test]
fn presence_passes_on_the_exit_code_and_removes_the_registration() {
    let server = server!();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let output = run(&server, &["presence", "set", "w/1", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert!(!is_there(&server));
    }
    assert_eq!(run(&server, &["presence", "set", "w/1", "--", "./no-such-command"]).status.code(), Some(127));
    assert!(!is_there(&server));
}
