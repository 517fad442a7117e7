//! Servers that this program starts: pinned to a core, and ended when this program ends for any reason.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use waymaker_client::Credentials;

use super::{Programs, postgres, rights};
use crate::address::{Address, Login};
use crate::codec::{consul::open_session, postgres::log_in};
use crate::process::Process;
use crate::scope::Scope;
use crate::system::System;

/// Time limit for a server to become ready.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Time limit for a server with child processes to end after the signal.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Interval between two checks whether the server is ready.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for one check.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);
/// Number of lines kept of the server's output.
const LINES_MAX: usize = 20;

/// A server that this program started. Dropping it kills the server.
#[derive(Debug)]
pub struct Server {
    child: Mutex<Child>,
    id: u32,
    /// Listen address.
    pub address: Address,
    /// What its clients log in with.
    pub credentials: Credentials,
    printed: Printed,
    /// Directory for the server's files; removed with this value.
    _directory: TempDir,
}

/// Setup of a server.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Core that the server is pinned to.
    pub core: usize,
    /// Whether Waymaker busy-polls before it sleeps.
    pub busy_poll: bool,
    /// Durability of its locks.
    pub scope: Scope,
    /// True if Waymaker accepts only clients with a token, and checks their rights.
    pub has_rights: bool,
    /// Parent of the server's directory; `None` is the system's folder for temporary files.
    pub folder: Option<&'a Path>,
    /// etcd that counts the fences of its locks with scope quorum.
    pub quorum: Option<&'a Address>,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start(programs: &Programs, system: System, setup: Setup<'_>) -> Result<Self> {
        let directory = match setup.folder {
            Some(folder) => tempfile::Builder::new().prefix("waymaker-loadgen-").tempdir_in(folder),
            None => tempfile::tempdir(),
        };
        let directory = directory.context("cannot create a directory for the server")?;
        programs.prepare(system, directory.path())?;
        let credentials =
            if setup.has_rights { rights::prepare(directory.path())? } else { Credentials::default() };
        let (arguments, port) = programs.command(system, setup, directory.path())?;
        let mut command = Command::new(programs.own());
        command.args(["pinned", "--core", &setup.core.to_string()]);
        if system == System::Postgres {
            command.arg("--quit");
            command.args(postgres::user()?.iter().flat_map(|user| ["--user", &user.name]));
        }
        command.arg("--").args(arguments);
        command.current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", system.name()))?;
        let (printed, lines) = Printed::follow(&mut child);
        // From here on the guard kills the server, even if it never becomes ready.
        let mut server = Self {
            id: child.id(),
            child: Mutex::new(child),
            address: Address::local(system, String::new()),
            credentials,
            printed,
            _directory: directory,
        };
        server.address.host_and_port = server.wait_until_ready(&lines, port)?;
        Ok(server)
    }

    /// Returns its process. Starting it through `pinned` keeps the process id.
    pub fn process(&self) -> Process {
        Process { id: self.id }
    }

    /// Returns how the server ended and its last output; `None` while it runs.
    pub fn describe_end(&self) -> Option<String> {
        let status = self.child.lock().ok()?.try_wait().ok()??;
        Some(format!(
            "{} ended by itself ({status}); it printed:\n{}",
            self.address.system.name(),
            self.printed.last()
        ))
    }

    fn wait_until_ready(&self, lines: &mpsc::Receiver<String>, port: Option<u16>) -> Result<String> {
        let system = self.address.system;
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            if let Some(port) = port
                && serves(system, port)
            {
                return Ok(format!("127.0.0.1:{port}"));
            }
            match lines.recv_timeout(LOOK_INTERVAL) {
                Ok(line) => {
                    if let Some(address) = ready_address(&line, system) {
                        return Ok(address);
                    }
                }
                // Both ends of its output are closed; the exit status is known a moment later.
                Err(mpsc::RecvTimeoutError::Disconnected) => thread::sleep(LOOK_INTERVAL),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if self.describe_end().is_some() {
                // The last output may still be on its way.
                while lines.recv_timeout(10 * LOOK_INTERVAL).is_ok() {}
            }
            if let Some(end) = self.describe_end() {
                bail!("{end}");
            }
            if Instant::now() > deadline {
                bail!("{} did not become ready; it printed:\n{}", system.name(), self.printed.last());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.address.system == System::Postgres {
            // PostgreSQL ends its child processes and removes their shared memory on this signal.
            let _ = kill(Pid::from_raw(self.id.cast_signed()), Signal::SIGQUIT);
            let deadline = Instant::now() + END_TIME_MAX;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(LOOK_INTERVAL);
            }
        }
        // The process may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Whether the server answers requests; some servers listen before they can.
fn serves(system: System, port: u16) -> bool {
    let address = format!("127.0.0.1:{port}");
    let Ok(mut stream) = TcpStream::connect(&address) else { return false };
    if stream.set_read_timeout(Some(LOOK_TIME_MAX)).is_err() {
        return false;
    }
    match system {
        System::Postgres => log_in(&mut stream, &Login::default()).is_ok(),
        System::Consul => open_session(&mut stream, &address, 0).is_ok(),
        _ => true,
    }
}

/// The last lines of a server's output. The output is read to its end, so that the server never blocks on a full
/// pipe.
#[derive(Clone, Debug, Default)]
struct Printed {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Printed {
    /// Starts reading the output, and also passes on each line.
    fn follow(child: &mut Child) -> (Self, mpsc::Receiver<String>) {
        let printed = Self::default();
        let (sender, receiver) = mpsc::channel();
        for stream in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
            let (sender, printed) = (sender.clone(), printed.clone());
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    printed.add(line.clone());
                    // The receiver is dropped once the server is ready.
                    let _ = sender.send(line);
                }
            });
        }
        (printed, receiver)
    }

    fn add(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn last(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }
}

fn boxed(stream: impl std::io::Read + Send + 'static) -> Box<dyn std::io::Read + Send> {
    Box::new(stream)
}

/// Returns the address in a line such as `ready binary=127.0.0.1:7420 http=127.0.0.1:7422`.
fn ready_address(line: &str, system: System) -> Option<String> {
    let addresses = line.strip_prefix("ready")?;
    let address = addresses
        .split_whitespace()
        .find_map(|word| word.strip_prefix(system.ready_name())?.strip_prefix('='))?;
    Some(address.trim_end_matches([',', ';']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::ready_address;
    use crate::system::System;

    #[test]
    fn finds_the_address_among_others() {
        let line = "ready http=127.0.0.1:7422 binary=127.0.0.1:7420, metrics=x";
        assert_eq!(ready_address(line, System::Waymaker).as_deref(), Some("127.0.0.1:7420"));
        assert_eq!(ready_address(line, System::Locktopus).as_deref(), Some("127.0.0.1:7422"));
        assert_eq!(ready_address("ready echo=[::1]:9", System::Echo).as_deref(), Some("[::1]:9"));
        assert_eq!(ready_address("listening binary=127.0.0.1:1", System::Waymaker), None);
    }
}
