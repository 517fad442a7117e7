//! A real server in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[path = "server_program.rs"]
pub(crate) mod server_program;

use server_program::server_program;

/// A server with its own port and socket. It is killed when this is dropped.
pub(crate) struct RealServer {
    child: Child,
    /// Line that the server printed when it was ready.
    ready: String,
    url: String,
    directory: tempfile::TempDir,
}

impl RealServer {
    /// Starts a server without a log, unless a data directory is given, and waits until it is ready.
    pub(crate) fn start(data_dir: Option<&Path>, arguments: &[&str]) -> Self {
        Self::run_in(data_dir.unwrap_or(Path::new("none")), tempfile::tempdir().unwrap(), arguments)
    }

    /// Kills the server, and starts it again on the same socket and data directory.
    #[allow(dead_code, reason = "the tests of the command line share this file, and restart nothing")]
    pub(crate) fn restart(mut self, data_dir: &Path) -> Self {
        self.kill();
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        Self::run_in(data_dir, directory, &[])
    }

    fn run_in(data_dir: &Path, directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let mut child = Command::new(server_program())
            .args(["--listen", "127.0.0.1:0", "--unix"])
            .arg(directory.path().join("socket"))
            .args(arguments)
            .current_dir(directory.path())
            .env("WAYMAKER_DATA_DIR", data_dir)
            .env("WAYMAKER_GRPC_LISTEN", "none")
            .env("WAYMAKER_HTTP_LISTEN", "none")
            // A small segment, so that a test that reads a whole log is fast.
            .env("WAYMAKER_LOG_SEGMENT_LEN", "65536")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = format!("waymaker://{}", listener(&line, "binary"));
        // Keep reading, so that later output of the server does not fill the pipe.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        Self { child, ready: line, url, directory }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the TLS address of the binary protocol, for a server with TLS.
    pub(crate) fn tls_url(&self) -> String {
        self.url.replacen("waymaker://", "waymaker+tls://", 1)
    }

    /// Returns the address of the `grpc` or `http` listener, if the server has it (`--grpc-listen 127.0.0.1:0`).
    #[allow(
        dead_code,
        reason = "the tests of the command line share this file, and speak the binary protocol"
    )]
    pub(crate) fn listener(&self, front: &str) -> &str {
        listener(&self.ready, front)
    }

    pub(crate) fn unix_url(&self) -> String {
        format!("waymaker+unix://{}", self.directory.path().join("socket").display())
    }

    /// Ends the server as a power cut would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server, by default without a data directory and without further arguments.
macro_rules! server {
    () => {
        $crate::real::server!(None)
    };
    ($data_dir:expr) => {
        $crate::real::server!($data_dir, &[])
    };
    ($data_dir:expr, $arguments:expr) => {
        $crate::real::RealServer::start($data_dir, $arguments)
    };
}
pub(crate) use server;

/// Returns the address after `front=` in the line that a server prints when it is ready.
fn listener<'a>(ready: &'a str, front: &str) -> &'a str {
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix(front)?.strip_prefix('='));
    address.unwrap_or_else(|| panic!("it says ready and the address of {front}, not {ready:?}"))
}
