//! What encrypted listeners need: certificates, and who is let in by theirs.
//!
//! There is one [`Tls`] for a server and one [`TlsAcceptor`] for each listener, which differ in the protocols that they
//! agree on. The files can be read again ([`crate::reload`]): connections that begin later use the new contents, and open
//! connections continue. No session of the old contents can be resumed then, so a revoked client cannot avoid the check.
//!
//! Data before the end of the handshake is never taken, since whoever recorded it could send
//! it again.

use crate::reload::{Reload, ReloadError};
use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The oldest version of TLS that is spoken.
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

/// The files of a server that encrypts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The certificate of the server, followed by those that lead to a root.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Who signs the certificates of clients; without it none are asked for.
    pub client_ca: Option<PathBuf>,
    /// Certificates of clients that are no longer valid; without it none is checked for that.
    pub client_crl: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or not PEM.
    #[error("{option}: cannot read {path}: {error}")]
    Unreadable {
        /// Which option names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: pem::Error,
    },
    /// A file holds nothing of use.
    #[error("{option}: {path} contains no certificate")]
    NoCertificate {
        /// Which option names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A file has no revocation list.
    #[error("{option}: {path} contains no certificate revocation list")]
    NoRevocationList {
        /// Name of the option.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key is malformed, or of a kind that is not supported.
    #[error("{option}: cannot use {path}: {error}")]
    Unusable {
        /// Which option names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The key belongs to another certificate.
    #[error("{option}: {key} does not belong to the certificate in {cert}")]
    OtherKey {
        /// Which option names the key.
        option: &'static str,
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
}

impl TlsError {
    /// A certificate and its key, named by these options, cannot be used together.
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

/// The certificates of a server as they were read last.
#[derive(Clone, Debug)]
pub struct Tls {
    options: TlsOptions,
    current: Arc<RwLock<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be used; the error names it and its option.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(read(options)?));
        Ok(Self { options: options.clone(), current })
    }

    /// For a listener that speaks these protocols (ALPN), the preferred first; none where there is nothing to agree on.
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

/// Begins encrypted connections of one listener.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    current: Arc<RwLock<ServerConfig>>,
    protocols: Vec<Vec<u8>>,
}

impl TlsAcceptor {
    /// The state of a connection that has yet to shake hands.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        // A copy shares all that is large, and the sessions that may be resumed.
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
            // There are roots, so only a list can be wrong.
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

/// All certificates in a file, at least one.
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

/// The key in a file.
pub(crate) fn private_key(option: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(unreadable(option, path))
}

fn unreadable(option: &'static str, path: &Path) -> impl FnOnce(pem::Error) -> TlsError {
    move |error| TlsError::Unreadable { option, path: path.to_owned(), error }
}

/// What is in a file cannot be used.
pub(crate) fn unusable<E: std::error::Error + Send + Sync + 'static>(
    option: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> TlsError {
    move |error| TlsError::Unusable { option, path: path.to_owned(), error: error.into() }
}
