//! The public keys of an identity provider, read from a JWKS.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header};

use super::refusal::JwtRefusal;
use crate::identity::JwtTrust;
use crate::limits::{JWK_COUNT_MAX, JWKS_LEN_MAX, RSA_BITS_MAX};

/// Maximum length of an RSA modulus as base64 without padding.
const RSA_TEXT_LEN_MAX: usize = (RSA_BITS_MAX / 8 * 4).div_ceil(3);

/// Reasons why a key set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The file is too long.
    #[error("the key set is {len} bytes long; the maximum is {JWKS_LEN_MAX}")]
    TooLong {
        /// Length of the file in bytes.
        len: usize,
    },
    /// The file has too many keys.
    #[error("the key set has {count} keys; the maximum is {JWK_COUNT_MAX}")]
    TooManyKeys {
        /// Number of keys.
        count: usize,
    },
    /// The file is not a JWKS.
    #[error("the key set is not a JWKS: {0}")]
    Syntax(#[from] serde_json::Error),
    /// A key cannot be used.
    #[error("key {index} of the key set: {reason}")]
    Key {
        /// Index of the key, from 0.
        index: usize,
        /// Description of the problem.
        reason: String,
    },
    /// The key set has no key that can verify a token.
    #[error("the key set has no key for RS256, RS384, RS512, PS256, PS384, PS512, ES256 or EdDSA signatures")]
    NoKey,
}

/// Keys that can verify tokens.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
pub(super) struct Key {
    id: Option<String>,
    /// Algorithms of the key, all of one family.
    algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
    pub(super) trust: JwtTrust,
}

impl Keys {
    pub(super) fn parse(jwks: &[u8], settings: &[&str]) -> Result<Self, JwksError> {
        if jwks.len() > JWKS_LEN_MAX {
            return Err(JwksError::TooLong { len: jwks.len() });
        }
        let set: JwkSet = serde_json::from_slice(jwks)?;
        if set.keys.len() > JWK_COUNT_MAX {
            return Err(JwksError::TooManyKeys { count: set.keys.len() });
        }
        let mut keys = Vec::new();
        for (index, jwk) in set.keys.into_iter().enumerate() {
            let algorithms = if is_for_signatures(&jwk) { algorithms(&jwk) } else { Vec::new() };
            if algorithms.is_empty() {
                continue;
            }
            if rsa_len(&jwk) > RSA_TEXT_LEN_MAX {
                let reason = format!("an RSA key has at most {RSA_BITS_MAX} bits");
                return Err(JwksError::Key { index, reason });
            }
            let key = DecodingKey::from_jwk(&jwk)
                .map_err(|error| JwksError::Key { index, reason: error.to_string() })?;
            let trust = JwtTrust::digest(&serde_json::to_vec(&(&jwk, settings))?);
            keys.push(Key { id: jwk.common.key_id, algorithms, key, trust });
        }
        if keys.is_empty() { Err(JwksError::NoKey) } else { Ok(Self(keys)) }
    }

    /// Returns the key that the header selects: by its id, or the only key for the algorithm if the header has no id.
    pub(super) fn find(&self, header: &Header) -> Result<&Key, JwtRefusal> {
        if header.alg.family() == AlgorithmFamily::Hmac {
            return Err(JwtRefusal::Algorithm);
        }
        let has_id = |key: &&Key| header.kid.is_none() || key.id == header.kid;
        let has_algorithm = |key: &&Key| key.algorithms.contains(&header.alg);
        let mut keys = self.0.iter().filter(has_id).filter(has_algorithm);
        match (keys.next(), keys.next()) {
            (Some(key), None) => Ok(key),
            (None, _) if header.kid.is_some() && self.0.iter().any(|key| has_id(&key)) => {
                Err(JwtRefusal::Algorithm)
            }
            _ => Err(JwtRefusal::UnknownKey),
        }
    }

    /// Returns whether one of the keys has this digest.
    pub(super) fn contain(&self, trust: &JwtTrust) -> bool {
        self.0.iter().any(|key| key.trust == *trust)
    }
}

/// Returns the length of the modulus of an RSA key as base64.
fn rsa_len(jwk: &Jwk) -> usize {
    if let AlgorithmParameters::RSA(key) = &jwk.algorithm { key.n.len() } else { 0 }
}

fn is_for_signatures(jwk: &Jwk) -> bool {
    let of_use = jwk.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let operations = jwk.common.key_operations.as_ref();
    of_use && operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify))
}

/// Returns the algorithms of a key: all that fit its type, or only the one that it names.
fn algorithms(jwk: &Jwk) -> Vec<Algorithm> {
    let of_type = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms(),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256][..],
            // ES384 takes five times as long to verify, and the worker of the client waits for it.
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => &[Algorithm::EdDSA][..],
            _ => &[],
        },
        // This excludes symmetric keys: the issuer shares them, so the other parties could sign too.
        _ => &[],
    };
    let named = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
    let is_named = |algorithm: &Algorithm| {
        named.as_ref().is_none_or(|named| named.parse() == Ok::<_, jsonwebtoken::errors::Error>(*algorithm))
    };
    of_type.iter().copied().filter(is_named).collect()
}
