//! Error messages, for people and as JSON.

use std::fs::OpenOptions;
use std::process::Stdio;

use serde_json::Value;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, output, stderr, stdout};
use crate::real::{RealServer, server};

/// Runs the command with --json and returns the only object on stderr.
fn complaint(server: &str, words: &[&str]) -> Value {
    let output = output(ctl(server, &[&["--json"], words].concat()));
    let text = stderr(&output);
    assert_eq!(stdout(&output), "", "{words:?}");
    assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
    let object: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words:?}: {text}"));
    crate::schema::check("error", &object);
    assert_eq!(object["exit_code"], output.status.code().unwrap(), "{words:?}");
    assert!(object["message"].as_str().is_some_and(|message| !message.is_empty()), "{object}");
    object
}

fn holder(server: &RealServer, key: &str, owner: &str) -> Running {
    let words = ["lock", key, "--owner", owner, "--", "sh", "-c", "echo held; sleep 1000"];
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "held");
    running
}

#[test]
fn every_failure_has_a_code_and_a_message_in_json() {
    let server = server!();
    let _holder = holder(&server, "k", "größe \"x\" \\");
    assert_eq!(output(ctl(server.url(), &["throttle", "b", "--rate", "1/h"])).status.code(), Some(0));
    assert_eq!(output(ctl(server.url(), &["prefixes", "freeze", "eu/"])).status.code(), Some(0));
    let id = "00000000000000010000000000000002";
    for (words, code) in [
        (&["lock", "k", "--wait", "0s", "--", "true"][..], "busy"),
        (&["lock", "k", "--wait", "50ms", "--", "true"], "timeout"),
        (&["lock", "eu/k", "--wait", "0s", "--", "true"], "frozen"),
        (&["lock", "", "--", "true"], "usage"),
        (&["lock", "free", "--", "./no-such-command"], "command_not_found"),
        (&["lock", "free", "--", "/etc/passwd"], "command_not_executable"),
        (&["throttle", "b", "--rate", "1/h"], "throttled"),
        (&["locks", "release", "k", id], "not_found"),
        (&["locks", "force-release", id, "--reason", "a test"], "not_found"),
        (&["presence", "get", "nobody"], "absent"),
        (&["log", "verify", "/no/such/directory"], "internal"),
        (&["locks", "inspect"], "usage"),
        (&["locks"], "usage"),
        (&["locks", "inspect", "k", "--nonsense"], "usage"),
        (&["nonsense"], "usage"),
        (&["--server", "http://localhost", "locks", "inspect", "k"], "usage"),
    ] {
        let object = complaint(server.url(), words);
        assert_eq!(object["code"], code, "{object}");
        assert_eq!(object.get("holder").is_some(), ["busy", "timeout"].contains(&code), "{object}");
        assert_eq!(object.get("retry_after_ms").is_some(), code == "throttled", "{object}");
    }
    let object = complaint(server.url(), &["lock", "k", "--wait", "0s", "--", "true"]);
    assert_eq!(object["holder"], "größe \"x\" \\");
    let object = complaint(server.url(), &["throttle", "b", "--rate", "1/h"]);
    assert!((3_500_000..=3_600_000).contains(&object["retry_after_ms"].as_u64().unwrap()), "{object}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("waymaker://{}", listener.local_addr().unwrap());
    drop(listener);
    let object = complaint(&gone, &["--connect-timeout", "1ms", "locks", "inspect", "k"]);
    assert_eq!(object["code"], "unreachable");
}

/// The option may come after the wrong word. Words after `--` belong to the command.
#[test]
fn wrong_usage_is_reported_as_json_wherever_the_option_is() {
    for words in [
        &["locks", "inspect", "--json"][..],
        &["nonsense", "--json"],
        &["locks", "inspect", "--output", "json"],
        &["locks", "inspect", "--output=json"],
    ] {
        let output = output(ctl("", words));
        assert_eq!(output.status.code(), Some(125));
        let object: Value = serde_json::from_str(&stderr(&output)).unwrap();
        assert_eq!(object["code"], "usage", "{words:?}");
    }
    let text = stderr(&output(ctl("", &["lock", "--", "jq", "--json"])));
    assert!(text.starts_with("error:"), "{text}");
}

#[test]
fn an_error_of_a_recovering_server_has_the_time_of_the_next_attempt() {
    let server = FakeServer::start();
    server.recover_for(2_500);
    let object = complaint(server.url(), &["lock", "k", "--wait", "0s", "--", "true"]);
    assert_eq!(
        (&object["code"], &object["retry_after_ms"]),
        (&"recovering".into(), &2_500.into()),
        "{object}"
    );
}

#[test]
fn messages_show_names_unchanged_except_control_characters() {
    let server = server!();
    let _holder = holder(&server, "schlüssel", "größe \"x\" \\");
    let text = stderr(&output(ctl(server.url(), &["lock", "schlüssel", "--wait", "0s", "--", "true"])));
    assert!(text.contains("schlüssel: busy: held by \"größe \"x\" \\\" for "), "{text}");
    // Control characters are still escaped.
    let _other = holder(&server, "other", "a\tb");
    let text = stderr(&output(ctl(server.url(), &["lock", "other", "--wait", "0s", "--", "true"])));
    assert!(text.contains(r#"held by "a\tb" for "#), "{text}");
}

/// Returns commands that print in different ways.
fn printing(data_dir: &str) -> Vec<Vec<&str>> {
    let words: [&[&str]; 8] = [
        &["namespaces", "list"],
        &["--json", "locks", "list"],
        &["locks", "inspect", "k"],
        &["locks", "watch", "k"],
        &["locks", "verify", "k", "1"],
        &["completions", "bash"],
        &["--help"],
        &["log", "inspect", data_dir, "--records"],
    ];
    words.into_iter().map(<[&str]>::to_vec).collect()
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()));
    let _holder = holder(&server, "k", "somebody");
    for words in printing(directory.path().to_str().unwrap()) {
        let mut command = ctl(server.url(), &words);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = crate::program::soon(move || child.wait_with_output().unwrap());
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        let text = stderr(&output);
        assert!(
            text.contains("cannot write to stdout") && text.contains("No space left"),
            "{words:?}: {text}"
        );
    }
}

#[test]
fn a_closed_pipe_on_stdout_ends_a_command_without_an_error_message() {
    let directory = tempfile::tempdir().unwrap();
    let server = server!(Some(directory.path()));
    let _holder = holder(&server, "k", "somebody");
    for words in printing(directory.path().to_str().unwrap()) {
        let mut command = ctl(server.url(), &words);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let output = crate::program::soon(move || child.wait_with_output().unwrap());
        assert_eq!(output.status.code(), Some(141), "{words:?}");
        assert_eq!(stderr(&output), "", "{words:?}");
    }
}

#[test]
fn a_lease_above_the_maximum_is_rejected() {
    let server = server!();
    for words in [
        &["lock", "k", "--lease", "48h", "--", "true"][..],
        &["semaphore", "k", "--capacity", "1", "--lease", "24h1ms", "--", "true"],
        &["elect", "k", "--lease", "2days", "--", "true"],
        &["presence", "set", "k", "--ttl", "25h", "--", "true"],
    ] {
        let output = output(ctl(server.url(), words));
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(stderr(&output).contains("the maximum is 24h"), "{}", stderr(&output));
    }
    let words = ["lock", "k", "--lease", "24h", "--", "true"];
    assert_eq!(output(ctl(server.url(), &words)).status.code(), Some(0));
}

#[test]
fn every_help_page_has_examples_and_exit_codes() {
    let page = |words: &[&str]| stdout(&output(ctl("", &[words, &["--help"]].concat())));
    let subcommands = |page: &str| -> Vec<String> {
        let list = page.split("Commands:\n").nth(1).unwrap_or_default();
        let names = list
            .lines()
            .take_while(|line| !line.is_empty())
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        names
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .filter(|name| name != "help")
            .collect()
    };
    let mut pages = vec![vec![]];
    while let Some(words) = pages.pop() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = page(&words);
        assert!(text.contains("Exit codes:"), "{words:?}");
        assert!(text.contains("Example:\n") || text.contains("Examples:\n"), "{words:?}");
        for name in subcommands(&text) {
            pages.push(words.iter().map(|word| (*word).to_owned()).chain([name]).collect());
        }
    }
}
