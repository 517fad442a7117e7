//! Keeps backups and data directories apart.

use std::path::{Path, absolute};

use super::problem::BackupError;

/// Fails if one directory is, or would be, below the other.
pub(super) fn check(directory: &Path, other: &Path) -> Result<(), BackupError> {
    // A later step reports a missing directory.
    let (Ok(path), Ok(outer)) = (absolute(directory), other.canonicalize()) else { return Ok(()) };
    let is_below = path
        .ancestors()
        .find_map(|ancestor| ancestor.canonicalize().ok())
        .is_some_and(|nearest| nearest.starts_with(&outer));
    let is_same = directory.canonicalize().is_ok_and(|directory| directory == outer);
    if is_below && !is_same {
        return Err(BackupError::Inside { directory: directory.to_owned(), other: other.to_owned() });
    }
    Ok(())
}
