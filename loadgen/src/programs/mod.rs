//! The programs of the servers that this one starts, and how each is told to serve.

pub mod server;

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use self::server::Setup;
use crate::address::System;
use crate::scope::Scope;

/// For how long our server spins before it sleeps, where it is asked to.
const BUSY_POLL: &str = "50us";

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    own: PathBuf,
    waymaker_server: Option<PathBuf>,
    redis_server: Option<PathBuf>,
    etcd: Option<PathBuf>,
}

impl Programs {
    /// Looks beside this program, then on PATH; `server_bin` is taken as it is.
    pub fn find(server_bin: Option<&Path>) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find my own program")?;
        let waymaker_server = match server_bin {
            Some(path) if path.is_file() => Some(std::path::absolute(path)?),
            Some(path) => bail!("--server-bin: there is no file {}", path.display()),
            None => Some(own.with_file_name("waymaker-server"))
                .filter(|path| path.is_file())
                .or_else(|| on_path("waymaker-server")),
        };
        Ok(Self { own, waymaker_server, redis_server: on_path("redis-server"), etcd: on_path("etcd") })
    }

    /// This program.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Why this system cannot be started, in words that say what to do.
    pub fn missing(&self, system: System) -> Option<&'static str> {
        match system {
            system if system.is_ours() && self.waymaker_server.is_none() => Some(
                "waymaker-server is neither beside this program nor on PATH; build it with \
                 `cargo build --release -p waymaker-server` or name it with --server-bin",
            ),
            System::Redis if self.redis_server.is_none() => {
                Some("redis-server is not on PATH; Debian has it in the package redis-server")
            }
            System::Etcd if self.etcd.is_none() => {
                Some("etcd is not on PATH; Debian has it in the package etcd-server")
            }
            _ => None,
        }
    }

    /// The program and its arguments, all of whose files go into `directory`; and its port, where it does not say itself
    /// which it took.
    pub fn command(
        &self,
        system: System,
        setup: Setup<'_>,
        directory: &Path,
    ) -> Result<(Vec<OsString>, Option<u16>)> {
        if let Some(why) = self.missing(system) {
            bail!("cannot start {}: {why}", system.name());
        }
        let is_durable = setup.scope == Scope::Local;
        let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
        let mut words = Vec::<String>::new();
        let mut put = |more: &[&str]| words.extend(more.iter().map(ToString::to_string));
        let (program, port) = match system {
            System::Waymaker | System::Grpc | System::Locktopus => {
                let port_of = |other| if system == other { "127.0.0.1:0" } else { "none" };
                put(&["--listen", "127.0.0.1:0", "--workers", "1"]);
                put(&["--grpc-listen", port_of(System::Grpc), "--http-listen", port_of(System::Locktopus)]);
                put(&["--data-dir", &if is_durable { file("waymaker-data") } else { "none".to_owned() }]);
                if setup.busy_poll {
                    put(&["--busy-poll", BUSY_POLL]);
                }
                (&self.waymaker_server, None)
            }
            System::Redis => {
                let port = free_port()?;
                put(&["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
                put(if is_durable {
                    &["--appendonly", "yes", "--appendfsync", "always"]
                } else {
                    &["--appendonly", "no"]
                });
                (&self.redis_server, Some(port))
            }
            System::Etcd => {
                let port = free_port()?;
                let [client, peer] = [port, free_port()?].map(|port| format!("http://127.0.0.1:{port}"));
                put(&["--data-dir", &file("etcd-data"), "--log-level", "error", "--logger", "zap"]);
                put(&["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                put(&["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                put(&["--initial-cluster", &format!("default={peer}")]);
                (&self.etcd, Some(port))
            }
            System::Echo => {
                put(&["echo-server", "--listen", "127.0.0.1:0"]);
                if is_durable {
                    put(&["--sync", &file("blocks")]);
                }
                (&None, None)
            }
            System::GrpcEcho | System::WebSocketEcho => {
                put(&[&format!("{}-server", system.name()), "--listen", "127.0.0.1:0"]);
                (&None, None)
            }
        };
        let program = program.as_ref().unwrap_or(&self.own).clone().into_os_string();
        Ok(([program].into_iter().chain(words.into_iter().map(OsString::from)).collect(), port))
    }
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
