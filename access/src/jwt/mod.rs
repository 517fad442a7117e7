//! JSON web tokens: identities signed by an identity provider.
//!
//! Only asymmetric algorithms are accepted, and each key has its own algorithms. The header of a token selects a key,
//! but never how it is used. The library `jsonwebtoken` parses keys and tokens, and `provider` verifies signatures.
//! Times are checked here, because the library would read the clock.

mod keys;
mod provider;
mod refusal;

use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::identity::{Identity, JwtTrust, Proof};
use crate::limits::{GROUP_COUNT_MAX, GROUP_LEN_MAX, IDENTITY_LEN_MAX, JWT_LEN_MAX};
use crate::record::{RecordProblem, check_name};

pub use keys::JwksError;
use keys::Keys;
pub use refusal::JwtRefusal;

/// Allowed difference between the clocks of the server and the identity provider, in seconds.
const LEEWAY_SECONDS: u64 = 60;

/// Verifies JSON web tokens of one issuer.
#[derive(Debug)]
pub struct JwtVerifier {
    keys: Keys,
    issuer: String,
    audience: String,
    identity_claim: String,
    groups_claim: Option<String>,
}

impl JwtVerifier {
    /// Returns a verifier with the public keys of a JWKS. A claim name that begins with `/` is a JSON pointer to a
    /// nested claim.
    ///
    /// Symmetric keys, encryption keys and keys of unknown kinds are ignored.
    ///
    /// # Errors
    ///
    /// Returns a [`JwksError`] if the text is not a JWKS, is too long, or has no key that can verify a token.
    pub fn from_jwks(
        jwks: &[u8],
        issuer: &str,
        audience: &str,
        identity_claim: &str,
        groups_claim: Option<&str>,
    ) -> Result<Self, JwksError> {
        provider::install();
        let settings = [issuer, audience, identity_claim, groups_claim.unwrap_or_default()];
        Ok(Self {
            keys: Keys::parse(jwks, &settings)?,
            issuer: issuer.to_owned(),
            audience: audience.to_owned(),
            identity_claim: identity_claim.to_owned(),
            groups_claim: groups_claim.map(str::to_owned),
        })
    }

    /// Returns the identity that the token proves. Its time of expiry includes the leeway.
    ///
    /// # Errors
    ///
    /// Returns the reason why the token is refused.
    pub fn verify(&self, token: &[u8], now_unix_seconds: u64) -> Result<Identity, JwtRefusal> {
        if token.len() > JWT_LEN_MAX {
            return Err(JwtRefusal::Malformed);
        }
        let header = decode_header(token).map_err(|_| JwtRefusal::Malformed)?;
        if has_unknown_parts(&header) {
            return Err(JwtRefusal::Malformed);
        }
        let key = self.keys.find(&header)?;
        let mut validation = Validation::new(header.alg);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        // The library would read the clock; `check_times` checks the times instead.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        let claims = decode::<Map<String, Value>>(token, &key.key, &validation)
            .map_err(|error| refusal(error.into_kind()))?;
        let claims = Value::Object(claims.claims);
        let expires = check_times(&claims, now_unix_seconds)?;
        let Some(Value::String(name)) = claim(&claims, &self.identity_claim) else {
            return Err(JwtRefusal::Claim(self.identity_claim.clone()));
        };
        check_name("identity", name, IDENTITY_LEN_MAX)?;
        let proof = Proof::Jwt { expires, trust: key.trust };
        Ok(Identity { name: name.as_str().into(), groups: self.groups(&claims)?, proof })
    }

    /// Returns whether the verifier still has the key and the settings that verified an earlier token.
    pub fn trusts(&self, trust: &JwtTrust) -> bool {
        self.keys.contain(trust)
    }

    /// Returns the groups of the token. The claim is a list of texts or one text; without the claim there are none.
    fn groups(&self, claims: &Value) -> Result<Vec<Arc<str>>, JwtRefusal> {
        let Some(name) = &self.groups_claim else { return Ok(Vec::new()) };
        let groups = match claim(claims, name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(group)) => vec![group.as_str().into()],
            Some(Value::Array(groups)) => {
                let text = |group: &Value| group.as_str().map(Arc::from);
                groups
                    .iter()
                    .map(text)
                    .collect::<Option<_>>()
                    .ok_or_else(|| JwtRefusal::Claim(name.clone()))?
            }
            Some(_) => return Err(JwtRefusal::Claim(name.clone())),
        };
        if groups.len() > GROUP_COUNT_MAX {
            return Err(RecordProblem::TooManyGroups { count: groups.len() }.into());
        }
        groups.iter().try_for_each(|group| check_name("group", group, GROUP_LEN_MAX))?;
        Ok(groups)
    }
}

/// Returns whether the header requires a feature that this verifier lacks: critical extensions, encryption or
/// compression.
fn has_unknown_parts(header: &Header) -> bool {
    header.crit.is_some() || header.enc.is_some() || header.zip.is_some()
}

/// Checks the times of the token. Returns the time from which it is refused, in seconds since 1970.
fn check_times(claims: &Value, now_unix_seconds: u64) -> Result<u64, JwtRefusal> {
    let expires = seconds(claims, "exp")?.ok_or_else(|| JwtRefusal::Claim("exp".to_owned()))?;
    let expires = expires.saturating_add(LEEWAY_SECONDS);
    if expires <= now_unix_seconds {
        return Err(JwtRefusal::Expired);
    }
    match seconds(claims, "nbf")? {
        Some(begins) if begins > now_unix_seconds.saturating_add(LEEWAY_SECONDS) => {
            Err(JwtRefusal::NotYetValid)
        }
        _ => Ok(expires),
    }
}

/// Returns a time claim in whole seconds since 1970. Fractions are truncated.
fn seconds(claims: &Value, name: &str) -> Result<Option<u64>, JwtRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0 && *seconds < 1e15);
    let seconds = value.as_u64().or_else(|| fraction().map(|seconds| seconds as u64));
    seconds.map(Some).ok_or_else(|| JwtRefusal::Claim(name.to_owned()))
}

fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) }
}

fn refusal(kind: ErrorKind) -> JwtRefusal {
    match kind {
        ErrorKind::InvalidSignature => JwtRefusal::Signature,
        ErrorKind::InvalidIssuer => JwtRefusal::Issuer,
        ErrorKind::InvalidAudience => JwtRefusal::Audience,
        ErrorKind::MissingRequiredClaim(name) => JwtRefusal::Claim(name),
        ErrorKind::InvalidAlgorithm => JwtRefusal::Algorithm,
        _ => JwtRefusal::Malformed,
    }
}

#[cfg(test)]
mod tests;
