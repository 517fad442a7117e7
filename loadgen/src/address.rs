//! Address of a target: `scheme://host:port`, for PostgreSQL `postgres://user@host:port/database`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Serialize, Serializer};

use crate::scope::Scope;

/// System that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Waymaker, over its binary protocol.
    Waymaker,
    /// Redis: `SET key value NX PX lease` and `DEL key`.
    Redis,
    /// Waymaker, over gRPC.
    Grpc,
    /// Waymaker, over its Locktopus front end.
    Locktopus,
    /// etcd: `Lock` and `Unlock` of its lock service.
    Etcd,
    /// Consul: keys acquired under a session.
    Consul,
    /// PostgreSQL: advisory locks.
    Postgres,
    /// slock, over its binary protocol.
    Slock,
    /// A server that sends back all received bytes; measures the cost of the network alone.
    Echo,
    /// A gRPC server with constant responses; measures the cost of the library alone.
    GrpcEcho,
    /// A WebSocket server with constant responses; measures the cost of the library alone.
    WebSocketEcho,
}

impl System {
    /// All systems, in the order of reports.
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

    /// Returns the URL scheme, which is also the name in reports.
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

    /// Returns the name for sentences.
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

    /// Whether the system is Waymaker.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Waymaker | Self::Grpc | Self::Locktopus)
    }

    /// Whether the system is called over gRPC.
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcEcho | Self::Etcd)
    }

    /// Whether the system is an echo server, which holds no locks.
    pub fn is_echo(self) -> bool {
        matches!(self, Self::Echo | Self::GrpcEcho | Self::WebSocketEcho)
    }

    /// Describes in one line how a lock is acquired and released.
    pub fn lock_words(self) -> &'static str {
        match self {
            Self::Waymaker => "ACQUIRE and RELEASE of the binary protocol",
            Self::Grpc => "MultiLock of one key and UnLock over gRPC",
            Self::Locktopus => "lock and release over a WebSocket",
            Self::Redis => "SET NX PX, and a script that deletes the key if it still has the owner's value",
            Self::Etcd => "Lock and Unlock of the lock service, under a lease per connection",
            Self::Consul => "PUT of a key with acquire and release, under a session per connection",
            Self::Postgres => "pg_try_advisory_lock, or pg_advisory_lock to wait; pg_advisory_unlock",
            Self::Slock => "LOCK and UNLOCK of the binary protocol",
            Self::Echo | Self::GrpcEcho | Self::WebSocketEcho => "none; it holds no locks",
        }
    }

    /// Describes in one line the failures that a lock survives, for a server that this program starts.
    pub fn outlives(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Waymaker | Self::Grpc, Scope::Local) => {
                "a crash of the machine; it is synced to the disk before the grant"
            }
            (Self::Waymaker | Self::Grpc, Scope::Quorum) => {
                "a crash of the machine; its fence also survives the loss of the disk, because etcd counts it \
                 before the grant"
            }
            (Self::Waymaker | Self::Grpc | Self::Locktopus, _) => {
                "loss of its connection, until its lease expires"
            }
            (Self::Redis, Scope::Ephemeral | Scope::Quorum) => {
                "loss of its connection, until its lease expires"
            }
            (Self::Redis, Scope::Local) => {
                "a crash of the machine; appendfsync always syncs it to the disk before the grant"
            }
            (Self::Etcd | Self::Consul, _) => {
                "a crash of the machine; it is in a synced log before the grant"
            }
            (Self::Postgres, _) => "nothing; it ends with its connection and is not written to a disk",
            (Self::Slock, _) => {
                "loss of its connection, until its lease expires; locks older than a second are also in a file \
                 that is not synced"
            }
            (Self::Echo | Self::GrpcEcho | Self::WebSocketEcho, _) => "nothing; it holds no locks",
        }
    }

    /// Returns the name of this address in the line that one of this project's programs prints when it is ready.
    pub fn ready_name(self) -> &'static str {
        match self {
            Self::Waymaker => "binary",
            Self::Locktopus => "http",
            other => other.name(),
        }
    }

    /// Returns the command that starts such a server on this port, for messages to people.
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

/// Address of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// System at this address.
    pub system: System,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
    /// `host:port`.
    pub host_and_port: String,
    /// User and database; only PostgreSQL uses them.
    pub login: Login,
}

/// User and database of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

impl Default for Login {
    /// The user and database that every new PostgreSQL server has.
    fn default() -> Self {
        Self { user: "postgres".to_owned(), database: "postgres".to_owned() }
    }
}

/// Suffix of the scheme of an encrypted address.
const ENCRYPTED: &str = "+tls";

impl Address {
    /// Returns the address of a server on this machine.
    pub fn local(system: System, host_and_port: String) -> Self {
        Self { system, is_encrypted: false, host_and_port, login: Login::default() }
    }

    /// Returns the host without the port.
    pub fn host(&self) -> &str {
        let host = self.host_and_port.rsplit_once(':').map_or(self.host_and_port.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the command that starts such a server on this port, for messages to people.
    pub fn start_command(&self, port: u16) -> String {
        let files = if self.is_encrypted { " --tls-cert FILE --tls-key FILE" } else { "" };
        self.system.start_command(port) + files
    }

    /// Resolves the address.
    pub fn resolve(&self) -> Result<SocketAddr> {
        let mut found = self
            .host_and_port
            .to_socket_addrs()
            .with_context(|| format!("{self}: the host is unknown, or the port is not a number"))?;
        found.next().ok_or_else(|| anyhow!("{self}: the host has no address"))
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            bail!(
                "{text:?} has no scheme; a target is scheme://host:port, such as waymaker://127.0.0.1:7420"
            );
        };
        let (scheme, is_encrypted) = match scheme.strip_suffix(ENCRYPTED) {
            Some(scheme) => (scheme, true),
            None => (scheme, false),
        };
        let Some(system) = System::ALL.into_iter().find(|system| system.name() == scheme) else {
            bail!("unknown scheme {scheme:?}; the schemes are {}", System::ALL.map(System::name).join(", "));
        };
        if is_encrypted && !system.is_ours() {
            bail!("{scheme}{ENCRYPTED}: only waymaker, grpc and locktopus support TLS");
        }
        let (login, host_and_port) = match system {
            System::Postgres => split_login(rest)?,
            _ => (Login::default(), rest.trim_end_matches('/')),
        };
        let has_port = host_and_port
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            bail!("{rest:?} is not host:port, such as 127.0.0.1:7420");
        }
        Ok(Self { system, is_encrypted, host_and_port: host_and_port.to_owned(), login })
    }
}

/// Splits the user and database from `host:port`.
fn split_login(rest: &str) -> Result<(Login, &str)> {
    let mut login = Login::default();
    let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host_and_port) = rest.rsplit_once('@').unwrap_or(("", rest));
    if user.contains(':') {
        bail!(
            "the address contains a password, but this program logs in without one; use \
             postgres://USER@HOST:PORT/DATABASE and a server that trusts the connection"
        );
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
    fn parses_and_prints_an_address() {
        let address: Address = "redis://localhost:6379/".parse().expect("valid");
        assert_eq!(address.system, System::Redis);
        assert_eq!(address.to_string(), "redis://localhost:6379");
    }

    #[test]
    fn parses_and_prints_an_encrypted_address() {
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
    fn rejects_invalid_addresses() {
        for (text, part) in [
            ("127.0.0.1:1", "scheme://host:port"),
            ("zookeeper://127.0.0.1:1", "zookeeper"),
            ("zookeeper+tls://127.0.0.1:1", "zookeeper"),
            ("redis+tls://127.0.0.1:1", "only waymaker, grpc and locktopus"),
            ("postgres://me:secret@127.0.0.1:5432", "contains a password"),
            ("echo://127.0.0.1", "host:port"),
            ("echo://127.0.0.1:70000", "host:port"),
        ] {
            let message = text.parse::<Address>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
