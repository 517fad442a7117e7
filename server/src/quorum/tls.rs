//! TLS for connections to etcd members.

use super::options::{QuorumOptions, QuorumOptionsError};
use crate::peer::{client_config, system_roots};
use crate::tls::{TlsError, certificates, private_key, unusable};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Returns the TLS settings for the cluster. Reads the files that the options name.
pub(super) fn read(options: &QuorumOptions) -> Result<Arc<ClientConfig>, QuorumOptionsError> {
    client_config(roots(options)?, |builder| match (&options.cert, &options.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let chain = certificates("--quorum-cert", cert)?;
            let private_key = private_key("--quorum-key", key)?;
            Ok(builder
                .with_client_auth_cert(chain, private_key)
                .map_err(|error| TlsError::identity(["--quorum-cert", "--quorum-key"], cert, key, error))?)
        }
        (Some(_), None) => Err(incomplete("--quorum-cert", "--quorum-key")),
        (None, Some(_)) => Err(incomplete("--quorum-key", "--quorum-cert")),
    })
}

fn roots(options: &QuorumOptions) -> Result<RootCertStore, QuorumOptionsError> {
    let Some(ca) = &options.ca else { return system_roots().ok_or(QuorumOptionsError::NoRoots) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--quorum-ca", ca)? {
        roots.add(certificate).map_err(unusable("--quorum-ca", ca))?;
    }
    Ok(roots)
}

fn incomplete(given: &'static str, missing: &'static str) -> QuorumOptionsError {
    QuorumOptionsError::Incomplete { given, missing }
}
