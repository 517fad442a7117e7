//! Access control of the server.
//!
//! A client is identified from its credentials and the [`Evidence`] of its connection. This happens once per
//! connection, or once per request of some front ends, and is checked again later. From the identity the worker then
//! computes the rights of the client in its namespace. [`Policy`] makes both decisions. `files` makes the policy at the
//! start, and a new one after a file has changed and on SIGHUP.

mod accounts;
mod back_off;
mod certificate;
mod evidence;
mod files;
mod logins;
mod policy;
mod shared_grants;
mod shared_values;

pub(crate) use certificate::names_of;
pub use evidence::Evidence;
pub(crate) use files::PolicyFiles;
pub use files::{AccessOptions, AccessOptionsError};
pub use logins::LoginLimits;
pub(crate) use logins::{Pause, audit_failed_login};
pub use policy::{LoginRefusal, Policy};

use accounts::AccountBook;
use logins::Logins;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use waymaker_access::{Identity, SignatureRefusal, SignedRequest};
use waymaker_engine::{Access, Accounts, Rights, Time};
use waymaker_protocol::{NamespaceKind, Quoted};

/// Returns the message that an identity lacks a right in a namespace.
pub(crate) fn no_right_in(identity: &str, right: Rights, namespace: &[u8]) -> String {
    let (identity, namespace) = (Quoted(identity.as_bytes()), Quoted(namespace));
    format!("no rule gives {identity} the right `{}` in the namespace {namespace}", right.name())
}

/// The current policy of a server, its failed logins, and its accounts of identities with quotas. All workers share
/// this value.
#[derive(Debug, Default)]
pub struct AccessControl {
    policy: RwLock<Arc<Policy>>,
    /// Number that rises with each new policy.
    version: AtomicU64,
    logins: Logins,
    accounts: AccountBook,
}

/// The reason why a client is not identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotIdentified {
    /// The credentials are missing or not valid, or the certificate belongs to no identity.
    #[error("{reason}")]
    Unauthenticated {
        reason: LoginRefusal,
        /// Pause of the client's address, if this failed login starts one.
        pause: Option<Pause>,
    },
    /// The address is paused after too many failed logins. The server did not check the credentials, except a
    /// signature, which it found to be wrong.
    #[error(
        "too many logins from this address failed (--failed-logins-per-second); try again in {retry_ms} ms"
    )]
    Paused {
        /// Time until the server checks credentials from this address again, in milliseconds.
        retry_ms: u64,
    },
}

/// The reason why the client of a request that should be signed is not identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotSigned {
    /// The signature is missing, incomplete or wrong, or its key is unknown or has expired, or its time or scope is
    /// wrong.
    Refused {
        refusal: SignatureRefusal,
        /// Pause of the client's address, if this wrong signature or unknown key starts one.
        pause: Option<Pause>,
    },
    /// The refusal does not tell whether the signature is valid. Either the server has no access keys, and refuses the
    /// client like one without credentials. Or the signature or its access key is wrong, and the address of the client
    /// is paused after too many failed logins.
    NotIdentified(NotIdentified),
}

impl AccessControl {
    /// Returns access control with this policy.
    pub fn new(policy: Policy, login_limits: LoginLimits) -> Self {
        Self {
            policy: RwLock::new(Arc::new(policy)),
            version: AtomicU64::default(),
            logins: Logins::new(login_limits),
            accounts: AccountBook::default(),
        }
    }

    /// Identifies a client of any protocol. `None` means that the client has no identity and may do everything.
    ///
    /// # Errors
    /// Returns an error if the client needs credentials and has none, if they are not valid, or if its address is
    /// paused after failed logins. A client with neither credentials nor a certificate may be refused, but that is no
    /// failed login, and pauses do not apply to it.
    pub(crate) fn identify(
        &self,
        evidence: &Evidence,
        credentials: &[u8],
        now: Time,
        now_unix_s: u64,
    ) -> Result<Option<Arc<Identity>>, NotIdentified> {
        let policy = self.policy();
        let is_login = policy.is_login(evidence, credentials);
        if is_login {
            self.logins.admit(evidence, now).map_err(|retry_ms| NotIdentified::Paused { retry_ms })?;
        }
        policy.identify(evidence, credentials, now_unix_s).map_err(|reason| {
            let pause = if is_login { self.logins.note_failure(evidence, now) } else { None };
            NotIdentified::Unauthenticated { reason, pause }
        })
    }

    /// Identifies the client of a request, which must be signed if the server has access keys. Without access keys the
    /// signature is ignored: [`AccessControl::identify`] identifies the client, without credentials.
    ///
    /// # Errors
    /// Returns an error if the server has access keys and the signature is missing or not valid. If the signature is
    /// wrong or its key unknown, and the address is paused, the error is [`NotIdentified::Paused`]. Without access
    /// keys, returns the errors of [`AccessControl::identify`].
    pub(crate) fn identify_signed(
        &self,
        evidence: &Evidence,
        request: &SignedRequest<'_>,
        now: Time,
        now_unix_s: u64,
    ) -> Result<Option<Arc<Identity>>, NotSigned> {
        let policy = self.policy();
        let Some(keys) = &policy.access_keys else {
            return self.identify(evidence, b"", now, now_unix_s).map_err(NotSigned::NotIdentified);
        };
        // Accept a valid signature even while its address is paused. Wrong signatures of one client pause the address
        // for all clients there, and the others must still be able to renew their locks.
        let identity = keys.verify(request, now_unix_s).map_err(|refusal| {
            // Only an unknown key and a wrong signature can be guesses of a secret. In all other cases the client knows
            // the secret, or it sent no complete signature.
            let is_guess = matches!(refusal, SignatureRefusal::UnknownKey | SignatureRefusal::Wrong);
            if !is_guess {
                return NotSigned::Refused { refusal, pause: None };
            }
            match self.logins.admit(evidence, now) {
                Err(retry_ms) => NotSigned::NotIdentified(NotIdentified::Paused { retry_ms }),
                Ok(()) => NotSigned::Refused { refusal, pause: self.logins.note_failure(evidence, now) },
            }
        })?;
        Ok(Some(Arc::new(identity)))
    }

    /// Notes a failed login: the handshake refused the client's certificate. Returns the pause of the client's address
    /// if this failure starts one.
    ///
    /// # Errors
    /// Returns the remaining pause in milliseconds, if the address is already paused.
    pub(crate) fn note_refused_certificate(
        &self,
        evidence: &Evidence,
        now: Time,
    ) -> Result<Option<Pause>, u64> {
        self.logins.admit(evidence, now)?;
        Ok(self.logins.note_failure(evidence, now))
    }

    /// Returns the number of failed logins, without those that were refused during a pause.
    pub(crate) fn failed_login_count(&self) -> u64 {
        self.logins.failed_count()
    }

    /// Returns the number of logins that were refused because their address was paused.
    pub(crate) fn refused_login_count(&self) -> u64 {
        self.logins.refused_count()
    }

    /// Returns the rights of a client in a namespace, together with the accounts that count its use. `None` means all
    /// rights and no accounts.
    pub(crate) fn access(
        &self,
        policy: &Policy,
        identity: Option<&Arc<Identity>>,
        evidence: Option<&Evidence>,
        namespace: &[u8],
        kind: NamespaceKind,
    ) -> Option<Arc<Access>> {
        let access = policy.access(identity, namespace, kind)?;
        let accounts = self.accounts(identity?, evidence);
        Some(Arc::new(access.counted_by(accounts)))
    }

    /// Returns the accounts of a client.
    pub fn accounts(&self, identity: &Identity, evidence: Option<&Evidence>) -> Accounts {
        self.accounts.of(|| self.policy(), identity, evidence.and_then(|evidence| evidence.address))
    }

    /// Returns the current policy.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a number that rises with each new policy.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the policy. New connections use the new policy at once. Each worker checks its open connections against
    /// the new policy, beginning with its next periodic housekeeping.
    pub fn replace(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        // Store the policy first and raise `version` with Release ordering: a thread that sees the new version then
        // also sees the new policy.
        self.version.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maximum::Maximum;
    use waymaker_access::{AccessKeys, Proof, Rules, TokenTable};

    /// Returns access control that knows one certificate and no token. It pauses an address after its first failed
    /// login.
    fn access() -> AccessControl {
        let rules = "[certificates]\n\"known.example\" = \"known\"\n\
                     [[rule]]\nidentity = \"known\"\nallow = [\"all\"]\n";
        let rules = Rules::parse(rules).unwrap();
        let policy = Policy { rules, tokens: Some(TokenTable::default()), jwt: None, ..Policy::default() };
        let limits = LoginLimits { failed_per_second: Maximum::new(1), include_loopback: false };
        AccessControl::new(policy, limits)
    }

    fn with_certificate(names: &[&str]) -> Evidence {
        let certificate_names = names.iter().map(|name| (*name).to_owned()).collect();
        Evidence {
            address: Some("192.0.2.1".parse().unwrap()),
            certificate_names,
            uid: None,
            needs_identity: true,
        }
    }

    /// Returns the name of the identity. On failure, returns the reason for the refusal, and whether this failed login
    /// starts a pause of the client's address.
    fn identify(
        access: &AccessControl,
        names: &[&str],
        credentials: &str,
        at: u64,
    ) -> Result<String, String> {
        let evidence = with_certificate(names);
        let identified = access.identify(&evidence, credentials.as_bytes(), Time::from_millis(at), 0);
        identified.map(|identity| identity.unwrap().name.to_string()).map_err(|refusal| match refusal {
            NotIdentified::Unauthenticated { reason, pause } => format!("{reason:?} {}", pause.is_some()),
            NotIdentified::Paused { retry_ms } => format!("paused {retry_ms}"),
        })
    }

    #[test]
    fn unknown_certificates_and_wrong_tokens_fail_and_missing_credentials_do_not() {
        for (names, credentials, failure) in [
            (&["other.example"][..], "", "UnknownCertificate true"),
            (&["known.example"], "nonsense", "Invalid true"),
            (&[], "nonsense", "Invalid true"),
        ] {
            let access = access();
            for _ in 0..3 {
                assert_eq!(identify(&access, &[], "", 0), Err("Missing false".to_owned()));
                assert_eq!(identify(&access, &["known.example"], "", 0), Ok("known".to_owned()));
            }
            assert_eq!(identify(&access, names, credentials, 0), Err(failure.to_owned()));
            // The pause of the address also refuses a client with a known certificate.
            assert_eq!(identify(&access, &["known.example"], "", 400), Err("paused 600".to_owned()));
            assert_eq!(identify(&access, &[], "", 400), Err("Missing false".to_owned()));
            assert_eq!(identify(&access, &["known.example"], "", 1_000), Ok("known".to_owned()));
            assert_eq!((access.failed_login_count(), access.refused_login_count()), (1, 1));
        }
    }

    #[test]
    fn a_success_between_failures_does_not_prevent_a_pause() {
        let limits = LoginLimits { failed_per_second: Maximum::new(3), include_loopback: false };
        let access = AccessControl { logins: Logins::new(limits), ..access() };
        for failure in ["Invalid false", "Invalid false", "Invalid true"] {
            assert_eq!(identify(&access, &["known.example"], "", 0), Ok("known".to_owned()));
            assert_eq!(identify(&access, &[], "nonsense", 0), Err(failure.to_owned()));
        }
    }

    /// Returns the name of the identity of a signed request, or the reason for the refusal. The request was signed at
    /// 2026-11-29T21:00:00Z, with the signature of botocore or with a wrong one.
    fn identify_signed(access: &AccessControl, signature: &str, at_unix_s: u64) -> Result<String, String> {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=WAYMAKERBILLING1/20261129/eu-west-1/dynamodb/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-target, Signature={signature}"
        );
        let headers = [
            ("host", "localhost:8000"),
            ("x-amz-date", "20261129T210000Z"),
            ("x-amz-target", "DynamoDB_20120810.ListTables"),
            ("authorization", &authorization),
        ];
        let request = SignedRequest { method: "POST", headers: &headers, body: b"{}" };
        let evidence = with_certificate(&[]);
        let identified = access.identify_signed(&evidence, &request, Time::from_millis(5), at_unix_s);
        identified.map(|identity| identity.unwrap().name.to_string()).map_err(|refusal| match refusal {
            NotSigned::Refused { refusal, pause } => format!("{refusal} {}", pause.is_some()),
            NotSigned::NotIdentified(refusal) => refusal.to_string(),
        })
    }

    #[test]
    fn a_right_signature_passes_while_wrong_ones_pause_its_address() {
        const SIGNED_S: u64 = 1_795_986_000;
        const SIGNATURE: &str = "833c39e343dbe55d6161964cca0aae4a2a806e162bec55e8d6291101ac024d9a";
        let keys = "[[key]]\naccess_key_id = \"WAYMAKERBILLING1\"\n\
                    secret_access_key = \"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\"\nidentity = \"billing\"\n";
        let policy = Policy { access_keys: Some(AccessKeys::parse(keys).unwrap()), ..Policy::default() };
        let limits = LoginLimits { failed_per_second: Maximum::new(1), include_loopback: false };
        let access = AccessControl::new(policy, limits);
        let (right, wrong) = (SIGNATURE, &"0".repeat(64));
        let late = identify_signed(&access, right, SIGNED_S + 3600).unwrap_err();
        assert!(late.contains("15 minutes") && late.ends_with("false"), "{late}");
        assert_eq!(identify_signed(&access, right, SIGNED_S).as_deref(), Ok("billing"));
        let first = identify_signed(&access, wrong, SIGNED_S).unwrap_err();
        assert!(first.ends_with("true"), "{first}");
        let second = identify_signed(&access, wrong, SIGNED_S).unwrap_err();
        assert!(second.contains("logins"), "{second}");
        assert_eq!(identify_signed(&access, right, SIGNED_S).as_deref(), Ok("billing"));
    }

    #[test]
    fn an_identity_of_an_access_key_holds_as_long_as_its_key() {
        let file = "[[key]]\naccess_key_id = \"WAYMAKERBILLING1\"\nsecret_access_key = \"wJalrXUtnFEMI/K7MDENG\"\nidentity = \"billing\"\n";
        let policy =
            |text| Policy { access_keys: Some(AccessKeys::parse(text).unwrap()), ..Policy::default() };
        let proof = Proof::AccessKey("WAYMAKERBILLING1".into());
        let identity = Arc::new(Identity { name: "billing".into(), groups: Vec::new(), proof });
        let evidence = with_certificate(&[]);
        assert!(policy(file).still_knows(Some(&identity), &evidence, 0));
        assert!(!policy("").still_knows(Some(&identity), &evidence, 0));
        assert!(!policy(&file.replace("\"billing\"", "\"other\"")).still_knows(
            Some(&identity),
            &evidence,
            0
        ));
        assert!(!Policy::default().still_knows(Some(&identity), &evidence, 0));
    }
}
