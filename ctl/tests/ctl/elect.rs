//! Elections with a real server.

use nix::sys::signal::Signal;

use crate::program::{Running, ctl, eventually, output, stderr, stdout};
use crate::real::{RealServer, server};

/// Prints a line when it leads and when it gets SIGTERM.
const LEADER: &str =
    "trap 'echo stopped; exit 3' TERM; echo leads $WAYMAKER_FENCE; while :; do sleep 0.02; done";

fn candidate(server: &RealServer) -> Running {
    Running::start(ctl(server.url(), &["elect", "k", "--lease", "2s", "--", "sh", "-c", LEADER]))
}

fn status(server: &RealServer) -> String {
    stdout(&output(ctl(server.url(), &["locks", "inspect", "k"])))
}

/// Starts a leader and a candidate that stands by.
fn two(server: &RealServer) -> [Running; 2] {
    let mut leader = candidate(server);
    assert_eq!(leader.line().unwrap(), "leads 1");
    let other = candidate(server);
    eventually(|| status(server).contains("1 waiting"));
    [leader, other]
}

#[test]
fn another_candidate_leads_after_the_leader_is_killed() {
    let server = server!();
    let [mut leader, mut other] = two(&server);
    leader.signal(Signal::SIGKILL);
    assert_eq!(leader.line(), None, "its command goes with it");
    assert_eq!(other.line().unwrap(), "leads 2");
}

#[test]
fn another_candidate_leads_after_the_leader_is_stopped() {
    let server = server!();
    let [mut leader, mut other] = two(&server);
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.line().unwrap(), "stopped");
    assert_eq!(leader.wait().code(), Some(3));
    assert_eq!(other.line().unwrap(), "leads 2");
}

#[test]
fn a_leader_that_loses_its_lock_is_stopped_and_stands_by_again() {
    let server = server!();
    let [mut leader, mut other] = two(&server);
    let json = stdout(&output(ctl(server.url(), &["locks", "inspect", "k", "--output", "json"])));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let id = json["holders"][0]["id"].as_str().unwrap();
    assert!(output(ctl(server.url(), &["locks", "release", "k", id])).status.success());
    assert_eq!(leader.line().unwrap(), "stopped");
    assert_eq!(other.line().unwrap(), "leads 2");
    eventually(|| status(&server).contains("1 waiting"));
    other.signal(Signal::SIGTERM);
    assert_eq!(leader.line().unwrap(), "leads 3");
}

#[test]
fn a_candidate_waits_for_an_unavailable_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server!(Some(directory.path()));
    // A restart keeps the socket but not the port.
    let words = ["elect", "k", "--lease", "2s", "--connect-timeout", "5s", "--", "sh", "-c", LEADER];
    let errors = tempfile::NamedTempFile::new().unwrap();
    let mut command = ctl(&server.unix_url(), &words);
    command.stderr(errors.reopen().unwrap());
    let mut candidate = Running::start(command);
    assert_eq!(candidate.line().unwrap(), "leads 1");
    server.kill();
    assert_eq!(candidate.line().unwrap(), "stopped");
    // The candidate has tried to reconnect and continues to try.
    eventually(|| std::fs::read_to_string(errors.path()).unwrap().contains("cannot reach"));
    let _server = server.restart(directory.path());
    assert!(candidate.line().unwrap().starts_with("leads "));
}

#[test]
fn elect_ends_with_the_exit_code_of_a_command_that_ends_by_itself() {
    let server = server!();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 121", 121), ("kill -9 $$", 137)] {
        let output = output(ctl(server.url(), &["elect", "k", "--", "sh", "-c", script]));
        assert_eq!(output.status.code(), Some(code), "{script}");
    }
    let output = output(ctl(server.url(), &["elect", "k", "--", "./no-such-command"]));
    assert_eq!(output.status.code(), Some(127));
    let text = stderr(&output);
    assert!(text.contains("k: standing by\n") && text.contains("k: leading, fence 5\n"), "{text}");
    assert_eq!(status(&server), "k: free, 0 waiting, fence 5\n");
}

#[test]
fn a_signal_removes_a_standby_candidate_from_the_queue() {
    let server = server!();
    let [_leader, mut other] = two(&server);
    other.signal(Signal::SIGINT);
    assert_eq!((other.line(), other.wait().code()), (None, Some(130)));
    assert!(status(&server).contains("0 waiting"));
}
