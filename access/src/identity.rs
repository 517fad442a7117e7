//! The identity of a client.

use crate::token::TokenId;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A verified identity with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name in rules, holds and the audit log.
    pub name: Arc<str>,
    /// Groups from the credentials of the client. The access file may add more.
    pub groups: Vec<Arc<str>>,
    /// Proof that the client presented.
    pub proof: Proof,
}

/// The proof of an identity. It decides when the server has to verify the identity again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token with this id.
    Token(TokenId),
    /// A JSON web token.
    Jwt {
        /// Time from which the token is refused, in seconds since 1970.
        expires: u64,
        /// Digest of the key and the settings that verified the token.
        trust: JwtTrust,
    },
    /// A signature with the access key of this id.
    AccessKey(Arc<str>),
    /// A client certificate.
    Certificate,
    /// The user id of the peer process of a Unix socket.
    User(u32),
    /// No proof: the access file has an identity for connections without credentials.
    Anonymous,
}

/// Digest of the key that verified a JSON web token, and of the settings: issuer, audience and names of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JwtTrust([u8; 32]);

impl JwtTrust {
    /// Returns the digest of an encoded key with its settings.
    pub(crate) fn digest(key_and_settings: &[u8]) -> Self {
        Self(Sha256::digest(key_and_settings).into())
    }
}
