//! Commands that hold their lock until they end.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, eventually, output, stdout};

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = FakeServer::start();
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        let output = output(ctl(server.url(), &["lock", "k", "--", "sh", "-c", script]));
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert_eq!(server.released().len(), 1, "{script}");
    }
}

#[test]
fn the_environment_of_the_command_describes_its_lock() {
    let server = FakeServer::start();
    let script = "echo $WAYMAKER_KEY; echo $WAYMAKER_LOCK_ID; echo $WAYMAKER_FENCE $WAYMAKER_LEASE_MS";
    let output = output(ctl(server.url(), &["lock", "some key", "--", "sh", "-c", script]));
    assert_eq!(stdout(&output), "some key\n00000000000000010000000000000007\n41 30000\n");
}

#[test]
fn the_command_reads_the_input_of_the_caller() {
    let server = FakeServer::start();
    let mut command = ctl(server.url(), &["lock", "k", "--", "cat"]);
    command.stdin(std::fs::File::open("/proc/self/comm").unwrap());
    assert!(!stdout(&output(command)).is_empty());
}

#[test]
fn signals_are_passed_on_and_the_lock_is_released_when_the_command_has_ended() {
    let server = FakeServer::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let name = signal.as_str().trim_start_matches("SIG");
        let script =
            format!("trap 'echo got {name}; exit 7' {name}; echo started; while :; do sleep 0.02; done");
        let mut running = Running::start(ctl(server.url(), &["lock", "k", "--", "sh", "-c", &script]));
        assert_eq!(running.line().unwrap(), "started");
        assert!(server.released().is_empty());
        running.signal(signal);
        assert_eq!(running.line(), Some(format!("got {name}")));
        assert_eq!(running.wait().code(), Some(7), "{name}");
        assert_eq!(server.released().len(), 1);
    }
}

/// Returns the children of this process.
fn children(parent: u32) -> Vec<i32> {
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn is_watchdog(pid: i32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"watchdog")
}

/// A user can stop the whole group, which includes the watchdog.
#[test]
fn signals_are_passed_on_while_the_watchdog_is_stopped() {
    let server = FakeServer::start();
    for _ in 0..10 {
        let mut running = Running::start(ctl(server.url(), &["lock", "k", "--", "sleep", "1000"]));
        eventually(|| match children(running.id()).into_iter().find(|pid| is_watchdog(*pid)) {
            Some(watchdog) => kill(Pid::from_raw(watchdog), Signal::SIGSTOP).is_ok(),
            None => false,
        });
        running.signal(Signal::SIGTERM);
        assert_eq!(running.wait().code(), Some(143));
    }
    assert_eq!(server.released().len(), 10);
}

#[test]
fn a_command_ends_while_its_watchdog_is_stopped() {
    let server = FakeServer::start();
    let mut running = Running::start(ctl(
        server.url(),
        &["lock", "k", "--", "sh", "-c", "echo started; sleep 0.2; exit 7"],
    ));
    assert_eq!(running.line().unwrap(), "started");
    let watchdog = children(running.id()).into_iter().find(|pid| is_watchdog(*pid)).expect("a watchdog");
    kill(Pid::from_raw(watchdog), Signal::SIGSTOP).expect("it is there");
    assert_eq!(running.wait().code(), Some(7));
    assert_eq!(server.released().len(), 1);
}

/// Returns the letter of the kernel for the state of this process; `None` if there is no such process.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The watchdog reads an old deadline that has passed, and then later deadlines.
#[test]
fn a_continued_watchdog_does_not_kill_a_command_whose_lock_was_renewed() {
    const LEASE: std::time::Duration = std::time::Duration::from_secs(1);
    let server = FakeServer::start();
    let words = ["lock", "k", "--lease", "1s", "--", "sh", "-c", "echo started; exec sleep 1000"];
    let mut running = Running::start(ctl(server.url(), &words));
    assert_eq!(running.line().unwrap(), "started");
    let watchdog = children(running.id()).into_iter().find(|pid| is_watchdog(*pid)).expect("a watchdog");
    kill(Pid::from_raw(watchdog), Signal::SIGSTOP).expect("it is there");
    let stopped = std::time::Instant::now();
    eventually(|| server.last_lease_begin() > stopped + LEASE);
    kill(Pid::from_raw(watchdog), Signal::SIGCONT).expect("it is there");
    eventually(|| !matches!(state(watchdog), Some('T' | 'R')));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(143), "it ran until it was told to end");
}

/// The shell and its children belong to the group that gets the signal.
#[test]
fn signals_reach_the_children_of_the_command() {
    let server = FakeServer::start();
    let script = "sleep 1000 & sleep 1000 & echo started; wait";
    let mut running = Running::start(ctl(server.url(), &["lock", "k", "--", "sh", "-c", script]));
    assert_eq!(running.line().unwrap(), "started");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(143));
}

#[test]
fn a_lease_is_renewed_while_the_command_runs() {
    let server = FakeServer::start();
    let words = ["lock", "k", "--lease", "3s", "--", "sh", "-c", "sleep 4; echo done"];
    let output = output(ctl(server.url(), &words));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "done\n");
}

#[test]
fn processes_that_the_command_leaves_running_do_not_keep_the_lock() {
    let server = FakeServer::start();
    let mut running = Running::start(ctl(
        server.url(),
        &["lock", "k", "--", "sh", "-c", "cat /dev/zero > /dev/null & echo $!"],
    ));
    let left: i32 = running.line().unwrap().parse().unwrap();
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(server.released().len(), 1);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), Signal::SIGKILL).expect("it was left alone");
}
