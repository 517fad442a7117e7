//! Reasons why a JSON web token is refused.

use crate::record::RecordProblem;

/// The reason why a JSON web token is refused. No reason helps a client to forge a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtRefusal {
    /// The credentials are not a signed token, or the token uses an unsupported feature.
    #[error("the credentials are not a valid JSON web token")]
    Malformed,
    /// The algorithm is `none`, symmetric, or not an algorithm of the key.
    #[error("the algorithm of the JSON web token is not accepted")]
    Algorithm,
    /// No key has the id in the header, or the header has no id and several keys or none fit the algorithm.
    #[error("the JSON web token names no key that this server knows")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the JSON web token is wrong")]
    Signature,
    /// The token is of another issuer.
    #[error("the JSON web token has another issuer")]
    Issuer,
    /// The token is for another audience.
    #[error("the JSON web token is for another audience")]
    Audience,
    /// A claim is missing or has another type.
    #[error("the claim {0:?} of the JSON web token is missing or has another type")]
    Claim(String),
    /// The token has expired.
    #[error("the JSON web token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the JSON web token is not valid yet")]
    NotYetValid,
    /// The identity or a group breaks the rules of names.
    #[error("the JSON web token: {0}")]
    Name(#[from] RecordProblem),
}
