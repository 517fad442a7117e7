//! Edge cases of values, notes and output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::program::{Running, ctl, eventually, output, soon, stderr, stdout};
use crate::real::{RealServer, server};

/// An address that nothing needs to listen at.
const NOWHERE: &str = "waymaker://127.0.0.1:1";

fn run(server: &RealServer, words: &[&str]) -> Output {
    output(ctl(server.url(), words))
}

/// Runs a command line that is wrong, and returns the error.
fn usage(words: &[&str]) -> String {
    let output = output(ctl(NOWHERE, words));
    assert_eq!(output.status.code(), Some(125), "{words:?}: {}", stderr(&output));
    stderr(&output)
}

/// Starts a command that waits, and returns its first note about the wait.
fn waiting_note(server: &RealServer, words: &[&str]) -> String {
    let mut child = ctl(server.url(), words).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let note = soon(move || lines.map(Result::unwrap).find(|line| line.contains("waiting for")).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    note
}

#[test]
fn a_lock_whose_id_cannot_be_written_is_released() {
    let server = server!();
    let mut acquire = ctl(server.url(), &["locks", "acquire", "k"]);
    acquire.stdout(File::open("/etc/hosts").unwrap()).stderr(Stdio::piped());
    let child = acquire.spawn().unwrap();
    let output = soon(move || child.wait_with_output().unwrap());
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("cannot write to stdout: "), "{}", stderr(&output));
    assert!(stdout(&run(&server, &["locks", "inspect", "k"])).starts_with("k: free"));
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let mut help = ctl(NOWHERE, &["--help"]);
    help.stdout(File::open("/etc/hosts").unwrap()).stderr(Stdio::null());
    assert_eq!(help.status().unwrap().code(), Some(125));
}

/// Returns the process of the server, found by the path of its socket.
fn process_of(server: &RealServer) -> Pid {
    let url = server.unix_url();
    let socket = url.strip_prefix("waymaker+unix://").unwrap();
    let is_server = |id: &i32| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == socket.as_bytes())
    };
    let names = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let mut ids = names.filter_map(|name| name.to_str()?.parse().ok());
    Pid::from_raw(ids.find(is_server).unwrap())
}

/// The responses about the grant and about the holder, which is the candidate itself, arrive together.
#[test]
fn a_candidate_does_not_wait_for_itself() {
    let server = server!();
    let script = "trap 'echo stopped; exit 3' TERM; echo leads; while :; do sleep 0.02; done";
    let words = ["elect", "k", "--lease", "1s", "--owner", "solo", "--", "sh", "-c", script];
    let errors = tempfile::NamedTempFile::new().unwrap();
    let mut command = ctl(server.url(), &words);
    command.stderr(errors.reopen().unwrap());
    let mut candidate = Running::start(command);
    assert_eq!(candidate.line().unwrap(), "leads");
    let process = process_of(&server);
    kill(process, Signal::SIGSTOP).unwrap();
    assert_eq!(candidate.line().unwrap(), "stopped");
    std::thread::sleep(Duration::from_millis(1_500));
    kill(process, Signal::SIGCONT).unwrap();
    assert_eq!(candidate.line().unwrap(), "leads");
    let notes = std::fs::read_to_string(errors.path()).unwrap();
    assert!(!notes.contains("waiting for"), "{notes}");
}

#[test]
fn an_empty_key_is_rejected_by_every_command() {
    for words in [
        &["registry", "set", "", "--value", "v"][..],
        &["registry", "get", ""],
        &["registry", "remove", ""],
        &["presence", "set", ""],
        &["presence", "get", ""],
        &["locks", "inspect", ""],
        &["locks", "watch", ""],
        &["locks", "verify", "", "1"],
    ] {
        let text = usage(words);
        assert!(text.contains("it is empty; the minimum is 1 byte"), "{words:?}: {text}");
    }
    let server = server!();
    assert_eq!(run(&server, &["locks", "inspect", "--tree", ""]).status.code(), Some(0));
}

#[test]
fn a_note_about_a_free_key_names_a_frozen_prefix() {
    let server = server!();
    assert_eq!(run(&server, &["prefixes", "freeze", "zz"]).status.code(), Some(0));
    let note = waiting_note(&server, &["lock", "zz1", "--", "true"]);
    assert_eq!(note, "waymaker-ctl: waiting for zz1, which is free; its prefix may be frozen");
}

#[test]
fn a_reader_behind_a_writer_is_told_of_the_writer() {
    let server = server!();
    assert_eq!(run(&server, &["locks", "acquire", "rw", "--read", "--owner", "r1"]).status.code(), Some(0));
    let _writer = Running::start(ctl(server.url(), &["lock", "rw", "--", "true"]));
    eventually(|| stdout(&run(&server, &["locks", "inspect", "rw"])).contains("1 waiting"));
    let note = waiting_note(&server, &["lock", "rw", "--read", "--", "true"]);
    assert_eq!(note, "waymaker-ctl: waiting for rw, held by readers; a writer waits in front");
    let note = waiting_note(&server, &["lock", "rw", "--", "true"]);
    assert!(note.contains("held by r1 for "), "{note}");
}

#[test]
fn an_expired_lease_is_shown_as_expired() {
    let server = server!();
    let words = ["registry", "set", "k", "--lazy", "--value", "v", "--ttl", "10ms"];
    assert_eq!(run(&server, &words).status.code(), Some(0));
    eventually(|| {
        let list = stdout(&run(&server, &["locks", "list", "--kind", "lazy"]));
        list.contains("  expired  ") && !list.contains("0.0s  0")
    });
}

#[test]
fn times_below_the_minimum_are_rejected_with_value_and_limit() {
    for words in [
        &["lock", "k", "--lease", "5ms", "--", "true"][..],
        &["elect", "k", "--lease", "5ms", "--", "true"],
        &["locks", "acquire", "k", "--release-after", "5ms"],
        &["locks", "extend", "k", "00000000000000010000000000000002", "--release-after", "5ms"],
        &["registry", "set", "k", "--value", "v", "--ttl", "5ms"],
        &["presence", "set", "k", "--ttl", "5ms"],
    ] {
        let text = usage(words);
        assert!(text.contains("5ms is shorter than the minimum of 10ms"), "{words:?}: {text}");
    }
    let text = usage(&["locks", "list", "--connect-timeout", "0s"]);
    assert!(text.contains("0s is shorter than the minimum of 1ms"), "{text}");
}

#[test]
fn verify_says_when_a_fence_was_never_granted() {
    let server = server!();
    let output = run(&server, &["locks", "verify", "neverseen", "0"]);
    assert_eq!(output.status.code(), Some(121));
    assert_eq!(stdout(&output), "neverseen: fence 0 was never granted\n");
    let output = run(&server, &["locks", "verify", "neverseen", "7"]);
    assert_eq!(output.status.code(), Some(121));
    let said = "neverseen: fence 7 is above every fence that this server knows (newest 0); \
                an ephemeral fence from before a crash looks like this\n";
    assert_eq!(stdout(&output), said);
}

#[test]
fn negative_values_are_rejected_with_the_limit() {
    for (words, said) in [
        (&["lock", "k", "--priority", "-5", "--", "true"][..], "from 0 to 4,294,967,295"),
        (&["lock", "k", "--wait", "-1s", "--", "true"], "it is negative; the minimum is 0s"),
        (&["lock", "k", "--lease", "-1s", "--", "true"], "it is negative; the minimum is 10ms"),
        (&["pools", "resize", "p", "-1"], "a whole number of at least 1"),
        (&["semaphore", "p", "--capacity", "-1", "--", "true"], "a whole number of at least 1"),
        (&["locks", "verify", "k", "-1"], "a fence is a whole number"),
        (&["throttle", "b", "--rate", "-5/m"], "the number must be from 1"),
        (&["throttle", "b", "--rate", "5/m", "--cost", "-1"], "from 1 to 4,294,967,295"),
        (&["throttle", "b", "--rate", "5/few"], "a number and a unit: ms, s, m, h or d"),
    ] {
        let text = usage(words);
        assert!(text.contains(said) && !text.contains("tip:"), "{words:?}: {text}");
    }
}

#[test]
fn a_key_that_begins_with_a_dash_is_explained() {
    let text = usage(&["lock", "-x", "--", "true"]);
    assert!(text.contains("only with 'waymaker-ctl locks acquire -- -x'"), "{text}");
    let text = usage(&["lock", "k", "--nonsense", "--", "true"]);
    assert!(text.contains("--nonsense") && !text.contains("-- --nonsense"), "{text}");
    let text = usage(&["lock", "k", "--wait", "--", "true"]);
    assert!(text.contains("a value is required for '--wait <TIME>'"), "{text}");
    let server = server!();
    assert_eq!(run(&server, &["locks", "acquire", "--", "-x"]).status.code(), Some(0));
}

#[test]
fn the_watchdog_is_not_suggested() {
    for words in [&["--json"][..], &["watchdo"], &["watchdog", "--help"], &["watchdog", "x"]] {
        let text = usage(words);
        assert!(!text.contains("'watchdog'") || words[0] == "watchdog", "{text}");
        assert!(!text.contains("watchdog, "), "{text}");
    }
}

#[test]
fn removing_a_pool_names_it() {
    let server = server!();
    let output = run(&server, &["pools", "remove", "nop"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "nop: there is no such pool\n".to_owned()));
    let resized = stdout(&run(&server, &["pools", "resize", "p", "1"]));
    assert_eq!(resized, "p: 1 permit, there was no such pool\n");
    let words = ["semaphore", "p", "--capacity", "1", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut holder = Running::start(ctl(server.url(), &words));
    assert_eq!(holder.line().unwrap(), "held");
    let output = run(&server, &["pools", "remove", "p"]);
    assert_eq!(output.status.code(), Some(120));
    assert!(stderr(&output).starts_with("waymaker-ctl: p: "), "{}", stderr(&output));
    let text = usage(&["semaphore", "p", "--capacity", "2", "--permits", "3", "--", "true"]);
    assert!(text.contains("--permits 3 is more than --capacity 2"), "{text}");
}

#[test]
fn force_release_names_the_other_kinds() {
    let server = server!();
    let words = ["locks", "force-release", "00000000000000010000000000000002", "--reason", "test"];
    let output = run(&server, &words);
    assert_eq!(output.status.code(), Some(123));
    let said = "a lock of another kind needs --kind tree, pool, registry or lazy";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let text = usage(&["locks", "force-release", "00000000000000010000000000000002", "--reason", ""]);
    assert!(text.contains("a reason cannot be empty"), "{text}");
}

#[test]
fn tls_options_need_an_address_with_tls() {
    for words in [&["--tls-ca", "ca.pem", "locks", "list"][..], &["locks", "list", "--tls-ca", "ca.pem"]] {
        let text = usage(words);
        assert!(
            text.contains("--tls-ca needs a server address that begins with waymaker+tls://"),
            "{words:?}: {text}"
        );
    }
    let server = server!();
    let mut list = ctl(server.url(), &["locks", "list"]);
    list.env("WAYMAKER_TLS_CA", "ca.pem");
    assert_eq!(output(list).status.code(), Some(0), "the environment may contain options for other servers");
}

#[test]
fn a_watch_names_the_owner_of_a_lock_that_is_already_held() {
    let server = server!();
    assert_eq!(run(&server, &["locks", "acquire", "k", "--owner", "web-3"]).status.code(), Some(0));
    let mut watch = Running::start(ctl(server.url(), &["locks", "watch", "k"]));
    assert_eq!(watch.line().unwrap(), "k: held by web-3, fence 1");
    let mut watch = Running::start(ctl(server.url(), &["locks", "watch", "k", "--json"]));
    let state: Value = serde_json::from_str(&watch.line().unwrap()).unwrap();
    assert_eq!((&state["owner"], &state["mode"]), (&"web-3".into(), &"write".into()));
}

#[test]
fn usage_lines_leave_out_values_of_the_environment() {
    let mut command = ctl(NOWHERE, &["locks", "inspect"]);
    command.env("WAYMAKER_NAMESPACE", "n").env("WAYMAKER_OWNER", "o");
    let text = stderr(&output(command));
    assert!(text.contains("Usage: waymaker-ctl locks inspect <KEY>"), "{text}");
}

#[test]
fn a_value_that_is_not_utf8_is_named_with_its_option() {
    let mut command = ctl(NOWHERE, &["locks", "list", "--owner"]);
    command.arg(OsStr::from_bytes(b"a\xff"));
    let output = output(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains(r"a value is not UTF-8: a\xff after --owner"), "{}", stderr(&output));
}
