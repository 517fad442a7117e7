//! Two outputs of the audit thread: a stream, and a file that another program may rotate.

use crate::file_identity::FileIdentity;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Permissions of a new file: only the server's user may read and write it.
const FILE_MODE: u32 = 0o600;

/// The file of the audit log.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    /// Whether the open file ends, or may end, in the middle of a line.
    is_torn: bool,
}

impl AuditFile {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let is_torn = is_torn(&file, path);
        Ok(Self { path: path.to_owned(), file, is_torn })
    }

    /// Writes whole lines. First reopens the file if its path no longer names it, or if `wants_reopen` is set.
    pub(super) fn write(&mut self, lines: &str, wants_reopen: bool) -> io::Result<()> {
        if wants_reopen || self.was_moved()? {
            self.file = open(&self.path)?;
            self.is_torn = is_torn(&self.file, &self.path);
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.is_torn = !lines.is_empty();
        self.file.write_all(lines.as_bytes())?;
        self.is_torn = false;
        Ok(())
    }

    /// Returns whether the path names no file, or another file than the open one.
    fn was_moved(&self) -> io::Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok(FileIdentity::from(&there) != FileIdentity::from(&self.file.metadata()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
}

/// Returns whether a file ends in the middle of a line; false if its end cannot be read. A crash or a failed write may
/// have left it so.
fn is_torn(file: &File, path: &Path) -> bool {
    // A pipe or a device has no end to read.
    let len = file.metadata().ok().filter(Metadata::is_file).map_or(0, |metadata| metadata.len());
    let mut last = [b'\n'];
    // `file` is open for writing only. If the path cannot be read, the next line may join a torn one, but is not lost.
    len > 0
        && File::open(path).is_ok_and(|file| file.read_exact_at(&mut last, len - 1).is_ok())
        && last != [b'\n']
}

/// Writes lines to a stream of the process.
pub(super) fn write_stream(mut stream: impl Write, lines: &str) -> io::Result<()> {
    stream.write_all(lines.as_bytes())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_to_string, remove_file, rename};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_file_that_was_moved_or_removed_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let mut file = AuditFile::open(&path).unwrap();
        file.write("a\n", false).unwrap();
        rename(&path, &moved).unwrap();
        file.write("b\n", false).unwrap();
        assert_eq!(
            (read_to_string(&moved).unwrap(), read_to_string(&path).unwrap()),
            ("a\n".into(), "b\n".into())
        );
        remove_file(&path).unwrap();
        file.write("c\n", false).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "c\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
    }

    #[test]
    fn an_existing_file_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        AuditFile::open(&path).unwrap().write("a\n", false).unwrap();
        AuditFile::open(&path).unwrap().write("b\n", true).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_line_after_a_failed_write_begins_on_a_line_of_its_own() {
        for wants_reopen in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit");
            let mut file = AuditFile::open(&path).unwrap();
            file.write("half", false).unwrap();
            file.is_torn = true;
            file.write("whole\n", wants_reopen).unwrap();
            assert_eq!(read_to_string(&path).unwrap(), "half\nwhole\n");
        }
    }

    #[test]
    fn a_line_after_a_crash_begins_on_a_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::fs::write(&path, "a\nhalf").unwrap();
        AuditFile::open(&path).unwrap().write("whole\n", false).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "a\nhalf\nwhole\n");
    }
}
