//! Who is on the other side of a connection.

use crate::jwt::JwtTrust;
use crate::token::TokenId;
use std::sync::Arc;

/// An identity that was verified, and the groups that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that rules, holds and the audit log use.
    pub name: Arc<str>,
    /// Groups in the record of its token. The access file may list more.
    pub groups: Vec<Arc<str>>,
    /// The proof that the client showed.
    pub proof: Proof,
}

/// The proof of an identity. It decides when the server has to verify the identity again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token with this id.
    Token(TokenId),
    /// A JSON web token.
    Jwt {
        /// Time from which the token is refused, in seconds of Unix time.
        expires: u64,
        /// Digest of the key and the settings that verified the token.
        trust: JwtTrust,
    },
    /// A signature with the access key of this id.
    AccessKey(Arc<str>),
    /// A client certificate.
    Certificate,
    /// The user id of the process at the other end of a Unix socket.
    User(u32),
    /// Nothing: the access file names an identity for connections without credentials.
    Anonymous,
}
