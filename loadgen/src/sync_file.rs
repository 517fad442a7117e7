//! A file that is written to and synced again and again, in place: what durability alone costs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What is written at once.
const BLOCK_LEN: usize = 4 << 10;
/// Blocks of the file; then it begins again.
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
    /// Makes it, with all its blocks on disk. Zeroed block by block: where the file system keeps larger pieces of a file
    /// as one, a write of 4 KiB into such a piece later costs all of it.
    pub fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = OpenOptions::new().write(true).create_new(true).open(path).with_context(|| {
            format!(
                "--sync {shown}: cannot make the file; it must not be there yet, and is removed at the end"
            )
        })?;
        let block = Box::new([0; BLOCK_LEN]);
        // From here on it is removed, also where the disk is too small for it.
        let sync_file = Self { file, path: path.to_owned(), block, written_count: 0 };
        for index in 0..BLOCK_COUNT {
            let written = sync_file.file.write_all_at(sync_file.block.as_slice(), index * BLOCK_LEN as u64);
            written.with_context(|| format!("--sync {shown}: cannot fill 64 MiB"))?;
        }
        sync_file.file.sync_all().with_context(|| format!("--sync {shown}: cannot sync"))?;
        Ok(sync_file)
    }

    /// Writes the next block; it is on disk when this returns.
    pub fn write_block(&mut self) -> io::Result<()> {
        let index = self.written_count % BLOCK_COUNT;
        self.written_count += 1;
        // No two blocks are the same, so that nobody on the way can leave one out.
        self.block[..8].copy_from_slice(&self.written_count.to_le_bytes());
        self.file.write_all_at(self.block.as_slice(), index * BLOCK_LEN as u64)?;
        self.file.sync_data()
    }
}

impl Drop for SyncFile {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BLOCK_COUNT, BLOCK_LEN, SyncFile};

    #[test]
    fn it_has_its_full_length_from_the_start_and_leaves_nothing() {
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
        let refused = SyncFile::create(&path).expect_err("what is there is not overwritten");
        assert!(format!("{refused:#}").contains("must not be there"), "{refused:#}");
        drop(file);
        assert!(!path.exists());
    }
}
