//! Addresses of servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Default port of the binary protocol.
pub const DEFAULT_PORT: u16 = 7420;

const TCP_SCHEME: &str = "waymaker://";
const TLS_SCHEME: &str = "waymaker+tls://";
const UNIX_SCHEME: &str = "waymaker+unix://";

/// Address of a server.
///
/// - `waymaker://HOST` or `waymaker://HOST:PORT` for TCP. The default port is 7420. An IPv6 address needs brackets.
/// - `waymaker+tls://HOST` or `waymaker+tls://HOST:PORT` for TCP with TLS.
/// - `waymaker+unix:///PATH` for a Unix socket.
///
/// An address setting may list several addresses, separated by commas; see
/// [`ClientBuilder::connect`](crate::ClientBuilder::connect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// TCP, with a host and a port.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port of the server.
        port: u16,
    },
    /// TCP with TLS, with a host and a port.
    Tls {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port of the server.
        port: u16,
    },
    /// Path of a Unix socket on this machine.
    Unix(PathBuf),
}

/// Error of parsing the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a server address: {problem} (expected waymaker://HOST:PORT, waymaker+tls://HOST:PORT or \
     waymaker+unix:///PATH)"
)]
pub struct UrlError {
    text: String,
    problem: &'static str,
}

impl ServerAddress {
    /// Parses a list of at least one address, separated by commas.
    pub(crate) fn list(text: &str) -> Result<Vec<Self>, UrlError> {
        text.split(',').map(|address| address.trim().parse()).collect()
    }
}

impl FromStr for ServerAddress {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let error = |problem| UrlError { text: text.to_owned(), problem };
        if let Some(path) = text.strip_prefix(UNIX_SCHEME) {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(PathBuf::from(path))),
                false => Err(error("the path must be absolute: write three slashes after the colon")),
            };
        }
        let (rest, encrypted) = match (text.strip_prefix(TCP_SCHEME), text.strip_prefix(TLS_SCHEME)) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(error("the scheme is missing or unknown")),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(error("only a host and a port may follow the scheme"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) =
                    bracketed.split_once(']').ok_or_else(|| error("a bracket is not closed"))?;
                match rest {
                    "" => (host, None),
                    rest => {
                        (host, Some(rest.strip_prefix(':').ok_or_else(|| error("the port is malformed"))?))
                    }
                }
            }
            None => match authority.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => {
                    return Err(error("an IPv6 address needs brackets"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(error("the host is missing"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(error("the port is not a number from 1 to 65535")),
                Ok(port) => port,
            },
        };
        let host = host.to_owned();
        Ok(if encrypted { Self::Tls { host, port } } else { Self::Tcp { host, port } })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Tcp { host, port } => (TCP_SCHEME, host, port),
            Self::Tls { host, port } => (TLS_SCHEME, host, port),
            Self::Unix(path) => return write!(formatter, "{UNIX_SCHEME}{}", path.display()),
        };
        match host.contains(':') {
            true => write!(formatter, "{scheme}[{host}]:{port}"),
            false => write!(formatter, "{scheme}{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    fn tls(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tls { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_parsed_and_printed() {
        for (text, address, printed) in [
            ("waymaker://127.0.0.1:7500", tcp("127.0.0.1", 7500), "waymaker://127.0.0.1:7500"),
            ("waymaker://locks.example", tcp("locks.example", 7420), "waymaker://locks.example:7420"),
            ("waymaker://locks.example/", tcp("locks.example", 7420), "waymaker://locks.example:7420"),
            ("waymaker://[::1]:7500", tcp("::1", 7500), "waymaker://[::1]:7500"),
            ("waymaker://[::1]", tcp("::1", 7420), "waymaker://[::1]:7420"),
            ("waymaker+tls://locks.example", tls("locks.example", 7420), "waymaker+tls://locks.example:7420"),
            ("waymaker+tls://[::1]:7500", tls("::1", 7500), "waymaker+tls://[::1]:7500"),
            (
                "waymaker+unix:///run/waymaker.sock",
                ServerAddress::Unix("/run/waymaker.sock".into()),
                "waymaker+unix:///run/waymaker.sock",
            ),
        ] {
            assert_eq!(text.parse(), Ok(address.clone()), "{text}");
            assert_eq!(address.to_string(), printed);
        }
    }

    #[test]
    fn an_invalid_address_is_rejected_with_an_example() {
        for text in [
            "",
            "127.0.0.1:7420",
            "http://127.0.0.1:7420",
            "waymaker://",
            "waymaker://:7420",
            "waymaker://host:",
            "waymaker://host:0",
            "waymaker://host:65536",
            "waymaker://host:7420/path",
            "waymaker://::1",
            "waymaker://[::1",
            "waymaker://[::1]7420",
            "waymaker+tls://",
            "waymaker+unix://relative",
        ] {
            let error = text.parse::<ServerAddress>().expect_err(text);
            assert!(error.to_string().contains("expected waymaker://HOST:PORT"), "{error}");
        }
    }
}
