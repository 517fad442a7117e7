//! Contents of a data directory: the files of the log, and the names of all other entries.

use std::collections::BTreeMap;
use std::io;

use crate::FileName;
pub(super) use crate::Temporary;

use super::storage::Storage;

/// The files of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Lengths of the files in bytes.
    files: BTreeMap<FileName, u64>,
    /// Names of other entries, in order.
    foreign: Vec<String>,
    /// First entry that has the name of a log file but is, for example, a directory.
    not_a_file: Option<FileName>,
}

impl Directory {
    /// Lists the directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn list(storage: &dyn Storage) -> io::Result<Self> {
        let mut directory = Self::default();
        for (name, len) in storage.list()? {
            match (FileName::parse(&name), len) {
                (Some(file), Some(len)) => _ = directory.files.insert(file, len),
                (Some(file), None) => _ = directory.not_a_file.get_or_insert(file),
                (None, _) => directory.foreign.push(name),
            }
        }
        directory.foreign.sort_unstable();
        Ok(directory)
    }

    /// Returns the names of entries that do not belong to the log. The server does not touch them.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Returns an entry that has the name of a log file but is, for example, a directory.
    pub fn not_a_file(&self) -> Option<FileName> {
        self.not_a_file
    }

    /// Returns whether the directory contains no log: no file with the name of a log file, except the lock and files
    /// whose creation was not finished.
    pub fn is_fresh(&self) -> bool {
        self.files.keys().all(|file| matches!(file, FileName::Lock | FileName::Temporary(_)))
    }

    /// Returns the length of a file in bytes, if the file exists.
    pub fn len_of(&self, file: FileName) -> Option<u64> {
        self.files.get(&file).copied()
    }

    /// Returns all files that have names of log files.
    pub fn files(&self) -> impl Iterator<Item = FileName> + '_ {
        self.files.keys().copied()
    }

    /// Returns the numbers of all segments in ascending order.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Segment(number) = file { Some(*number) } else { None })
    }

    /// Returns the numbers of all snapshots in ascending order.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Snapshot(number) = file { Some(*number) } else { None })
    }
}
