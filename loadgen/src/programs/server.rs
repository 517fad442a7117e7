//! Servers that are started here: pinned to a core, and gone when this program is, however it ends.

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

use super::{Programs, postgres};
use crate::address::{Address, Login, System};
use crate::process::Process;
use crate::scope::Scope;
use crate::target::{consul::open_session, postgres::log_in};

/// A server that is not ready after so long never will be.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// One that was asked to end and has processes of its own is waited for so long.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two looks at whether it is ready.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time for one look.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);
/// Lines that are kept of what a server prints.
const LINES_MAX: usize = 20;

/// A server that was started here. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Mutex<Child>,
    id: u32,
    /// Where it listens.
    pub address: Address,
    printed: Printed,
    /// What it may write goes here and away with it.
    _directory: TempDir,
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The core it is pinned to.
    pub core: usize,
    /// Our server spins before it sleeps.
    pub busy_poll: bool,
    /// What its locks outlive.
    pub scope: Scope,
    /// Where its directory is made; `None` is wherever temporary files are.
    pub folder: Option<&'a Path>,
    /// The etcd that counts its locks of scope quorum.
    pub quorum: Option<&'a Address>,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start(programs: &Programs, system: System, setup: Setup<'_>) -> Result<Self> {
        let directory = match setup.folder {
            Some(folder) => tempfile::Builder::new().prefix("waymaker-loadgen-").tempdir_in(folder),
            None => tempfile::tempdir(),
        };
        let directory = directory.context("cannot make a directory for the server")?;
        programs.prepare(system, directory.path())?;
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
        // From here on it is killed with its guard, also where it never becomes ready.
        let mut server = Self {
            id: child.id(),
            child: Mutex::new(child),
            address: Address::local(system, String::new()),
            printed,
            _directory: directory,
        };
        server.address.host_and_port = server.wait_until_ready(&lines, port)?;
        Ok(server)
    }

    /// Its process: starting it through `pinned` does not change its id.
    pub fn process(&self) -> Process {
        Process { id: self.id }
    }

    /// How it ended and what it printed last; `None` while it runs.
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
                // Both ends of its output are closed; how it ended is known a moment later.
                Err(mpsc::RecvTimeoutError::Disconnected) => thread::sleep(LOOK_INTERVAL),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if self.describe_end().is_some() {
                // What it printed last may still be on its way.
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
            // It takes its processes with it, and what they share.
            let _ = kill(Pid::from_raw(self.id.cast_signed()), Signal::SIGQUIT);
            let deadline = Instant::now() + END_TIME_MAX;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(LOOK_INTERVAL);
            }
        }
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Whether it does there what clients want of it: some listen before they do.
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

/// The last lines that a server printed. They are read to their end, so that it never blocks on a full pipe.
#[derive(Clone, Debug, Default)]
struct Printed {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Printed {
    /// Also hands the lines on as they come.
    fn follow(child: &mut Child) -> (Self, mpsc::Receiver<String>) {
        let printed = Self::default();
        let (sender, receiver) = mpsc::channel();
        for stream in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
            let (sender, printed) = (sender.clone(), printed.clone());
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    printed.add(line.clone());
                    // Nobody listens any more once it is ready.
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

/// The address in a line such as `ready binary=127.0.0.1:7420 http=127.0.0.1:7422`.
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
    use crate::address::System;

    #[test]
    fn the_address_is_found_among_others() {
        let line = "ready http=127.0.0.1:7422 binary=127.0.0.1:7420, metrics=x";
        assert_eq!(ready_address(line, System::Waymaker).as_deref(), Some("127.0.0.1:7420"));
        assert_eq!(ready_address(line, System::Locktopus).as_deref(), Some("127.0.0.1:7422"));
        assert_eq!(ready_address("ready echo=[::1]:9", System::Echo).as_deref(), Some("[::1]:9"));
        assert_eq!(ready_address("listening binary=127.0.0.1:1", System::Waymaker), None);
    }
}
