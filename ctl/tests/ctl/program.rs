//! Running waymaker-ctl and looking at what comes out.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a test waits for an event before the event counts as missing. It is far longer than any event takes on a busy
/// machine, and no other verdict depends on it.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// waymaker-ctl with these words, against this server.
pub(crate) fn ctl(server: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-ctl"));
    command
        .args(words)
        .env("WAYMAKER_SERVER", server)
        .env_remove("WAYMAKER_NAMESPACE")
        .env_remove("WAYMAKER_OWNER")
        .env_remove("WAYMAKER_TLS_CA")
        .env_remove("WAYMAKER_TLS_CERT")
        .env_remove("WAYMAKER_TLS_KEY")
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

/// Asks until it is so. Fails the test instead of letting it hang.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "it happens soon");
    }
}

/// waymaker-ctl while it runs, its stdout read line by line.
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

    /// The next line of the command, or `None` when nobody is left who could write one.
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

    /// Ends the stdin of a command that was started with a piped one.
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
        // After a failed test, its watchdog takes the rest along.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a reader still holds, to its end.
pub(crate) fn rest(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}
