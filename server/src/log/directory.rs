//! What lies in a data directory, by name.

use std::collections::BTreeMap;
use std::io;

use waymaker_engine::log::FileName;
pub(super) use waymaker_engine::log::Temporary;

use super::storage::Storage;

/// The files of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Lengths in bytes.
    files: BTreeMap<FileName, u64>,
    /// Names of other entries, in order.
    foreign: Vec<String>,
    /// An entry that has the name of a file of the log and is not a file.
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

    /// Returns the names of entries that are no part of the log. They are left alone.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Returns an entry that has the name of a file of the log and is not a file.
    pub fn not_a_file(&self) -> Option<FileName> {
        self.not_a_file
    }

    /// Whether nothing was ever kept here.
    pub fn is_fresh(&self) -> bool {
        self.files.keys().all(|file| matches!(file, FileName::Lock | FileName::Temporary(_)))
    }

    /// The length of a file in bytes, if it is there.
    pub fn len_of(&self, file: FileName) -> Option<u64> {
        self.files.get(&file).copied()
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = FileName> + '_ {
        self.files.keys().copied()
    }

    /// The numbers of all segments, rising.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Segment(number) = file { Some(*number) } else { None })
    }

    /// The numbers of all snapshots, rising.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Snapshot(number) = file { Some(*number) } else { None })
    }
}
