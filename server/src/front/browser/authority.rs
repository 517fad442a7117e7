//! Host and port of a `Host` header, an origin or a configured name, normalized for comparison.

use http::uri;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Host and port, as `HOST` or `HOST:PORT`. An IPv6 address as host is in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    /// Host in lowercase, without the final dot of a fully qualified name. An IPv6 address is in brackets.
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Authority {
    /// Parses the text. Returns `None` if it is not exactly a host with an optional port.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parsed: uri::Authority = text.parse().ok()?;
        let host = parsed.host();
        // Reject user information, which would stand before the host. Only a port may follow the host.
        let port = match text.strip_prefix(host)? {
            "" => None,
            port => Some(port.strip_prefix(':')?.parse().ok()?),
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        (!host.is_empty()).then_some(Self { host, port })
    }

    /// Returns this authority without the port that the scheme implies.
    pub(super) fn without_default_port(mut self, scheme: &str) -> Self {
        let default = match scheme {
            "http" | "ws" => Some(80),
            "https" | "wss" => Some(443),
            _ => None,
        };
        self.port = self.port.filter(|port| Some(*port) != default);
        self
    }

    /// Returns whether the host is an IP address. Such a host is safe from DNS rebinding, which needs a host name.
    pub(super) fn is_ip(&self) -> bool {
        let v6 = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        v6.map_or_else(|| self.host.parse::<Ipv4Addr>().is_ok(), |host| host.parse::<Ipv6Addr>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_letter_case_and_final_dot() {
        for (text, host, port, is_ip) in [
            ("a.example", "a.example", None, false),
            ("A.Example.:7422", "a.example", Some(7422), false),
            ("lock_server", "lock_server", None, false),
            ("127.0.0.1:80", "127.0.0.1", Some(80), true),
            ("[::1]:7422", "[::1]", Some(7422), true),
            ("[FE80::1]", "[fe80::1]", None, true),
            ("127.1", "127.1", None, false),
            ("127.0.0.1.example", "127.0.0.1.example", None, false),
        ] {
            let parsed = Authority::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((parsed.host.as_str(), parsed.port, parsed.is_ip()), (host, port, is_ip), "{text}");
        }
        for text in
            ["", ":80", ".", "a:b", "a:70000", "a@b", "127.0.0.1@b", "a/b", "a b", "::1", "a:80:80", "[::1]x"]
        {
            assert_eq!(Authority::parse(text), None, "{text}");
        }
    }
}
