//! TLS for listeners: the server's certificate and the verification of clients' certificates.
//!
//! A server with TLS has one [`Tls`], and each TCP listener has its [`TlsAcceptor`] with its protocols. The files can
//! be read again ([`crate::reload`]). New connections then use the new contents, and open connections continue. TLS
//! sessions from before the reload cannot be resumed. So a client whose certificate is now revoked must present it
//! again and is rejected.
//!
//! The server accepts no early data: an attacker could record and replay it.

use crate::reload::{Reload, ReloadError};
use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The oldest accepted version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2, for clients of older systems.
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[default]
    #[value(name = "1.3")]
    V1_3,
}

/// The TLS files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// File with the certificate of the server, followed by its intermediate certificates.
    pub cert: PathBuf,
    /// File with the private key of the certificate.
    pub key: PathBuf,
    /// File with the CAs that sign client certificates; `None` requests no client certificates.
    pub client_ca: Option<PathBuf>,
    /// File with revocation lists for client certificates; `None` checks no revocation.
    pub client_crl: Option<PathBuf>,
    /// Oldest accepted version of TLS.
    pub min_version: TlsVersion,
}

/// Reasons why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is malformed as PEM, or the file of the key has no private key.
    #[error("{option}: cannot read {path}: {error}")]
    Unreadable {
        /// Name of the option.
        option: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the PEM parser.
        error: pem::Error,
    },
    /// A file has no certificate.
    #[error("{option}: {path} contains no certificate")]
    NoCertificate {
        /// Name of the option.
        option: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file has no revocation list.
    #[error("{option}: {path} contains no certificate revocation list")]
    NoRevocationList {
        /// Name of the option.
        option: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A certificate, key or revocation list is malformed, or of an unsupported kind.
    #[error("{option}: cannot use {path}: {error}")]
    Unusable {
        /// Name of the option.
        option: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the TLS library.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The key does not belong to the certificate.
    #[error("{option}: {key} does not belong to the certificate in {cert}")]
    OtherKey {
        /// Name of the option for the key.
        option: &'static str,
        /// Path of the key.
        key: PathBuf,
        /// Path of the certificate.
        cert: PathBuf,
    },
}

impl TlsError {
    /// Returns the error for a certificate and a key, given with these options, of which the TLS library rejects one or
    /// the combination.
    pub(crate) fn identity(
        options: [&'static str; 2],
        cert: &Path,
        key: &Path,
        error: rustls::Error,
    ) -> Self {
        let [cert_option, option] = options;
        match error {
            rustls::Error::InconsistentKeys(_) => {
                Self::OtherKey { option, key: key.to_owned(), cert: cert.to_owned() }
            }
            rustls::Error::InvalidCertificate(_) => unusable(cert_option, cert)(error),
            error => unusable(option, key)(error),
        }
    }
}

/// TLS configuration of a server, from its files as last read successfully.
#[derive(Clone, Debug)]
pub struct Tls {
    options: TlsOptions,
    current: Arc<RwLock<ServerConfig>>,
}

impl Tls {
    /// Reads the TLS files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used; the error names the file and its option.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(read(options)?));
        Ok(Self { options: options.clone(), current })
    }

    /// Returns an acceptor for a listener with these protocols (ALPN), preferred ones first. An empty list negotiates
    /// no protocol.
    pub fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor { current: Arc::clone(&self.current), protocols }
    }
}

impl Reload for Tls {
    fn subject(&self) -> &'static str {
        "certificates"
    }

    fn files(&self) -> Vec<PathBuf> {
        let TlsOptions { cert, key, client_ca, client_crl, min_version: _ } = &self.options;
        [Some(cert), Some(key), client_ca.as_ref(), client_crl.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn reload(&mut self) -> Result<(), ReloadError> {
        let config = read(&self.options)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

/// Starts TLS connections of one listener.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    current: Arc<RwLock<ServerConfig>>,
    protocols: Vec<Vec<u8>>,
}

impl TlsAcceptor {
    /// Returns the state of a connection before its handshake.
    ///
    /// # Errors
    /// Returns an error if the system provides no randomness.
    pub fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        // This clone is cheap: it shares the large parts of the configuration, and also the cache of resumable TLS
        // sessions.
        let mut config = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        config.alpn_protocols.clone_from(&self.protocols);
        ServerConnection::new(Arc::new(config))
    }
}

fn read(options: &TlsOptions) -> Result<ServerConfig, TlsError> {
    let TlsOptions { cert, key, client_ca, client_crl, min_version } = options;
    let chain = certificates("--tls-cert", cert)?;
    let private_key = private_key("--tls-key", key)?;
    let provider = Arc::new(ring::default_provider());
    let versions: &[&SupportedProtocolVersion] = match min_version {
        TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::V1_3 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("the provider speaks both");
    let builder = match client_ca {
        Some(ca) => builder.with_client_cert_verifier(client_verifier(ca, client_crl.as_deref(), provider)?),
        None => builder.with_no_client_auth(),
    };
    builder
        .with_single_cert(chain, private_key)
        .map_err(|error| TlsError::identity(["--tls-cert", "--tls-key"], cert, key, error))
}

fn client_verifier(
    ca: &Path,
    crl: Option<&Path>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--tls-client-ca", ca)? {
        roots.add(certificate).map_err(unusable("--tls-client-ca", ca))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    match crl {
        None => verifier.build().map_err(unusable("--tls-client-ca", ca)),
        Some(crl) => {
            // The roots have been checked, so `build` fails only if a revocation list cannot be used.
            verifier.with_crls(revocation_lists(crl)?).build().map_err(unusable(CLIENT_CRL, crl))
        }
    }
}

const CLIENT_CRL: &str = "--tls-client-crl";

/// Returns all revocation lists in a file, at least one.
fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(CLIENT_CRL, path))?;
    if lists.is_empty() {
        return Err(TlsError::NoRevocationList { option: CLIENT_CRL, path: path.to_owned() });
    }
    Ok(lists)
}

/// Returns all certificates in a file, at least one.
pub(crate) fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(option, path))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { option, path: path.to_owned() });
    }
    Ok(certificates)
}

/// Returns the first private key in a file.
pub(crate) fn private_key(option: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(unreadable(option, path))
}

fn unreadable(option: &'static str, path: &Path) -> impl FnOnce(pem::Error) -> TlsError {
    move |error| TlsError::Unreadable { option, path: path.to_owned(), error }
}

/// Returns a function that makes the error of a file with unusable contents.
pub(crate) fn unusable<E: std::error::Error + Send + Sync + 'static>(
    option: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> TlsError {
    move |error| TlsError::Unusable { option, path: path.to_owned(), error: error.into() }
}
