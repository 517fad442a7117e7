//! Measured systems: their names, the durability of their locks, and the commands that start them.

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
