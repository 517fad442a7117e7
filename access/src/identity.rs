//! Who is on the other side of a connection.

use crate::token::TokenId;
use std::sync::Arc;

/// An identity that was verified, and the groups that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that rules, holds and the audit log use.
    pub name: Arc<str>,
    /// Groups that its token names, beside those of the access file.
    pub groups: Vec<Arc<str>>,
    /// What the identity was verified with.
    pub proof: Proof,
}

/// What an identity was verified with. Decides when the server has to verify it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token with this id.
    Token(TokenId),
    /// A JSON web token that expires then, in seconds of Unix time.
    Jwt(u64),
    /// A client certificate.
    Certificate,
    /// The user id of the process at the other end of a Unix socket.
    User(u32),
    /// Nothing: the access file names an identity for connections without credentials.
    Anonymous,
}
