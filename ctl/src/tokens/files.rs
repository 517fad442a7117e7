//! Finds, reads and changes token files.
//!
//! `crate::files` replaces a changed file in one step. The old file is locked meanwhile. Comments and the order of tables stay.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use toml_edit::DocumentMut;
use waymaker_access::{
    RecordProblem, TokenFileError, TokenId, TokenRecord, TokenTable, is_token_file, limits, parse_token_file,
    token_table_text,
};

use crate::exit::Exit;
use crate::files::{Directory, is_unusable, open, open_to_read, replace, resolved, write_new};

/// Permissions of a new token file.
const MODE: u32 = 0o600;

/// A token file or a directory of them could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The file or the directory cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file cannot be written. Its content has not changed.
    #[error("{} cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    /// The content is wrong.
    #[error(transparent)]
    Invalid(#[from] TokenFileError),
    /// The command line gives a record that no file may have.
    #[error(transparent)]
    Record(#[from] RecordProblem),
    /// The tokens are an inline array.
    #[error("{}: write each token as a table that begins with [[token]]; other forms cannot be changed", path.display())]
    Inline { path: PathBuf },
    /// The system has no random bytes.
    #[error("the system has no random bytes: {0}")]
    NoRandomness(String),
}

impl Failure {
    /// Whether the file is missing.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } | Self::Unwritable { source, .. } if source.kind() == ErrorKind::NotFound)
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable { source, .. } if is_unusable(source) => {
                Exit::Usage
            }
            Self::Unreadable { .. } | Self::Unwritable { .. } | Self::NoRandomness(_) => Exit::Internal,
            Self::Invalid(_) | Self::Record(_) | Self::Inline { .. } => Exit::Usage,
        }
    }
}

/// The token files at a path.
pub(crate) enum TokenFiles {
    /// One file, which may be missing.
    One(PathBuf),
    /// The files `*.toml` of a directory.
    Directory(PathBuf),
}

impl TokenFiles {
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let resolved =
            resolved(path).map_err(|source| Failure::Unreadable { path: path.to_owned(), source })?;
        Ok(if resolved.is_dir() { Self::Directory(resolved) } else { Self::One(resolved) })
    }

    /// Reads all tokens.
    pub(crate) fn read(&self) -> Result<TokenTable, Failure> {
        self.files()?.iter().try_fold(TokenTable::default(), |table, file| {
            Ok(table.with_file(&file.display().to_string(), &content(file)?)?)
        })
    }

    /// Adds a record. Returns the file that has it now.
    pub(crate) fn add(&self, record: &TokenRecord) -> Result<PathBuf, Failure> {
        let table = token_table_text(record);
        match self {
            Self::One(path) => {
                let old = Locked::open(path, OpenOptions::new().create(true).mode(MODE))?;
                let mut text = old.text()?;
                if !text.is_empty() {
                    text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
                }
                text.push_str(&table);
                old.replace(&text)?;
                Ok(path.clone())
            }
            Self::Directory(directory) => {
                let path = directory.join(format!("{}.toml", record.id));
                let unwritable = |source| Failure::Unwritable { path: path.clone(), source };
                write_new(&path, &table, MODE).map_err(unwritable)?;
                Ok(path)
            }
        }
    }

    /// Removes the record with this id. Returns the file that had it, or `None` if there is no such record.
    pub(crate) fn remove(&self, id: TokenId) -> Result<Option<PathBuf>, Failure> {
        for path in self.files()? {
            let has_it = |bytes: &[u8]| {
                let records = parse_token_file(&path.display().to_string(), bytes)?;
                Ok::<_, TokenFileError>((records.len(), records.iter().any(|record| record.id == id)))
            };
            match self.remove_from(&path, id, has_it) {
                Ok(false) => {}
                Ok(true) => return Ok(Some(path)),
                // Another process has revoked the last token of this file.
                Err(failure) if matches!(self, Self::Directory(_)) && failure.is_absence() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Removes the record with this id from a file. Returns whether the file had it.
    fn remove_from(
        &self,
        path: &Path,
        id: TokenId,
        has_it: impl Fn(&[u8]) -> Result<(usize, bool), TokenFileError>,
    ) -> Result<bool, Failure> {
        if !has_it(&content(path)?)?.1 {
            return Ok(false);
        }
        // A file of a directory can be a link to a file elsewhere.
        let target =
            resolved(path).map_err(|source| Failure::Unreadable { path: path.to_owned(), source })?;
        let old = Locked::open(&target, &mut OpenOptions::new())?;
        let text = old.text()?;
        match (self, has_it(text.as_bytes())?) {
            // Another process has removed the record.
            (_, (_, false)) => return Ok(false),
            (Self::Directory(_), (1, true)) => delete(path)?,
            _ => old.replace(&without(path, &text, id)?)?,
        }
        Ok(true)
    }

    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let directory = match self {
            Self::One(path) => return Ok(vec![path.clone()]),
            Self::Directory(directory) => directory,
        };
        let unreadable = |source| Failure::Unreadable { path: directory.clone(), source };
        let entries = fs::read_dir(directory).map_err(unreadable)?;
        let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths.map_err(unreadable)?;
        paths.retain(|path| is_token_file(path));
        paths.sort();
        Ok(paths)
    }
}

/// Returns the text without the table of this token.
fn without(path: &Path, text: &str, id: TokenId) -> Result<String, Failure> {
    let inline = || Failure::Inline { path: path.to_owned() };
    // The text was parsed before, so only a form that this function cannot change is left.
    let mut document: DocumentMut = text.parse().map_err(|_| inline())?;
    let tables =
        document.get_mut("token").and_then(|item| item.as_array_of_tables_mut()).ok_or_else(inline)?;
    let id = id.to_string();
    tables.retain(|table| table.get("id").and_then(|item| item.as_str()) != Some(&id));
    Ok(document.to_string())
}

/// Returns the content of a file. If the file is too large, the content is cut just above the limit.
fn content(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |source| Failure::Unreadable { path: path.to_owned(), source };
    read_bounded(&open_to_read(path).map_err(unreadable)?).map_err(unreadable)
}

fn read_bounded(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limits::FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A token file that no other waymaker-ctl changes meanwhile.
struct Locked<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Locked<'a> {
    /// Opens and locks a file. Waits while another process has the lock.
    fn open(path: &'a Path, options: &mut OpenOptions) -> Result<Self, Failure> {
        let unwritable = |source| Failure::Unwritable { path: path.to_owned(), source };
        loop {
            let file = open(path, options.read(true).write(true)).map_err(unwritable)?;
            file.lock().map_err(unwritable)?;
            let locked = file.metadata().map_err(unwritable)?;
            // The process that had the lock has replaced or deleted the file.
            match fs::metadata(path) {
                Ok(current) if (current.dev(), current.ino()) == (locked.dev(), locked.ino()) => {
                    return Ok(Self { path, file });
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(unwritable(error)),
                _ => {}
            }
        }
    }

    /// Returns the content, which must be a valid token file.
    fn text(&self) -> Result<String, Failure> {
        let unreadable = |source| Failure::Unreadable { path: self.path.to_owned(), source };
        let bytes = read_bounded(&self.file).map_err(unreadable)?;
        parse_token_file(&self.path.display().to_string(), &bytes)?;
        String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(ErrorKind::InvalidData, error)))
    }

    /// Replaces the file by one with this content, the same mode and the same owner.
    fn replace(&self, text: &str) -> Result<(), Failure> {
        // The text may be too long now, or the old one may have another form of the tables.
        TokenTable::default().with_file(&self.path.display().to_string(), text.as_bytes())?;
        let replaced = self.file.metadata().and_then(|old| replace(self.path, &old, text));
        replaced.map_err(|source| Failure::Unwritable { path: self.path.to_owned(), source })
    }
}

fn delete(path: &Path) -> Result<(), Failure> {
    let removed = Directory::of(path).and_then(|directory| {
        fs::remove_file(path)?;
        directory.sync()
    });
    removed.map_err(|source| Failure::Unwritable { path: path.to_owned(), source })
}
