//! TLS settings of encrypted connections.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// TLS settings of a client for a `waymaker+tls://` address, and of the clients in `waymaker-dialects` for `https://`
/// and `wss://`.
///
/// ```no_run
/// # async fn example() -> waymaker_client::Result<()> {
/// use waymaker_client::{Client, Tls};
///
/// let tls = Tls::new().ca_file("ca.pem").identity_files("client.pem", "client.key");
/// let client = Client::builder().tls(tls).connect("waymaker+tls://locks.example").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    authorities: Vec<Pem>,
    identity: Option<(Pem, Pem)>,
    server_name: Option<String>,
}

impl Tls {
    /// Returns settings that trust the system's CA certificates and present no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the CA certificates in a PEM file instead of the system's. May be repeated.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// Trusts the CA certificates in this PEM text instead of the system's. May be repeated.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(Pem::Text(pem.into()));
        self
    }

    /// Presents the client certificate in one PEM file, with its private key in the other.
    #[must_use]
    pub fn identity_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// Presents the client certificate in one PEM text, with its private key in the other.
    #[must_use]
    pub fn identity_pem(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((Pem::Text(certificate.into()), Pem::Text(key.into())));
        self
    }

    /// Sets the name that the server's certificate must contain. Default: the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Converts the settings for `rustls`, for programs that speak another protocol to a server on `host`. Reads the
    /// files of the settings, and without CA settings also the system's CA certificates.
    ///
    /// Returns the configuration, and the name that the server's certificate must contain.
    ///
    /// # Errors
    ///
    /// `TlsError` if a certificate or key cannot be used, if there is no CA certificate, or if the expected name of the
    /// server is not a valid name for a certificate.
    pub fn for_rustls(&self, host: &str) -> Result<(ClientConfig, ServerName<'static>), TlsError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let name =
            ServerName::try_from(name).map_err(|_| TlsError::Name { name: name.to_owned() })?.to_owned();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider speaks them")
            .with_root_certificates(self.roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificate.certificates("client certificate")?;
                let key = key.key()?;
                builder.with_client_auth_cert(chain, key).map_err(|source| TlsError::Identity { source })?
            }
        };
        Ok((config, name))
    }

    pub(crate) fn connector(&self, host: &str) -> Result<Connector, TlsError> {
        let (config, name) = self.for_rustls(host)?;
        Ok(Connector { config: Arc::new(config), name })
    }

    /// Returns advice for a failed handshake; empty if there is none for this error.
    pub fn hint(error: &io::Error) -> &'static str {
        match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                "no trusted CA signed the certificate of the server; name its CA"
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                "the server may not use TLS there; then the address has no +tls"
            }
            Some(rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::BadCertificate,
            )) => "the server requires a client certificate that its CA signed",
            Some(rustls::Error::AlertReceived(AlertDescription::CertificateRevoked)) => {
                "the client certificate is in the revocation list of the server"
            }
            _ => "",
        }
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            for certificate in authority.certificates("CA")? {
                roots
                    .add(certificate)
                    .map_err(|source| TlsError::Authority { place: authority.place(), source })?;
            }
        }
        if self.authorities.is_empty() {
            // Some of the system's certificates may be outdated or malformed; skip those.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::NoRoots);
            }
        }
        Ok(roots)
    }
}

/// Reason for which TLS settings cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or a file or text contains no valid PEM of the expected kind.
    #[error("cannot read the {what} {place}: {problem}")]
    Unreadable {
        /// Expected content, such as `CA`.
        what: &'static str,
        /// Path of the file, or a note that the PEM was given as text.
        place: String,
        /// Cause of the failure.
        problem: String,
    },
    /// A CA certificate is malformed or unsupported.
    #[error("cannot use the CA {place}: {source}")]
    Authority {
        /// Path of the file, or a note that the PEM was given as text.
        place: String,
        /// Cause of the failure.
        source: rustls::Error,
    },
    /// The client certificate and its key do not match, or one of them is malformed or unsupported.
    #[error("cannot use the client certificate with its key: {source}")]
    Identity {
        /// Cause of the failure.
        source: rustls::Error,
    },
    /// The expected name of the server is not a valid name.
    #[error("{name:?} is neither a host name nor an IP address")]
    Name {
        /// The invalid name.
        name: String,
    },
    /// No CA was set, and the system has no CA certificate that can be used.
    #[error("the system has no CA certificates; name a CA")]
    NoRoots,
}

/// Source of certificates or keys: a file or a text in PEM format.
#[derive(Clone, PartialEq, Eq)]
enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

impl Pem {
    fn certificates(&self, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates: Vec<_> = match self {
            Self::File(path) => CertificateDer::pem_file_iter(path).and_then(Iterator::collect),
            Self::Text(text) => CertificateDer::pem_slice_iter(text).collect(),
        }
        .map_err(|error| self.unreadable(what, &error))?;
        match certificates.is_empty() {
            true => Err(self.unreadable(what, &pem::Error::NoItemsFound)),
            false => Ok(certificates),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        match self {
            Self::File(path) => PrivateKeyDer::from_pem_file(path),
            Self::Text(text) => PrivateKeyDer::from_pem_slice(text),
        }
        .map_err(|error| self.unreadable("client key", &error))
    }

    fn unreadable(&self, what: &'static str, error: &pem::Error) -> TlsError {
        TlsError::Unreadable { what, place: self.place(), problem: error.to_string() }
    }

    /// Returns the source for an error message: the path, or a note that it is text.
    fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "given as text".to_owned(),
        }
    }
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text may be a private key, so the debug output says only that the PEM was given as text.
        formatter.write_str(&self.place())
    }
}

/// Encrypts connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    /// Performs the TLS handshake.
    pub(crate) async fn connect(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::clone(&self.config)).connect(self.name.clone(), socket).await
    }
}
