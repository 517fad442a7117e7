//! The files of a policy: the access file, and the files of tokens.

use super::{AccessControl, Policy};
use crate::options::{OrNone, heading, path_or_none};
use crate::reload::{Reload, ReloadError};
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waymaker_access::limits::FILE_LEN_MAX;
use waymaker_access::{
    AccessFileError, AccessKeys, AccessKeysError, JwksError, JwtOptions, JwtVerifier, Rules, TokenFileError,
    TokenTable, is_token_file,
};

/// Files that say who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::ACCESS)]
pub struct AccessOptions {
    /// File of tokens that `waymaker-ctl tokens create` made, or directory of such files. Clients with a token have its
    /// identity; a token that is not valid is refused. The server reads the files again after SIGHUP
    #[arg(
        long,
        env = "WAYMAKER_TOKENS",
        value_name = "PATH",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none)
    )]
    pub tokens: OrNone<PathBuf>,
    /// TOML file with the rules that give identities rights. From the first rule on everything is denied that no rule
    /// allows, also on loopback and on the Unix socket. Without rules a client may do everything. The server reads the
    /// file again after SIGHUP
    #[arg(
        long,
        env = "WAYMAKER_ACCESS",
        value_name = "FILE",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none)
    )]
    pub access: OrNone<PathBuf>,
    /// TOML file with the access keys of DynamoDB clients, a `[[key]]` table for each. With it every request to --dynamodb-listen
    /// must be signed with one of the keys, and has its identity. The server reads the file again after SIGHUP
    #[arg(
        long,
        env = "WAYMAKER_DYNAMODB_KEYS",
        value_name = "FILE",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none)
    )]
    pub dynamodb_keys: OrNone<PathBuf>,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessOptionsError {
    /// A file or directory cannot be read.
    #[error("{option}: cannot read {path}: {error}")]
    Unreadable {
        /// Which option names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The access file is wrong.
    #[error("--access: {path}: {error}")]
    BadAccessFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: AccessFileError,
    },
    /// A running server has rules, and the file has none any more.
    #[error("--access: the file has no rule any more; to let every client do everything, restart the server")]
    NoRules,
    /// It is no file that could be read to its end.
    #[error("{option}: {path} is not a regular file of at most {FILE_LEN_MAX} bytes")]
    NotAFile {
        /// Which option names it.
        option: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// The public keys of JSON web tokens are wrong.
    #[error("--access: jwt.jwks: {path}: {error}")]
    BadJwks {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<JwksError>,
    },
    /// The file of access keys is wrong.
    #[error("--dynamodb-keys: {path}: {error}")]
    BadAccessKeys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: AccessKeysError,
    },
    /// A file of tokens is wrong.
    #[error("--tokens: {0}")]
    BadTokens(#[from] TokenFileError),
}

impl AccessOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be used; the error names it and its option.
    pub fn load(&self) -> Result<Policy, AccessOptionsError> {
        let rules = self.access.as_deref().map(read_rules).transpose()?.unwrap_or_default();
        let tokens = self.tokens.as_deref().map(read_tokens).transpose()?;
        let jwt = rules.jwt().map(read_jwks).transpose()?;
        let access_keys = self.dynamodb_keys.as_deref().map(read_access_keys).transpose()?;
        Ok(Policy { rules, tokens, jwt, access_keys, ..Policy::default() })
    }
}

/// The files of the policy of a running server.
#[derive(Debug)]
pub(crate) struct PolicyFiles {
    options: AccessOptions,
    access: Arc<AccessControl>,
}

impl PolicyFiles {
    /// Takes the files of a server that has read them once.
    pub(crate) fn new(options: AccessOptions, access: Arc<AccessControl>) -> Self {
        Self { options, access }
    }
}

impl Reload for PolicyFiles {
    fn subject(&self) -> &'static str {
        "tokens, access keys and access rules"
    }

    fn files(&self) -> Vec<PathBuf> {
        let AccessOptions { access, tokens, dynamodb_keys } = &self.options;
        // A file that appears in a directory, or goes from there, changes the directory.
        let tokens = tokens.iter().flat_map(|path| {
            let files = token_files(path).unwrap_or_default();
            std::iter::once(path.clone()).chain(files)
        });
        let policy = self.access.policy();
        let jwks = policy.jwks().map(Path::to_owned);
        access.iter().chain(dynamodb_keys.iter()).cloned().chain(tokens).chain(jwks).collect()
    }

    fn reload(&mut self) -> Result<(), ReloadError> {
        let policy = self.options.load()?;
        // A file that was cut off must not open the server.
        if self.access.policy().has_rules() && !policy.has_rules() {
            return Err(AccessOptionsError::NoRules.into());
        }
        self.access.replace(policy);
        Ok(())
    }
}

fn read_rules(path: &Path) -> Result<Rules, AccessOptionsError> {
    let text = read(path, "--access")?;
    Rules::parse(&text).map_err(|error| AccessOptionsError::BadAccessFile { path: path.to_owned(), error })
}

fn read_jwks(options: &JwtOptions) -> Result<JwtVerifier, AccessOptionsError> {
    let JwtOptions { jwks, issuer, audience, identity_claim, groups_claim } = options;
    let text = read(jwks, "--access: jwt.jwks")?;
    JwtVerifier::from_jwks(text.as_bytes(), issuer, audience, identity_claim, groups_claim.as_deref())
        .map_err(|error| AccessOptionsError::BadJwks { path: jwks.clone(), error: Box::new(error) })
}

fn read_access_keys(path: &Path) -> Result<AccessKeys, AccessOptionsError> {
    let text = read(path, "--dynamodb-keys")?;
    AccessKeys::parse(&text)
        .map_err(|error| AccessOptionsError::BadAccessKeys { path: path.to_owned(), error })
}

fn read_tokens(path: &Path) -> Result<TokenTable, AccessOptionsError> {
    let unreadable =
        |error| AccessOptionsError::Unreadable { option: "--tokens", path: path.to_owned(), error };
    let mut table = TokenTable::default();
    for file in token_files(path).map_err(unreadable)? {
        let text = read(&file, "--tokens")?;
        table = table.with_file(&file.display().to_string(), text.as_bytes())?;
    }
    Ok(table)
}

/// The files of tokens at a path: the file itself, or those in the directory that have tokens.
fn token_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if is_token_file(&file) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, option: &'static str) -> Result<String, AccessOptionsError> {
    let unreadable = |error| AccessOptionsError::Unreadable { option, path: path.to_owned(), error };
    // Opening a pipe would wait for its other end.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > FILE_LEN_MAX as u64 {
        return Err(AccessOptionsError::NotAFile { option, path: path.to_owned() });
    }
    fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_of_a_directory_hold_no_tokens() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("tokens.toml"), "").unwrap();
        fs::write(directory.path().join(".hidden.toml"), "no token").unwrap();
        // Emacs makes such a link while somebody edits the file.
        std::os::unix::fs::symlink("user@host.1", directory.path().join(".#tokens.toml")).unwrap();
        assert_eq!(token_files(directory.path()).unwrap(), [directory.path().join("tokens.toml")]);
        read_tokens(directory.path()).unwrap();
    }
}
