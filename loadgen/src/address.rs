//! Where a target is: `scheme://host:port`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};

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
    /// A server that sends back what it gets: what the network alone costs.
    Echo,
    /// A server that always says the same by gRPC: what the library alone costs.
    GrpcEcho,
    /// The same by WebSockets.
    WebSocketEcho,
}

impl System {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 8] = [
        Self::Waymaker,
        Self::Redis,
        Self::Grpc,
        Self::Locktopus,
        Self::Etcd,
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
            Self::Echo => "echo",
            Self::GrpcEcho => "grpc-echo",
            Self::WebSocketEcho => "websocket-echo",
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
            Self::Grpc => format!("waymaker-server --grpc-listen 127.0.0.1:{port}"),
            Self::Locktopus => format!("waymaker-server --http-listen 127.0.0.1:{port}"),
            Self::Echo | Self::GrpcEcho | Self::WebSocketEcho => {
                format!("waymaker-loadgen {}-server --listen 127.0.0.1:{port}", self.name())
            }
        }
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
}

/// What stands behind the scheme of an encrypted address.
const ENCRYPTED: &str = "+tls";

impl Address {
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
        let host_and_port = rest.trim_end_matches('/').to_owned();
        let has_port = host_and_port
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            bail!("{rest:?} is no host:port, as in 127.0.0.1:7420");
        }
        Ok(Self { system, is_encrypted, host_and_port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.is_encrypted { ENCRYPTED } else { "" };
        write!(formatter, "{}{encrypted}://{}", self.system.name(), self.host_and_port)
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
    fn what_is_no_address_is_refused_by_name() {
        for (text, part) in [
            ("127.0.0.1:1", "scheme://host:port"),
            ("zookeeper://127.0.0.1:1", "zookeeper"),
            ("zookeeper+tls://127.0.0.1:1", "zookeeper"),
            ("redis+tls://127.0.0.1:1", "only our own server"),
            ("echo://127.0.0.1", "host:port"),
            ("echo://127.0.0.1:70000", "host:port"),
        ] {
            let message = text.parse::<Address>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
