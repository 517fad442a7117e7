//! Runs programs and collects their output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use waymaker_loadgen::process::Process;

/// Time limit for an event. It is far longer than any event takes on a busy machine, and no other verdict depends
/// on it.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Polls `is_so` until it returns true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !is_so() {
        assert!(Instant::now() < deadline, "missing after {WATCHDOG:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a process has used this much CPU time.
pub(crate) fn wait_until_used(id: u32, time: Duration) {
    let process = Process { id };
    wait_until("a process that works", || u128::from(process.cpu_ns().expect("it runs")) >= time.as_nanos());
}

/// Returns the program under test.
pub(crate) fn loadgen() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-loadgen"));
    command.stdin(Stdio::null());
    command
}

/// Result of one run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    let Output { status, stdout, stderr } = loadgen().args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// A very short comparison, with slices that are long enough for a response from a server that waits for its core.
pub(crate) const QUICK: [&str; 3] = ["--quick", "--slice", "500ms"];

/// Runs such a comparison.
pub(crate) fn compare_quickly(more: &[&str]) -> Ended {
    run(&[&["compare"], &QUICK[..], more].concat())
}

impl Ended {
    /// Asserts that all responses were correct.
    #[track_caller]
    pub(crate) fn assert_success(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Asserts that a response was wrong and that the report contains these words.
    #[track_caller]
    pub(crate) fn assert_wrong(&self, words: &str) -> &Self {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert!(self.stdout.contains(words), "no {words:?} in {self:#?}");
        self
    }

    /// Asserts that the program failed before the measurement and that its error contains these words.
    #[track_caller]
    pub(crate) fn assert_refused(&self, words: &str) -> &Self {
        assert_eq!(self.code, Some(2), "{self:#?}");
        assert!(self.stderr.contains(words), "no {words:?} in {self:#?}");
        self
    }
}

/// A server that ends with its test.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// `host:port`.
    pub(crate) address: String,
}

impl Server {
    /// Starts a server that prints `ready NAME=host:port`.
    pub(crate) fn start(mut command: Command, name: &str) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let address = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let words = line.strip_prefix("ready")?.to_owned();
                words
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
            })
            .expect("the server becomes ready");
        Self { child, address }
    }

    /// Wraps a server that is known to listen at this address.
    pub(crate) fn started(child: Child, address: String) -> Self {
        Self { child, address }
    }

    /// Starts an echo server.
    pub(crate) fn echo(more: &[&str]) -> Self {
        let mut command = loadgen();
        command.arg("echo-server").args(more);
        Self::start(command, "echo")
    }
}

impl Server {
    /// Waits until the server serves a load: start-up and handshakes take far less CPU time than this.
    pub(crate) fn wait_until_loaded(&self) {
        wait_until_used(self.child.id(), Duration::from_secs(1));
    }

    /// Sends SIGTERM and waits for the end of the server.
    pub(crate) fn terminate(mut self) {
        let id = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a server while it serves a load of this target, and asserts that the load reports it.
#[track_caller]
pub(crate) fn assert_death_is_noticed(server: Server, target: &str, more: &[&str]) {
    let loading = std::thread::scope(|scope| {
        let loading = scope.spawn(|| run(&[&["--target", target, "--duration", "1h"], more].concat()));
        server.wait_until_loaded();
        drop(server);
        loading.join().expect("it ends")
    });
    loading.assert_wrong("a lost connection");
}

/// Reads the file that `--json` wrote.
pub(crate) fn read_json(path: &std::path::Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}
