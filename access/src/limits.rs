//! Limits of token files and of their fields.

/// Largest token file in bytes.
pub const FILE_LEN_MAX: usize = 16 * 1024 * 1024;
/// Largest number of tokens in all files together.
pub const TOKEN_COUNT_MAX: usize = 100_000;
/// Longest identity in bytes.
pub const IDENTITY_LEN_MAX: usize = 256;
/// Longest name of a group in bytes.
pub const GROUP_LEN_MAX: usize = 256;
/// Largest number of groups of one token.
pub const GROUP_COUNT_MAX: usize = 64;
/// Longest note in bytes.
pub const NOTE_LEN_MAX: usize = 1_024;
/// Longest JSON web token in bytes.
pub const JWT_LEN_MAX: usize = 8 << 10;
/// Longest key set of an identity provider in bytes.
pub const JWKS_LEN_MAX: usize = 1 << 20;
/// Longest RSA key in bits. The worker of a client waits for the verification, which takes longer with longer keys.
pub const RSA_BITS_MAX: usize = 4_096;
/// Largest number of keys in a key set.
pub const JWK_COUNT_MAX: usize = 1_000;
/// Largest length of an access file in bytes.
pub const ACCESS_FILE_LEN_MAX: usize = 1 << 20;
/// Largest number of rules in an access file. Each new connection looks at all of them.
pub const RULE_COUNT_MAX: usize = 1_000;
/// Largest number of quotas in an access file. Each new connection looks at all of them.
pub const QUOTA_COUNT_MAX: usize = 1_000;
/// Largest number of access keys.
pub const ACCESS_KEY_COUNT_MAX: usize = 10_000;
