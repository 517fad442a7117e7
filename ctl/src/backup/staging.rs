//! A directory that appears under its name in one step.
//!
//! Its files are written to a directory with a temporary name beside it, which is renamed when all of them are durable. If anything fails
//! before, the temporary directory is removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::problem::{BackupError, failed};
use crate::files::{self, Directory};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Beginning of temporary names.
const PREFIX: &str = ".waymaker-backup-";

/// A directory that is not complete yet.
#[derive(Debug)]
pub(super) struct Staging {
    place: TempDir,
    target: PathBuf,
}

impl Staging {
    /// Begins a directory that will be at `target`. Fails if anything but an empty directory is there.
    pub(super) fn begin(target: &Path) -> Result<Self, BackupError> {
        let target = files::resolved(target).map_err(failed("use", target))?;
        match fs::read_dir(&target) {
            Ok(mut entries) => match entries.next() {
                None => {}
                Some(_) => return Err(BackupError::NotEmpty(target)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(BackupError::NotADirectory(target));
            }
            Err(error) => return Err(failed("read", &target)(error)),
        }
        let parent = files::directory_of(&target);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(DIRECTORY_MODE));
        let place = builder.tempdir_in(parent).map_err(failed("make a directory in", parent))?;
        Ok(Self { place, target })
    }

    pub(super) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Makes a file in the directory, over an earlier one with this name.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        options.open(self.place.path().join(name))
    }

    /// Writes a whole file and makes it durable.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(name)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Removes a file of an earlier attempt, if there is one.
    pub(super) fn clear(&self) -> io::Result<()> {
        fs::read_dir(self.place.path())?.try_for_each(|entry| fs::remove_file(entry?.path()))
    }

    /// Gives the directory its name. All its files must be durable.
    pub(super) fn publish(self) -> Result<(), BackupError> {
        let rename = || {
            Directory::open(self.place.path())?.sync()?;
            let parent = Directory::of(&self.target)?;
            fs::rename(self.place.path(), &self.target)?;
            parent.sync()
        };
        rename().map_err(failed("make", &self.target))?;
        // It no longer has the temporary name.
        let _ = self.place.keep();
        Ok(())
    }
}
