//! Limits of the files for access control, and of their fields.

/// Maximum length of a token file in bytes.
pub const FILE_LEN_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of tokens in all files together.
pub const TOKEN_COUNT_MAX: usize = 100_000;
/// Maximum length of an identity in bytes.
pub const IDENTITY_LEN_MAX: usize = 256;
/// Maximum length of the name of a group in bytes.
pub const GROUP_LEN_MAX: usize = 256;
/// Maximum number of groups of one token.
pub const GROUP_COUNT_MAX: usize = 64;
/// Maximum length of a note in bytes.
pub const NOTE_LEN_MAX: usize = 1_024;
/// Maximum length of a JSON web token in bytes.
pub const JWT_LEN_MAX: usize = 8 << 10;
/// Maximum length of the key set of an identity provider in bytes.
pub const JWKS_LEN_MAX: usize = 1 << 20;
/// Maximum length of an RSA key in bits. Longer keys take longer to verify, and the worker of the client waits for
/// that.
pub const RSA_BITS_MAX: usize = 4_096;
/// Maximum number of keys in a key set.
pub const JWK_COUNT_MAX: usize = 1_000;
/// Maximum length of an access file in bytes.
pub const ACCESS_FILE_LEN_MAX: usize = 1 << 20;
/// Maximum number of rules in an access file. The server compares each new connection with all of them.
pub const RULE_COUNT_MAX: usize = 1_000;
/// Maximum number of quotas in an access file. The server compares each new connection with all of them.
pub const QUOTA_COUNT_MAX: usize = 1_000;
/// Maximum number of access keys.
pub const ACCESS_KEY_COUNT_MAX: usize = 10_000;
