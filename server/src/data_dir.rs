//! The data directory and the lock on it.

use crate::creatable;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use waymaker_log::BACKUP_SUPERBLOCK_NAME;

const LOCK_TRIES: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Reasons why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory or its lock file cannot be created, opened, locked or written.
    #[error("--data-dir: cannot write to {path}: {error}")]
    Unwritable {
        /// Path of the directory or file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The directory is a backup.
    #[error("--data-dir: {0} is a backup, and a server on it would repeat fences; use waymaker-ctl restore")]
    Backup(PathBuf),
    /// Another server uses the directory.
    #[error(
        "--data-dir: {path} is in use by another server ({owner}); stop that server, or use another directory"
    )]
    InUse {
        /// Path of the directory.
        path: PathBuf,
        /// Text that the server which uses the directory wrote into the file `LOCK`, such as its process id. It is a
        /// note instead if that file is missing or empty.
        owner: String,
    },
}

/// A locked data directory. The kernel holds the locks until this value is dropped or the process ends. The text in the
/// lock file only informs people.
#[derive(Debug)]
pub struct DataDir {
    /// File `LOCK`, which servers of every version lock.
    lock: File,
    /// The directory itself. Unless the file system cannot lock directories, it is locked too, so that a second server
    /// cannot start even if somebody deletes `LOCK`.
    _directory: File,
    path: PathBuf,
}

impl DataDir {
    /// Checks whether [`DataDir::open`] would succeed, apart from other servers that use the directory. Changes
    /// nothing.
    ///
    /// # Errors
    /// Returns an error if the directory is a backup or cannot be written.
    pub fn check(path: &Path) -> Result<(), DataDirError> {
        refuse_backup(path)?;
        creatable::directory(path).map_err(|error| unwritable(path, error))?;
        let lock = path.join("LOCK");
        if lock.exists() {
            // Check the lock file too: it may belong to another user, who started a server in this directory earlier.
            creatable::file(&lock).map_err(|error| unwritable(&lock, error))?;
        }
        Ok(())
    }

    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// Returns an error if the directory is a backup, cannot be written, or is locked by another server.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        refuse_backup(path)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| unwritable(path, error))?;
        let lock_path = path.join("LOCK");
        let directory = File::open(path).map_err(|error| unwritable(path, error))?;
        // Ignore all errors other than `WouldBlock`: some file systems, such as NFS, cannot lock a directory. The lock
        // on the file `LOCK`, which is taken below, must then suffice.
        if let Err(TryLockError::WouldBlock) = lock_soon(&directory) {
            let owner = match File::open(&lock_path) {
                Ok(lock) => owner(&lock),
                Err(_) => "its LOCK file is missing".to_owned(),
            };
            return Err(DataDirError::InUse { path: path.to_owned(), owner });
        }
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| unwritable(&lock_path, error))?;
        lock_soon(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => DataDirError::InUse { path: path.to_owned(), owner: owner(&lock) },
            TryLockError::Error(error) => unwritable(&lock_path, error),
        })?;
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            // Use a single write, so that another server never reads a part of the text.
            lock.write_all(format!("pid {}", std::process::id()).as_bytes())
        };
        write(&mut lock).map_err(|error| unwritable(&lock_path, error))?;
        Ok(Self { lock, _directory: directory, path: path.to_owned() })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the server's addresses to the lock file, for people.
    pub fn note_addresses(&self, addresses: &str) {
        // Ignore errors: nothing depends on this text.
        let _ = (&self.lock).write_all(format!(", serving {addresses}").as_bytes());
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> DataDirError {
    DataDirError::Unwritable { path: path.to_owned(), error }
}

fn refuse_backup(path: &Path) -> Result<(), DataDirError> {
    if path.join(BACKUP_SUPERBLOCK_NAME).exists() {
        return Err(DataDirError::Backup(path.to_owned()));
    }
    Ok(())
}

/// Locks a file. Retries briefly, because a process that just ended may still hold the lock.
fn lock_soon(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
            result => return result,
        }
    }
    file.try_lock()
}

/// Returns the text that the server with the lock wrote into the lock file, or a note that the file is empty.
fn owner(lock: &File) -> String {
    let mut owner = String::new();
    let _ = lock.take(256).read_to_string(&mut owner);
    if owner.is_empty() { "its LOCK file is empty".to_owned() } else { owner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_of_a_directory_is_refused_with_the_first_pid() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let first = DataDir::open(&path).unwrap();
        let refused = DataDir::open(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        assert!(DataDir::open(&path).is_ok());
    }

    #[test]
    fn a_directory_without_its_lock_file_still_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataDir::open(directory.path()).unwrap();
        std::fs::remove_file(directory.path().join("LOCK")).unwrap();
        let refused = DataDir::open(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("is in use by another server (its LOCK file is missing)"), "{refused}");
        drop(first);
        assert!(DataDir::open(directory.path()).is_ok());
    }

    #[test]
    fn an_unusable_data_directory_is_named_in_the_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = DataDir::open(file.path()).unwrap_err().to_string();
        assert!(refused.starts_with("--data-dir: cannot write to"), "{refused}");
    }
}
