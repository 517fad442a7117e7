//! Failed TLS handshakes.

use crate::access::{Evidence, audit_failed_login};
use crate::audit::Caller;
use crate::node::Node;
use crate::port::Port;
use std::io;

/// Logs a failed handshake. If the server rejected the certificate of the client, the handshake counts as a failed
/// login, unless the address is paused.
pub(crate) fn note(node: &Node, error: &io::Error, evidence: &Evidence, peer: &str, port: Port) {
    tracing::debug!(%error, peer, "a TLS handshake failed");
    let Some(refused) = refused_certificate(error) else { return };
    // Do not record failed logins during a pause of the address, so that they cannot fill the audit log.
    let Ok(pause) = node.access.note_refused_certificate(evidence, node.clock.now()) else { return };
    let caller = Caller { address: Some(peer.into()), front_end: Some(port.name()), ..Caller::default() };
    let reason = format!("the client certificate is refused: {refused}");
    audit_failed_login(&node.audit, caller, reason, pause);
}

/// Returns why the server rejected the client certificate, if this was the reason of the failure.
fn refused_certificate(error: &io::Error) -> Option<&rustls::CertificateError> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(refused) => Some(refused),
        _ => None,
    }
}
