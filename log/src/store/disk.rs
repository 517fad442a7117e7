//! A directory of a real file system.

#![expect(clippy::disallowed_types, reason = "opens the files")]
#![expect(
    clippy::disallowed_methods,
    reason = "leaves the disk to other writers while it fills a new segment"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{BLOCK_LEN, FileReader};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{self, FsType, statfs};

use super::map::MappedFile;
use super::storage::{SegmentFile, Storage};
use super::window::Window;

/// Way in which frames are written to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// By stores into a memory map of the file. Files with holes, and files for which the kernel uses large pages, are
    /// written by write calls instead.
    Map,
    /// By write calls.
    Write,
}

/// Number of bytes of a new segment that are zeroed and synced before each pause of the thread. During the pause, the
/// disk can serve other work.
const PACE_LEN: u64 = 1 << 20;
const PACE: Duration = Duration::from_millis(1);
const NFS_MAGIC: FsType = FsType(0x6969);
/// Not defined in `nix` for musl.
const XFS_MAGIC: FsType = FsType(0x5846_5342);

impl Device {
    /// Returns the way to write segments on the file system of this directory, and a warning for the operator if there
    /// is one. Only ext4 and XFS use a memory map: a store into a map must never find the disk full, and copy-on-write
    /// file systems do not reserve room permanently.
    ///
    /// # Errors
    /// If the type of the file system cannot be determined.
    pub fn suitable(directory: &Path) -> io::Result<(Self, Option<&'static str>)> {
        let kind = statfs(directory)?.filesystem_type();
        Ok(if [statfs::EXT4_SUPER_MAGIC, XFS_MAGIC].contains(&kind) {
            (Self::Map, None)
        } else if kind == statfs::TMPFS_MAGIC {
            (
                Self::Write,
                Some("the data directory is on tmpfs, that is, in memory: the log does not survive a reboot"),
            )
        } else if kind == NFS_MAGIC {
            (Self::Write, Some("the data directory is on NFS: durability depends on the NFS server"))
        } else {
            (Self::Write, None)
        })
    }
}

/// A directory of a file system, which no other process may use.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    directory: File,
    device: Device,
}

impl Disk {
    /// Opens the directory at this path.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, device: Device) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), directory: File::open(path)?, device })
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path.join(name))
    }

    fn create_file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.join(name))
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            // `lost+found` is skipped, so that the start does not report it as an unknown entry. The file system itself
            // creates it if the directory is its root.
            if entry.file_name() == "lost+found" {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.metadata() {
                Ok(metadata) => {
                    let is_file = metadata.is_file() || metadata.is_symlink();
                    files.push((name, is_file.then_some(metadata.len())));
                }
                // Two threads create, rename and remove files, so this file may have disappeared since the directory
                // was read.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut window = Window::open(&self.path.join(name))?;
        let mut bytes = Vec::new();
        while bytes.len() < window.len as usize {
            bytes.extend_from_slice(window.read(bytes.len() as u64, BLOCK_LEN)?);
        }
        Ok(bytes)
    }

    fn reader(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        Ok(Box::new(Window::open(&self.path.join(name))?))
    }

    fn make_zeroed(&self, name: &str, len: u64) -> io::Result<()> {
        let file = self.create_file(name)?;
        match fallocate(&file, FallocateFlags::empty(), 0, len.cast_signed()) {
            Ok(()) | Err(nix::Error::EOPNOTSUPP | nix::Error::ENOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        // Zeros are written in single blocks. The page cache would keep a larger write in one large page. If a byte of
        // a page changes, the kernel writes the whole page to the disk, so each frame would write its neighbours again.
        for offset in (0..len).step_by(BLOCK_LEN) {
            file.write_all_at(&[0; BLOCK_LEN], offset)?;
            if (offset + BLOCK_LEN as u64).is_multiple_of(PACE_LEN) {
                file.sync_data()?;
                std::thread::sleep(PACE);
            }
        }
        file.sync_all()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(WrittenFile(self.create_file(name)?)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(WrittenFile(self.open_file(name)?)))
    }

    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        let file = self.open_file(name)?;
        match self.device {
            // A copied file may have holes, for which no room on the disk is reserved. If the disk is full, a store
            // into a mapped hole kills the process, but a write call only returns an error. So a file with holes is not
            // mapped.
            Device::Map if has_holes(&file)? => Ok(Box::new(WrittenFile(file))),
            Device::Map => Ok(Box::new(MappedFile::new(file)?)),
            Device::Write => Ok(Box::new(WrittenFile(file))),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// Returns whether a file has holes: its blocks on the disk are fewer than its length needs.
fn has_holes(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    // `blocks()` counts units of 512 bytes on every file system.
    Ok(metadata.blocks() * 512 < metadata.len())
}

/// A file that is changed by write calls.
struct WrittenFile(File);

impl SegmentFile for WrittenFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One thread may rename the spare segment while another thread lists the directory. The listing must not report
    /// the missing file as an error.
    #[test]
    fn listing_a_directory_tolerates_files_that_appear_and_vanish() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path(), Device::Write).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    disk.create("spare").unwrap();
                    disk.rename("spare", "segment").unwrap();
                    disk.remove("segment").unwrap();
                }
            });
            let listed: io::Result<Vec<_>> = (0..20_000).map(|_| disk.list()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(listed.is_ok(), "{listed:?}");
        });
    }
}
