//! The reasons why options cannot be read.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// An error in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file; the first is 1.
    pub line: usize,
    /// Description of the error, with the key.
    pub message: String,
}

/// The reason why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A flag or an environment variable is wrong. Also the request for help, which is no error.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The file cannot be read.
    #[error("--config: cannot read {path}: {error}")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file has errors.
    #[error("{}", Problems(path, problems))]
    BadFile {
        /// Path of the file.
        path: PathBuf,
        /// All errors that were found, in the order of the file; at least one.
        problems: Vec<Problem>,
    },
}

/// The errors of a file, each in a line of its own.
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
