//! Who is on the other side of a connection of a front end.

use crate::access::{Evidence, NotIdentified, NotSigned, Pause, audit_failed_login, no_right_in};
use crate::audit::{Act, AuditEvent, Caller};
use crate::driver::{Local, Port};
use crate::front::shown::cut;
use crate::worker::{Client, KnownAs};
use http::header::{AUTHORIZATION, HeaderMap};
use std::sync::Arc;
use waymaker_access::{Identity, SignedRequest};
use waymaker_engine::{Access, Counted, QuotaReached, Rights};
use waymaker_protocol::{ErrorCode, NamespaceKind};

/// Longest reason of a failed login in the audit log, as it can quote the request.
const REASON_CHARS_MAX: usize = 512;

/// The client of a connection, as the connection shows it.
#[derive(Clone, Debug)]
pub(crate) struct FrontClient {
    /// Port that it connected to.
    port: Port,
    peer: Arc<str>,
    evidence: Arc<Evidence>,
}

impl FrontClient {
    /// The client at this port with this address, as people read it.
    pub(super) fn new(port: Port, peer: String, evidence: Evidence) -> Self {
        Self { port, peer: peer.into(), evidence: Arc::new(evidence) }
    }

    /// Its address, as people read it.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Finds out who makes a request with these credentials.
    ///
    /// # Errors
    /// If the request has to come from an identity, and does not.
    pub(super) fn identify(&self, credentials: &[u8]) -> Result<FrontCaller, NotIdentified> {
        let identified = Local::with(|local| {
            let node = &local.node;
            node.access.identify(&self.evidence, credentials, node.clock.now(), node.unix_seconds())
        });
        identified.map(|identity| self.caller(identity)).inspect_err(|refusal| self.audit(refusal))
    }

    /// The port to which it is connected.
    pub(super) fn port(&self) -> Port {
        self.port
    }

    /// Finds out who signed a request.
    ///
    /// # Errors
    /// If the request has to be signed and is not, or if it has to come from an identity and does not.
    pub(super) fn identify_signed(&self, request: &SignedRequest<'_>) -> Result<FrontCaller, NotSigned> {
        let identified = Local::with(|local| {
            let node = &local.node;
            node.access.identify_signed(&self.evidence, request, node.clock.now(), node.unix_seconds())
        });
        identified.map(|identity| self.caller(identity)).inspect_err(|refusal| match refusal {
            NotSigned::Refused { refusal, pause } => self.audit_failed(refusal.to_string(), *pause),
            NotSigned::NotIdentified(refusal) => self.audit(refusal),
        })
    }

    fn caller(&self, identity: Option<Arc<Identity>>) -> FrontCaller {
        FrontCaller {
            identity,
            evidence: Some(Arc::clone(&self.evidence)),
            address: Some(Arc::clone(&self.peer)),
            front_end: Some(self.port.name()),
        }
    }

    fn audit(&self, refusal: &NotIdentified) {
        // A pause is written once, when it begins.
        if let NotIdentified::Unauthenticated { reason, pause } = refusal {
            self.audit_failed(reason.to_string(), *pause);
        }
    }

    fn audit_failed(&self, reason: String, pause: Option<Pause>) {
        let reason = cut(reason, REASON_CHARS_MAX);
        let (address, front_end) = (Some(Arc::clone(&self.peer)), Some(self.port.name()));
        let caller = Caller { address, front_end, ..Caller::default() };
        Local::with(|local| audit_failed_login(&local.node.audit, caller, reason, pause));
    }
}

/// The client of requests to a front end, as the lanes of its inlets know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrontCaller {
    /// The identity. `None`: the client has none and may do everything.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Facts about the client. `None` for the server itself.
    pub(crate) evidence: Option<Arc<Evidence>>,
    /// The address of the client, as people read it. `None` for the server itself.
    pub(crate) address: Option<Arc<str>>,
    /// The protocol.
    pub(crate) front_end: Option<&'static str>,
}

impl FrontCaller {
    /// Returns the rights of the client in a namespace. `None`: all rights.
    pub(super) fn access(&self, namespace: &[u8], kind: NamespaceKind) -> Option<Access> {
        let policy = Local::with(|local| local.node.access.policy());
        policy.access(self.identity.as_ref(), namespace, kind)
    }

    /// Refuses a client without this right for any key of a namespace, whether there is such a namespace or not.
    ///
    /// # Errors
    /// The message of the refusal.
    pub(super) fn check_right(&self, namespace: &[u8], right: Rights) -> Result<(), String> {
        self.check(namespace, right, Access::somewhere)
    }

    /// Refuses a client without this right for every key of a namespace, whether there is such a namespace or not.
    ///
    /// # Errors
    /// The message of the refusal.
    pub(super) fn check_right_everywhere(&self, namespace: &[u8], right: Rights) -> Result<(), String> {
        self.check(namespace, right, Access::everywhere)
    }

    fn check(&self, namespace: &[u8], right: Rights, rights: fn(&Access) -> Rights) -> Result<(), String> {
        // No rule is for one kind of namespace alone.
        match self.access(namespace, NamespaceKind::Flat) {
            Some(access) if !rights(&access).contains(right) => {
                let message = no_right_in(access.identity(), right, namespace);
                self.note_denied(namespace, &message);
                Err(message)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a client that may not read the metrics.
    ///
    /// # Errors
    /// The message of the refusal.
    pub(super) fn check_metrics_right(&self) -> Result<(), &'static str> {
        if Local::with(|local| local.node.access.policy().may_read_metrics(self.identity.as_ref())) {
            return Ok(());
        }
        let message = "no rule gives this identity the right `metrics`";
        self.note_denied(b"", message);
        Err(message)
    }

    /// As the audit log has it.
    pub(super) fn audit_caller(&self) -> Caller {
        Caller {
            identity: self.identity.as_ref().map(|identity| Arc::clone(&identity.name)),
            address: self.address.clone(),
            front_end: self.front_end,
            owner: None,
        }
    }

    /// Writes to the audit log that a request was refused for want of a right.
    pub(crate) fn note_denied(&self, namespace: &[u8], message: &str) {
        let caller = self.audit_caller();
        let code = ErrorCode::Unauthorized.name();
        let event = AuditEvent::refused(Act::Deny, caller, code, message.to_owned());
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        Local::with(|local| local.node.audit.record(&AuditEvent { namespace, ..event }));
    }

    /// Counts its connection in the accounts of its identity, until the returned value is dropped.
    ///
    /// # Errors
    /// If a quota does not have the room.
    pub(super) fn count_connection(&self, local: &Local) -> Result<Option<Counted>, QuotaReached> {
        let Some(identity) = &self.identity else { return Ok(None) };
        let (access, now_unix_s) = (&local.node.access, local.node.unix_seconds());
        let accounts = access.accounts(identity, self.evidence.as_deref());
        accounts
            .count_connection(now_unix_s)
            .map(Some)
            .inspect_err(|reached| Local::note_rejected(reached.limit))
    }

    /// As the lane of an inlet has it.
    pub(crate) fn lane_client(&self) -> Client {
        Client {
            known_as: KnownAs::Identified(self.identity.clone()),
            evidence: self.evidence.clone(),
            address: self.address.clone(),
            front_end: self.front_end,
        }
    }
}

/// The token in the `authorization` header of a request; empty without one.
pub(super) fn bearer(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, token) = value.split_at(value.len().min(b"bearer ".len()));
    // Another scheme is none that the server knows, and its value none of its tokens.
    if scheme.eq_ignore_ascii_case(b"bearer ") { token.trim_ascii() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_token_follows_its_scheme_in_any_letter_case() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            String::from_utf8(bearer(&headers).to_vec()).unwrap()
        };
        assert_eq!(token("Bearer abc"), "abc");
        assert_eq!(token("bearer  abc "), "abc");
        assert_eq!(token("Basic abc"), "Basic abc");
        assert_eq!(bearer(&HeaderMap::new()), b"");
    }
}
