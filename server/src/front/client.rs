//! The client of a front-end connection (its port, address and TLS facts), and the caller of each request: the identity
//! that the credentials of the request prove.

use crate::access::{Evidence, NotIdentified, NotSigned, Pause, audit_failed_login, no_right_in};
use crate::audit::{Act, AuditEvent, Caller};
use crate::driver::Local;
use crate::front::conversion::cut;
use crate::port::Port;
use crate::worker::{Client, Identification};
use http::header::{AUTHORIZATION, HeaderMap};
use std::sync::Arc;
use waymaker_access::{Identity, SignedRequest};
use waymaker_engine::{Access, Counted, QuotaReached, Rights};
use waymaker_protocol::{ErrorCode, NamespaceKind};

/// Maximum length in characters of a login failure's reason in the audit log; the reason may quote the request.
const REASON_CHARS_MAX: usize = 512;

/// Client of a front-end connection: its port, its address, and the facts that its socket and TLS show.
#[derive(Clone, Debug)]
pub(crate) struct FrontClient {
    /// Port to which the client is connected.
    port: Port,
    peer: Arc<str>,
    evidence: Arc<Evidence>,
}

impl FrontClient {
    /// Creates the client of a connection to this port. `peer` describes its address for people.
    pub(super) fn new(port: Port, peer: String, evidence: Evidence) -> Self {
        Self { port, peer: peer.into(), evidence: Arc::new(evidence) }
    }

    /// Returns the address of the client, for people.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Identifies the caller of a request by these credentials. Records a refusal in the audit log, unless a pause is
    /// its reason.
    ///
    /// # Errors
    /// Fails if the credentials are not valid, if they are missing and the server needs them, or if the address is
    /// paused after failed logins.
    pub(super) fn identify(&self, credentials: &[u8]) -> Result<FrontCaller, NotIdentified> {
        let identified = Local::with(|local| {
            let node = &local.node;
            node.access.identify(&self.evidence, credentials, node.clock.now(), node.unix_seconds())
        });
        identified.map(|identity| self.caller(identity)).inspect_err(|refusal| self.audit(refusal))
    }

    /// Returns the port to which the client is connected.
    pub(super) fn port(&self) -> Port {
        self.port
    }

    /// Identifies the caller of a request by its signature. Records a refusal in the audit log, unless a pause is its
    /// reason.
    ///
    /// # Errors
    /// Fails if the request must be signed and has no valid signature, or if it needs an identity and has none. Also
    /// fails if its login is refused because the address is paused; a pause does not refuse a valid signature.
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
        // Do not record a login that a pause refuses. The failed login that began the pause is already in the audit
        // log.
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

/// Caller of front-end requests. The lanes of its inlets act on behalf of this caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrontCaller {
    /// Identity of the caller. `None` if the server requires none, and for the server itself; the caller then has all
    /// rights.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Facts about the client; `None` for the server itself.
    pub(crate) evidence: Option<Arc<Evidence>>,
    /// Address of the client, for people; `None` for the server itself.
    pub(crate) address: Option<Arc<str>>,
    /// Name of the front end; `None` for the server itself.
    pub(crate) front_end: Option<&'static str>,
}

impl FrontCaller {
    /// Returns the rights of the caller in a namespace; `None` means all rights.
    pub(super) fn access(&self, namespace: &[u8], kind: NamespaceKind) -> Option<Access> {
        let policy = Local::with(|local| local.node.access.policy());
        policy.access(self.identity.as_ref(), namespace, kind)
    }

    /// Checks that the caller has this right for at least one key of a namespace. The namespace need not exist. Records
    /// a refusal in the audit log.
    ///
    /// # Errors
    /// Returns the message of the refusal.
    pub(super) fn check_right(&self, namespace: &[u8], right: Rights) -> Result<(), String> {
        self.check(namespace, right, Access::somewhere)
    }

    /// Checks that the caller has this right for every key of a namespace. The namespace need not exist. Records a
    /// refusal in the audit log.
    ///
    /// # Errors
    /// Returns the message of the refusal.
    pub(super) fn check_right_everywhere(&self, namespace: &[u8], right: Rights) -> Result<(), String> {
        self.check(namespace, right, Access::everywhere)
    }

    fn check(&self, namespace: &[u8], right: Rights, rights: fn(&Access) -> Rights) -> Result<(), String> {
        // The kind of a namespace matters only when keys are compared with prefixes. This check compares no keys, so
        // any kind works.
        match self.access(namespace, NamespaceKind::Flat) {
            Some(access) if !rights(&access).contains(right) => {
                let message = no_right_in(access.identity(), right, namespace);
                self.note_denied(namespace, &message);
                Err(message)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the caller may read the metrics. Records a refusal in the audit log.
    ///
    /// # Errors
    /// Returns the message of the refusal.
    pub(super) fn check_metrics_right(&self) -> Result<(), &'static str> {
        if Local::with(|local| local.node.access.policy().may_read_metrics(self.identity.as_ref())) {
            return Ok(());
        }
        let message = "no rule gives this identity the right `metrics`";
        self.note_denied(b"", message);
        Err(message)
    }

    /// Returns the caller in the form of the audit log.
    pub(super) fn audit_caller(&self) -> Caller {
        Caller {
            identity: self.identity.as_ref().map(|identity| Arc::clone(&identity.name)),
            address: self.address.clone(),
            front_end: self.front_end,
            owner: None,
        }
    }

    /// Records in the audit log that a request was refused because a right was missing.
    pub(crate) fn note_denied(&self, namespace: &[u8], message: &str) {
        let caller = self.audit_caller();
        let code = ErrorCode::Unauthorized.name();
        let event = AuditEvent::refused(Act::Deny, caller, code, message.to_owned());
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        Local::with(|local| local.node.audit.record(&AuditEvent { namespace, ..event }));
    }

    /// Counts the connection against the quotas of the caller's identity until the returned value is dropped. Counts
    /// nothing and returns `None` without an identity.
    ///
    /// # Errors
    /// Fails if a quota has no room left.
    pub(super) fn count_connection(&self, local: &Local) -> Result<Option<Counted>, QuotaReached> {
        let Some(identity) = &self.identity else { return Ok(None) };
        let (access, now_unix_s) = (&local.node.access, local.node.unix_seconds());
        let accounts = access.accounts(identity, self.evidence.as_deref());
        accounts
            .count_connection(now_unix_s)
            .map(Some)
            .inspect_err(|reached| Local::note_rejected(reached.limit))
    }

    /// Returns the client on whose behalf a lane of an inlet acts for this caller.
    pub(crate) fn lane_client(&self) -> Client {
        Client {
            identification: Identification::Identified(self.identity.clone()),
            evidence: self.evidence.clone(),
            address: self.address.clone(),
            front_end: self.front_end,
        }
    }
}

/// Returns the token in the `authorization` header, or the whole value if its scheme is not Bearer. Empty without the
/// header.
pub(super) fn bearer(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, token) = value.split_at(value.len().min(b"bearer ".len()));
    // The front ends that call this function know no scheme but Bearer. For another scheme, return the whole value,
    // which matches no token. A value without a scheme may be a token.
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
