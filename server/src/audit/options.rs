//! The option `--audit`.

use super::AuditError;
use crate::creatable;
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the audit log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditTarget {
    /// The log of the server, in words, under the target `audit`.
    #[default]
    Log,
    /// Standard output, as JSON.
    Stdout,
    /// Standard error, as JSON.
    Stderr,
    /// A file, as JSON.
    File(PathBuf),
    /// Nowhere.
    None,
}

impl AuditTarget {
    /// Fails if its file could not be opened. Makes no file.
    ///
    /// # Errors
    /// If the file could be neither made nor written.
    pub fn check(&self) -> Result<(), AuditError> {
        match self {
            Self::File(path) => {
                creatable::file(path).map_err(|error| AuditError::File { path: path.clone(), error })
            }
            _ => Ok(()),
        }
    }
}

impl From<String> for AuditTarget {
    fn from(text: String) -> Self {
        match text.as_str() {
            "log" => Self::Log,
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            "none" => Self::None,
            _ => Self::File(text.into()),
        }
    }
}

impl FromStr for AuditTarget {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.to_owned().into())
    }
}
