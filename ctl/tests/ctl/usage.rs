//! Errors before a lock is held.

use crate::fake::FakeServer;
use crate::program::{ctl, output, stderr, stdout};

/// Returns an address without a server.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("waymaker://{}", listener.local_addr().unwrap())
}

#[test]
fn an_unreachable_server_is_named_with_the_command_that_starts_it() {
    let server = nobody();
    for words in [
        &["lock", "k", "--", "true"][..],
        &["elect", "k", "--", "true"],
        &["presence", "set", "k", "--", "true"],
        &["presence", "get", "k"],
        &["locks", "list"],
        &["locks", "inspect", "k"],
        &["locks", "release", "k", "00000000000000010000000000000002"],
    ] {
        let output = output(ctl(&server, &[&["--connect-timeout", "100ms"], words].concat()));
        assert_eq!(output.status.code(), Some(122), "{words:?}");
        let text = stderr(&output);
        assert!(text.contains(&server) && text.contains("`waymaker-server` starts it"), "{text}");
    }
}

#[test]
fn wrong_usage_has_exit_code_125() {
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
        &["locks", "release", "k", "7"],
        &["--server", "http://localhost", "locks", "inspect", "k"],
        &["nonsense"],
    ] {
        assert_eq!(output(ctl(&server, words)).status.code(), Some(125), "{words:?}");
    }
}

#[test]
fn help_has_examples_and_succeeds() {
    for words in [
        &["--help"][..],
        &["lock", "--help"],
        &["semaphore", "--help"],
        &["throttle", "--help"],
        &["elect", "--help"],
        &["presence", "--help"],
        &["completions", "--help"],
        &["log", "--help"],
        &["locks", "--help"],
        &["registry", "--help"],
        &["server", "--help"],
        &["tokens", "--help"],
    ] {
        let output = output(ctl("", words));
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.contains("Examples:") && text.contains("      waymaker-ctl "), "{text}");
        assert!(!text.contains("watchdog"), "{text}");
    }
}

#[test]
fn a_command_that_cannot_run_has_the_exit_codes_of_shells_and_its_lock_is_released() {
    let server = FakeServer::start();
    for (command, code) in [("./no-such-command", 127), ("/etc/passwd", 126), ("/", 126)] {
        let output = output(ctl(server.url(), &["lock", "k", "--", command]));
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
        assert_eq!(server.released().len(), 1);
    }
}

#[test]
fn a_key_of_a_wrong_length_is_rejected_with_the_limit() {
    for (key, said) in [("", "it is empty"), (&*"k".repeat(1_300), "1,300 bytes long; the maximum is 1,024")]
    {
        for words in [&["lock", key, "--", "true"][..], &["locks", "watch", key], &["pools", "remove", key]] {
            let output = output(ctl(&nobody(), words));
            assert_eq!(output.status.code(), Some(125));
            assert!(stderr(&output).contains(said), "{}", stderr(&output));
        }
    }
}

#[test]
fn former_commands_name_the_new_command() {
    for (words, new) in [
        (&["status", "k"][..], "status is now: waymaker-ctl locks inspect KEY"),
        (&["inspect", "k"], "inspect is now: waymaker-ctl locks inspect KEY"),
        (&["status", "--pool", "p"], "status is now: waymaker-ctl pools inspect POOL"),
        (&["watch", "k"], "watch is now: waymaker-ctl locks watch KEY"),
        (&["verify", "k", "1"], "verify is now: waymaker-ctl locks verify KEY FENCE"),
        (&["release", "k", "7"], "release is now: waymaker-ctl locks release KEY ID"),
        (&["force-release", "7"], "force-release is now: waymaker-ctl locks force-release ID --reason TEXT"),
        (&["freeze", "eu/"], "freeze is now: waymaker-ctl prefixes freeze PREFIX"),
        (&["freeze", "--thaw", "eu/"], "freeze is now: waymaker-ctl prefixes thaw PREFIX"),
        (&["pools"], "pools is now: waymaker-ctl pools list"),
        (&["pools", "--prefix", "eu/"], "pools is now: waymaker-ctl pools list"),
        (&["set-capacity", "p", "2"], "set-capacity is now: waymaker-ctl pools resize POOL CAPACITY"),
        (&["set-capacity", "p", "0"], "set-capacity is now: waymaker-ctl pools remove POOL"),
        (&["entries"], "entries is now: waymaker-ctl registry list"),
        (&["namespaces"], "namespaces is now: waymaker-ctl namespaces list"),
        (&["namespace", "remove", "n"], "namespace remove is now: waymaker-ctl namespaces remove NAME"),
    ] {
        let printed = output(ctl(&nobody(), words));
        assert_eq!(printed.status.code(), Some(125), "{words:?}");
        assert_eq!(stderr(&printed), format!("waymaker-ctl: {new}\n"));
        let printed = output(ctl(&nobody(), &[words, &["--json"]].concat()));
        let object: serde_json::Value = serde_json::from_str(&stderr(&printed)).unwrap();
        assert_eq!((&object["message"], &object["exit_code"]), (&new.into(), &125.into()));
    }
}

#[test]
fn missing_dashes_before_the_command_are_named() {
    for (words, corrected) in [
        (&["lock", "backup", "pg_dump", "my db"][..], "lock backup -- pg_dump 'my db'"),
        (&["elect", "k", "--lease", "9s", "./run", "--fast"], "elect k --lease 9s -- ./run --fast"),
        (&["semaphore", "p", "--capacity", "2", "ls"], "semaphore p --capacity 2 -- ls"),
        (&["throttle", "b", "--rate", "1/s", "ls"], "throttle b --rate 1/s -- ls"),
        (&["presence", "set", "w", "ls"], "presence set w -- ls"),
    ] {
        let printed = output(ctl(&nobody(), words));
        assert_eq!(printed.status.code(), Some(125), "{words:?}");
        let said = format!("waymaker-ctl: put -- before the command: waymaker-ctl {corrected}\n");
        assert_eq!(stderr(&printed), said);
    }
}

#[test]
fn wrong_values_are_named_with_their_limit_and_long_values_are_cut() {
    for (words, parts) in [
        (&["pools", "resize", "x", "six"][..], ["'six'", "a whole number of at least 1"]),
        (&["pools", "resize", "x", "0"], ["'0'", "`waymaker-ctl pools remove POOL`"]),
        (&["lock", "k", "--wait", "soon", "--", "ls"], ["'soon'", "such as 500ms"]),
        (&["lock", "k", "--lease", "25h", "--", "ls"], ["'25h'", "the maximum is 24h"]),
        (&["locks", "release", "k", "7"], ["'7'", "32 hexadecimal digits; `waymaker-ctl locks list`"]),
        (&["locks", "verify", "k", "one"], ["'one'", "a fence is a whole number"]),
        (&["throttle", "b", "--rate", "5"], ["'5'", "a rate looks like 100/s"]),
    ] {
        let printed = output(ctl(&nobody(), words));
        assert_eq!(printed.status.code(), Some(125), "{words:?}");
        let text = stderr(&printed);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let text = stderr(&output(ctl(&nobody(), &["locks", "watch", &"k".repeat(2_000)])));
    assert!(text.len() < 400 && text.contains("kkk...'"), "{text}");
}
