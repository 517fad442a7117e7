//! The reasons why options cannot be read.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// An error in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1.
    pub line: usize,
    /// Description of the error, which names the key.
    pub message: String,
}

/// The reason why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A flag or an environment variable is wrong, or the arguments ask for help or the version.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The file cannot be read.
    #[error("--config: cannot read {path}: {error}")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The file has errors.
    #[error("{}", Problems(path, problems))]
    BadFile {
        /// Path of the file.
        path: PathBuf,
        /// All errors found, in the order of the file; at least one.
        problems: Vec<Problem>,
    },
}

/// Displays the errors of a file, one per line.
struct Problems<'a>(&'a PathBuf, &'a [Problem]);

impl Display for Problems<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self(path, problems) = self;
        for (index, Problem { line, message }) in problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}--config: {}: line {line}: {message}", path.display())?;
        }
        Ok(())
    }
}
