//! The operations of a directory that the log needs. Each call is one step that can fail, or that can be the last
//! before a crash.

use crate::FileReader;
use std::io;

/// A directory with files. Changes that are not documented as durable may be lost in a crash, in any order and in
/// parts.
pub trait Storage: std::fmt::Debug + Send + Sync {
    /// Returns the names of all entries, with the lengths of files in bytes. `None` stands for an entry that is not a
    /// file, such as a directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>>;

    /// Returns all bytes of a file as they are on the disk, not from a cache.
    ///
    /// # Errors
    /// If any byte cannot be read.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Returns a reader for the bytes of a file on the disk, piece by piece.
    ///
    /// # Errors
    /// If the file cannot be opened.
    fn reader(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        Ok(Box::new(self.read(name)?))
    }

    /// Creates a file of `len` zeros with reserved room on the disk. The file is durable except for its name. After a
    /// failure, a part of the file may exist.
    ///
    /// # Errors
    /// If the file cannot be created; [`is_no_space`] recognizes a full disk.
    fn make_zeroed(&self, name: &str, len: u64) -> io::Result<()>;

    /// Creates an empty file, or truncates an existing one.
    ///
    /// # Errors
    /// If that is not possible.
    fn create(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Opens a file to change it in place.
    ///
    /// # Errors
    /// If the file does not exist or cannot be written.
    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Opens a segment that [`make_zeroed`](Self::make_zeroed) created, to append frames.
    ///
    /// # Errors
    /// If the file does not exist or cannot be written.
    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Renames a file, and replaces any file with the new name. After a crash the file has one of both names.
    ///
    /// # Errors
    /// If that is not possible.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If that is not possible.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable: all files that were created, renamed or removed.
    ///
    /// # Errors
    /// If the disk reports a failure.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file that is open for writing.
pub trait SegmentFile: Send {
    /// Writes bytes at this offset.
    ///
    /// # Errors
    /// If the bytes cannot be written. A success promises nothing before a [`sync`](Self::sync).
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all written bytes durable. After a failure their state is unknown, and the success of another call
    /// proves nothing.
    ///
    /// # Errors
    /// If the disk reports a failure.
    fn sync(&mut self) -> io::Result<()>;
}

/// Returns whether this error means that there is no room: the disk or a quota on it is full, or the limit for the
/// length of files is reached.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
