//! Objects with files, such as certificates, that the server reads again while it runs: after a change of a file, or on
//! SIGHUP.

use std::fmt;
use std::path::PathBuf;

/// The error of an unusable file. Its text names the option and the file.
pub type ReloadError = Box<dyn std::error::Error + Send + Sync>;

/// An object whose files can be read again.
pub trait Reload: fmt::Debug + Send {
    /// Returns a plural noun for log lines, such as `certificates`.
    fn subject(&self) -> &'static str;

    /// Returns the paths of the files.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files and uses their contents from now on. After an error the previous contents stay in use.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used.
    fn reload(&mut self) -> Result<(), ReloadError>;
}
