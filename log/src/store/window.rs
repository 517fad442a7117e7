//! Reading of a file from the disk, past the cache of the operating system. A part of the file (the window) is in
//! memory at a time.

#![expect(clippy::disallowed_types, reason = "reads a file")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{BLOCK_LEN, FRAME_LIMIT, FileReader};
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

/// Length of the part of a file that is in memory (the window). It is four times the longest frame, so that most frames
/// are in memory already when the frame before them was read.
const WINDOW_LEN: usize = 4 * FRAME_LIMIT;

/// File that is read past the cache of the operating system (O_DIRECT). Such reads need aligned memory and offsets. If
/// the file system does not support them, the pages of the file are dropped from the cache once. After that, the file
/// is read through the cache.
pub(super) struct Window {
    path: PathBuf,
    file: File,
    is_direct: bool,
    /// Length of the file in bytes.
    pub(super) len: u64,
    memory: Vec<u8>,
    /// Offset in `memory` of its first aligned byte. The loaded bytes of the file begin at this offset.
    memory_start: usize,
    /// Offset in the file of the first byte that is in memory, and the number of bytes that are in memory.
    loaded: (u64, usize),
}

impl Window {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let direct = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path);
        let (file, is_direct) = match direct {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::InvalidInput => (uncached(path)?, false),
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        let memory = vec![0; WINDOW_LEN + BLOCK_LEN];
        let memory_start = memory.as_ptr().align_offset(BLOCK_LEN);
        Ok(Self { path: path.to_owned(), file, is_direct, len, memory, memory_start, loaded: (0, 0) })
    }

    /// Returns `len` bytes from this offset on, or fewer if the file ends before. `len` is at most [`FRAME_LIMIT`].
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn read(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let len = self.len.saturating_sub(offset).min(len as u64) as usize;
        if len == 0 {
            return Ok(&[]);
        }
        let is_loaded =
            |(from, loaded): (u64, usize)| offset >= from && offset + len as u64 <= from + loaded as u64;
        if !is_loaded(self.loaded) {
            self.load(offset)?;
        }
        let start = self.memory_start + (offset - self.loaded.0) as usize;
        self.memory.get(start..start + len).ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    /// Loads a part of the file into memory, from the block that contains `offset` on.
    fn load(&mut self, offset: u64) -> io::Result<()> {
        let from = offset / BLOCK_LEN as u64 * BLOCK_LEN as u64;
        let wanted = (self.len - from).min(WINDOW_LEN as u64) as usize;
        self.loaded = (from, 0);
        while self.loaded.1 < wanted {
            let start = self.memory_start + self.loaded.1;
            let buffer = &mut self.memory[start..self.memory_start + WINDOW_LEN];
            match self.file.read_at(buffer, from + self.loaded.1 as u64) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.loaded.1 += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidInput && self.is_direct => {
                    (self.file, self.is_direct) = (uncached(&self.path)?, false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileReader for Window {
    fn file_len(&self) -> u64 {
        self.len
    }

    fn read_at(&mut self, offset: u64, len: usize) -> Result<&[u8], String> {
        self.read(offset, len).map_err(|error| error.to_string())
    }
}

/// Opens a file and drops its pages from the cache.
fn uncached(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes with a pattern that differs between blocks and between the bytes of a block.
    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / BLOCK_LEN * 7 + at) as u8).collect()
    }

    #[test]
    fn pieces_of_a_file_can_be_read_in_any_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for len in
            [0, 1, BLOCK_LEN, BLOCK_LEN + 1, WINDOW_LEN, 2 * WINDOW_LEN + 3 * BLOCK_LEN, 2 * WINDOW_LEN + 7]
        {
            let bytes = content(len);
            std::fs::write(&path, &bytes).unwrap();
            for is_direct in [true, false] {
                let mut window = Window::open(&path).unwrap();
                if !is_direct {
                    (window.file, window.is_direct) = (uncached(&path).unwrap(), false);
                }
                let forwards: Vec<_> = (0..=len + BLOCK_LEN).step_by(BLOCK_LEN * 13).collect();
                for &offset in forwards.iter().chain(forwards.iter().rev()) {
                    for piece_len in [0, 1, BLOCK_LEN, FRAME_LIMIT] {
                        let end = (offset + piece_len).min(len);
                        let expected = bytes.get(offset..end).unwrap_or_default();
                        assert!(
                            window.read(offset as u64, piece_len).unwrap() == expected,
                            "{offset} of {len}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, content(3 * BLOCK_LEN)).unwrap();
        let mut window = Window::open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(BLOCK_LEN as u64).unwrap();
        assert!(window.read(0, FRAME_LIMIT).is_err());
    }
}
