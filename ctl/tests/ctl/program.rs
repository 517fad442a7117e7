//! Runs waymaker-ctl and reads its output.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time after which an awaited event counts as missing. It is far longer than any event takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Returns a waymaker-ctl command with these words, for this server.
pub(crate) fn ctl(server: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-ctl"));
    command
        .args(words)
        .env("WAYMAKER_SERVER", server)
        .env_remove("WAYMAKER_NAMESPACE")
        .env_remove("WAYMAKER_OWNER")
        .env_remove("WAYMAKER_TOKEN")
        .env_remove("WAYMAKER_TOKEN_FILE")
        .env_remove("WAYMAKER_DATA_DIR")
        .env_remove("WAYMAKER_TLS_CA")
        .env_remove("WAYMAKER_TLS_CERT")
        .env_remove("WAYMAKER_TLS_KEY")
        .env_remove("TRACEPARENT")
        .stdin(Stdio::null());
    command
}

pub(crate) fn output(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    soon(move || child.wait_with_output().unwrap())
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Fails the test instead of letting it hang.
pub(crate) fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(SOON).expect("it happens soon")
}

/// Repeats the check until it returns true. Fails the test instead of letting it hang.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "it happens soon");
    }
}

/// A running waymaker-ctl, whose stdout is read line by line.
pub(crate) struct Running {
    /// `None` once waited for.
    child: Option<Child>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child: Some(child), lines: Some(lines) }
    }

    /// Returns the next line, or `None` when all writers have closed the pipe.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut lines = self.lines.take().unwrap();
        let (line, lines) = soon(move || (lines.next().transpose().unwrap(), lines));
        self.lines = Some(lines);
        line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("not waited for yet").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    /// Closes the piped stdin of the command.
    pub(crate) fn close_input(&mut self) {
        drop(self.child.as_mut().expect("not waited for yet").stdin.take());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("not waited for yet");
        soon(move || child.wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its watchdog then kills the command.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the rest of the text of a reader.
pub(crate) fn rest(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}
