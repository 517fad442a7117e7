//! KILL, in the system calls: under strace the n-th call of a kind ends the process, or fails.

use super::client::RigClient;
use super::history::{Entry, Micros, now};
use super::load::Load;
use super::site::{any_shape, count, has, judge, on, start, wrap};
use crate::harness::{Server, wait_for};
use crate::skip::skip;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const EXIT_DISK_FAILED: i32 = 75;
/// Grants after which a server that is still there is stopped in order.
const GRANTS: u64 = 60;
const TRACED: &str = "trace=fdatasync,fsync,msync,rename,fallocate,ftruncate,unlink";

/// A call that is tampered with, counted in each thread.
struct Injection {
    calls: &'static str,
    when: u64,
}

/// Every call at which something is written for good, at the first few times in the short form and at fifty in the long.
fn injections(kinds: &[(&'static str, &[u64])]) -> Vec<Injection> {
    let is_long = count("WAYMAKER_KILLS", 0) > 0;
    let long: Vec<u64> = (1..=50).collect();
    let mut injections = Vec::new();
    for (calls, short) in kinds {
        let times = if is_long { &long[..] } else { short };
        injections.extend(times.iter().map(|when| Injection { calls, when: *when }));
    }
    injections
}

fn start_tampered(directory: &Path, what: &str, trace: &Path) -> Option<Server> {
    let trace = trace.to_str().expect("text");
    // strace watches from beside: the server is our own child.
    let strace = ["strace", "-D", "-f", "-y", "-ttt", "-o", trace, "-e", TRACED, "-e", what];
    Server::try_start_with(&mut wrap(&strace, &on(directory, &any_shape())), None).ok()
}

#[test]
fn no_promise_is_broken_by_kills_at_any_write() {
    if !has("strace") {
        return skip("kills at any write", "there is no strace");
    }
    let place = tempfile::tempdir().expect("a directory");
    let trace = place.path().join("trace");
    let directory = place.path().join("data");
    let load = Load::new(RigClient::run);
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    let kinds: [(&str, &[u64]); 5] = [
        ("fdatasync", &[1, 2, 4, 7, 11, 16, 30]),
        ("fsync", &[1, 2, 3, 5]),
        ("rename", &[1, 2, 3]),
        ("fallocate", &[1]),
        ("unlink,ftruncate", &[1, 2]),
    ];
    for Injection { calls, when } in injections(&kinds) {
        let what = format!("inject={calls}:signal=SIGKILL:when={when}");
        let end = match start_tampered(&directory, &what, &trace) {
            None => "at the start",
            Some(mut server) => {
                load.turn_to(&server);
                if load.wait_for_grants(GRANTS, &mut server) {
                    server.signal("TERM");
                    if server.wait().success() { "never" } else { "at the end" }
                } else {
                    "under load"
                }
            }
        };
        *ends.entry(end).or_default() += 1;
    }
    let mut server = start(&directory, &any_shape());
    load.turn_to(&server);
    assert!(load.wait_for_grants(GRANTS, &mut server), "the server ended by itself");
    judge(&format!("killed at writes {ends:?}"), &load.stop());
    assert!(ends.contains_key("at the start") && ends.contains_key("under load"), "{ends:?}");
}

#[test]
fn a_failed_sync_ends_the_process_without_further_promises() {
    if !has("strace") {
        return skip("failed syncs", "there is no strace");
    }
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("data");
    let trace = place.path().join("trace");
    let load = Load::new(RigClient::run);
    let mut silences = Vec::new();
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for (number, injection) in
        injections(&[("fdatasync,fsync", &[2, 5, 9, 14, 20, 27, 35, 44])]).iter().enumerate()
    {
        let error = ["EIO", "ENOSPC"][number % 2];
        let what = format!("inject={}:error={error}:when={}", injection.calls, injection.when);
        let Some(mut server) = start_tampered(&directory, &what, &trace) else {
            *ends.entry("refused to start".to_owned()).or_default() += 1;
            continue;
        };
        load.turn_to(&server);
        let lives = load.wait_for_grants(GRANTS, &mut server);
        if lives {
            server.signal("TERM");
        }
        let status = server.wait();
        let failure = Trace::read(&trace).failure;
        let end = match failure {
            None => "nothing failed".to_owned(),
            Some(failure) if failure.is_spare => "what failed was not needed".to_owned(),
            Some(failure) => {
                assert!(!status.success(), "{failure:?} was survived");
                if !lives {
                    assert_eq!(status.code(), Some(EXIT_DISK_FAILED), "{failure:?}");
                }
                assert_eq!(failure.later_syncs, 0, "a sync that failed is final: {failure:?}");
                silences.push((failure.at, failure.ended));
                format!("{status}")
            }
        };
        *ends.entry(end).or_default() += 1;
    }
    let mut server = start(&directory, &any_shape());
    load.turn_to(&server);
    assert!(load.wait_for_grants(GRANTS, &mut server), "the server ended by itself");
    let history = load.stop();
    for (failed, ended) in silences {
        let is_late = |entry: &&Entry| {
            let call = entry.call();
            matches!(entry, Entry::Granted { .. }) && call.invoked > failed && call.returned < ended
        };
        assert_eq!(history.iter().find(is_late), None, "granted after the sync at {failed} had failed");
    }
    judge(&format!("failed syncs {ends:?}"), &history);
    assert!(ends.contains_key(&format!("exit status: {EXIT_DISK_FAILED}")), "{ends:?}");
}

/// What strace wrote.
struct Trace {
    failure: Option<Failure>,
}

/// A call that was made to fail.
#[derive(Clone, Copy, Debug)]
struct Failure {
    at: Micros,
    ended: Micros,
    /// Syncs that the same thread began after the failure.
    later_syncs: usize,
    /// It was for a file that means nothing yet: a full disk, or for a snapshot any error, keeps it from being made.
    is_spare: bool,
}

impl Trace {
    /// Waits until strace has written its last line.
    fn read(path: &Path) -> Self {
        let text = wait_for("the end of strace", || {
            let text = std::fs::read_to_string(path).expect("a trace");
            let ended = text.lines().filter(|line| line.contains("+++ ")).count();
            let is_whole = text.lines().last().is_some_and(|line| line.contains("+++ "));
            (is_whole && ended >= threads(&text)).then_some(text)
        });
        // strace counts from 1970.
        let unix =
            SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64;
        let offset = unix - now();
        let at = |line: &str| {
            let seconds: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some((seconds * 1e6) as u64 - offset)
        };
        let injected = text.lines().find(|line| line.contains("(INJECTED)"));
        let failure = injected.and_then(|line| {
            let thread = line.split_whitespace().next()?;
            // The file stands where the call began.
            let begins =
                |other: &&str| other.starts_with(thread) && other.contains('<') && !other.contains("<...");
            let before = &text[..line.as_ptr() as usize - text.as_ptr() as usize + line.len()];
            let begin = before.lines().rfind(begins)?;
            let is_full = line.contains("ENOSPC");
            let is_spare = begin.contains("snapshot.tmp") || (is_full && begin.contains(".tmp"));
            let is_sync = |line: &&str| line.starts_with(thread) && line.contains("sync(");
            let later_syncs = text[before.len()..].lines().filter(is_sync).count();
            Some(Failure { at: at(line)?, ended: at(text.lines().last()?)?, later_syncs, is_spare })
        });
        Self { failure }
    }
}

fn threads(text: &str) -> usize {
    let mut threads: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    threads.sort_unstable();
    threads.dedup();
    threads.len()
}
