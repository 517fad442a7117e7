//! The real server, built and started for a test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A server on a port and a socket of its own. Killed when dropped.
pub(crate) struct RealServer {
    child: Child,
    /// What it said when it was ready.
    ready: String,
    url: String,
    directory: tempfile::TempDir,
}

impl RealServer {
    /// `None` where it cannot be built, which is announced, and fails where CI relies on it. Without a log, unless a
    /// data directory is given.
    pub(crate) fn start(data_dir: Option<&Path>, arguments: &[&str]) -> Option<Self> {
        match binary() {
            Ok(binary) => Some(Self::run(binary, data_dir.unwrap_or(Path::new("none")), arguments)),
            Err(reason) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{reason}"),
            Err(reason) => {
                eprintln!("SKIPPED, without the real server: {reason}");
                None
            }
        }
    }

    fn run(binary: &Path, data_dir: &Path, arguments: &[&str]) -> Self {
        Self::run_in(binary, data_dir, tempfile::tempdir().unwrap(), arguments)
    }

    /// Kills it, and starts it again on the same socket and data directory.
    #[allow(dead_code, reason = "the tests of the command line share this file, and restart nothing")]
    pub(crate) fn restart(mut self, data_dir: &Path) -> Self {
        self.kill();
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        let binary = binary().as_ref().expect("it was built before");
        Self::run_in(binary, data_dir, directory, &[])
    }

    fn run_in(binary: &Path, data_dir: &Path, directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary)
            .args(["--listen", "127.0.0.1:0", "--unix"])
            .arg(directory.path().join("socket"))
            .args(arguments)
            .current_dir(directory.path())
            .env("WAYMAKER_DATA_DIR", data_dir)
            .env("WAYMAKER_GRPC_LISTEN", "none")
            .env("WAYMAKER_HTTP_LISTEN", "none")
            // Small, so that a test that reads a whole log is fast.
            .env("WAYMAKER_LOG_SEGMENT_LEN", "65536")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = format!("waymaker://{}", listener(&line, "binary"));
        // Whatever it still says must not fill the pipe.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        Self { child, ready: line, url, directory }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its address where it was told to encrypt.
    pub(crate) fn tls_url(&self) -> String {
        self.url.replacen("waymaker://", "waymaker+tls://", 1)
    }

    /// Where it listens for `grpc` or `http`, if it was told to (`--grpc-listen 127.0.0.1:0`).
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

    /// Ends it as a power cut would.
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

/// The server, or the end of the test where there is none.
macro_rules! server {
    () => {
        $crate::real::server!(None)
    };
    ($data_dir:expr) => {
        $crate::real::server!($data_dir, &[])
    };
    ($data_dir:expr, $arguments:expr) => {
        match $crate::real::RealServer::start($data_dir, $arguments) {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;

/// The address behind `front=` in what a server says when it is ready.
fn listener<'a>(ready: &'a str, front: &str) -> &'a str {
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix(front)?.strip_prefix('='));
    address.unwrap_or_else(|| panic!("it says ready and the address of {front}, not {ready:?}"))
}

/// Where the server is, built once.
fn binary() -> &'static Result<PathBuf, String> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BINARY.get_or_init(build)
}

/// Builds the server beside this test, in the same profile, unless it is fresh.
fn build() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    // target/<profile>/deps/<test>
    let profile_directory = test.ancestors().nth(2).ok_or("the test lies in no target folder")?;
    let target_directory = profile_directory.parent().ok_or("the profile lies in no target folder")?;
    let profile = match profile_directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What the package of this test is called: some packages are built anew whenever that changes.
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--package", "waymaker-server", "--profile", profile, "--target-dir"])
        .arg(target_directory)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| error.to_string())?;
    let binary = profile_directory.join("waymaker-server");
    match built.status.success() && binary.exists() {
        true => Ok(binary),
        false => Err(format!("the server cannot be built: {}", String::from_utf8_lossy(&built.stderr))),
    }
}
