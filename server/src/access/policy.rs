//! Decisions about identities and rights, without files or clocks.

use super::evidence::Evidence;
use super::shared_grants::SharedGrants;
use std::path::Path;
use std::sync::Arc;
use waymaker_access::{
    AccessKeys, Identity, JwtRefusal, JwtVerifier, Proof, Rules, Token, TokenRefusal, TokenTable,
};
use waymaker_engine::{Access, Holder, Quotas, Rights};
use waymaker_protocol::NamespaceKind;

/// Reasons why a client is not identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    /// The client needs an identity, but has sent no credentials that the server checks.
    #[error("the server needs credentials: send a token, or connect with a client certificate")]
    Missing,
    /// The access file maps no name of the certificate to an identity.
    #[error("the client certificate belongs to no identity of the access file")]
    UnknownCertificate,
    /// The credentials are not a valid token or JSON web token, for example because the token is unknown or its secret
    /// is wrong. The client cannot distinguish the causes.
    #[error("the token is not valid")]
    Invalid,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
}

/// Number of rules from which connections share their computed rights. With fewer rules, computing rights is faster
/// than finding shared ones.
const SHARED_RULE_COUNT_MIN: usize = 16;

/// Contents of the access file and the files of credentials at one time: tokens, keys for JSON web tokens, and access
/// keys.
#[derive(Debug, Default)]
pub struct Policy {
    pub(super) rules: Rules,
    pub(super) tokens: Option<TokenTable>,
    pub(super) jwt: Option<JwtVerifier>,
    /// Access keys of clients that sign their requests.
    pub(super) access_keys: Option<AccessKeys>,
    pub(super) shared: SharedGrants,
}

impl Policy {
    /// Returns a policy with these rules and without credentials.
    pub fn of_rules(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Returns whether there are no rules, no tokens, no key set for JSON web tokens, and no identity for clients
    /// without credentials. Clients of the Unix socket then have no identity either, and may do everything. Otherwise
    /// their user id gives them an identity.
    fn is_open(&self) -> bool {
        self.rules.is_empty() && !self.has_credentials() && self.rules.anonymous().is_none()
    }

    /// Identifies a client. `None` means that the client has no identity and may do everything.
    ///
    /// # Errors
    /// Returns an error if the client needs an identity and has no credentials, or if its credentials are not valid.
    pub(super) fn identify(
        &self,
        evidence: &Evidence,
        credentials: &[u8],
        now_unix_s: u64,
    ) -> Result<Option<Arc<Identity>>, LoginRefusal> {
        let known = |name: Arc<str>, proof| Arc::new(Identity { name, groups: Vec::new(), proof });
        if !credentials.is_empty() && self.has_credentials() {
            return self.identify_by_credentials(credentials, now_unix_s).map(Some);
        }
        if !evidence.certificate_names.is_empty() {
            let name = self.rules.identity_of_certificate(&evidence.certificate_names);
            return match name {
                Some(name) => Ok(Some(known(name, Proof::Certificate))),
                None => Err(LoginRefusal::UnknownCertificate),
            };
        }
        if let Some(uid) = evidence.uid
            && !self.is_open()
        {
            return Ok(Some(known(self.rules.identity_of_user(uid), Proof::User(uid))));
        }
        match self.rules.anonymous() {
            Some(name) => Ok(Some(known(Arc::clone(name), Proof::Anonymous))),
            None if evidence.needs_identity || !self.rules.is_empty() => Err(LoginRefusal::Missing),
            None => Ok(None),
        }
    }

    /// Returns whether DynamoDB clients must sign their requests.
    pub fn has_access_keys(&self) -> bool {
        self.access_keys.is_some()
    }

    /// Returns whether a client presents credentials that the server checks: a token or a certificate.
    pub(super) fn is_login(&self, evidence: &Evidence, credentials: &[u8]) -> bool {
        !credentials.is_empty() && self.has_credentials() || !evidence.certificate_names.is_empty()
    }

    /// Returns whether the server checks credentials that a client sends: tokens or JSON web tokens.
    pub fn has_credentials(&self) -> bool {
        self.tokens.is_some() || self.jwt.is_some()
    }

    fn identify_by_credentials(
        &self,
        credentials: &[u8],
        now_unix_s: u64,
    ) -> Result<Arc<Identity>, LoginRefusal> {
        match (&self.tokens, &self.jwt) {
            (tokens, Some(jwt)) if tokens.is_none() || !credentials.starts_with(Token::PREFIX) => {
                let identity = jwt.verify(credentials, now_unix_s).map_err(|refusal| match refusal {
                    JwtRefusal::Expired => LoginRefusal::Expired,
                    _ => LoginRefusal::Invalid,
                })?;
                Ok(Arc::new(identity))
            }
            (Some(tokens), _) => identify_by_token(tokens, credentials, now_unix_s),
            (None, _) => Err(LoginRefusal::Invalid),
        }
    }

    /// Returns the path of the file with the public keys of JSON web tokens, if the access file names one.
    pub fn jwks(&self) -> Option<&Path> {
        self.rules.jwt().map(|jwt| &*jwt.jwks)
    }

    /// Returns whether an identity that was verified earlier is still valid. Always true for an identity from a
    /// certificate or a user id.
    pub fn is_current(&self, identity: &Identity, now_unix_s: u64) -> bool {
        match &identity.proof {
            Proof::Token(id) => {
                self.tokens.as_ref().and_then(|tokens| tokens.get(*id)).is_some_and(|record| {
                    let groups = identity.groups.iter().map(|group| &**group);
                    *record.identity == *identity.name
                        && record.groups.iter().map(String::as_str).eq(groups)
                        && !record.has_expired(now_unix_s)
                })
            }
            Proof::Jwt { expires, trust } => {
                now_unix_s < *expires && self.jwt.as_ref().is_some_and(|jwt| jwt.trusts(trust))
            }
            Proof::AccessKey(id) => {
                self.access_keys.as_ref().is_some_and(|keys| keys.still_knows(id, identity, now_unix_s))
            }
            Proof::Certificate | Proof::User(_) => true,
            Proof::Anonymous => self.rules.anonymous().is_some_and(|name| *name == identity.name),
        }
    }

    /// Returns whether the identity of an open connection is still valid. An identity from a token, a JSON web token or
    /// an access key is checked with [`Policy::is_current`]. Otherwise the client is identified again from `evidence`,
    /// and the result must be the same. `identity` is `None` if the client has none.
    pub fn still_knows(
        &self,
        identity: Option<&Arc<Identity>>,
        evidence: &Evidence,
        now_unix_s: u64,
    ) -> bool {
        if let Some(identity) = identity
            && matches!(identity.proof, Proof::Token(_) | Proof::Jwt { .. } | Proof::AccessKey(_))
        {
            return self.is_current(identity, now_unix_s);
        }
        let identified = self.identify(evidence, b"", now_unix_s);
        identified.is_ok_and(|identified| identified.as_ref() == identity)
    }

    /// Returns a function that tests whether a client has any right in a namespace. Without an identity the client has
    /// all rights.
    pub fn reach(&self, identity: Option<&Arc<Identity>>) -> impl Fn(&[u8]) -> bool {
        let reach = identity.map(|identity| self.rules.reach(identity));
        move |namespace| reach.as_ref().is_none_or(|reach| reach(namespace))
    }

    /// Returns whether the policy has rules.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the number of quotas.
    pub fn quota_count(&self) -> usize {
        self.rules.quota_count()
    }

    /// Returns the quotas of an identity: those for the whole identity or those for each of its source addresses, as
    /// `holder` selects.
    pub(super) fn quotas(&self, identity: &Identity, holder: Holder) -> Quotas {
        self.rules.quotas(identity, holder)
    }

    /// Returns the rights of an identity in a namespace. `None` means all rights.
    pub fn access(
        &self,
        identity: Option<&Arc<Identity>>,
        namespace: &[u8],
        kind: NamespaceKind,
    ) -> Option<Access> {
        let identity = identity?;
        let find = || self.rules.access(identity, namespace, kind);
        let is_shared = self.rules.rule_count() >= SHARED_RULE_COUNT_MIN;
        Some(if is_shared { self.shared.access(identity, namespace, kind, find) } else { find() })
    }

    /// Returns a function that tests whether a client has this right for at least one key of a namespace. Without an
    /// identity the client has all rights.
    pub fn allowing(&self, identity: Option<&Arc<Identity>>, right: Rights) -> impl Fn(&[u8]) -> bool {
        let allowing = identity.map(|identity| self.rules.allowing(identity, right));
        move |namespace| allowing.as_ref().is_none_or(|allowing| allowing(namespace))
    }

    /// Returns whether a client may read the metrics of the server.
    pub fn may_read_metrics(&self, identity: Option<&Arc<Identity>>) -> bool {
        identity.is_none_or(|identity| self.rules.may_read_metrics(identity))
    }
}

fn identify_by_token(
    tokens: &TokenTable,
    credentials: &[u8],
    now_unix_s: u64,
) -> Result<Arc<Identity>, LoginRefusal> {
    let record = tokens.check(credentials, now_unix_s).map_err(|refusal| match refusal {
        TokenRefusal::Expired { .. } => LoginRefusal::Expired,
        _ => LoginRefusal::Invalid,
    })?;
    Ok(Arc::new(Identity {
        name: Arc::from(record.identity.as_str()),
        groups: record.groups.iter().map(|group| Arc::from(group.as_str())).collect(),
        proof: Proof::Token(record.id),
    }))
}
