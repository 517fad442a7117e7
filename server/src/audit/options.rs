//! The option `--audit`.

use super::AuditError;
use crate::creatable;
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

/// The destination of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditTarget {
    /// The log of the server, as text with the target `audit`.
    #[default]
    Log,
    /// Standard output, as JSON lines.
    Stdout,
    /// Standard error, as JSON lines.
    Stderr,
    /// A file, as JSON lines.
    File(PathBuf),
    /// No audit log.
    None,
}

impl AuditTarget {
    /// Checks that the file, if any, could be opened. Creates no file.
    ///
    /// # Errors
    /// Returns an error if the file can be neither created nor written.
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
