//! Names in certificates.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest common name of a certificate in bytes, by its standard.
const NAME_LEN_MAX: usize = 64;
/// Names of files in the directory of a CA that belong to no client.
const RESERVED: [&str; 3] = ["ca", "server", "clients"];

/// Host name or IP address of a server.
#[derive(Clone, Debug)]
pub(super) struct ServerName(String);

impl ServerName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as the host of a URL.
    pub(super) fn in_url(&self) -> String {
        if self.0.contains(':') { format!("[{}]", self.0) } else { self.0.clone() }
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = text.parse::<IpAddr>().is_ok() || is_dns_name(text.strip_prefix("*.").unwrap_or(text));
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err("it is neither a host name nor an IP address".to_owned()),
        }
    }
}

/// Name of a client: a DNS name such as `alice`, or a URI such as `spiffe://example.org/alice`.
#[derive(Clone, Debug)]
pub(super) struct ClientName(String);

impl ClientName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_uri(&self) -> bool {
        self.0.contains("://")
    }

    /// Returns the name of the client's files without their extension.
    pub(super) fn stem(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        self.0.split(|letter| !is_plain(letter)).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ClientName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = Self(text.to_owned());
        if text.len() > NAME_LEN_MAX {
            return Err(format!("it is {} bytes long; the maximum is {NAME_LEN_MAX}", text.len()));
        }
        if RESERVED.contains(&name.stem().as_str()) {
            return Err(format!("its files would have the names of other files: {}", RESERVED.join(", ")));
        }
        let is_name = match name.is_uri() {
            true => text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.starts_with("://"),
            false => is_dns_name(text),
        };
        match is_name {
            true => Ok(name),
            false => {
                Err("it is neither a DNS name such as alice nor a URI such as spiffe://example.org/alice"
                    .to_owned())
            }
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    rustls_pki_types::DnsName::try_from(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_named_by_a_dns_name_or_a_uri() {
        for (text, stem) in [
            ("alice", "alice"),
            ("build-7.ci.example", "build-7.ci.example"),
            ("spiffe://example.org/ns/prod", "spiffe-example.org-ns-prod"),
        ] {
            assert_eq!(text.parse::<ClientName>().map(|name| name.stem()).as_deref(), Ok(stem));
        }
        let long = "a".repeat(65);
        for (text, problem) in [
            ("", "neither a DNS name"),
            ("two words", "neither a DNS name"),
            ("../alice", "neither a DNS name"),
            ("://alice", "neither a DNS name"),
            ("http://a b", "neither a DNS name"),
            ("server", "the names of other files"),
            ("clients", "the names of other files"),
            (&long, "the maximum is 64"),
        ] {
            let error = text.parse::<ClientName>().map(drop).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_is_named_by_a_host_name_or_an_address() {
        for text in ["locks.example", "*.example", "10.0.0.7", "fd00::7"] {
            assert!(text.parse::<ServerName>().is_ok(), "{text}");
        }
        assert_eq!("fd00::7".parse::<ServerName>().unwrap().in_url(), "[fd00::7]");
        for text in ["", "locks example", "locks:7420", "*"] {
            assert!(text.parse::<ServerName>().is_err(), "{text}");
        }
    }
}
