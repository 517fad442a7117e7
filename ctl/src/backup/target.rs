//! Writes the data directory of a restored log.
//!
//! The directory is locked as a server locks it. The snapshot gets its name first and the superblock last. Without a superblock there is
//! no log, so after an interruption no server starts from a part of the log.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use waymaker_log::{FileName, Superblock, Temporary};

use super::problem::{BackupError, failed};
use crate::files::Directory;
use crate::log::directory::DataDirectory;

/// A data directory without a log, which is locked for the restore. Its drop removes all new files, except after [`Target::keep`].
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    /// Files made so far; they are removed in the reverse order.
    made: Vec<PathBuf>,
    is_directory_made: bool,
    owner: (u32, u32),
    /// The locks end with these files.
    _directory: File,
    _lock: File,
}

/// Fails if the directory has a log or other files, or a server uses it. It may be missing.
pub(super) fn check(path: &Path) -> Result<(), BackupError> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => {}
        Ok(_) => return Err(BackupError::NotADirectory(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("read", path)(error)),
    }
    let directory = DataDirectory::new(path);
    if let Some(user) = directory.user() {
        return Err(BackupError::InUse { directory: path.to_owned(), user });
    }
    let listing = directory.list().map_err(failed("read", path))?;
    let is_log = |(file, _): &&(FileName, u64)| !matches!(file, FileName::Lock | FileName::Temporary(_));
    let file = listing.not_a_file.or_else(|| Some(listing.files.iter().find(is_log)?.0));
    let directory = path.to_owned();
    match (file, listing.foreign.into_iter().next()) {
        (Some(file), _) => Err(BackupError::HasLog { directory, file: file.to_string() }),
        // It may be the parent of the data directory, and no server would find the log there.
        (None, Some(file)) => Err(BackupError::HasFiles { directory, file }),
        (None, None) => Ok(()),
    }
}

impl Target {
    /// Makes the directory if it is missing, locks it, and checks that it has no log.
    pub(super) fn begin(path: &Path) -> Result<Self, BackupError> {
        check(path)?;
        let is_directory_made = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed("make", path)(error)),
        };
        let lock_path = path.join(FileName::Lock.to_string());
        let is_lock_made = !lock_path.exists();
        let open = || {
            let directory = File::open(path)?;
            let about = directory.metadata()?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            Ok((directory, options.open(&lock_path)?, (about.uid(), about.gid())))
        };
        let (directory, lock, owner) = open().map_err(failed("use", path))?;
        // Some file systems cannot lock a directory. There the file has to do, as for a server.
        for file in [&directory, &lock] {
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let user = "another process has locked it".to_owned();
                return Err(BackupError::InUse { directory: path.to_owned(), user });
            }
        }
        let made = if is_lock_made { vec![lock_path] } else { Vec::new() };
        let target = Self {
            path: path.to_owned(),
            made,
            is_directory_made,
            owner,
            _directory: directory,
            _lock: lock,
        };
        target.give(&target._lock).map_err(failed("use", path))?;
        // Another restore may have ended in between.
        check_again(&target.path)?;
        Ok(target)
    }

    /// Writes a file under a temporary name, which a server would remove.
    pub(super) fn write(
        &mut self,
        temporary: Temporary,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf, BackupError> {
        let path = self.path.join(FileName::Temporary(temporary).to_string());
        let put = |this: &mut Self| {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            this.made.push(path.clone());
            this.give(&file)?;
            write(&mut file)?;
            file.sync_all()
        };
        put(self).map_err(failed("write", &path))?;
        Ok(path)
    }

    /// Gives both files their names, the superblock last. The log is there when this returns.
    pub(super) fn keep(mut self, snapshot: &Path, superblock: &Path) -> Result<(), BackupError> {
        let (snapshot_path, superblock_path) = (
            self.path.join(FileName::Snapshot(1).to_string()),
            self.path.join(FileName::Superblock.to_string()),
        );
        let rename = |this: &mut Self| {
            if this.is_directory_made {
                Directory::of(&this.path)?.sync()?;
            }
            let directory = Directory::open(&this.path)?;
            fs::rename(snapshot, &snapshot_path)?;
            this.made.push(snapshot_path);
            directory.sync()?;
            this.made.push(superblock_path.clone());
            fs::rename(superblock, &superblock_path)?;
            directory.sync()
        };
        rename(&mut self).map_err(failed("write to", &self.path))?;
        self.made.clear();
        self.is_directory_made = false;
        Ok(())
    }

    /// Gives a file to the owner of the directory, so that a server of this user can read what root has written.
    fn give(&self, file: &File) -> io::Result<()> {
        let about = file.metadata()?;
        if (about.uid(), about.gid()) == self.owner {
            return Ok(());
        }
        fchown(file, Some(self.owner.0), Some(self.owner.1))
    }
}

/// As [`check`], while this process has the locks.
fn check_again(path: &Path) -> Result<(), BackupError> {
    match check(path) {
        Err(BackupError::InUse { .. }) => Ok(()),
        checked => checked,
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            // A file that was renamed is no longer there.
            let _ = fs::remove_file(path);
        }
        if self.is_directory_made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Returns the two copies of a superblock, as a file has them.
pub(super) fn superblock_file(superblock: &Superblock) -> Vec<u8> {
    superblock.encode().repeat(2)
}
