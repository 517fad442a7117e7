//! The identity of a client.

use crate::jwt::JwtTrust;
use crate::token::TokenId;
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
