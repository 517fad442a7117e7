//! Failed TLS handshakes.

use super::Port;
use crate::access::{Evidence, Pause};
use crate::audit::{Act, AuditEvent, Caller};
use crate::node::Node;
use std::io;
use waymaker_protocol::ErrorCode;

/// Notes a failed handshake. If the server refused the certificate of the client, the handshake is a failed login.
pub(crate) fn note(node: &Node, error: &io::Error, evidence: &Evidence, peer: &str, port: Port) {
    tracing::debug!(%error, peer, "a TLS handshake failed");
    let Some(refused) = refused_certificate(error) else { return };
    // Failed logins during a pause have no lines, so they do not fill the audit log.
    let Ok(pause) = node.access.note_refused_certificate(evidence, node.clock.now()) else { return };
    let caller = Caller { address: Some(peer.into()), front_end: Some(port.name()), ..Caller::default() };
    let message = format!("the client certificate is refused: {refused}");
    let code = ErrorCode::Unauthorized.name();
    let pause = pause.map(|pause: Pause| pause.event(caller.clone()));
    let event = AuditEvent::refused(Act::Authenticate, caller, code, message);
    pause.iter().chain([&event]).for_each(|event| node.audit.record(event));
}

/// Returns why the server refused the certificate of the client, if that is what failed.
fn refused_certificate(error: &io::Error) -> Option<&rustls::CertificateError> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(refused) => Some(refused),
        _ => None,
    }
}
