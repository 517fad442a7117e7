//! The files of a policy: the access file, and the files of tokens.

use super::{AccessControl, Policy};
use crate::reload::{Reload, ReloadError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waymaker_access::{AccessFileError, Rules, TokenFileError, TokenTable};

/// Which files say who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessOptions {
    /// The access file.
    pub access: Option<PathBuf>,
    /// A file of tokens, or a directory of such files.
    pub tokens: Option<PathBuf>,
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
    /// A file of tokens is wrong.
    #[error("--tokens: {0}")]
    BadTokens(#[from] TokenFileError),
}

impl AccessOptions {
    /// Returns whether the server can tell clients apart by credentials.
    pub fn has_credentials(&self) -> bool {
        self.tokens.is_some()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be used; the error names it and its option.
    pub fn load(&self) -> Result<Policy, AccessOptionsError> {
        let rules = self.access.as_deref().map(read_rules).transpose()?.unwrap_or_default();
        let tokens = self.tokens.as_deref().map(read_tokens).transpose()?;
        Ok(Policy { rules, tokens })
    }
}

/// The files of the policy of a running server.
#[derive(Debug)]
pub(crate) struct PolicyFiles {
    options: AccessOptions,
    access: Arc<AccessControl>,
}

impl PolicyFiles {
    /// Those of a server that has read them once.
    pub(crate) fn new(options: AccessOptions, access: Arc<AccessControl>) -> Self {
        Self { options, access }
    }
}

impl Reload for PolicyFiles {
    fn subject(&self) -> &'static str {
        "tokens and access rules"
    }

    fn files(&self) -> Vec<PathBuf> {
        let AccessOptions { access, tokens } = &self.options;
        // A file that appears in a directory, or goes from there, changes the directory.
        let tokens = tokens.iter().flat_map(|path| {
            let files = token_files(path).unwrap_or_default();
            std::iter::once(path.clone()).chain(files)
        });
        access.iter().cloned().chain(tokens).collect()
    }

    fn reload(&mut self) -> Result<(), ReloadError> {
        self.access.replace(self.options.load()?);
        Ok(())
    }
}

fn read_rules(path: &Path) -> Result<Rules, AccessOptionsError> {
    let text = read(path, "--access")?;
    Rules::parse(&text).map_err(|error| AccessOptionsError::BadAccessFile { path: path.to_owned(), error })
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

/// The files of tokens at a path: the file itself, or those in the directory.
fn token_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, option: &'static str) -> Result<String, AccessOptionsError> {
    fs::read_to_string(path).map_err(|error| AccessOptionsError::Unreadable {
        option,
        path: path.to_owned(),
        error,
    })
}
