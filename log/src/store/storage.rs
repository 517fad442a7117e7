//! Operations on a directory that the log needs. Each call is one step, which can fail, and after which the server can
//! crash.

use crate::FileReader;
use std::io;

/// Directory with files. The functions say which of their changes are durable when they return. A crash may lose any of
/// the other changes. For example, it may lose an earlier change and keep a later one.
pub trait Storage: std::fmt::Debug + Send + Sync {
    /// Returns the names of all entries, with the lengths of files in bytes. `None` stands for an entry that is not a
    /// file, such as a directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>>;

    /// Returns all bytes of a file. As far as the file system allows, they are read from the disk instead of the cache
    /// of the operating system.
    ///
    /// # Errors
    /// If any byte cannot be read.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Returns a reader that reads a file from the disk, piece by piece. The default implementation reads the whole
    /// file at once.
    ///
    /// # Errors
    /// If the file cannot be opened.
    fn reader(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        Ok(Box::new(self.read(name)?))
    }

    /// Creates a file of `len` zeros, for which the disk reserves room if the file system can do so. The contents are
    /// durable when the function returns, but the name is not: that needs [`sync_directory`](Self::sync_directory). If
    /// the call fails, an incomplete file may exist.
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

    /// Opens a segment that [`make_zeroed`](Self::make_zeroed) created, or a copy of one, to append frames.
    ///
    /// # Errors
    /// If the file does not exist or cannot be written.
    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Renames a file. A file that already has the new name is replaced. If a crash follows, the file has either the
    /// old or the new name.
    ///
    /// # Errors
    /// If that is not possible.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If that is not possible.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of all files durable that were created, renamed or removed before.
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

    /// Makes all written bytes durable. If a sync fails, it is unknown which bytes are durable, and the success of a
    /// later sync does not change that.
    ///
    /// # Errors
    /// If the disk reports a failure.
    fn sync(&mut self) -> io::Result<()>;
}

/// Whether this error means that the disk had no room: the disk or a quota is full, or the file would exceed a limit on
/// its length.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
