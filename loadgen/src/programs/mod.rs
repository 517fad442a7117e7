//! Server programs: where to find them, and the arguments to start them with.

mod consul;
mod debian;
mod go_module;
mod postgres;
mod rights;
pub mod server;

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use self::go_module::GoModule;
use self::server::Setup;
use crate::options::ObtainOptions;
use crate::scope::Scope;
use crate::system::System;

/// Busy-poll time of Waymaker, in setups that enable busy-polling.
const BUSY_POLL: &str = "50us";
/// Environment variable that reports missing programs instead of installing them. Used by tests, which must not
/// wait for a build.
const NO_INSTALL: &str = "WAYMAKER_LOADGEN_NO_INSTALL";
/// Number of lines quoted from the output of a failed command.
const LINES_MAX: usize = 5;

/// Built from a checkout, because the Go module proxy does not serve it.
const SLOCK: GoModule = GoModule { path: "github.com/snower/slock", version: "checkout" };

/// Paths of the programs. A missing program is installed or built on first use, if possible.
#[derive(Clone, Debug)]
pub struct Programs {
    own: PathBuf,
    /// If true, missing programs are installed or built; otherwise the error names the command that installs them.
    installs: bool,
    waymaker_server: Option<PathBuf>,
    slock_source: Option<PathBuf>,
    redis_server: Obtained,
    etcd: Obtained,
    postgres: Obtained,
    consul: Obtained,
    slock: Obtained,
}

/// Path of a program, or the reason why it is not available; empty until first use.
type Obtained = OnceLock<Result<PathBuf, String>>;

impl Programs {
    /// Looks beside this program, then on PATH; uses `server_bin` as given.
    pub fn find(server_bin: Option<&Path>) -> Result<Self> {
        Self::beside(std::env::current_exe().context("cannot find my own program")?, server_bin)
    }

    /// Like `find`, for another program than the running one.
    pub fn beside(own: PathBuf, server_bin: Option<&Path>) -> Result<Self> {
        let waymaker_server = match server_bin {
            Some(path) if path.is_file() => Some(std::path::absolute(path)?),
            Some(path) => bail!("--server-bin: the file {} does not exist", path.display()),
            None => Some(own.with_file_name("waymaker-server"))
                .filter(|path| path.is_file())
                .or_else(|| on_path("waymaker-server")),
        };
        Ok(Self {
            own,
            installs: std::env::var_os(NO_INSTALL).is_none_or(|value| value.is_empty()),
            waymaker_server,
            slock_source: None,
            redis_server: Obtained::new(),
            etcd: Obtained::new(),
            postgres: Obtained::new(),
            consul: Obtained::new(),
            slock: Obtained::new(),
        })
    }

    /// Returns the same programs with another `waymaker-server`.
    pub fn with_server(&self, server: &Path) -> Result<Self> {
        Ok(Self { waymaker_server: Some(std::path::absolute(server)?), ..self.clone() })
    }

    /// Returns the same programs with a slock built from this checkout.
    #[must_use]
    pub fn with_slock_source(self, source: Option<&Path>) -> Self {
        Self { slock_source: source.map(Path::to_owned), slock: Obtained::new(), ..self }
    }

    /// Returns the path of this program.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Returns why this system cannot be started, and the remedy. May take minutes on first use, because it
    /// installs or builds a missing program.
    pub fn missing(&self, system: System) -> Option<String> {
        self.program(system).err()
    }

    /// Returns the version that the program reports, such as `7.0.15`.
    pub fn version(&self, system: System) -> String {
        let said = self.program(system).and_then(|program| match system {
            System::Consul => output_of(Command::new(program).arg("version")),
            // slock does not report its version, but Go records the commit of the build.
            System::Slock => output_of(Command::new("go").args(["version", "-m"]).arg(program)),
            _ => output_of(Command::new(program).arg("--version")),
        });
        version_in(&said.unwrap_or_default()).unwrap_or("unknown").to_owned()
    }

    /// Returns the program that serves this system, or the reason why there is none.
    pub fn program(&self, system: System) -> Result<PathBuf, String> {
        match system {
            System::Waymaker | System::Grpc | System::Locktopus => {
                self.waymaker_server.clone().ok_or_else(|| {
                    "waymaker-server is neither beside this program nor on PATH; build it with \
                     `cargo build --release -p waymaker-server` or name it with --server-bin"
                        .to_owned()
                })
            }
            System::Redis => {
                let find = || on_path("redis-server");
                self.obtain(&self.redis_server, system, find, || {
                    of_debian("redis-server", "redis-server", find)
                })
            }
            System::Etcd => {
                let find = || on_path("etcd");
                self.obtain(&self.etcd, system, find, || of_debian("etcd", "etcd-server", find))
            }
            System::Postgres => {
                let get = || of_debian("postgres", "postgresql", postgres::find);
                self.obtain(&self.postgres, system, postgres::find, get)
            }
            System::Consul => self.of_go(&self.consul, system, &consul::MODULE),
            System::Slock => self.slock.get_or_init(|| self.find_slock()).clone(),
            System::Echo | System::GrpcEcho | System::WebSocketEcho => Ok(self.own.clone()),
        }
    }

    /// Finds or builds a program that is built with Go.
    fn of_go(&self, obtained: &Obtained, system: System, module: &GoModule) -> Result<PathBuf, String> {
        let find = || on_path(system.name()).or_else(|| module.built(&cache().ok()?));
        let get = || cache().and_then(|cache| module.build_in(&cache)).map_err(|why| format!("{why:#}"));
        self.obtain(obtained, system, find, get)
    }

    /// Finds slock; a checkout named by `--slock-source` takes precedence over an existing program.
    fn find_slock(&self) -> Result<PathBuf, String> {
        let in_words = |why: anyhow::Error| format!("{why:#}");
        if let Some(source) = &self.slock_source {
            let source = std::path::absolute(source).map_err(|error| error.to_string())?;
            let cache = cache().map_err(in_words)?;
            let _turn = take_turn(System::Slock).map_err(in_words)?;
            return SLOCK.build_checkout(&source, &cache).map_err(|why| format!("--slock-source: {why:#}"));
        }
        on_path(System::Slock.name()).or_else(|| SLOCK.built_checkout(&cache().ok()?)).ok_or_else(|| {
            format!(
                "slock is not installed, and the Go module proxy does not serve it; clone https://{} and pass \
                 the checkout \
                 with --slock-source DIR",
                SLOCK.path
            )
        })
    }

    /// Looks for a program once, and installs it if it is missing and installing is allowed.
    fn obtain(
        &self,
        obtained: &Obtained,
        system: System,
        find: impl Fn() -> Option<PathBuf>,
        get: impl FnOnce() -> Result<PathBuf, String>,
    ) -> Result<PathBuf, String> {
        obtained
            .get_or_init(|| {
                if let Some(path) = find() {
                    return Ok(path);
                }
                if !self.installs {
                    let name = system.name();
                    return Err(format!(
                        "{name} is not installed; install it with: waymaker-loadgen obtain {name}"
                    ));
                }
                // Another process may be installing the same system.
                let _turn = take_turn(system).map_err(|why| format!("{why:#}"))?;
                find().map_or_else(get, Ok)
            })
            .clone()
    }

    /// Creates the files that the server needs before it starts.
    fn prepare(&self, system: System, directory: &Path) -> Result<()> {
        match (system, self.program(system)) {
            (_, Err(why)) => bail!("cannot start {}: {why}", system.name()),
            (System::Postgres, Ok(program)) => postgres::make_cluster(&self.own, &program, directory),
            (_, Ok(_)) => Ok(()),
        }
    }

    /// Returns the program and its arguments, which put all files into `directory`; also the port, unless the
    /// server reports its port itself.
    fn command(
        &self,
        system: System,
        setup: Setup<'_>,
        directory: &Path,
    ) -> Result<(Vec<OsString>, Option<u16>)> {
        let program = self.program(system).map_err(|why| anyhow!(why))?;
        let is_durable = setup.scope == Scope::Local;
        let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
        let mut words = Vec::<String>::new();
        let mut put = |more: &[&str]| words.extend(more.iter().map(ToString::to_string));
        let port = match system {
            System::Waymaker | System::Grpc | System::Locktopus => {
                let port_of = |other| if system == other { "127.0.0.1:0" } else { "none" };
                put(&["--listen", "127.0.0.1:0", "--workers", "1"]);
                put(&["--grpc-listen", port_of(System::Grpc), "--http-listen", port_of(System::Locktopus)]);
                put(&["--data-dir", &if is_durable { file("waymaker-data") } else { "none".to_owned() }]);
                if let Some(etcd) = setup.quorum {
                    put(&["--quorum-endpoints", &etcd.host_and_port]);
                }
                if setup.has_rights {
                    put(&["--tokens", &file(rights::TOKENS), "--access", &file(rights::ACCESS)]);
                }
                if setup.busy_poll {
                    put(&["--busy-poll", BUSY_POLL]);
                }
                None
            }
            System::Redis => {
                let port = free_port()?;
                put(&["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
                put(if is_durable {
                    &["--appendonly", "yes", "--appendfsync", "always"]
                } else {
                    &["--appendonly", "no"]
                });
                Some(port)
            }
            System::Etcd => {
                let port = free_port()?;
                let [client, peer] = [port, free_port()?].map(|port| format!("http://127.0.0.1:{port}"));
                put(&["--data-dir", &file("etcd-data"), "--log-level", "error", "--logger", "zap"]);
                put(&["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                put(&["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                put(&["--initial-cluster", &format!("default={peer}")]);
                Some(port)
            }
            System::Consul => {
                let ports = [free_port()?, free_port()?, free_port()?];
                words.extend(consul::arguments(directory, ports));
                Some(ports[0])
            }
            System::Postgres => {
                let port = free_port()?;
                words.extend(postgres::arguments(directory, port));
                Some(port)
            }
            System::Slock => {
                let port = free_port()?;
                put(&["--bind=127.0.0.1", &format!("--port={port}"), "--log_level=ERROR"]);
                put(&[&format!("--data_dir={}", file("slock-data"))]);
                Some(port)
            }
            System::Echo => {
                put(&["echo-server", "--listen", "127.0.0.1:0"]);
                if is_durable {
                    put(&["--sync", &file("blocks")]);
                }
                None
            }
            System::GrpcEcho | System::WebSocketEcho => {
                put(&[&format!("{}-server", system.name()), "--listen", "127.0.0.1:0"]);
                None
            }
        };
        Ok((
            [program.into_os_string()].into_iter().chain(words.into_iter().map(OsString::from)).collect(),
            port,
        ))
    }
}

/// Runs `obtain`: installs or builds the programs of these systems and prints their paths. After a failure it
/// continues with the other systems.
pub fn obtain_all(options: &ObtainOptions) -> Result<()> {
    let programs = Programs { installs: true, ..Programs::find(None)? };
    let programs = programs.with_slock_source(options.slock_source.as_deref());
    let mut reasons = Vec::new();
    for &system in &options.systems {
        let name = system.name();
        match programs.program(system) {
            Ok(program) => println!("{name} {} {}", programs.version(system), program.display()),
            Err(why) => reasons.push(format!("{name}: {why}")),
        }
    }
    if reasons.is_empty() { Ok(()) } else { bail!("{}", reasons.join("; ")) }
}

fn take_turn(system: System) -> Result<Flock<std::fs::File>> {
    let path = cache()?.join(format!("{}.lock", system.name()));
    let file = std::fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}

/// Returns the folder for programs that were built here.
fn cache() -> Result<PathBuf> {
    let folder = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(folder), _) if !folder.is_empty() => PathBuf::from(folder),
        (_, Some(home)) => Path::new(&home).join(".cache"),
        _ => bail!("cannot choose a folder for programs; set XDG_CACHE_HOME or HOME"),
    };
    let folder = folder.join("waymaker-loadgen");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Installs a Debian package and returns its program.
fn of_debian(program: &str, package: &str, find: impl Fn() -> Option<PathBuf>) -> Result<PathBuf, String> {
    let missing = |why: &str| format!("{program} is not installed; {why}");
    debian::install(package).map_err(|why| missing(&why))?;
    find().ok_or_else(|| missing(&format!("the Debian package {package} does not contain it")))
}

/// Returns the first version in this text.
fn version_in(words: &str) -> Option<&str> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+~_".contains(letter))
    };
    words.split_whitespace().map(|word| word.trim_start_matches(['v', '='])).find(is_version)
}

/// Returns the standard output of a command, or the last lines of its output if it fails.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let name = name_of(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    printed(&name, output)
}

/// Like `output_of`, with a time limit. A command that exceeds it is killed with all its child processes.
pub(crate) fn output_within(limit: Duration, command: &mut Command) -> Result<String, String> {
    let name = name_of(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let group = Pid::from_raw(child.id().cast_signed());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(limit) {
        Ok(output) => printed(&name, output.map_err(|error| format!("{name}: {error}"))?),
        Err(_) => {
            let _ = killpg(group, Signal::SIGKILL);
            Err(format!("{name} did not end within {} s", limit.as_secs()))
        }
    }
}

/// Returns the name of a program for messages.
fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Returns the standard output, or the last lines of all output if the command failed.
fn printed(name: &str, output: Output) -> Result<String, String> {
    let [printed, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() {
        return Ok(printed);
    }
    let lines: Vec<&str> = printed.lines().chain(complained.lines()).collect();
    let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
    Err(format!("{name} ended with {}: {last}", output.status))
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(|error| anyhow!("cannot find a free port: {error}"))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn finds_the_version_in_the_output_of_each_program() {
        let said = [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some("7.0.15")),
            ("etcd Version: 3.4.23\nGit SHA: Not provided", Some("3.4.23")),
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Some("15.18")),
            ("Consul v1.13.9\nRevision abc", Some("1.13.9")),
            (
                "slock: go1.26.8\n\tmod\tgithub.com/snower/slock\tv0.0.0-20260430020125-267664b2c51a\t",
                Some("0.0.0-20260430020125-267664b2c51a"),
            ),
            ("--bind=  bind address (default: 127.0.0.1)", None),
        ];
        for (words, version) in said {
            assert_eq!(version_in(words), version, "{words}");
        }
    }
}
