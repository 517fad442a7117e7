//! The program in `examples/`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::real::server;
use crate::real::server_program::example;

/// Maximum time until an example prints a line.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A running example, with the lines that it prints. It is killed when this is dropped.
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

    /// Waits for a line that contains this text.
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
