//! The programs in `examples/`, as somebody who comes from another lock system runs them first.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::real::server;
use crate::real::server_program::up_to_date;

/// Maximum number of runs of an example.
const RUN_COUNT: usize = 20;
/// Maximum time until an example prints a line.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// The example as `cargo test` built it.
///
/// # Panics
///
/// If the example is missing or older than its sources: cargo builds no examples for `--test client`.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    up_to_date(program).unwrap_or_else(|problem| {
        panic!("{problem}; build it with `cargo build -p waymaker-client --examples`")
    })
}

/// Runs an example to its end. Runs it again if a call was not answered in time: a runner of Locket then gives up its lock,
/// which only shows that a process was not scheduled.
fn run(name: &str, address: &str) -> Output {
    let run = || Command::new(example(name)).arg(address).output().unwrap();
    let is_over = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains("request timed out");
    std::iter::repeat_with(run).take(RUN_COUNT).find(is_over).expect("one of the runs is scheduled in time")
}

#[test]
fn every_example_succeeds_and_prints_its_steps() {
    let server = server!(None, &["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let grpc = format!("http://{}", server.listener("grpc"));
    let websocket = format!("ws://{}", server.listener("http"));
    for (name, address) in [
        ("coming_from_clever", server.url()),
        ("coming_from_databend", server.url()),
        ("coming_from_locket", &grpc),
        ("coming_from_locktopus", &websocket),
        ("coming_from_waymaker", &grpc),
    ] {
        let Output { status, stdout, stderr } = run(name, address);
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(status.success(), "{name}: {stdout}{stderr}");
        assert!(stdout.lines().count() >= 2, "{name} says what it does: {stdout}");
    }
}

/// An example that runs on, and the lines that it prints. Killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(example(name)).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// Waits for a line that has this text in it.
    fn wait_for(&self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line =
                self.lines.recv_timeout(LINE_TIMEOUT).unwrap_or_else(|error| panic!("no {text:?}: {error}"));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_leader_example_leads_again_after_server_outages() {
    let nowhere = Path::new("none");
    let mut server = server!();
    let url = server.unix_url();
    server.kill();
    let leader = Running::start("leader", &[&url, "alice"]);
    leader.wait_for("alice tries again: cannot reach");
    let server = server.restart(nowhere);
    leader.wait_for("alice leads, fence");
    let _server = server.restart(nowhere);
    leader.wait_for("alice leads no more");
    leader.wait_for("alice leads, fence");
}
