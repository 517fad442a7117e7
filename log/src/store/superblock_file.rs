//! The superblock on disk.

use std::io;

use crate::{Copy, FileName, Superblock};

use super::storage::{SegmentFile, Storage};

/// The superblock and its file.
pub(super) struct SuperblockFile {
    file: Box<dyn SegmentFile>,
    current: Superblock,
    /// Copy of the superblock that each update writes first. If one copy was damaged or older when the file was opened,
    /// it is that one. So if a crash interrupts the first write, the other copy is intact.
    first: Copy,
}

impl SuperblockFile {
    /// Creates the file of a new log.
    pub(super) fn create(storage: &dyn Storage, superblock: &Superblock) -> io::Result<()> {
        let temporary = FileName::Temporary(super::directory::Temporary::Superblock).to_string();
        let mut file = storage.create(&temporary)?;
        let copy = superblock.encode();
        file.write_at(0, &[copy, copy].concat())?;
        file.sync()?;
        storage.rename(&temporary, &FileName::Superblock.to_string())?;
        storage.sync_directory()
    }

    /// Opens the file of the superblock for updates. `first` is the copy to write first, as returned by
    /// [`Superblock::decode_file`].
    pub(super) fn open(storage: &dyn Storage, current: Superblock, first: Option<Copy>) -> io::Result<Self> {
        let file = storage.open(&FileName::Superblock.to_string())?;
        Ok(Self { file, current, first: first.unwrap_or(Copy::First) })
    }

    pub(super) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Changes the superblock in both copies, one after the other. When this function returns without an error, the
    /// change is durable. After an error, at least one copy in the file is intact: the old or the new superblock.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut Superblock)) -> io::Result<()> {
        let mut next = self.current;
        change(&mut next);
        next.sequence += 1;
        let bytes = next.encode();
        for copy in [self.first, self.first.other()] {
            self.file.write_at(copy.offset(), &bytes)?;
            self.file.sync()?;
        }
        self.current = next;
        Ok(())
    }
}
