//! `locks acquire`, `locks extend` and `locks release`.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, eventually, output, soon, stderr, stdout};
use crate::real::{RealServer, server};

fn run(server: &RealServer, words: &[&str]) -> std::process::Output {
    output(ctl(server.url(), words))
}

fn inspect(server: &RealServer) -> Value {
    serde_json::from_str(&stdout(&run(server, &["locks", "inspect", "k", "--json"]))).unwrap()
}

#[test]
fn an_acquired_lock_stays_held_until_it_is_released() {
    let server = server!();
    let acquired = run(&server, &["locks", "acquire", "k"]);
    assert_eq!(acquired.status.code(), Some(0), "{}", stderr(&acquired));
    let id = stdout(&acquired);
    let id = id.strip_suffix('\n').unwrap();
    assert_eq!(id.len(), 32, "the id is alone on its line");
    let held = &inspect(&server)["holders"][0];
    assert_eq!(held["id"], id);
    let left = held["remaining_ms"].as_u64().unwrap();
    assert!((200_000..=300_000).contains(&left), "five minutes by default: {left}");
    let owner = held["owner"].as_str().unwrap();
    assert!(owner.contains('@') && !owner.contains("process"), "{owner}");
    assert_eq!(run(&server, &["lock", "k", "--wait", "0s", "--", "true"]).status.code(), Some(120));
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(0));
    assert_eq!(inspect(&server)["holder_count"], 0);
}

#[test]
fn an_acquired_lock_is_free_when_its_time_has_passed() {
    let server = server!();
    let acquired = run(&server, &["locks", "acquire", "k", "--release-after", "500ms", "--json"]);
    let acquired: Value = serde_json::from_str(&stdout(&acquired)).unwrap();
    assert_eq!(
        (&acquired["key"], &acquired["fence"], &acquired["lease_ms"]),
        (&"k".into(), &1.into(), &500.into())
    );
    eventually(|| inspect(&server)["holder_count"] == 0);
    let id = acquired["id"].as_str().unwrap();
    assert_eq!(run(&server, &["locks", "release", "k", id]).status.code(), Some(123));
}

#[test]
fn an_extend_moves_the_end_of_a_lease() {
    let server = server!();
    let acquired = run(&server, &["locks", "acquire", "k", "--read", "--owner", "me"]);
    let id = stdout(&acquired).trim().to_owned();
    let extended = run(&server, &["locks", "extend", "k", &id, "--release-after", "2h"]);
    let text = stdout(&extended);
    assert!(
        text.starts_with("k: held until 20") && text.ends_with(", for 2h\n"),
        "{text}{}",
        stderr(&extended)
    );
    let held = &inspect(&server)["holders"][0];
    assert_eq!((&held["owner"], &held["mode"]), (&"me".into(), &"read".into()));
    assert!(held["remaining_ms"].as_u64().unwrap() > 7_000_000);
    let extended = run(&server, &["locks", "extend", "k", &id, "--release-after", "1m", "--json"]);
    let object: Value = serde_json::from_str(&stdout(&extended)).unwrap();
    assert_eq!((&object["remaining_ms"], &object["clamped"]), (&60_000.into(), &false.into()));
    // The second key has the length of the first one.
    for key in ["other", "j"] {
        let other = run(&server, &["locks", "extend", key, &id]);
        assert_eq!(other.status.code(), Some(123), "{key}");
        let said = format!("no lock and no wait of {key} has the id ");
        assert!(stderr(&other).contains(&said), "{}", stderr(&other));
    }
    let left = inspect(&server)["holders"][0]["remaining_ms"].as_u64().unwrap();
    assert!(left <= 60_000, "the lease was not extended under another key: {left}");
    let unknown = run(&server, &["locks", "extend", "k", "00000000000000010000000000000002"]);
    assert_eq!(unknown.status.code(), Some(123), "{}", stderr(&unknown));
    for verb in ["extend", "release"] {
        let unknown = run(&server, &["locks", verb, "k", "00000000000000010000000000000002"]);
        let text = stderr(&unknown);
        assert!(
            text.contains("of k has the id 00000000000000010000000000000002; the lock may have expired"),
            "{text}"
        );
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn an_extend_prints_the_end_of_the_new_lease() {
    let server = server!();
    let id = stdout(&run(&server, &["locks", "acquire", "k"])).trim().to_owned();
    let earliest = unix_ms() + 3_600_000;
    let extended = run(&server, &["locks", "extend", "k", &id, "--release-after", "1h", "--json"]);
    let latest = unix_ms() + 3_600_000;
    let object: Value = serde_json::from_str(&stdout(&extended)).unwrap();
    let end = object["end_unix_ms"].as_u64().unwrap();
    assert!((earliest..=latest).contains(&end), "{earliest} <= {end} <= {latest}");
}

#[test]
fn a_shortened_lease_is_reported() {
    const NOTE: &str = "k: the server granted a lease of 30m, which is shorter than --release-after";
    let server = FakeServer::start();
    server.grant_at_most(1_800_000);
    let ctl = |words: &[&str]| output(ctl(server.url(), words));
    let acquired = ctl(&["locks", "acquire", "k", "--release-after", "1h"]);
    let id = stdout(&acquired).trim().to_owned();
    assert_eq!(stderr(&acquired), format!("waymaker-ctl: {NOTE}\n"));
    for words in [&["locks", "acquire", "k"][..], &["locks", "extend", "k", &id]] {
        let words = [words, &["--json", "--release-after"]].concat();
        let shortened = ctl(&[&words[..], &["1h"]].concat());
        let note: Value = serde_json::from_str(&stderr(&shortened)).unwrap();
        assert_eq!(note["note"], NOTE, "{words:?}");
        let object: Value = serde_json::from_str(&stdout(&shortened)).unwrap();
        let is_extend = words.contains(&"extend");
        assert_eq!(object[if is_extend { "remaining_ms" } else { "lease_ms" }], 1_800_000);
        assert_eq!(object["clamped"], if is_extend { true.into() } else { Value::Null });
        let in_full = ctl(&[&words[..], &["30m"]].concat());
        assert_eq!(stderr(&in_full), "", "{words:?}");
        let object: Value = serde_json::from_str(&stdout(&in_full)).unwrap();
        assert_eq!(object["clamped"], if is_extend { false.into() } else { Value::Null });
    }
}

/// The grant arrives when more than a third of its lease has passed. A renewal would be due at once.
#[test]
fn an_acquired_lock_is_not_renewed() {
    let server = FakeServer::start();
    server.delay_grants(Duration::from_secs(4));
    let words = ["locks", "acquire", "k", "--release-after", "11s", "--connect-timeout", "1h"];
    let acquired = output(ctl(server.url(), &words));
    assert_eq!(acquired.status.code(), Some(0), "{}", stderr(&acquired));
    assert_eq!(server.extend_count(), 0);
}

#[test]
fn an_acquire_that_waits_ends_with_its_time_or_by_a_signal() {
    let server = server!();
    let first = run(&server, &["locks", "acquire", "k"]);
    assert_eq!(first.status.code(), Some(0));
    for wait in ["0s", "50ms"] {
        let busy = run(&server, &["locks", "acquire", "k", "--wait", wait]);
        assert_eq!((busy.status.code(), stdout(&busy)), (Some(120), String::new()));
    }
    let mut waiter = Running::start(ctl(server.url(), &["locks", "acquire", "k"]));
    eventually(|| inspect(&server)["waiter_count"] == 1);
    waiter.signal(Signal::SIGINT);
    assert_eq!((waiter.wait().code(), waiter.line()), (Some(130), None));
    assert_eq!(inspect(&server)["waiter_count"], 0);
    run(&server, &["locks", "release", "k", stdout(&first).trim()]);
    assert_eq!(inspect(&server)["holder_count"], 0, "the cancelled wait left nothing behind");
}

#[test]
fn an_acquired_lock_whose_id_cannot_be_printed_is_released() {
    let server = server!();
    for option in ["table", "json"] {
        let mut command = ctl(server.url(), &["locks", "acquire", "k", "--output", option]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let output = soon(move || child.wait_with_output().unwrap());
        assert_eq!(output.status.code(), Some(141), "{}", stderr(&output));
        let state = inspect(&server);
        assert_eq!((&state["holder_count"], &state["waiter_count"]), (&0.into(), &0.into()));
    }
}

#[test]
fn an_acquired_lock_of_scope_local_survives_a_crash_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server!(Some(directory.path()));
    let words = ["locks", "acquire", "k", "--scope", "local", "--release-after", "1h", "--json"];
    let acquired: Value = serde_json::from_str(&stdout(&run(&server, &words))).unwrap();
    assert_eq!(acquired["scope"], "local");
    server.kill();
    let server = server.restart(directory.path());
    assert_eq!(inspect(&server)["holders"][0]["id"], acquired["id"]);
}
