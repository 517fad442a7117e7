//! The address of a peer.

use http::Uri;
use http::uri::Authority;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::fmt;
use std::sync::Arc;

/// The address of one peer, and its encryption.
#[derive(Debug)]
pub struct Endpoint {
    /// Origin that requests are addressed to.
    pub(super) origin: Uri,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) encryption: Option<Encryption>,
}

/// TLS settings for the connections to one peer.
#[derive(Clone, Debug)]
pub(super) struct Encryption {
    pub(super) config: Arc<ClientConfig>,
    /// Name that the certificate of the peer must contain.
    pub(super) name: ServerName<'static>,
}

impl Endpoint {
    /// Returns whether this server shows no certificate on its encrypted connections to the peer; false if they are not
    /// encrypted.
    pub(crate) fn lacks_certificate(&self) -> bool {
        self.encryption
            .as_ref()
            .is_some_and(|encryption| !encryption.config.client_auth_cert_resolver.has_certs())
    }

    /// Parses `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. Returns `None` if the text has another form, or
    /// if it needs a configuration for TLS and there is none.
    pub(crate) fn parse(text: &str, config: Option<&Arc<ClientConfig>>) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().ok()?;
        let port = authority.port_u16().filter(|port| *port != 0)?;
        // Remove the brackets that an IPv6 address has in an authority.
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return None;
        }
        let encryption = match scheme {
            "http" => None,
            "https" => {
                let name = ServerName::try_from(host.clone()).ok()?;
                Some(Encryption { config: Arc::clone(config?), name })
            }
            _ => return None,
        };
        let origin = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()?;
        Some(Self { origin, host, port, encryption })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.origin.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for (text, shown, host) in [
            ("http://etcd.example:2379", "http://etcd.example:2379", "etcd.example"),
            ("etcd.example:2379", "http://etcd.example:2379", "etcd.example"),
            ("http://127.0.0.1:2379/", "http://127.0.0.1:2379", "127.0.0.1"),
            ("[::1]:2379", "http://[::1]:2379", "::1"),
        ] {
            let found = Endpoint::parse(text, None).expect("an address");
            assert_eq!((found.to_string().as_str(), found.host.as_str()), (shown, host), "{text}");
            assert_eq!((found.port, found.encryption.is_none()), (2379, true), "{text}");
        }
    }
}
