//! Commands that lose their lock.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, rest, soon};

/// Prints a line for SIGTERM and continues.
const STUBBORN: &str = "trap 'echo term' TERM; echo started; while :; do sleep 0.02; done";
/// A shell with children that would continue without it.
const FAMILY: &str = "sleep 1000 & (sleep 1000 & wait) & echo started; wait";

fn start(server: &FakeServer, options: &[&str], script: &str) -> Running {
    let words = [&["lock", "k"], options, &["--", "sh", "-c", script]].concat();
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "started");
    running
}

#[test]
fn a_command_whose_lock_is_revoked_gets_term_and_then_kill() {
    let server = FakeServer::start();
    let mut running = start(&server, &["--grace", "200ms"], STUBBORN);
    server.revoke();
    assert_eq!(running.line().unwrap(), "term");
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
}

#[test]
fn a_command_that_ends_on_term_ends_the_grace() {
    let server = FakeServer::start();
    let mut running = start(&server, &["--grace", "1h", "--lease", "23h"], FAMILY);
    server.revoke();
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
}

#[test]
fn a_command_whose_lease_cannot_be_renewed_ends_before_the_lease_expires() {
    /// Lengths of the lease. The delays of a busy machine are a smaller part of a longer lease, so one of the lengths must pass.
    const LEASES_S: [u64; 4] = [3, 6, 12, 24];
    for lease_s in LEASES_S {
        let server = FakeServer::start();
        let directory = tempfile::tempdir().unwrap();
        // waymaker-ctl ends after its command, so a FIFO shows the end of the command.
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
fn the_group_of_the_command_is_killed_when_waymaker_ctl_is_killed() {
    let server = FakeServer::start();
    let mut running = start(&server, &[], FAMILY);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), None);
    running.wait();
}

/// A stopped process cannot send signals. The watchdog knows the deadline.
#[test]
fn the_command_is_killed_before_the_lease_expires_while_waymaker_ctl_is_stopped() {
    let server = FakeServer::start();
    let directory = tempfile::tempdir().unwrap();
    // The stopped process keeps its stdout open, so a FIFO shows the end of the command.
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

/// Signals for the group are meant for the command. If one ended the watchdog, the command would be unwatched.
#[test]
fn the_watchdog_survives_signals_that_the_command_sends_to_its_group() {
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

/// An interactive shell leaves the group. Processes that it starts in further groups are not watched.
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
