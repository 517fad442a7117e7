//! Notices of the server to the supervisor that started it, such as systemd, over a real socket.

use crate::harness::{Server, WATCHDOG, command, is_nothing_yet, wait_for, workers};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Time without a notice after which the supervisor would end the server.
const WATCHDOG_US: &str = "800000";
/// The server feeds the watchdog four times within that time.
const FEED: Duration = Duration::from_millis(200);

/// A supervisor with a socket for notices.
struct Supervisor {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Supervisor {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        Self { folder, socket }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("notify")
    }

    fn start(&self, variables: &[(&str, &str)]) -> Server {
        let mut command = command(&["--workers", "2", "--drain", "10s"]);
        command.env("NOTIFY_SOCKET", self.path()).envs(variables.iter().copied());
        Server::start_with(command.env("WAYMAKER_LOG", "error").stderr(std::process::Stdio::inherit()), None)
    }

    /// Returns the next notice, or `None` if there is none in time.
    fn try_next(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(len) => Some(String::from_utf8_lossy(&buffer[..len]).into_owned()),
            Err(error) if is_nothing_yet(&error) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a notice that begins like this.
    fn next(&self, begin: &str) -> String {
        wait_for(begin, || self.try_next().filter(|notice| notice.starts_with(begin)))
    }
}

#[test]
fn the_supervisor_learns_of_the_start_a_reload_and_the_drain() {
    let supervisor = Supervisor::new();
    let mut server = supervisor.start(&[]);
    let ready = supervisor.try_next().expect("the first notice");
    assert_eq!(ready, format!("READY=1\nSTATUS=ready: binary={}\n", server.address("binary")));
    let _held = {
        let mut client = server.client("holder");
        client.acquire(b"key", 60_000);
        client
    };
    server.signal("HUP");
    let reloading = supervisor.next("RELOADING=1\n");
    let monotonic = reloading.lines().nth(1).and_then(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(monotonic.and_then(|us| us.parse::<u64>().ok()).is_some_and(|us| us > 0), "{reloading}");
    assert_eq!(supervisor.next("READY=1"), "READY=1\n");
    server.signal("TERM");
    supervisor.next("STOPPING=1\n");
    supervisor.next("STATUS=not ready (stopping): ");
    server.signal("TERM");
    assert!(server.wait().success());
}

/// One thread of the server is stopped, as a debugger does it. The others go on.
#[test]
fn the_watchdog_is_fed_only_while_every_worker_responds() {
    let supervisor = Supervisor::new();
    let server = supervisor.start(&[("WATCHDOG_USEC", WATCHDOG_US)]);
    supervisor.next("WATCHDOG=1\n");
    let worker = workers(&server).next().expect("a worker");
    let thread =
        Pid::from_raw(worker.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("a thread"));
    ptrace::seize(thread, ptrace::Options::empty()).expect("it is a thread of our child");
    ptrace::interrupt(thread).expect("it runs");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
    // Answers from before the stop may be on their way.
    supervisor.socket.set_read_timeout(Some(5 * FEED)).expect("a socket");
    let late = std::iter::from_fn(|| supervisor.try_next())
        .take(10)
        .filter(|notice| notice.contains("WATCHDOG=1"))
        .count();
    // Before the assertion: a server with a traced thread does not end.
    ptrace::detach(thread, None).expect("it is stopped");
    assert!(late <= 2, "{late} notices although a worker hangs");
    supervisor.next("WATCHDOG=1\n");
}

#[test]
fn a_server_without_a_usable_supervisor_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing: &Path = &folder.path().join("missing");
    let mut command = command(&["--workers", "1"]);
    command.env("NOTIFY_SOCKET", missing).env("WATCHDOG_USEC", WATCHDOG_US).env("WAYMAKER_LOG", "off");
    let server = Server::start_with(&mut command, None);
    server.assert_serves();
}
