//! Where a target is: `scheme://host:port`, and of PostgreSQL `postgres://user@host:port/database`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Serialize, Serializer};

use crate::scope::Scope;

/// What speaks at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Our server, by its binary protocol.
    Waymaker,
    /// Redis: `SET key value NX PX lease` and `DEL key`.
    Redis,
    /// Our server, by gRPC.
    Grpc,
    /// Our server, by Locktopus.
    Locktopus,
    /// etcd: `Lock` and `Unlock` of its lock service.
    Etcd,
    /// Consul: keys that a session acquires.
    Consul,
    /// PostgreSQL: advisory locks.
    Postgres,
    /// slock, by its binary protocol.
    Slock,
    /// A server that sends back what it gets: what the network alone costs.
    Echo,
    /// A server that always says the same by gRPC: what the library alone costs.
    GrpcEcho,
    /// The same by WebSockets.
    WebSocketEcho,
}

impl System {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 11] = [
        Self::Waymaker,
        Self::Redis,
        Self::Grpc,
        Self::Locktopus,
        Self::Etcd,
        Self::Consul,
        Self::Postgres,
        Self::Slock,
        Self::Echo,
        Self::GrpcEcho,
        Self::WebSocketEcho,
    ];

    /// The scheme of its addresses, also its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waymaker => "waymaker",
            Self::Redis => "redis",
            Self::Grpc => "grpc",
            Self::Locktopus => "locktopus",
            Self::Etcd => "etcd",
            Self::Consul => "consul",
            Self::Postgres => "postgres",
            Self::Slock => "slock",
            Self::Echo => "echo",
            Self::GrpcEcho => "grpc-echo",
            Self::WebSocketEcho => "websocket-echo",
        }
    }

    /// The name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Waymaker => "Waymaker",
            Self::Redis => "Redis",
            Self::Locktopus => "Locktopus",
            Self::Consul => "Consul",
            Self::Postgres => "PostgreSQL",
            other => other.name(),
        }
    }

    /// It is our server.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Waymaker | Self::Grpc | Self::Locktopus)
    }

    /// It is called by gRPC.
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcEcho | Self::Etcd)
    }

    /// It holds no locks.
    pub fn is_echo(self) -> bool {
        matches!(self, Self::Echo | Self::GrpcEcho | Self::WebSocketEcho)
    }

    /// How a lock is taken and given back, in one line.
    pub fn lock_words(self) -> &'static str {
        match self {
            Self::Waymaker => "ACQUIRE and RELEASE of the binary protocol",
            Self::Grpc => "MultiLock of one key and UnLock of gRPC",
            Self::Locktopus => "lock and release by a WebSocket",
            Self::Redis => "SET NX PX, and a script that deletes the key if it is still its owner's",
            Self::Etcd => "Lock and Unlock of the lock service, under a lease of the connection",
            Self::Consul => "PUT of a key with acquire and release, under a session of the connection",
            Self::Postgres => "pg_try_advisory_lock or, to wait, pg_advisory_lock; pg_advisory_unlock",
            Self::Slock => "LOCK and UNLOCK of the binary protocol",
            Self::Echo | Self::GrpcEcho | Self::WebSocketEcho => "none: it holds no locks",
        }
    }

    /// What a lock outlives where its server is started by us, in one line.
    pub fn outlives(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Waymaker | Self::Grpc, Scope::Local) => {
                "a crash of the machine: it is on the disk before it is granted"
            }
            (Self::Waymaker | Self::Grpc, Scope::Quorum) => {
                "a crash of the machine; its fence also the loss of the disk: etcd has counted it before it is granted"
            }
            (Self::Waymaker | Self::Grpc | Self::Locktopus, _) => "its connection, to the end of its lease",
            (Self::Redis, Scope::Ephemeral | Scope::Quorum) => "its connection, to the end of its lease",
            (Self::Redis, Scope::Local) => {
                "a crash of the machine: appendfsync always has it on the disk before it is granted"
            }
            (Self::Etcd | Self::Consul, _) => {
                "a crash of the machine: it is in a log on the disk before it is granted"
            }
            (Self::Postgres, _) => "nothing: it ends with its connection, and is on no disk",
            (Self::Slock, _) => {
                "its connection, to the end of its lease; one older than a second is also in a file, which is not synced"
            }
            (Self::Echo | Self::GrpcEcho | Self::WebSocketEcho, _) => "nothing: there is none",
        }
    }

    /// What its address is called in the line by which one of our programs says that it is ready.
    pub fn ready_name(self) -> &'static str {
        match self {
            Self::Waymaker => "binary",
            Self::Locktopus => "http",
            other => other.name(),
        }
    }

    /// The command that starts one at this port, for messages to people.
    pub fn start_command(self, port: u16) -> String {
        match self {
            Self::Waymaker => format!("waymaker-server --listen 127.0.0.1:{port}"),
            Self::Redis => format!("redis-server --port {port} --save '' --appendonly no"),
            Self::Etcd => format!(
                "etcd --listen-client-urls http://127.0.0.1:{port} --advertise-client-urls http://127.0.0.1:{port}"
            ),
            Self::Consul => format!("consul agent -dev -http-port {port}"),
            Self::Postgres => format!("postgres -D DIRECTORY -p {port}"),
            Self::Slock => format!("slock --bind=127.0.0.1 --port={port}"),
            Self::Grpc => format!("waymaker-server --grpc-listen 127.0.0.1:{port}"),
            Self::Locktopus => format!("waymaker-server --http-listen 127.0.0.1:{port}"),
            Self::Echo | Self::GrpcEcho | Self::WebSocketEcho => {
                format!("waymaker-loadgen {}-server --listen 127.0.0.1:{port}", self.name())
            }
        }
    }
}

impl Serialize for System {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What speaks there.
    pub system: System,
    /// It is spoken through TLS.
    pub is_encrypted: bool,
    /// `host:port`.
    pub host_and_port: String,
    /// Whose database it is; PostgreSQL alone has such.
    pub login: Login,
}

/// A user and a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

impl Default for Login {
    /// What every server of PostgreSQL has from its beginning.
    fn default() -> Self {
        Self { user: "postgres".to_owned(), database: "postgres".to_owned() }
    }
}

/// What stands behind the scheme of an encrypted address.
const ENCRYPTED: &str = "+tls";

impl Address {
    /// The address of a server on this machine.
    pub fn local(system: System, host_and_port: String) -> Self {
        Self { system, is_encrypted: false, host_and_port, login: Login::default() }
    }

    /// The host without the port.
    pub fn host(&self) -> &str {
        let host = self.host_and_port.rsplit_once(':').map_or(self.host_and_port.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The command that starts one here, for messages to people.
    pub fn start_command(&self, port: u16) -> String {
        let files = if self.is_encrypted { " --tls-cert FILE --tls-key FILE" } else { "" };
        self.system.start_command(port) + files
    }

    /// The address in numbers.
    pub fn resolve(&self) -> Result<SocketAddr> {
        let mut found = self
            .host_and_port
            .to_socket_addrs()
            .with_context(|| format!("{self}: the host is not known or the port is no number"))?;
        found.next().ok_or_else(|| anyhow!("{self}: the host has no address"))
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            bail!("a target is scheme://host:port, as in waymaker://127.0.0.1:7420");
        };
        let (scheme, is_encrypted) = match scheme.strip_suffix(ENCRYPTED) {
            Some(scheme) => (scheme, true),
            None => (scheme, false),
        };
        let Some(system) = System::ALL.into_iter().find(|system| system.name() == scheme) else {
            bail!("no such scheme {scheme:?}: there are {}", System::ALL.map(System::name).join(", "));
        };
        if is_encrypted && !system.is_ours() {
            bail!("{scheme}{ENCRYPTED}: only our own server is loaded through TLS");
        }
        let (login, host_and_port) = match system {
            System::Postgres => split_login(rest)?,
            _ => (Login::default(), rest.trim_end_matches('/')),
        };
        let has_port = host_and_port
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            bail!("{rest:?} is no host:port, as in 127.0.0.1:7420");
        }
        Ok(Self { system, is_encrypted, host_and_port: host_and_port.to_owned(), login })
    }
}

/// User and database before and behind `host:port`.
fn split_login(rest: &str) -> Result<(Login, &str)> {
    let mut login = Login::default();
    let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host_and_port) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        bail!("postgres://USER@HOST:PORT/DATABASE has no password: this logs in where the server trusts it");
    }
    for (given, word) in [(user, &mut login.user), (database, &mut login.database)] {
        if !given.is_empty() {
            given.clone_into(word);
        }
    }
    Ok((login, host_and_port))
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.is_encrypted { ENCRYPTED } else { "" };
        let scheme = self.system.name();
        match (self.system, &self.login) {
            (System::Postgres, Login { user, database }) => {
                write!(formatter, "{scheme}://{user}@{}/{database}", self.host_and_port)
            }
            _ => write!(formatter, "{scheme}{encrypted}://{}", self.host_and_port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, System};

    #[test]
    fn an_address_is_read_and_printed() {
        let address: Address = "redis://localhost:6379/".parse().expect("valid");
        assert_eq!(address.system, System::Redis);
        assert_eq!(address.to_string(), "redis://localhost:6379");
    }

    #[test]
    fn an_encrypted_address_is_read_and_printed() {
        for (text, host) in
            [("waymaker+tls://locks.example:7420", "locks.example"), ("grpc+tls://[::1]:7421", "::1")]
        {
            let address: Address = text.parse().expect("valid");
            assert!(address.is_encrypted);
            assert_eq!((address.host(), address.to_string().as_str()), (host, text));
        }
    }

    #[test]
    fn user_and_database_are_optional() {
        for (text, shown) in [
            ("postgres://127.0.0.1:5432", "postgres://postgres@127.0.0.1:5432/postgres"),
            ("postgres://me@[::1]:5432/mine", "postgres://me@[::1]:5432/mine"),
        ] {
            let address: Address = text.parse().expect("valid");
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for (text, part) in [
            ("127.0.0.1:1", "scheme://host:port"),
            ("zookeeper://127.0.0.1:1", "zookeeper"),
            ("zookeeper+tls://127.0.0.1:1", "zookeeper"),
            ("redis+tls://127.0.0.1:1", "only our own server"),
            ("postgres://me:secret@127.0.0.1:5432", "no password"),
            ("echo://127.0.0.1", "host:port"),
            ("echo://127.0.0.1:70000", "host:port"),
        ] {
            let message = text.parse::<Address>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
