//! Access control: identities, tokens and rules.
//!
//! All functions are pure: they depend on bytes and on the time that the caller passes. The server reads the files and
//! makes decisions with them; `waymaker-ctl` writes them.

mod access_file_error;
mod access_key;
mod hex;
mod identity;
mod jwt;
pub mod limits;
mod namespaces;
mod quotas;
mod record;
mod rules;
mod secret;
mod signature;
mod timestamp;
mod token;
mod token_file;
mod token_table;
mod who;

pub use access_file_error::AccessFileError;
pub use access_key::{AccessKeys, AccessKeysError};
pub use identity::{Identity, JwtTrust, Proof};
pub use jwt::{JwksError, JwtRefusal, JwtVerifier};
pub use record::{RecordProblem, TokenRecord};
pub use rules::{JwtOptions, Rules};
pub use secret::{Secret, SecretDigest};
pub use signature::{SignatureRefusal, SignedRequest};
pub use timestamp::Timestamp;
pub use token::{Token, TokenId};
pub use token_file::{TokenFileError, TokenFileProblem, is_token_file, parse_token_file, token_table_text};
pub use token_table::{TokenRefusal, TokenTable};
