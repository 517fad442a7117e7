//! The address of one etcd member.

use super::options::{QuorumOptions, QuorumOptionsError};
use super::tls;
use crate::option_values::without_user_info;
use http::Uri;
use http::uri::Authority;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::fmt;
use std::sync::Arc;

/// The address of one member, and its encryption.
#[derive(Debug)]
pub struct Endpoint {
    /// Origin that requests are addressed to.
    pub(super) origin: Uri,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) encryption: Option<Encryption>,
}

/// TLS settings for the connections to one member.
#[derive(Clone, Debug)]
pub(super) struct Encryption {
    pub(super) config: Arc<ClientConfig>,
    /// Name that the certificate of the member must contain.
    pub(super) name: ServerName<'static>,
}

impl Endpoint {
    /// Parses all endpoints, at least one. Reads the TLS files if an endpoint needs them.
    pub(super) fn all(options: &QuorumOptions) -> Result<Vec<Self>, QuorumOptionsError> {
        if options.endpoints.is_empty() {
            return Err(QuorumOptionsError::NoEndpoint);
        }
        let is_encrypted = |text: &String| text.starts_with("https://");
        let config = options.endpoints.iter().any(is_encrypted).then(|| tls::read(options)).transpose()?;
        let files =
            [("--quorum-ca", &options.ca), ("--quorum-cert", &options.cert), ("--quorum-key", &options.key)];
        let given = files.iter().find(|(_, file)| file.is_some());
        // An operator who names TLS files expects TLS for all members. Also, a password must not go to a member in
        // plain text.
        if let (Some((option, _)), Some(endpoint)) =
            (given, options.endpoints.iter().find(|text| !is_encrypted(text)))
        {
            let endpoint = without_user_info(endpoint);
            return Err(QuorumOptionsError::NotEncrypted { option, endpoint });
        }
        let parse = |text: &String| {
            Self::parse(text, config.as_ref())
                .ok_or_else(|| QuorumOptionsError::BadEndpoint { endpoint: without_user_info(text) })
        };
        options.endpoints.iter().map(parse).collect()
    }

    pub(crate) fn parse(text: &str, config: Option<&Arc<ClientConfig>>) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().ok()?;
        let port = authority.port_u16().filter(|port| *port != 0)?;
        // The authority has an IPv6 address in brackets.
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

    fn refused(options: &QuorumOptions) -> String {
        Endpoint::all(options).unwrap_err().to_string()
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        let options =
            |endpoint: &str| QuorumOptions { endpoints: vec![endpoint.to_owned()], ..Default::default() };
        for (endpoint, shown, host) in [
            ("http://etcd.example:2379", "http://etcd.example:2379", "etcd.example"),
            ("etcd.example:2379", "http://etcd.example:2379", "etcd.example"),
            ("http://127.0.0.1:2379/", "http://127.0.0.1:2379", "127.0.0.1"),
            ("[::1]:2379", "http://[::1]:2379", "::1"),
        ] {
            let found = Endpoint::all(&options(endpoint)).unwrap();
            assert_eq!((found[0].to_string().as_str(), found[0].host.as_str()), (shown, host), "{endpoint}");
            assert_eq!((found[0].port, found[0].encryption.is_none()), (2379, true), "{endpoint}");
        }
        for endpoint in [
            "",
            ":2379",
            "etcd.example",
            "http://etcd.example",
            "etcd.example:0",
            "etcd.example:99999",
            "unix://etcd:1",
            "http://a:1/path",
            "a:1,b:1",
            "http://user@etcd:1",
        ] {
            let error = refused(&options(endpoint));
            let shown = without_user_info(endpoint);
            assert!(error.starts_with("--quorum-endpoints: ") && error.contains(&shown), "{error}");
        }
    }

    #[test]
    fn no_error_shows_the_password_of_an_endpoint() {
        let endpoints = vec!["http://me:secret@etcd:1".to_owned()];
        let plain = QuorumOptions { endpoints, ..Default::default() };
        let with_ca = QuorumOptions { ca: Some("ca.pem".into()), ..plain.clone() };
        for options in [plain, with_ca] {
            let error = refused(&options);
            assert!(error.contains("***@etcd:1") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn invalid_tls_options_are_rejected_by_name() {
        let plain = QuorumOptions { endpoints: vec!["http://etcd:2379".to_owned()], ..Default::default() };
        let encrypted =
            QuorumOptions { endpoints: vec!["https://etcd:2379".to_owned()], ..Default::default() };
        let file = || Some("/nowhere.pem".into());
        for (options, expected) in [
            (QuorumOptions::default(), "--quorum-endpoints: the list is empty; name at least one member"),
            (
                QuorumOptions { ca: file(), ..plain.clone() },
                "--quorum-ca: the member http://etcd:2379 is reached without TLS",
            ),
            (
                QuorumOptions { cert: file(), ..plain },
                "--quorum-cert: the member http://etcd:2379 is reached without TLS",
            ),
            (QuorumOptions { ca: file(), ..encrypted }, "--quorum-ca: cannot read /nowhere.pem: "),
        ] {
            let error = refused(&options);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
