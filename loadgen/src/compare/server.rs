//! Servers that `compare --spawn` starts: pinned to a core, and gone when this program is, however it ends.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::address::{Address, System};
use crate::process::Process;

/// A server that is not ready after so long never will be.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// For how long our server spins before it sleeps, where it is asked to.
const BUSY_POLL: &str = "50us";

/// A server that was started here. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: Address,
    /// What it may write goes here and away with it.
    _directory: TempDir,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    own: PathBuf,
    waymaker_server: Option<PathBuf>,
    redis_server: Option<PathBuf>,
}

impl Programs {
    /// Looks beside this program, then on PATH; `server_bin` is taken as it is.
    pub fn find(server_bin: Option<&Path>) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find my own program")?;
        let waymaker_server = match server_bin {
            Some(path) if path.is_file() => Some(path.to_owned()),
            Some(path) => bail!("--server-bin: there is no file {}", path.display()),
            None => Some(own.with_file_name("waymaker-server"))
                .filter(|path| path.is_file())
                .or_else(|| on_path("waymaker-server")),
        };
        Ok(Self { own, waymaker_server, redis_server: on_path("redis-server") })
    }

    /// Why this system cannot be started, in words that say what to do.
    pub fn missing(&self, system: System) -> Option<String> {
        match system {
            System::Waymaker if self.waymaker_server.is_none() => Some(
                "waymaker-server is neither beside this program nor on PATH; build it with \
                 `cargo build --release -p waymaker-server` or name it with --server-bin"
                    .to_owned(),
            ),
            System::Redis if self.redis_server.is_none() => {
                Some("redis-server is not on PATH; Debian has it in the package redis-server".to_owned())
            }
            _ => None,
        }
    }

    /// Starts a server and waits until it serves.
    pub fn start(&self, system: System, core: usize, busy_poll: bool) -> Result<Server> {
        if let Some(why) = self.missing(system) {
            bail!("cannot start {}: {why}", system.name());
        }
        let directory = tempfile::tempdir().context("cannot make a directory for the server")?;
        let mut command = Command::new(&self.own);
        command.args(["pinned", "--core", &core.to_string(), "--"]).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let port = match system {
            System::Waymaker => {
                command.arg(self.waymaker_server.as_ref().unwrap_or(&self.own));
                command.args(["--listen", "127.0.0.1:0", "--workers", "1"]);
                if busy_poll {
                    command.args(["--busy-poll", BUSY_POLL]);
                }
                None
            }
            System::Redis => {
                let port = free_port()?;
                command.arg(self.redis_server.as_ref().unwrap_or(&self.own));
                command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
                command.args(["--save", "", "--appendonly", "no"]);
                Some(port)
            }
            System::Echo => {
                command.arg(&self.own).args(["echo-server", "--listen", "127.0.0.1:0"]);
                None
            }
        };
        let mut child = command.spawn().with_context(|| format!("cannot start {}", system.name()))?;
        let ready = wait_until_ready(&mut child, system, port);
        // From here on the server is killed with its guard, also where it never became ready.
        let host_and_port = ready.as_ref().cloned().unwrap_or_default();
        let server = Server { child, address: Address { system, host_and_port }, _directory: directory };
        ready.map(|_| server)
    }
}

impl Server {
    /// Its process: starting it through `pinned` does not change its id.
    pub fn process(&self) -> Process {
        Process { id: self.child.id() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What it prints is read to its end, so that it never blocks on a full pipe.
fn wait_until_ready(child: &mut Child, system: System, port: Option<u16>) -> Result<String> {
    let (sender, receiver) = mpsc::channel();
    for stream in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // Nobody listens any more once it is ready.
                let _ = sender.send(line);
            }
        });
    }
    drop(sender);
    let deadline = Instant::now() + START_TIME_MAX;
    let mut printed = Vec::new();
    loop {
        if let Some(port) = port
            && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        {
            return Ok(format!("127.0.0.1:{port}"));
        }
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => match ready_address(&line, system) {
                Some(address) => return Ok(address),
                None => printed.push(line),
            },
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(_) => {
                let last = printed.split_off(printed.len().saturating_sub(10)).join("\n    ");
                let status = child.try_wait().ok().flatten();
                let how =
                    status.map_or("did not become ready".to_owned(), |status| format!("ended ({status})"));
                bail!("{} {how}; it printed:\n    {last}", system.name());
            }
        }
    }
}

fn boxed(stream: impl std::io::Read + Send + 'static) -> Box<dyn std::io::Read + Send> {
    Box::new(stream)
}

/// The address in a line such as `ready binary=127.0.0.1:7420 http=127.0.0.1:7422`.
fn ready_address(line: &str, system: System) -> Option<String> {
    let name = if system == System::Waymaker { "binary=" } else { "echo=" };
    let addresses = line.strip_prefix("ready")?;
    let address = addresses.split_whitespace().find_map(|word| word.strip_prefix(name))?;
    Some(address.trim_end_matches([',', ';']).to_owned())
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| anyhow!("no port is free: {error}"))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::ready_address;
    use crate::address::System;

    #[test]
    fn the_address_is_found_among_others() {
        let line = "ready http=127.0.0.1:7422 binary=127.0.0.1:7420, metrics=x";
        assert_eq!(ready_address(line, System::Waymaker).as_deref(), Some("127.0.0.1:7420"));
        assert_eq!(ready_address("ready echo=[::1]:9", System::Echo).as_deref(), Some("[::1]:9"));
        assert_eq!(ready_address("listening binary=127.0.0.1:1", System::Waymaker), None);
    }
}
