//! TLS for connections to peers.

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use std::sync::Arc;

/// Returns the CAs of the system, or `None` if it has none.
pub(crate) fn system_roots() -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Skip certificates of the system that cannot be parsed; some systems have old or unusual ones.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    (!roots.is_empty()).then_some(roots)
}

/// Returns TLS settings for HTTP/2 that trust these CAs. `identify` adds the identity of this server, if there is one.
///
/// # Errors
/// Returns the error of `identify`.
pub(crate) fn client_config<E>(
    roots: RootCertStore,
    identify: impl FnOnce(ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, E>,
) -> Result<Arc<ClientConfig>, E> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks them")
        .with_root_certificates(roots);
    let mut config = identify(builder)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
