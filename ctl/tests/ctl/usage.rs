//! What goes wrong before a lock is held.

use crate::fake::FakeServer;
use crate::program::{ctl, output, stderr, stdout};

/// A port on which nobody listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("waymaker://{}", listener.local_addr().unwrap())
}

#[test]
fn a_server_that_does_not_run_is_named_with_how_to_start_it() {
    let server = nobody();
    for words in [
        &["lock", "k", "--", "true"][..],
        &["elect", "k", "--", "true"],
        &["presence", "set", "k", "--", "true"],
        &["presence", "get", "k"],
        &["locks", "list"],
        &["status", "k"],
        &["release", "k", "00000000000000010000000000000002"],
    ] {
        let output = output(ctl(&server, &[&["--connect-timeout", "100ms"], words].concat()));
        assert_eq!(output.status.code(), Some(122), "{words:?}");
        let text = stderr(&output);
        assert!(text.contains(&server) && text.contains("`waymaker-server` starts it"), "{text}");
    }
}

#[test]
fn wrong_usage_has_a_code_that_commands_rarely_have() {
    let server = nobody();
    for words in [
        &[][..],
        &["lock", "k"],
        &["lock", "k", "true"],
        &["lock", "k", "--wait", "soon", "--", "true"],
        &["elect", "k"],
        &["elect", "k", "--wait", "1s", "--", "true"],
        &["presence", "set"],
        &["locks", "list", "--output", "xml"],
        &["completions", "cobol"],
        &["release", "k", "7"],
        &["--server", "http://localhost", "status", "k"],
        &["nonsense"],
    ] {
        assert_eq!(output(ctl(&server, words)).status.code(), Some(125), "{words:?}");
    }
}

#[test]
fn help_teaches_by_example_and_succeeds() {
    for words in [
        &["--help"][..],
        &["lock", "--help"],
        &["semaphore", "--help"],
        &["throttle", "--help"],
        &["elect", "--help"],
        &["presence", "--help"],
        &["completions", "--help"],
        &["log", "--help"],
    ] {
        let output = output(ctl("", words));
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.contains("Examples:") && text.contains("      waymaker-ctl "), "{text}");
        assert!(!text.contains("watchdog"), "{text}");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_told_apart_as_shells_do_and_the_lock_is_released() {
    let server = FakeServer::start();
    for (command, code) in [("./no-such-command", 127), ("/etc/passwd", 126), ("/", 126)] {
        let output = output(ctl(server.url(), &["lock", "k", "--", command]));
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
        assert_eq!(server.released().len(), 1);
    }
}

#[test]
fn an_empty_key_is_refused() {
    let server = FakeServer::start();
    let output = output(ctl(server.url(), &["lock", "", "--", "true"]));
    assert_eq!(output.status.code(), Some(123));
    assert!(stderr(&output).contains("must not be empty"), "{}", stderr(&output));
}
