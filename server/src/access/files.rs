//! The files of a policy: the access file, the token files, the file of access keys, and the key set for JSON web
//! tokens.

use super::{AccessControl, Policy};
use crate::option_values::{OrNone, heading, path_or_none};
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

/// Options for the files that define access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::ACCESS)]
pub struct AccessOptions {
    /// File of tokens that `waymaker-ctl tokens create` made, or directory of such files. Clients with a token have its
    /// identity; a token that is not valid is refused. The server reads the files again after a change and on SIGHUP
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
    /// file again after a change and on SIGHUP
    #[arg(
        long,
        env = "WAYMAKER_ACCESS",
        value_name = "FILE",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none)
    )]
    pub access: OrNone<PathBuf>,
    /// TOML file with the access keys of DynamoDB clients, a `[[key]]` table for each. With it every request to
    /// --dynamodb-listen must be signed with one of the keys, and has its identity. The server reads the file again
    /// after a change and on SIGHUP
    #[arg(
        long,
        env = "WAYMAKER_DYNAMODB_KEYS",
        value_name = "FILE",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none)
    )]
    pub dynamodb_keys: OrNone<PathBuf>,
}

/// Reasons why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessOptionsError {
    /// A file or directory cannot be read, or a file is not UTF-8.
    #[error("{option}: cannot read {path}: {error}")]
    Unreadable {
        /// Name of the option.
        option: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The access file has an error.
    #[error("--access: {path}: {error}")]
    BadAccessFile {
        /// Path of the file.
        path: PathBuf,
        /// Error in the file.
        error: AccessFileError,
    },
    /// The running server has rules, but the file no longer has any.
    #[error("--access: the file has no rule any more; to let every client do everything, restart the server")]
    NoRules,
    /// The path is not a regular file, or the file is too long.
    #[error("{option}: {path} is not a regular file of at most {FILE_LEN_MAX} bytes")]
    NotAFile {
        /// Name of the option.
        option: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// The key set for JSON web tokens cannot be used.
    #[error("--access: jwt.jwks: {path}: {error}")]
    BadJwks {
        /// Path of the key set.
        path: PathBuf,
        /// Error in the key set.
        error: Box<JwksError>,
    },
    /// The file of access keys has an error.
    #[error("--dynamodb-keys: {path}: {error}")]
    BadAccessKeys {
        /// Path of the file.
        path: PathBuf,
        /// Error in the file.
        error: AccessKeysError,
    },
    /// A token file has an error.
    #[error("--tokens: {0}")]
    BadTokens(#[from] TokenFileError),
}

impl AccessOptions {
    /// Reads the files and returns their policy.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used; the error names the file and its option.
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
    /// Returns the files of a server that has already read them.
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
        // Watch the path of `--tokens` too. If it is a directory, it changes when a token file appears or disappears.
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
        // A truncated access file must not open the server to everyone.
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

/// Returns the token files at a path: the file itself, or the token files in the directory.
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
    // Check the type before opening: opening a pipe would wait for its other end.
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
        // Emacs creates such a dangling symbolic link while a user edits `tokens.toml`.
        std::os::unix::fs::symlink("user@host.1", directory.path().join(".#tokens.toml")).unwrap();
        assert_eq!(token_files(directory.path()).unwrap(), [directory.path().join("tokens.toml")]);
        read_tokens(directory.path()).unwrap();
    }
}
