//! The data directory and the lock on it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK_TRIES: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory or its lock file cannot be made or written.
    #[error("data-dir: cannot write to {path}: {error}")]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Another server uses it.
    #[error("data-dir: {path} is in use by another server ({owner})")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What that server wrote about itself.
        owner: String,
    },
}

/// A data directory that is ours until this is dropped. The lock is the kernel's and ends with the process, however it
/// ends; what stands in the file only tells people who has it.
#[derive(Debug)]
pub struct DataDir {
    lock: File,
    path: PathBuf,
}

impl DataDir {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// If it cannot be written, or another server has it.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let unwritable = |path: &Path, error| DataDirError::Unwritable { path: path.to_owned(), error };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| unwritable(path, error))?;
        let lock_path = path.join("LOCK");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| unwritable(&lock_path, error))?;
        let mut tries = 1;
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::WouldBlock if tries < LOCK_TRIES => {
                    tries += 1;
                    std::thread::sleep(LOCK_WAIT);
                }
                TryLockError::WouldBlock => {
                    let mut owner = String::new();
                    let _ = (&lock).take(256).read_to_string(&mut owner);
                    let owner = if owner.is_empty() { "it has not said which".to_owned() } else { owner };
                    return Err(DataDirError::InUse { path: path.to_owned(), owner });
                }
                TryLockError::Error(error) => return Err(unwritable(&lock_path, error)),
            }
        }
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            write!(lock, "pid {}", std::process::id())
        };
        write(&mut lock).map_err(|error| unwritable(&lock_path, error))?;
        Ok(Self { lock, path: path.to_owned() })
    }
}

impl DataDir {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells people, beside which process has it, where that serves.
    pub fn note_addresses(&self, addresses: &str) {
        // It helps, and nothing depends on it.
        let _ = write!(&self.lock, ", serving {addresses}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_the_second_is_told_who() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let first = DataDir::open(&path).unwrap();
        let refused = DataDir::open(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        assert!(DataDir::open(&path).is_ok());
    }

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = DataDir::open(file.path()).unwrap_err().to_string();
        assert!(refused.starts_with("data-dir: cannot write to"), "{refused}");
    }
}
