//! Commands that must not outlive their lock.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, rest, soon};

/// Says what it gets and goes on.
const STUBBORN: &str = "trap 'echo term' TERM; echo started; while :; do sleep 0.02; done";
/// A shell with children that would go on without it.
const FAMILY: &str = "sleep 1000 & (sleep 1000 & wait) & echo started; wait";

fn start(server: &FakeServer, options: &[&str], script: &str) -> Running {
    let words = [&["lock", "k"], options, &["--", "sh", "-c", script]].concat();
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "started");
    running
}

#[test]
fn a_command_whose_lock_was_taken_away_gets_term_and_then_kill() {
    let server = FakeServer::start();
    let mut running = start(&server, &["--grace", "200ms"], STUBBORN);
    server.revoke();
    assert_eq!(running.line().unwrap(), "term");
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
}

#[test]
fn a_command_that_obeys_term_is_not_waited_for() {
    let server = FakeServer::start();
    let mut running = start(&server, &["--grace", "1h", "--lease", "23h"], FAMILY);
    server.revoke();
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
}

#[test]
fn a_command_whose_lease_cannot_be_renewed_is_gone_before_the_lease_is_over() {
    /// Lengths of the lease. The reaction of a busy machine takes a smaller part of a longer lease, so one of them has to pass.
    const LEASES_S: [u64; 4] = [3, 6, 12, 24];
    for lease_s in LEASES_S {
        let server = FakeServer::start();
        let directory = tempfile::tempdir().unwrap();
        // The program outlives its command while it says goodbye, so the end of the command must show somewhere else.
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let script = format!("exec 9> {}; {}", fifo.display(), STUBBORN);
        let words = ["lock", "k", "--lease", &format!("{lease_s}s"), "--", "sh", "-c", &script];
        let mut running = Running::start(ctl(server.url(), &words));
        let reader = soon(move || std::fs::File::open(fifo).unwrap());
        assert_eq!(running.line().unwrap(), "started");
        server.fall_silent();
        assert_eq!(running.line().unwrap(), "term");
        let term = Instant::now();
        assert_eq!(soon(|| rest(reader)), "");
        let gone = Instant::now();
        assert_eq!(running.wait().code(), Some(121));
        let lease = Duration::from_secs(lease_s);
        let lease_end = server.last_lease_begin() + lease;
        // The grace is a third of the lease.
        if gone < lease_end && gone - term > lease / 6 {
            return;
        }
        println!("lease {lease:?}: KILL {:?} after TERM, {:?} before the end", gone - term, lease_end - gone);
    }
    panic!("with no lease the command was gone in time and had its grace");
}

#[test]
fn a_program_that_is_killed_takes_the_whole_group_of_its_command_along() {
    let server = FakeServer::start();
    let mut running = start(&server, &[], FAMILY);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), None);
    running.wait();
}

/// A program that is stopped cannot send anything. The watchdog knows the deadline.
#[test]
fn a_program_that_is_stopped_does_not_let_its_command_outlive_the_lease() {
    let server = FakeServer::start();
    let directory = tempfile::tempdir().unwrap();
    // The stopped program keeps its stdout open, so the end of the command must show somewhere else.
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("exec 9> {}; {FAMILY}", fifo.display());
    let words = ["lock", "k", "--lease", "1s", "--", "sh", "-c", &script];
    let mut running = Running::start(ctl(server.url(), &words));
    let reader = soon(move || std::fs::File::open(fifo).unwrap());
    assert_eq!(running.line().unwrap(), "started");
    running.signal(Signal::SIGSTOP);
    assert_eq!(soon(|| rest(reader)), "");
    running.signal(Signal::SIGCONT);
    assert_eq!(running.wait().code(), Some(121));
}

/// Signals for the group are meant for the command. A watchdog that died of one would leave it unwatched.
#[test]
fn a_command_that_signals_its_own_group_is_still_watched() {
    let server = FakeServer::start();
    let script = "trap : TERM INT HUP; kill -TERM 0; kill -INT 0; kill -HUP 0; ps -o pgid= -p $$; sleep 1000";
    let words = ["lock", "k", "--", "sh", "-c", script];
    let mut running = Running::start(ctl(server.url(), &words));
    let group: i32 = running.line().unwrap().trim().parse().unwrap();
    killpg(Pid::from_raw(group), None).unwrap();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), None);
    running.wait();
}

/// As an interactive shell does. What it starts in further groups is its own business.
#[test]
fn a_command_that_leaves_the_group_ends_with_its_lock_and_by_signals() {
    let server = FakeServer::start();
    let words = ["lock", "k", "--", "setsid", "sh", "-c", "echo started; exec sleep 1000"];
    let start = || {
        let mut running = Running::start(ctl(server.url(), &words));
        assert_eq!(running.line().unwrap(), "started");
        running
    };
    let mut running = start();
    server.revoke();
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
    let mut running = start();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(143));
}
