//! TLS for connections to etcd members.

use super::options::{QuorumOptions, QuorumOptionsError};
use crate::tls::{TlsError, certificates, private_key, unusable};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Returns TLS settings that trust the CAs of the system.
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, QuorumOptionsError> {
    read(&QuorumOptions::default())
}

/// Returns the TLS settings for the cluster. Reads the files that the options name.
pub(super) fn read(options: &QuorumOptions) -> Result<Arc<ClientConfig>, QuorumOptionsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks them")
        .with_root_certificates(roots(options)?);
    let mut config = match (&options.cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("--quorum-cert", cert)?;
            let private_key = private_key("--quorum-key", key)?;
            builder
                .with_client_auth_cert(chain, private_key)
                .map_err(|error| TlsError::identity(["--quorum-cert", "--quorum-key"], cert, key, error))?
        }
        (Some(_), None) => return Err(incomplete("--quorum-cert", "--quorum-key")),
        (None, Some(_)) => return Err(incomplete("--quorum-key", "--quorum-cert")),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn roots(options: &QuorumOptions) -> Result<RootCertStore, QuorumOptionsError> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &options.ca {
        for certificate in certificates("--quorum-ca", ca)? {
            roots.add(certificate).map_err(unusable("--quorum-ca", ca))?;
        }
        return Ok(roots);
    }
    // Skip certificates of the system that cannot be parsed; some systems have old or unusual ones.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(QuorumOptionsError::NoRoots) } else { Ok(roots) }
}

fn incomplete(given: &'static str, missing: &'static str) -> QuorumOptionsError {
    QuorumOptionsError::Incomplete { given, missing }
}
