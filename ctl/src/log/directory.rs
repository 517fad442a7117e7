//! Reads the files of a data directory, also while a server writes to them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use waymaker_log::{BLOCK_LEN, Damage, FileName};

/// A data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
}

/// The files of a data directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Files of the log with their lengths in bytes, ordered by name.
    pub(crate) files: Vec<(FileName, u64)>,
    /// Names of the files that are not part of the log, in order. A server ignores them.
    pub(crate) foreign: Vec<String>,
    /// Entry with the name of a file of the log that is not a file. A server does not start then.
    pub(crate) not_a_file: Option<FileName>,
}

impl DataDirectory {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            // Exists if the directory is the root of a file system.
            if entry.file_name() == "lost+found" {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(file) = FileName::parse(&name) else {
                listing.foreign.push(name);
                continue;
            };
            // The file may have been removed since; skip it.
            let Ok(about) = entry.metadata() else { continue };
            listing.files.push((file, about.len()));
            if !about.is_file() && !about.is_symlink() {
                listing.not_a_file = Some(file);
            }
        }
        listing.files.sort_unstable();
        listing.foreign.sort_unstable();
        Ok(listing)
    }

    /// Returns all bytes of a file. A file that a server may be writing is read from its end to its beginning. Frames are written in order,
    /// so if any part of a frame is read, all frames before it are read completely, as after a crash.
    pub(crate) fn read(&self, file: FileName, is_written: bool) -> Result<Vec<u8>, Damage> {
        let name = file.to_string();
        let path = self.path.join(&name);
        let read = || -> io::Result<Vec<u8>> {
            // Read from the front first, which is fast on disks.
            let mut bytes = std::fs::read(&path)?;
            if is_written {
                let file = File::open(&path)?;
                for (index, block) in bytes.chunks_mut(BLOCK_LEN).enumerate().rev() {
                    file.read_exact_at(block, (index * BLOCK_LEN) as u64)?;
                }
            }
            Ok(bytes)
        };
        read().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Damage::Missing(file),
            _ => Damage::Unreadable { file, reason: error.to_string() },
        })
    }

    /// Returns the first block of a file.
    pub(crate) fn read_block(&self, file: FileName) -> io::Result<[u8; BLOCK_LEN]> {
        let mut block = [0; BLOCK_LEN];
        File::open(self.path.join(file.to_string()))?.read_exact_at(&mut block, 0)?;
        Ok(block)
    }

    /// Returns the description that the server using the directory wrote. Reads the kernel's list of file locks: an attempt to take the
    /// lock could prevent a server from starting.
    pub(crate) fn user(&self) -> Option<String> {
        let path = self.path.join(FileName::Lock.to_string());
        let inode = std::fs::metadata(&path).ok()?.ino().to_string();
        // pid 4711, serving binary=127.0.0.1:7420
        let text = std::fs::read(&path).ok()?;
        let text = crate::text::printable(&text);
        let pid = text.strip_prefix("pid ")?.split(',').next()?;
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 4711 fd:01:393227 0 EOF
        // A file of another file system may have the same inode number, but then another process holds its lock.
        let is_ours = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let place = words.get(5).and_then(|place| place.rsplit(':').next());
            words.get(1) == Some(&"FLOCK") && words.get(4) == Some(&pid) && place == Some(&*inode)
        };
        locks.lines().any(is_ours).then(|| text.clone())
    }
}

#[cfg(test)]
pub(crate) mod in_order {
    //! Checks that a reader of a file that is being written sees no block without the blocks written before it.

    use super::BLOCK_LEN;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One thread writes the blocks of a new file in order, again and again, while this one calls `read`.
    #[track_caller]
    pub(crate) fn assert_read_in_order(
        path: &Path,
        block_count: u64,
        read_count: usize,
        read: impl Fn() -> Vec<u8>,
    ) {
        let file = File::create(path).unwrap();
        file.set_len(block_count * BLOCK_LEN as u64).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1u64.. {
                    for block in 0..block_count {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        file.write_all_at(&round.to_le_bytes(), block * BLOCK_LEN as u64).unwrap();
                    }
                }
            });
            let is_in_order = || {
                let bytes = read();
                let rounds = bytes.chunks_exact(BLOCK_LEN).map(|block| *block.first_chunk().unwrap());
                rounds.map(u64::from_le_bytes).is_sorted_by(|a, b| a >= b)
            };
            let in_order_count = (0..read_count).filter(|_| is_in_order()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(in_order_count, read_count);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::in_order::assert_read_in_order;
    use super::*;

    const BLOCK_COUNT: u64 = 256;
    const READ_COUNT: usize = 500;

    #[test]
    fn a_block_is_never_read_without_the_blocks_written_before_it() {
        let place = tempfile::tempdir().unwrap();
        let name = FileName::Segment(1);
        let directory = DataDirectory::new(place.path());
        let path = place.path().join(name.to_string());
        assert_read_in_order(&path, BLOCK_COUNT, READ_COUNT, || directory.read(name, true).unwrap());
    }
}
