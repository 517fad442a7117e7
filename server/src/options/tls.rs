//! The TLS options.

use crate::option_values::heading;
use crate::tls::{TlsOptions, TlsVersion};
use clap::Args;
use std::path::PathBuf;

/// The TLS options as given. [`TlsFlags::resolve`] checks that they are complete.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::TLS)]
pub struct TlsFlags {
    /// PEM file with the server certificate, followed by its intermediate certificates. Encrypts every TCP listener; needs
    /// --tls-key [default: none]
    #[arg(id = "tls_cert", long = "tls-cert", env = "WAYMAKER_TLS_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert [default: none]
    #[arg(id = "tls_key", long = "tls-key", env = "WAYMAKER_TLS_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// PEM file with the CA certificates of clients. Rejects clients without a certificate that one of them signed; needs
    /// --tls-cert [default: none]
    #[arg(id = "tls_client_ca", long = "tls-client-ca", env = "WAYMAKER_TLS_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// PEM file with revocation lists, one of each CA in --tls-client-ca. Rejects clients whose certificate is in them; needs
    /// --tls-client-ca [default: none]
    #[arg(
        id = "tls_client_crl",
        long = "tls-client-crl",
        env = "WAYMAKER_TLS_CLIENT_CRL",
        value_name = "FILE"
    )]
    pub client_crl: Option<PathBuf>,
    /// Lowest TLS version that is accepted [default: 1.3]
    #[arg(
        id = "tls_min_version",
        long = "tls-min-version",
        env = "WAYMAKER_TLS_MIN_VERSION",
        value_enum,
        value_name = "VERSION"
    )]
    pub min_version: Option<TlsVersion>,
}

/// An option needs another option that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} needs {missing}")]
pub struct Incomplete {
    given: &'static str,
    missing: &'static str,
}

impl TlsFlags {
    /// Returns the complete options, or `None` if TLS is disabled.
    ///
    /// # Errors
    /// Returns `Incomplete` if an option needs another option that is missing.
    pub fn resolve(&self) -> Result<Option<TlsOptions>, Incomplete> {
        let Self { cert, key, client_ca, client_crl, min_version } = self.clone();
        let incomplete = |given, missing| Err(Incomplete { given, missing });
        if client_crl.is_some() && client_ca.is_none() {
            return incomplete("--tls-client-crl", "--tls-client-ca");
        }
        match (cert, key) {
            (Some(cert), Some(key)) => {
                let min_version = min_version.unwrap_or_default();
                Ok(Some(TlsOptions { cert, key, client_ca, client_crl, min_version }))
            }
            (Some(_), None) => incomplete("--tls-cert", "--tls-key"),
            (None, Some(_)) => incomplete("--tls-key", "--tls-cert"),
            (None, None) if client_ca.is_some() => incomplete("--tls-client-ca", "--tls-cert"),
            (None, None) if min_version.is_some() => incomplete("--tls-min-version", "--tls-cert"),
            (None, None) => Ok(None),
        }
    }
}
