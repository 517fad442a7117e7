//! What the log asks of a directory. Each call is one step that can fail, or be the last before a crash.

use std::io;
use waymaker_engine::log::FileReader;

/// A directory with files. What is not said to be durable may be lost in a crash, in any order and in parts.
pub trait Storage: std::fmt::Debug + Send + Sync {
    /// The names of all entries, with the lengths of files in bytes. `None` stands for an entry that is not a file, such as a directory.
    ///
    /// # Errors
    /// If the directory cannot be read, or a name is no text (`InvalidData`).
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>>;

    /// All bytes of a file as the disk has them, not as they may stand in a cache.
    ///
    /// # Errors
    /// If any byte cannot be read.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The same, piece by piece.
    ///
    /// # Errors
    /// If the file cannot be opened.
    fn reader(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        Ok(Box::new(self.read(name)?))
    }

    /// Makes a file of `len` zeros for which the disk has room set aside; it is durable but for its name. If that
    /// fails there may be a part of the file.
    ///
    /// # Errors
    /// If it cannot be made; [`is_no_space`] tells a full disk.
    fn make_zeroed(&self, name: &str, len: u64) -> io::Result<()>;

    /// Makes an empty file, or empties one.
    ///
    /// # Errors
    /// If that is not possible.
    fn create(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Opens a file to change it in place.
    ///
    /// # Errors
    /// If it is not there or must not be written.
    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Opens a segment that [`make_zeroed`](Self::make_zeroed) made, to append frames.
    ///
    /// # Errors
    /// If it is not there or must not be written.
    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>>;

    /// Renames a file over whatever has the new name. One of both names is there after a crash.
    ///
    /// # Errors
    /// If that is not possible.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If that is not possible.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable: what was created, renamed and removed.
    ///
    /// # Errors
    /// If the disk says so.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file that is open for writing.
pub trait SegmentFile: Send {
    /// Writes bytes at this offset.
    ///
    /// # Errors
    /// If they cannot be written. That they can promises nothing before a [`sync`](Self::sync).
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything durable that was written. After a failure nothing may be believed of it, and another call
    /// proves nothing.
    ///
    /// # Errors
    /// If the disk says so.
    fn sync(&mut self) -> io::Result<()>;
}

/// Whether this error says that the disk, or a quota on it, is full.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
