//! Files that a command replaces in one step, and files that it reads.
//!
//! A changed file is written beside the old one and renamed over it, so that a server reads the old or the new content. The temporary file
//! has a random name: a file that an interrupted command left is no obstacle.

use std::fs::{self, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tempfile::{Builder, NamedTempFile};

/// Returns the file or directory that a path names, without links, so that a replacement does not replace a link. Returns the path itself
/// if nothing is there. Fails for a link to a missing file.
pub(crate) fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => Err(unusable("this is a link to a missing file")),
            _ => Ok(path.to_owned()),
        },
        resolved => resolved,
    }
}

/// Opens a file. Fails if it is not a regular file: the opening of a FIFO waits for its other end, and that of a device can have effects.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(metadata) => check_regular(&metadata)?,
        // The options may create the file.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Another file can have this name by now.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file to read it.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(unusable(&format!("the file is {}, not a regular file", name(kind))))
}

fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Returns an error that another path would avoid; [`is_unusable`] recognizes it.
fn unusable(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, problem)
}

/// Returns true if the path is wrong, and false after a failure of the system.
pub(crate) fn is_unusable(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidInput && error.raw_os_error().is_none()
}

/// Writes a temporary file. It has `mode` less the file mode creation mask, and a name that no server reads.
pub(crate) fn written(directory: &Path, text: &str, mode: u32) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(".waymaker-").suffix(".new").permissions(Permissions::from_mode(mode));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Writes a file that must not exist yet. If another file has the name, the error is [`ErrorKind::AlreadyExists`].
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let directory = Directory::of(path)?;
    written(directory_of(path), text, mode)?.persist_noclobber(path).map_err(|error| error.error)?;
    directory.sync()
}

/// Replaces the file with these metadata by one with the same mode and the same owner. The path must not be a link.
pub(crate) fn replace(path: &Path, old: &Metadata, text: &str) -> io::Result<()> {
    let directory = Directory::of(path)?;
    let new = written(directory_of(path), text, 0o600)?;
    let made = new.as_file().metadata()?;
    if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
        let changed = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
        // The user of the server must be able to read the new file if it could read the old one.
        if old.mode() & 0o004 == 0 {
            changed?;
        }
    }
    new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    directory.sync()
}

/// A directory in which names change. It is opened before a change, so that a directory that cannot be read refuses the change.
#[derive(Debug)]
pub(crate) struct Directory(File);

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Opens the directory of a file.
    pub(crate) fn of(file: &Path) -> io::Result<Self> {
        Self::open(directory_of(file))
    }

    /// Makes new and removed names durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Returns the directory of a file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
