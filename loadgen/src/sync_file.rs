//! File that is overwritten in place and synced again and again: the cost of durability alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Size of one write.
const BLOCK_LEN: usize = 4 << 10;
/// Number of blocks in the file; after the last block, writing starts again at the first.
const BLOCK_COUNT: u64 = (64 << 20) / BLOCK_LEN as u64;

/// A file of 64 MiB, removed when it is dropped.
#[derive(Debug)]
pub struct SyncFile {
    file: File,
    path: PathBuf,
    block: Box<[u8; BLOCK_LEN]>,
    written_count: u64,
}

impl SyncFile {
    /// Creates the file with all its blocks on disk. Writes zeros block by block: some file systems keep larger
    /// extents as a unit, and a later write of 4 KiB into such an extent would cost the whole extent.
    pub fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(|| {
            format!("--sync: cannot create {shown}; the file must not exist, and is removed at the end")
        })?;
        let block = Box::new([0; BLOCK_LEN]);
        // From here on the file is removed on errors too, for instance if the disk is too small.
        let sync_file = Self { file, path: path.to_owned(), block, written_count: 0 };
        for index in 0..BLOCK_COUNT {
            let written = sync_file.file.write_all_at(sync_file.block.as_slice(), index * BLOCK_LEN as u64);
            written.with_context(|| format!("--sync: cannot write 64 MiB to {shown}"))?;
        }
        sync_file.file.sync_all().with_context(|| format!("--sync: cannot sync {shown}"))?;
        Ok(sync_file)
    }

    /// Writes the next block; it is on disk when this returns.
    pub fn write_block(&mut self) -> io::Result<()> {
        let index = self.written_count % BLOCK_COUNT;
        self.written_count += 1;
        // All blocks differ, so that no layer can skip a write.
        self.block[..8].copy_from_slice(&self.written_count.to_le_bytes());
        self.file.write_all_at(self.block.as_slice(), index * BLOCK_LEN as u64)?;
        self.file.sync_data()
    }
}

impl Drop for SyncFile {
    fn drop(&mut self) {
        // Another process may have removed the file.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BLOCK_COUNT, BLOCK_LEN, SyncFile};

    #[test]
    fn has_its_full_length_from_the_start_and_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("blocks");
        let mut file = SyncFile::create(&path).expect("made");
        file.written_count = BLOCK_COUNT - 1;
        for _ in 0..2 {
            file.write_block().expect("written");
        }
        let bytes = fs::read(&path).expect("it is there");
        assert_eq!(bytes.len() as u64, BLOCK_COUNT * BLOCK_LEN as u64, "the second wrapped around");
        assert_eq!(bytes[..8], (BLOCK_COUNT + 1).to_le_bytes());
        assert_eq!(bytes[bytes.len() - BLOCK_LEN..][..8], BLOCK_COUNT.to_le_bytes());
        let refused = SyncFile::create(&path).expect_err("an existing file is not overwritten");
        assert!(format!("{refused:#}").contains("must not exist"), "{refused:#}");
        drop(file);
        assert!(!path.exists());
    }
}
