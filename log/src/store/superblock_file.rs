//! The superblock on disk.

use std::io;

use crate::{Copy, FileName, Superblock};

use super::storage::{SegmentFile, Storage};

/// The superblock and its file.
pub(super) struct SuperblockFile {
    file: Box<dyn SegmentFile>,
    current: Superblock,
    /// Copy that an update writes first. It is the damaged or older one, if the file had one when it was opened. If a
    /// crash interrupts the write, the other copy is intact.
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

    /// Opens the file for updates. `first` is the copy that [`Superblock::decode_file`] returned.
    pub(super) fn open(storage: &dyn Storage, current: Superblock, first: Option<Copy>) -> io::Result<Self> {
        let file = storage.open(&FileName::Superblock.to_string())?;
        Ok(Self { file, current, first: first.unwrap_or(Copy::First) })
    }

    pub(super) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Changes the superblock in both copies, one after the other. The change is durable when this function returns.
    /// After an error the file may contain the old or the new superblock.
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
