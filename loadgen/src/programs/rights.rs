//! The token of the clients of a measured server, and the rights that it checks in every acquire.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rand::random;
use waymaker_access::{Timestamp, Token, TokenRecord, token_table_text};
use waymaker_client::Credentials;

/// Name of the file with the tokens, in the directory of the server.
pub(super) const TOKENS: &str = "tokens.toml";
/// Name of the file with the rights.
pub(super) const ACCESS: &str = "access.toml";

/// The rule of the load has a prefix, so the server compares it with every key. A path of a tree begins with whole segments, so keys of
/// Locktopus have a rule without one.
const RULES: &str = r#"
[groups]
operators = ["operator"]

[[rule]]
group = "operators"
allow = ["all"]

[[rule]]
identity = "loadgen"
prefix = "waymaker"
allow = ["acquire"]

[[rule]]
identity = "loadgen"
namespace = "tree/*"
allow = ["acquire"]
"#;

/// Writes both files, and returns the credentials of the clients.
pub(super) fn prepare(directory: &Path) -> Result<Credentials> {
    let token = Token::from_random(&random());
    let record = TokenRecord {
        id: token.id,
        identity: "loadgen".to_owned(),
        groups: Vec::new(),
        secret_sha256: token.secret.digest(),
        created: Timestamp::from_unix_seconds(0),
        expires: None,
        note: String::new(),
    };
    for (name, text) in [(TOKENS, token_table_text(&record)), (ACCESS, RULES.to_owned())] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Credentials::new(token.text().as_bytes()))
}
